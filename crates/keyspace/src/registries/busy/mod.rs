//! Shards that threads hold for long, and the workers that are woken when they are free.

pub(crate) mod registry;
mod sync;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use self::registry::{Registry, ShardSet, Woken};

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
    pub(crate) registry: Arc<Registry>,
    pub(crate) wake: OnceLock<Wake>,
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
    pub(crate) busy: &'k BusyShards,
    pub(crate) shards: ShardSet,
}

impl Drop for Announcement<'_> {
    fn drop(&mut self) {
        if let Some(woken) = self.busy.registry.end(&self.shards) {
            self.busy.wake(woken);
        }
    }
}
