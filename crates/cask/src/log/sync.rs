//! Group commit: of all writers that want the lane durable, one makes it so for all that came
//! before it began; whoever comes meanwhile forms the next group. Nobody else waits.
//!
//! Who waits is woken once: when its write is durable, or to lead. A condition variable would wake
//! the next group for nothing, and all of them one after the other through its lock.

use super::lane::{Lane, Owner};
use crate::error::Result;
use crate::tail::LogOffset;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::Thread;

/// How much of a lane is durable, and who is working on it.
#[derive(Default)]
pub(crate) struct SyncGroup(Mutex<State>);

#[derive(Default)]
struct State {
    durable: LogOffset,
    is_led: bool,
    /// In the order in which they came; while this is not empty, somebody leads.
    waiting: Vec<Waiter>,
}

struct Waiter {
    target: LogOffset,
    ticket: Arc<Ticket>,
}

struct Ticket {
    news: AtomicU8,
    thread: Thread,
}

/// Nothing happened yet.
const WAIT: u8 = 0;
/// What was waited for is durable.
const DURABLE: u8 = 1;
/// Nobody leads: look again.
const FAILED: u8 = 2;
/// The one who waits leads now.
const LEAD: u8 = 3;

impl Ticket {
    fn tell(&self, news: u8) {
        self.news.store(news, Ordering::Release);
        self.thread.unpark();
    }

    fn wait(&self) -> u8 {
        loop {
            match self.news.load(Ordering::Acquire) {
                WAIT => std::thread::park(),
                news => return news,
            }
        }
    }
}

impl Lane {
    /// Makes the log durable up to an offset that [`Lane::append`] returned. Says whether this
    /// thread did it itself.
    pub(crate) fn sync_to(&self, owner: &impl Owner, target: LogOffset) -> Result<bool> {
        loop {
            let mut state = self.sync.0.lock();
            if state.durable >= target {
                return Ok(false);
            }
            // If the one who led has failed, the store is latched.
            owner.check_writable()?;
            if !state.is_led {
                state.is_led = true;
                drop(state);
                return self.lead(owner).map(|()| true);
            }
            let thread = std::thread::current();
            let ticket = Arc::new(Ticket { news: AtomicU8::new(WAIT), thread });
            state.waiting.push(Waiter { target, ticket: ticket.clone() });
            drop(state);
            match ticket.wait() {
                DURABLE => return Ok(false),
                LEAD => return self.lead(owner).map(|()| true),
                _ => {}
            }
        }
    }

    /// Up to where the log is durable.
    pub(crate) fn durable(&self) -> LogOffset {
        self.sync.0.lock().durable
    }

    /// Makes everything published so far durable.
    pub(crate) fn sync_all(&self, owner: &impl Owner) -> Result<()> {
        let end = self.head.lock().end;
        self.sync_to(owner, end).map(drop)
    }

    /// Syncs for all who wait, and hands the lead to one who came too late for it.
    fn lead(&self, owner: &impl Owner) -> Result<()> {
        let synced = self.write_and_sync(owner);
        let mut state = self.sync.0.lock();
        let Ok(end) = synced else {
            state.is_led = false;
            let all = std::mem::take(&mut state.waiting);
            drop(state);
            all.iter().for_each(|waiter| waiter.ticket.tell(FAILED));
            return synced.map(drop);
        };
        state.durable = state.durable.max(end);
        let (done, mut late): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.waiting).into_iter().partition(|w| w.target <= end);
        state.is_led = !late.is_empty();
        let next = (!late.is_empty()).then(|| late.remove(0));
        state.waiting = late;
        drop(state);
        // First, so that the device is at work while the others wake up.
        next.iter().for_each(|waiter| waiter.ticket.tell(LEAD));
        done.iter().for_each(|waiter| waiter.ticket.tell(DURABLE));
        Ok(())
    }

    fn write_and_sync(&self, owner: &impl Owner) -> Result<LogOffset> {
        let mut flush = self.flush.lock();
        let end = self.flush_published(owner, &mut flush).map_err(|e| owner.latch_always(e))?;
        let segments = flush.take_unsynced();
        // Others may flush on while the device is busy.
        drop(flush);
        for (segment, len) in &segments {
            segment.sync(*len).map_err(|e| owner.latch_always(e))?;
        }
        Ok(end)
    }
}
