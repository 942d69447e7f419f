//! Shards that threads keep locked for long, and workers to wake when they are free.

pub(crate) mod registry;
mod sync;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use self::registry::{Registry, ShardSet, Woken};

/// Action of a thread that needs a busy shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnBusy {
    /// Waits, without any other lock.
    Wait,
    /// Waits, but at most this long for a busy shard.
    WaitFor(Duration),
    /// Gives up.
    Fail,
    /// Gives up, and has this worker woken when the shard is free.
    SetAside(u16),
}

/// Shards that are free again, for a worker with deferred requests. No thread marks one of them busy until all clones
/// are dropped, or some milliseconds have passed.
#[derive(Clone)]
pub struct Freed(Arc<Reservation>);

struct Reservation {
    registry: Arc<Registry>,
    shards: ShardSet,
}

impl Freed {
    /// Returns true if this shard is one of them.
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

impl Drop for Reservation {
    fn drop(&mut self) {
        self.registry.served(&self.shards);
    }
}

/// Wakes a worker.
type Wake = Box<dyn Fn(u16, Freed) + Send + Sync>;

/// The busy shards of a keyspace, and the callback to wake workers.
pub(crate) struct BusyShards {
    pub(crate) registry: Arc<Registry>,
    pub(crate) wake: OnceLock<Wake>,
}

impl BusyShards {
    pub(crate) fn new(shards: usize) -> Self {
        Self { registry: Arc::new(Registry::new(shards)), wake: OnceLock::new() }
    }

    fn wake(&self, Woken { workers, shards }: Woken) {
        let freed = Freed(Arc::new(Reservation { registry: Arc::clone(&self.registry), shards }));
        let Some(wake) = self.wake.get() else { return };
        workers.into_iter().for_each(|worker| wake(worker, freed.clone()));
    }
}

/// Shards that are busy until this is dropped. They are locked after it is made, and unlocked before it is dropped.
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
