//! Values that sessions wait for, read from disk without anybody waiting for the disk.
//!
//! Each worker has a [`Fetcher`] of its own. Sessions leave there what they need; at the end of the turn
//! the disk gets all of it at once. What has been read until then goes into memory, and a session of
//! which nothing is missing any more is called again. Who reads, the kernel or threads, is
//! `tierce_cask`'s business.
//!
//! While memory is short no more reads begin, for each is about to add to it; but not for long, or
//! readers would starve behind writers.

use std::os::fd::BorrowedFd;

use tierce_cask::ColdReads;
use tierce_cask::disk::ReadDriver;
use tierce_keyspace::{Fetched, Keyspace, Locker};
use tierce_net::{ConnKey, Conns, Flow, NextTurn, Now, OnHangup};

use super::{Fetches, Wanted};
use crate::server::Server;

/// Reads are held back for at most so long while memory is short.
const PATIENCE_MS: u64 = 20;

/// The reads of one worker.
#[derive(Default)]
pub struct Fetcher {
    /// There since the first one.
    reads: Option<ColdReads<Read>>,
    groups: Vec<Group>,
    free: Vec<usize>,
    /// Since when reads are held back.
    held_since_ms: Option<u64>,
}

/// A value to read, and who waits for it.
struct Read {
    wanted: Wanted,
    group: usize,
}

/// A session, and how many values it waits for.
struct Group {
    conn: ConnKey,
    left: usize,
}

impl Fetcher {
    /// Has values read, after which the session is called again; it is to go on as returned.
    pub fn fetch(
        &mut self,
        server: &Server,
        fetches: &mut Fetches,
        conn: ConnKey,
        wanted: Vec<Wanted>,
    ) -> Flow {
        let Some(reads) = begin(&mut self.reads, server) else {
            // The worker reads by itself then.
            fetches.give_up();
            return Flow::Yield;
        };
        fetches.begin();
        let new = Group { conn, left: wanted.len() };
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
        for wanted in wanted {
            reads.add(wanted.place, Read { wanted, group });
        }
        Flow::Suspend(OnHangup::Wait)
    }

    /// Readable when something has been read.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.reads.as_ref().map(ColdReads::descriptor)
    }

    /// Begins what was asked for in this turn, and hands over what was read. When the next turn has to be.
    pub fn turn_end<S>(&mut self, server: &Server, conns: &mut Conns<'_, S>, now: Now) -> NextTurn {
        loop {
            let may_begin = self.may_begin(server, now.monotonic_ms);
            let Some(reads) = self.reads.as_mut().filter(|reads| !reads.is_empty()) else {
                return NextTurn::WhenReady;
            };
            let is_submitted = reads.submit(may_begin);
            let (has_taken, is_continued) = self.take(server, conns);
            let is_waiting = self.reads.as_ref().is_some_and(ColdReads::has_waiting);
            match (is_submitted && !is_continued, may_begin) {
                (false, _) => return NextTurn::Immediately,
                (true, false) if is_waiting => return NextTurn::At(now.monotonic_ms + 1),
                // There is room for those that wait.
                (true, true) if is_waiting && has_taken => {}
                (true, _) => return NextTurn::WhenReady,
            }
        }
    }

    fn may_begin(&mut self, server: &Server, now_ms: u64) -> bool {
        let is_waiting = self.reads.as_ref().is_some_and(ColdReads::has_waiting);
        if !is_waiting || !server.spill.is_making_room() {
            self.held_since_ms = None;
            return true;
        }
        let since_ms = *self.held_since_ms.get_or_insert(now_ms);
        now_ms.saturating_sub(since_ms) >= PATIENCE_MS
    }

    /// Puts into memory what was read, and resumes those who have all they wait for. Whether there was
    /// anything, and whether there is something to submit.
    fn take<S>(&mut self, server: &Server, conns: &mut Conns<'_, S>) -> (bool, bool) {
        let Self { reads: Some(reads), groups, free, .. } = self else { return (false, false) };
        let now_ms = conns.now().unix_ms as i64;
        let mut locker = server.keyspace.locker();
        let mut has_taken = false;
        let is_continued = reads.take(|read, bytes| {
            has_taken = true;
            match bytes {
                Ok(bytes) => restore(&server.keyspace, &mut locker, &read.wanted, bytes, now_ms),
                // The value was changed or moved meanwhile.
                Err(tierce_cask::Error::Missing { .. }) => {}
                // The session will find out itself.
                Err(error) => {
                    server.log.warning(format_args!("A value on disk cannot be read: {error}"));
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

/// The reads of this worker, made when they are needed for the first time.
fn begin<'r>(
    reads: &'r mut Option<ColdReads<Read>>,
    server: &Server,
) -> Option<&'r mut ColdReads<Read>> {
    if reads.is_none() {
        let store = server.keyspace.cold_store()?;
        let driver = server.spill.driver()?;
        let made = store.reads(driver).or_else(|_| store.reads(ReadDriver::Threads));
        *reads = made.ok();
    }
    reads.as_mut()
}

/// Puts a value into memory if its key still has it where it was read.
fn restore(
    keyspace: &Keyspace,
    locker: &mut Locker<'_>,
    wanted: &Wanted,
    bytes: &[u8],
    now_ms: i64,
) {
    // What makes no sense the session will find out itself.
    let Ok(value) = Fetched::new(bytes, keyspace) else { return };
    let key = keyspace.key(&wanted.key);
    locker.db(wanted.db, key.hash(), now_ms).restore(key, wanted.place, value);
}
