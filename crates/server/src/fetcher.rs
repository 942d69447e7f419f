//! Reads spilled values that sessions wait for, while the worker serves others.
//!
//! Each worker has its own [`Fetcher`]. Sessions register the values that they need; at the end of the turn all of
//! these reads are submitted to the disk at once. Values that have been read go into memory, and a session that has all
//! its values is called again. `tierce_storage` decides whether the kernel or threads read.
//!
//! While memory is short no new read begins, because each needs memory. This lasts only for `PATIENCE_MS`, or readers
//! would starve behind writers.

use std::os::fd::BorrowedFd;

use tierce_net::{ConnKey, Conns, Flow, Io, NextTurn, Now};
use tierce_storage::ColdReads;
use tierce_storage::disk::ReadDriver;

use crate::fetch::PendingRead;
use crate::kernel::Kernel;
use crate::suspend::suspend;
use crate::waiting::{Obstacle, Patience, Waits};

/// Maximum time for which reads are deferred while memory is short.
const PATIENCE_MS: u64 = 20;

/// Reads of one worker.
#[derive(Default)]
pub struct Fetcher {
    /// Created with the first read.
    reads: Option<ColdReads<Read>>,
    groups: Vec<Group>,
    free: Vec<usize>,
    /// Time since which reads are deferred.
    held_since_ms: Option<u64>,
}

/// Value to read, with the connection that waits for it.
struct Read {
    pending: PendingRead,
    group: usize,
}

/// Session with the number of values that it waits for.
struct Group {
    conn: ConnKey,
    left: usize,
}

impl Fetcher {
    /// Registers reads, after which the session is called again. Returns the flow with which it continues.
    pub fn fetch(
        &mut self,
        kernel: &Kernel,
        waits: &mut Waits,
        io: &mut Io<'_>,
        pending_reads: Vec<PendingRead>,
    ) -> Flow {
        let Some(reads) = begin(&mut self.reads, kernel) else {
            // Then the worker reads by itself.
            waits.give_up_fetching();
            return Flow::Yield;
        };
        let new = Group { conn: io.info().key, left: pending_reads.len() };
        let group = match self.free.pop() {
            Some(index) => {
                self.groups[index] = new;
                index
            }
            None => {
                self.groups.push(new);
                self.groups.len() - 1
            }
        };
        for pending in pending_reads {
            reads.add(pending.location, Read { pending, group });
        }
        waits.retry_after(Obstacle::Values, Patience::Forever);
        suspend(waits, io)
    }

    /// Returns a descriptor that is readable when a read has completed.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.reads.as_ref().map(ColdReads::descriptor)
    }

    /// Begins the reads registered in this turn, and delivers completed ones. Returns when the next turn has to be.
    pub fn turn_end<S>(&mut self, kernel: &Kernel, conns: &mut Conns<'_, S>, now: Now) -> NextTurn {
        loop {
            let may_begin = self.may_begin(kernel, now.monotonic_ms);
            let Some(reads) = self.reads.as_mut().filter(|reads| !reads.is_empty()) else {
                return NextTurn::WhenReady;
            };
            let is_submitted = reads.submit(may_begin);
            let (has_taken, is_continued) = self.take(kernel, conns);
            let is_waiting = self.reads.as_ref().is_some_and(ColdReads::has_waiting);
            match (is_submitted && !is_continued, may_begin) {
                (false, _) => return NextTurn::Immediately,
                (true, false) if is_waiting => return NextTurn::At(now.monotonic_ms + 1),
                // There is room for pending reads.
                (true, true) if is_waiting && has_taken => {}
                (true, _) => return NextTurn::WhenReady,
            }
        }
    }

    fn may_begin(&mut self, kernel: &Kernel, now_ms: u64) -> bool {
        let is_waiting = self.reads.as_ref().is_some_and(ColdReads::has_waiting);
        if !is_waiting || !kernel.spill.is_making_room() {
            self.held_since_ms = None;
            return true;
        }
        let since_ms = *self.held_since_ms.get_or_insert(now_ms);
        now_ms.saturating_sub(since_ms) >= PATIENCE_MS
    }

    /// Puts completed reads into memory, and resumes the sessions that have all their values. Returns whether there
    /// were any, and whether there is something to submit.
    fn take<S>(&mut self, kernel: &Kernel, conns: &mut Conns<'_, S>) -> (bool, bool) {
        let Self { reads: Some(reads), groups, free, .. } = self else { return (false, false) };
        let now_ms = conns.now().unix_ms as i64;
        let mut locks = kernel.keyspace.locks();
        let mut has_taken = false;
        let is_continued = reads.take(|read, bytes| {
            has_taken = true;
            match bytes {
                Ok(bytes) => read.pending.restore(&mut locks, bytes, now_ms),
                // The value was changed or moved meanwhile.
                Err(tierce_storage::Error::Missing { .. }) => {}
                // The session will get this error itself.
                Err(error) => {
                    kernel.log.warning(format_args!("A value on disk cannot be read: {error}"));
                }
            }
            let group = &mut groups[read.group];
            group.left -= 1;
            if group.left == 0 {
                free.push(read.group);
                if let Some(mut conn) = conns.get(group.conn) {
                    conn.resume();
                }
            }
        });
        (has_taken, is_continued)
    }
}

/// Returns the reads of this worker, created at first use.
fn begin<'r>(
    reads: &'r mut Option<ColdReads<Read>>,
    kernel: &Kernel,
) -> Option<&'r mut ColdReads<Read>> {
    if reads.is_none() {
        let store = kernel.keyspace.cold_store()?;
        let driver = kernel.spill.driver()?;
        let made = store.reads(driver).or_else(|_| store.reads(ReadDriver::Threads));
        *reads = made.ok();
    }
    reads.as_mut()
}
