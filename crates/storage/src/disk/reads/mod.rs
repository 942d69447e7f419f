//! Asynchronous reads.
//!
//! A [`ReadQueue`] belongs to one thread, which prepares reads, submits them together ([`ReadQueue::submit`])
//! and takes the results ([`ReadQueue::take`]). In between it may sleep until [`ReadQueue::descriptor`] is
//! readable.
//!
//! * `ring`: the kernel reads (io_uring); no thread is woken.
//! * `threads`: a thread pool, for kernels that forbid io_uring, or for comparison.

mod ring;
mod threads;

use super::DiskFile;
use super::span::{ReadBuf, Span};
use ring::Ring;
pub(crate) use threads::ReadThreads;
use threads::ThreadQueue;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Maximum number of reads of one queue at the disk at the same time: a few more than it takes to keep a disk
/// busy. Further reads wait in the caller's queue.
pub(crate) const DEPTH_MAX: usize = 128;

/// The drivers of asynchronous reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadDriver {
    /// The kernel's io_uring.
    Ring,
    /// A pool of threads.
    Threads,
}

impl ReadDriver {
    /// Checks that this process can use a ring.
    ///
    /// # Errors
    /// The error of the kernel, if it cannot.
    pub fn probe_ring() -> io::Result<()> {
        Ring::new().map(drop)
    }

    /// Returns the name of the driver in the configuration and the figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ring => "io_uring",
            Self::Threads => "threads",
        }
    }
}

/// A read to execute.
pub(super) struct Job {
    /// The caller's tag for the read.
    token: u32,
    file: Arc<dyn DiskFile>,
    span: Span,
    buf: ReadBuf,
}

/// An ended read. The buffer has the wanted bytes, or fewer at the end of the file.
pub(crate) struct Done {
    pub(crate) token: u32,
    pub(crate) buf: ReadBuf,
    pub(crate) result: io::Result<()>,
}

impl Job {
    fn done(mut self, read: io::Result<usize>) -> Done {
        let result = read.map(|read| self.span.cut(&mut self.buf, read));
        Done { token: self.token, buf: self.buf, result }
    }

    /// Executes the read in this thread.
    fn read(mut self) -> Done {
        let read = self.file.read_at(self.span.room(&mut self.buf), self.span.first);
        self.done(read)
    }
}

/// Reads that one thread has begun.
pub(crate) struct ReadQueue {
    driver: Driver,
    /// Reads that ended immediately.
    ended: Vec<Done>,
    underway: usize,
}

enum Driver {
    Ring(Box<Ring>),
    Threads(ThreadQueue),
}

impl ReadQueue {
    /// Creates a queue for this thread.
    ///
    /// # Errors
    /// The error of the system when it has no ring or no descriptor.
    pub(crate) fn new(driver: ReadDriver, threads: &Arc<ReadThreads>) -> io::Result<Self> {
        let driver = match driver {
            ReadDriver::Ring => Driver::Ring(Box::new(Ring::new()?)),
            ReadDriver::Threads => Driver::Threads(ThreadQueue::new(threads)?),
        };
        Ok(ReadQueue { driver, ended: Vec::new(), underway: 0 })
    }

    /// Returns a descriptor that is readable when [`Self::submit`] or [`Self::take`] has work.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.driver {
            Driver::Ring(ring) => ring.descriptor(),
            Driver::Threads(threads) => threads.descriptor(),
        }
    }

    /// Returns how many more reads may begin.
    pub(crate) fn room(&self) -> usize {
        DEPTH_MAX.saturating_sub(self.underway)
    }

    /// Returns the number of reads that have begun and were not taken.
    pub(crate) fn underway(&self) -> usize {
        self.underway
    }

    /// Begins a read of `len` bytes at `offset` with the next [`ReadQueue::submit`]. There must be room.
    pub(crate) fn begin(
        &mut self,
        token: u32,
        file: Arc<dyn DiskFile>,
        offset: u64,
        len: usize,
        buf: ReadBuf,
    ) {
        debug_assert!(self.room() > 0, "more reads than the queue has room for");
        self.underway += 1;
        let span = Span::of(&*file, offset, len);
        let job = Job { token, file, span, buf };
        match &mut self.driver {
            Driver::Threads(threads) => threads.begin(job),
            // A disk without descriptors is in memory.
            Driver::Ring(_) if job.file.descriptor().is_none() => self.ended.push(job.read()),
            Driver::Ring(ring) => {
                if let Err(job) = ring.begin(job) {
                    self.ended.push(job.read());
                }
            }
        }
    }

    /// Submits the begun reads, in one system call if there are any, and collects ended ones. Returns `false`
    /// if this has to be repeated soon.
    pub(crate) fn submit(&mut self) -> bool {
        match &mut self.driver {
            Driver::Ring(ring) => ring.submit(),
            Driver::Threads(threads) => {
                threads.submit();
                true
            }
        }
    }

    /// Moves all ended reads to `into`. Returns true if there is something to submit again, because of a
    /// short read.
    pub(crate) fn take(&mut self, into: &mut Vec<Done>) -> bool {
        let before = into.len();
        into.append(&mut self.ended);
        let is_continued = match &mut self.driver {
            Driver::Ring(ring) => ring.take(into),
            Driver::Threads(threads) => {
                threads.take(into);
                false
            }
        };
        self.underway -= into.len() - before;
        is_continued
    }
}

#[cfg(test)]
mod tests;
