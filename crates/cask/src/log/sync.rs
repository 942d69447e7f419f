//! Group commit: of all writers that want the lane durable, one makes it so for all that came
//! before it began; whoever comes meanwhile forms the next group. Nobody else waits.

use super::lane::{Lane, Owner};
use crate::error::Result;
use crate::tail::LogOffset;
use parking_lot::{Condvar, Mutex};

/// How much of a lane is durable, and who is working on it.
#[derive(Default)]
pub(crate) struct SyncGroup {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    durable: LogOffset,
    is_led: bool,
}

impl Lane {
    /// Makes the log durable up to an offset that [`Lane::append`] returned. Says whether this
    /// thread did it itself.
    pub(crate) fn sync_to(&self, owner: &impl Owner, target: LogOffset) -> Result<bool> {
        let mut state = self.sync.state.lock();
        loop {
            if state.durable >= target {
                return Ok(false);
            }
            // If the one who led has failed, the store is latched.
            owner.check_writable()?;
            if !state.is_led {
                break;
            }
            self.sync.changed.wait(&mut state);
        }
        state.is_led = true;
        drop(state);
        let synced = self.write_and_sync(owner);
        let mut state = self.sync.state.lock();
        state.is_led = false;
        if let Ok(end) = synced {
            state.durable = state.durable.max(end);
        }
        drop(state);
        self.sync.changed.notify_all();
        synced.map(|_| true)
    }

    /// Up to where the log is durable.
    pub(crate) fn durable(&self) -> LogOffset {
        self.sync.state.lock().durable
    }

    /// Makes everything published so far durable.
    pub(crate) fn sync_all(&self, owner: &impl Owner) -> Result<()> {
        let end = self.head.lock().end;
        self.sync_to(owner, end).map(drop)
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
