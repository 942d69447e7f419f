//! What reaches into a running server from outside.

use std::sync::Arc;

use tierce_keyspace::ShardLocks;

use crate::server::Server;
use crate::shutdown::Shutdown;

/// Ends an [`Instance`](super::Instance) from anywhere; see [`Instance::stopper`](super::Instance::stopper).
#[derive(Clone)]
pub struct Stopper(pub(super) Arc<Server>);

impl Stopper {
    /// Asks for the end; [`Instance::wait`](super::Instance::wait) returns.
    pub fn stop(&self) {
        self.0.request_shutdown(Shutdown::Owner);
    }
}

/// See [`Instance::sync_clock`](super::Instance::sync_clock).
#[doc(hidden)]
pub struct SyncClock(pub(super) Arc<Server>);

impl SyncClock {
    /// This many milliseconds pass.
    pub fn advance(&self, ms: u64) {
        self.0.durability.advance_clock(ms);
    }
}

/// See [`Instance::shards`](super::Instance::shards).
#[doc(hidden)]
pub struct Shards(pub(super) Arc<Server>);

impl Shards {
    /// Holds those of some keys, or all of them without any, while `body` runs.
    pub fn hold<R>(&self, keys: &[&str], body: impl FnOnce() -> R) -> R {
        Self::hold_in(self.0.keyspace.long_locks(), keys, body)
    }

    /// Holds them like [`Shards::hold`], without saying that it may take long: a thread for long commands then waits
    /// until it ends, and turns to no other command before.
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

    /// The number of the shard of a key.
    pub fn of(&self, key: &str) -> usize {
        self.0.keyspace.shard_of(self.0.keyspace.hash(key.as_bytes()))
    }
}
