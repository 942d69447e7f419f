//! Locks shards that another thread may keep locked for long.

use std::time::Duration;

use crate::access::keyspace::Keyspace;
use crate::access::shard::Held;
use crate::error::Busy;
use crate::interleaving;
use crate::registries::busy::registry::ShardSet;
use crate::registries::busy::{Announcement, Freed, OnBusy};

/// Time that a worker waits for a shard before it checks again if the shard is busy.
const RETRY_AFTER: Duration = Duration::from_micros(100);

impl Keyspace {
    /// Sets the callback for freed shards. The thread that frees a shard calls it for each worker whose
    /// [locks](Keyspace::worker_locks) were refused that shard. A second call has no effect.
    pub fn on_freed(&self, wake: impl Fn(u16, Freed) + Send + Sync + 'static) {
        let _ = self.busy.wake.set(Box::new(wake));
    }

    /// Marks shards as busy; they are given in ascending order. Waits for other threads that keep them locked,
    /// `for_long` at most.
    pub(crate) fn announce(
        &self,
        shards: impl Iterator<Item = usize>,
        for_long: Option<Duration>,
    ) -> Result<Announcement<'_>, Busy> {
        let shards: ShardSet = shards.collect();
        let give_up = for_long.map(|time| interleaving::now() + time);
        if self.busy.registry.announce(&shards, give_up) {
            return Ok(Announcement { busy: &self.busy, shards });
        }
        let held = shards.iter().find(|shard| self.is_busy(**shard));
        Err(Busy { shard: *held.unwrap_or(&shards[0]) })
    }

    /// Returns true if a thread keeps the shard locked for long, or is about to.
    pub(crate) fn is_busy(&self, shard: usize) -> bool {
        self.busy.registry.is_busy(shard)
    }

    /// Returns true if any shard is busy at this moment.
    #[must_use]
    pub fn any_busy(&self) -> bool {
        (0..self.shard_count()).any(|shard| self.is_busy(shard))
    }

    /// Locks a shard. Always inlined: a call, which returns the lock through memory, costs 15 instructions.
    #[inline(always)]
    pub(crate) fn lock_shard(
        &self,
        index: usize,
        on_busy: impl FnOnce() -> OnBusy,
    ) -> Result<Held<'_>, Busy> {
        match Held::try_lock(&self.slots, index) {
            Some(held) => Ok(held),
            None => self.lock_contended(index, on_busy()),
        }
    }

    #[cold]
    fn lock_contended(&self, shard: usize, on_busy: OnBusy) -> Result<Held<'_>, Busy> {
        loop {
            match on_busy {
                // The caller has marked it busy, so no other thread keeps it locked for long.
                OnBusy::Wait | OnBusy::WaitFor(_) => return Ok(Held::lock(&self.slots, shard)),
                OnBusy::Fail if self.is_busy(shard) => return Err(Busy { shard }),
                OnBusy::SetAside(worker)
                    if self.is_busy(shard) && self.busy.registry.set_aside(shard, worker) =>
                {
                    return Err(Busy { shard });
                }
                OnBusy::Fail | OnBusy::SetAside(_) => {}
            }
            if let Some(held) = Held::try_lock_for(&self.slots, shard, RETRY_AFTER) {
                return Ok(held);
            }
        }
    }
}
