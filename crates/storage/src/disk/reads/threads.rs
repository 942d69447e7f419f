//! Asynchronous reads by threads, for kernels without io_uring.
//!
//! There are many threads, because a disk is fast only with many requests in flight. They start on first use,
//! and all queues share them.

use super::{Done, Job};
use parking_lot::{Condvar, Mutex};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;

/// Maximum number of threads, each with one read at a time.
const THREADS_MAX: usize = 64;

/// The threads. They end when this is dropped, which does not wait for them.
#[derive(Default)]
pub(crate) struct ReadThreads(Arc<Pool>);

#[derive(Default)]
struct Pool {
    work: Mutex<Work>,
    called: Condvar,
}

#[derive(Default)]
struct Work {
    jobs: VecDeque<(Job, Arc<Tray>)>,
    threads: usize,
    /// Number of threads that wait for work.
    idle: usize,
    ends: bool,
}

/// Completed reads of one queue.
struct Tray {
    done: Mutex<Vec<Done>>,
    /// Readable while there may be completed reads.
    wake: OwnedFd,
}

impl Drop for ReadThreads {
    fn drop(&mut self) {
        let mut work = self.0.work.lock();
        work.ends = true;
        work.jobs.clear();
        self.0.called.notify_all();
    }
}

impl ReadThreads {
    fn hand_over(&self, jobs: &mut Vec<Job>, tray: &Arc<Tray>) {
        let mut work = self.0.work.lock();
        for job in jobs.drain(..) {
            work.jobs.push_back((job, Arc::clone(tray)));
            // A notified thread counts as idle until it has taken its read.
            if work.jobs.len() <= work.idle {
                self.0.called.notify_one();
            } else if work.threads < THREADS_MAX {
                self.spawn(&mut work);
            }
        }
    }

    /// Starts a thread. On failure the existing ones take longer; without any, this thread does the work.
    fn spawn(&self, work: &mut Work) {
        let pool = Arc::clone(&self.0);
        let builder = thread::Builder::new().name("reader".into()).stack_size(256 << 10);
        match builder.spawn(move || pool.run()) {
            Ok(_) => work.threads += 1,
            Err(_) if work.threads == 0 => {
                work.jobs.drain(..).for_each(|(job, tray)| tray.put(job.read()));
            }
            Err(_) => {}
        }
    }
}

impl Pool {
    fn run(&self) {
        while let Some((job, tray)) = self.next() {
            tray.put(job.read());
        }
    }

    /// Waits for the next read and returns it; `None` at the end.
    fn next(&self) -> Option<(Job, Arc<Tray>)> {
        let mut work = self.work.lock();
        loop {
            if work.ends {
                work.threads -= 1;
                return None;
            }
            if let Some(next) = work.jobs.pop_front() {
                return Some(next);
            }
            work.idle += 1;
            self.called.wait(&mut work);
            work.idle -= 1;
        }
    }
}

impl Tray {
    fn put(&self, done: Done) {
        let mut all = self.done.lock();
        all.push(done);
        if all.len() == 1 {
            // The counter cannot overflow: it is reset when the tray is emptied.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }
}

/// Reads that one thread has passed to the pool.
pub(super) struct ThreadQueue {
    pool: Arc<ReadThreads>,
    tray: Arc<Tray>,
    queued: Vec<Job>,
}

impl ThreadQueue {
    pub(super) fn new(pool: &Arc<ReadThreads>) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let tray = Arc::new(Tray { done: Mutex::default(), wake });
        Ok(ThreadQueue { pool: Arc::clone(pool), tray, queued: Vec::new() })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.tray.wake.as_fd()
    }

    pub(super) fn begin(&mut self, job: Job) {
        self.queued.push(job);
    }

    pub(super) fn submit(&mut self) {
        if !self.queued.is_empty() {
            self.pool.hand_over(&mut self.queued, &self.tray);
        }
    }

    pub(super) fn take(&mut self, into: &mut Vec<Done>) {
        let mut done = self.tray.done.lock();
        if !done.is_empty() {
            into.append(&mut done);
            // Reset it under the lock, or the next notification could be lost.
            let _ = rustix::io::read(&self.tray.wake, &mut [0u8; 8]);
        }
    }
}
