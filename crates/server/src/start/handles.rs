//! Handles for controlling a running server from outside.

use std::sync::Arc;

use tierce_keyspace::ShardLocks;

use crate::server::Server;
use crate::shutdown::Shutdown;

/// Handle that ends an [`Instance`](super::Instance) from anywhere; see
/// [`Instance::stopper`](super::Instance::stopper).
#[derive(Clone)]
pub struct Stopper(pub(super) Arc<Server>);

impl Stopper {
    /// Requests shutdown; [`Instance::wait`](super::Instance::wait) returns.
    pub fn stop(&self) {
        self.0.request_shutdown(Shutdown::Owner);
    }
}

/// Clock of slow syncs; see [`Instance::sync_clock`](super::Instance::sync_clock).
#[doc(hidden)]
pub struct SyncClock(pub(super) Arc<Server>);

impl SyncClock {
    /// Advances the clock by this many milliseconds.
    pub fn advance(&self, ms: u64) {
        self.0.durability.advance_clock(ms);
    }
}

/// Shards of a server; see [`Instance::shards`](super::Instance::shards).
#[doc(hidden)]
pub struct Shards(pub(super) Arc<Server>);

impl Shards {
    /// Locks the shards of some keys, or all shards without any, while `body` runs.
    pub fn hold<R>(&self, keys: &[&str], body: impl FnOnce() -> R) -> R {
        Self::hold_in(self.0.keyspace.long_locks(), keys, body)
    }

    /// Locks them like [`Shards::hold`], without marking this as long: a thread for long commands then waits for it,
    /// and runs no other command before.
    pub fn hold_as_if_briefly<R>(&self, keys: &[&str], body: impl FnOnce() -> R) -> R {
        Self::hold_in(self.0.keyspace.locks(), keys, body)
    }

    fn hold_in<R>(mut locks: ShardLocks<'_>, keys: &[&str], body: impl FnOnce() -> R) -> R {
        let keyspace = locks.keyspace();
        let hashes: Vec<_> = keys.iter().map(|key| keyspace.hash(key.as_bytes())).collect();
        let _held = match keys {
            [] => locks.lock_all(),
            [..] => locks.lock_many(&hashes),
        };
        body()
    }

    /// Returns the number of the shard of a key.
    pub fn of(&self, key: &str) -> usize {
        self.0.keyspace.shard_of(self.0.keyspace.hash(key.as_bytes()))
    }
}
