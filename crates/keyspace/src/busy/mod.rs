//! How threads lock shards that others may hold for long: some wait, others set their request aside.

mod registry;

/// What `registry` is made of; its model checker puts something else here.
mod sync {
    use std::time::{Duration, Instant};

    pub(super) use crate::interleaving::Condvar;
    use crate::interleaving::now;
    pub(super) use parking_lot::{Mutex, MutexGuard};
    pub(super) use std::sync::atomic::{AtomicBool, Ordering};

    /// The workers that were woken have so long to retry what they had set aside, before another thread
    /// holds the shard for long again.
    const PROMISE: Duration = Duration::from_millis(10);

    pub(super) type Deadline = Instant;

    pub(super) fn deadline() -> Deadline {
        now() + PROMISE
    }

    pub(super) fn wait<T>(condvar: &Condvar, guard: &mut MutexGuard<'_, T>) {
        condvar.wait(guard);
    }

    /// `false` when the time is up.
    pub(super) fn wait_until<T>(
        condvar: &Condvar,
        guard: &mut MutexGuard<'_, T>,
        until: Deadline,
    ) -> bool {
        condvar.wait_until(guard, until)
    }
}

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use self::registry::{Registry, ShardSet, Woken};
use crate::interleaving;
use crate::keyspace::Keyspace;
use crate::shard::Held;

/// A worker waits so long for a shard before it checks again whether another thread is going to hold it for
/// long.
const RETRY_AFTER: Duration = Duration::from_micros(100);

/// A thread holds this shard for long. If the caller is a worker, it is woken when the shard is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("shard {shard} is busy")]
pub struct Busy {
    /// Its number.
    pub shard: usize,
}

/// What a thread does that needs a busy shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnBusy {
    /// Waits, holding no other.
    Wait,
    /// The same, for so long at most if another thread holds it for long.
    WaitFor(Duration),
    /// Does without.
    Fail,
    /// Does without, and has this worker woken when the shard is free.
    SetAside(u16),
}

/// Shards that are free again, for a worker that has set requests aside. Until all clones are dropped, or
/// some milliseconds have passed, no thread takes one of them for long.
#[derive(Clone)]
pub struct Freed(Arc<Promise>);

struct Promise {
    registry: Arc<Registry>,
    shards: ShardSet,
}

impl Freed {
    /// Whether this shard is one of them.
    #[must_use]
    pub fn contains(&self, shard: usize) -> bool {
        self.0.shards.binary_search(&shard).is_ok()
    }
}

impl fmt::Debug for Freed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Freed").field(&self.0.shards).finish()
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.registry.served(&self.shards);
    }
}

/// Wakes a worker.
type Wake = Box<dyn Fn(u16, Freed) + Send + Sync>;

/// The busy shards of a keyspace, and the way to the workers.
pub(crate) struct BusyShards {
    registry: Arc<Registry>,
    wake: OnceLock<Wake>,
}

impl BusyShards {
    pub(crate) fn new(shards: usize) -> Self {
        Self { registry: Arc::new(Registry::new(shards)), wake: OnceLock::new() }
    }

    fn wake(&self, Woken { workers, shards }: Woken) {
        let freed = Freed(Arc::new(Promise { registry: Arc::clone(&self.registry), shards }));
        let Some(wake) = self.wake.get() else { return };
        workers.into_iter().for_each(|worker| wake(worker, freed.clone()));
    }
}

/// Shards that are busy until this is dropped; they are locked after it is made, and unlocked before.
pub(crate) struct Announcement<'k> {
    busy: &'k BusyShards,
    shards: ShardSet,
}

impl Drop for Announcement<'_> {
    fn drop(&mut self) {
        if let Some(woken) = self.busy.registry.end(&self.shards) {
            self.busy.wake(woken);
        }
    }
}

impl Keyspace {
    /// Has `wake` called, by the thread that frees a shard, for each worker whose
    /// [locks](Keyspace::worker_locks) was refused it. A second call has no effect.
    pub fn on_freed(&self, wake: impl Fn(u16, Freed) + Send + Sync + 'static) {
        let _ = self.busy.wake.set(Box::new(wake));
    }

    /// Makes shards busy, which are given in ascending order. Waits for others that hold them, `for_long` at most.
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

    /// Whether a thread holds the shard for long, or is about to.
    pub(crate) fn is_busy(&self, shard: usize) -> bool {
        self.busy.registry.is_busy(shard)
    }

    /// Whether any shard is busy at this moment.
    #[must_use]
    pub fn any_busy(&self) -> bool {
        (0..self.shard_count()).any(|shard| self.is_busy(shard))
    }

    /// Locks a shard. In line wherever it is called: a call, which returns the lock through memory, costs 15 instructions.
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
                // The caller has made it busy, so that no other thread holds it for long.
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
