//! Group commit: one of the writers that want the shard durable leads. It syncs for all that came before it
//! began; later ones form the next group. Other writers do not wait.
//!
//! A waiter is woken once: when its write is durable, or to lead. A group sleeps on one futex, so one call wakes
//! all of it; only the first waiter, which may have to lead, has its own.

use super::appender::Appender;
use super::files::Owner;
use crate::error::Result;
use crate::tail::LogOffset;
use parking_lot::Mutex;
use rustix::thread::futex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Durable position of a shard, and the state of its syncs.
#[derive(Default)]
pub(crate) struct SyncGroup(Mutex<SyncState>);

#[derive(Default)]
struct SyncState {
    durable: LogOffset,
    is_led: bool,
    /// Writers that came after the leader began; if there are any, one of them leads next.
    forming: Option<Group>,
}

/// Writers that wait for the same sync.
struct Group {
    /// Highest offset that one of them waits for.
    target: LogOffset,
    first: Arc<Word>,
    others: Arc<Word>,
}

impl Group {
    fn new() -> Self {
        Group { target: 0, first: Arc::default(), others: Arc::default() }
    }

    fn tell(&self, news: u32) {
        // The leader is not asleep.
        if self.first.0.load(Ordering::Relaxed) != LEAD {
            self.first.tell(news);
        }
        self.others.tell(news);
    }
}

/// A word that threads wait on.
#[derive(Default)]
struct Word(AtomicU32);

/// Nothing has happened yet.
const WAIT: u32 = 0;
/// The awaited offset is durable.
const DURABLE: u32 = 1;
/// There is no leader: check again.
const FAILED: u32 = 2;
/// The waiting writer must lead now.
const LEAD: u32 = 3;

impl Word {
    fn tell(&self, news: u32) {
        self.0.store(news, Ordering::Release);
        // None of its errors can occur here.
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, i32::MAX as u32);
    }

    fn wait(&self) -> u32 {
        loop {
            match self.0.load(Ordering::Acquire) {
                // The loop checks the word after a wake-up, an interruption and a failed sleep alike.
                WAIT => drop(futex::wait(&self.0, futex::Flags::PRIVATE, WAIT, None)),
                news => return news,
            }
        }
    }
}

impl Appender {
    /// Makes the log durable up to an offset that [`Appender::append`] returned. Returns true if this thread did
    /// the sync itself.
    pub fn sync_to(&self, owner: &impl Owner, target: LogOffset) -> Result<bool> {
        loop {
            let mut state = self.sync.0.lock();
            if state.durable >= target {
                return Ok(false);
            }
            // If the leader failed, the store is latched.
            owner.files().check_writable()?;
            if !state.is_led {
                state.is_led = true;
                drop(state);
                return self.lead(owner).map(|()| true);
            }
            let word = match &mut state.forming {
                Some(group) => {
                    group.target = group.target.max(target);
                    group.others.clone()
                }
                none => {
                    let group = none.insert(Group::new());
                    group.target = target;
                    group.first.clone()
                }
            };
            drop(state);
            match word.wait() {
                DURABLE => return Ok(false),
                LEAD => return self.lead(owner).map(|()| true),
                _ => {}
            }
        }
    }

    /// Returns the offset up to which the log is durable.
    pub(crate) fn durable(&self) -> LogOffset {
        self.sync.0.lock().durable
    }

    /// Makes everything published so far durable.
    pub(crate) fn sync_all(&self, owner: &impl Owner) -> Result<()> {
        self.sync_to(owner, self.end()).map(drop)
    }

    /// Syncs for all waiters, and hands the lead to the first waiter that came too late.
    fn lead(&self, owner: &impl Owner) -> Result<()> {
        // All of them have appended before, so the write below covers them.
        let served = self.sync.0.lock().forming.take();
        let synced = self.write_and_sync(owner);
        let mut state = self.sync.0.lock();
        let Ok(end) = synced else {
            state.is_led = false;
            let late = state.forming.take();
            drop(state);
            served.iter().chain(&late).for_each(|group| group.tell(FAILED));
            return synced.map(drop);
        };
        state.durable = state.durable.max(end);
        // The write may also cover waiters that came meanwhile.
        let in_time = state.forming.take_if(|group| group.target <= end);
        state.is_led = state.forming.is_some();
        let next = state.forming.as_ref().map(|group| group.first.clone());
        drop(state);
        // Wake the next leader first, so that the device is busy while the others wake up.
        next.iter().for_each(|first| first.tell(LEAD));
        debug_assert!(served.iter().all(|group| group.target <= end));
        served.iter().chain(&in_time).for_each(|group| group.tell(DURABLE));
        Ok(())
    }

    fn write_and_sync(&self, owner: &impl Owner) -> Result<LogOffset> {
        let mut flush = self.flush.lock();
        let end =
            self.flush_published(owner, &mut flush).map_err(|e| owner.files().latch_always(e))?;
        let segments = flush.take_unsynced();
        // Other threads may flush while the device is busy.
        drop(flush);
        for (segment, len) in &segments {
            segment.sync(*len).map_err(|e| owner.files().latch_always(e))?;
        }
        Ok(end)
    }
}
