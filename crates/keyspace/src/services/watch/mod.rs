//! Watchers of keys: transactions that must fail when a key has changed.
//!
//! Each shard has a registry of its watched keys (`registries/watch`), under its lock. Every change of a key passes
//! [`Context::changed`](crate::access::context::Context::changed) under that lock, which notes a watched key. Its
//! watchers are told before the shard is unlocked; rolled back changes are not reported. A watched key need not
//! exist.
//!
//! A [`Watch`] implements WATCH: it is dirty as soon as one of its keys has changed.
//!
//! **A registration lasts for one change**, which removes it. So a frequently changed key costs its writers once.
//! Versions of keys ([`crate::change::version`]) are not sufficient: they may look newer without a change.
//!
//! **Changes are those of Redis.** A key that expires or is evicted has changed. A key that had expired before it was
//! watched did not exist, so its removal is no change. This applies to the fields of a hash as well. FLUSHDB changes
//! the keys that exist, SWAPDB those that exist in either database. Groups of a stream, their consumers and pending
//! entries count as in Valkey, unlike in Redis. PFMERGE always counts
//! ([`Db::touch_watchers`](crate::Db::touch_watchers)).
//!
//! **No change is missed**: it is found under the lock under which the key was registered. The dirty state of a watch
//! is certain only while the shards of all its keys are locked ([`Watch::hashes`]).

mod tell;

pub(crate) use tell::{touch_emptied, touch_swapped};

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::access::hash_deadlines::deadline_of;
use crate::access::keyspace::Keyspace;
use crate::access::notices::tell_watchers;
use crate::access::shard::Held;
use crate::access::shard_locks::ShardLocks;
use crate::data::key::{Key, KeyHash};
use crate::db_index::DbIndex;
use crate::registries::reaper_wakeup::Left;
use crate::registries::watch::registry::{Registered, WatchId, WatchState};

/// The keys that a client watches. [`unwatch`] ends the watch at once; otherwise, after a drop, the reaper ends it.
pub struct Watch {
    shared: Arc<WatchState>,
    registered: Vec<Registered>,
    /// Earliest deadline of the keys: from then on one of them is gone, even if it was not removed.
    deadline_ms: i64,
}

impl Watch {
    /// Returns a watch without keys.
    #[must_use]
    pub fn new(keyspace: &Keyspace) -> Self {
        let board = &keyspace.watches;
        let shared = Arc::new(WatchState {
            id: board.last_id.fetch_add(1, Ordering::Relaxed),
            is_dirty: AtomicBool::new(false),
            keys: AtomicUsize::new(0),
            board: Arc::clone(board),
        });
        Self { shared, registered: Vec::new(), deadline_ms: i64::MAX }
    }

    /// Returns the part of its state that others may have.
    #[must_use]
    pub fn state(&self) -> &Arc<WatchState> {
        &self.shared
    }

    /// Returns true if one of the keys has changed or expired at this time. A dirty watch stays dirty. `false` is
    /// reliable only while the shards of all keys are locked.
    #[inline]
    #[must_use]
    pub fn is_dirty(&self, now_ms: i64) -> bool {
        self.shared.is_dirty() || self.deadline_ms <= now_ms
    }

    /// Returns the hashes of the keys.
    pub fn hashes(&self) -> impl ExactSizeIterator<Item = KeyHash> {
        self.registered.iter().map(|(_, hash)| *hash)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.mark();
        if !self.registered.is_empty() {
            let board = &self.shared.board;
            board.dropped.lock().push((self.shared.id, std::mem::take(&mut self.registered)));
            board.reaper_wakeup.notify();
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("keys", &self.registered.len())
            .field("state", &self.shared)
            .finish_non_exhaustive()
    }
}

/// Adds a key to a watch. It need not exist; an expired key does not. Locks its shard as [`ShardLocks::db`] does.
/// Under an undo log, an earlier change of the key counts when it is committed.
pub fn watch_key(
    locks: &mut ShardLocks<'_>,
    watch: &mut Watch,
    db: DbIndex,
    key: Key<'_>,
    now_ms: i64,
) {
    if watch.is_dirty(now_ms) {
        return;
    }
    // Removes a key that has expired, so that its removal is no change later.
    let deadline_ms = deadline_of(&mut locks.db(db, key.hash(), now_ms), key);
    // Earlier changes in the locked shard do not affect the new watcher, so they are reported first. But changes that
    // may be rolled back are not reported yet.
    if !locks.has_undo() {
        tell_watchers(locks);
    }
    let state = &watch.shared;
    let watcher = Arc::clone(state);
    let shard = locks.keyspace().shard_of(key.hash());
    if !register(locks.held(shard), db, key, watcher) {
        return;
    }
    watch.registered.push((db, key.hash()));
    watch.deadline_ms = watch.deadline_ms.min(deadline_ms);
    if state.keys.fetch_add(1, Ordering::Relaxed) == 0 {
        state.board.watching.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ends a watch. Shards that are busy, or that an enclosing [`MultiShardGuard`](crate::MultiShardGuard) has not
/// locked, are left to the reaper.
pub fn unwatch(locks: &mut ShardLocks<'_>, mut watch: Watch) {
    watch.shared.mark();
    let id = watch.shared.id;
    watch.registered.retain(|(db, hash)| {
        let is_locked = match locks.is_within() {
            true => locks.covers(*hash),
            false => locks.try_reach(*hash),
        };
        if is_locked {
            let shard = locks.keyspace().shard_of(*hash);
            unregister(locks.held(shard), *db, *hash, id);
        }
        !is_locked
    });
}

/// Ends watches that were dropped without shard locks, unless their shards are busy. The reaper does this; for
/// keyspaces without one.
pub fn end_dropped_watches(locks: &mut ShardLocks<'_>) {
    _ = end_dropped(locks);
}

pub(crate) fn end_dropped(locks: &mut ShardLocks<'_>) -> Left {
    let mut left = std::mem::take(&mut *locks.keyspace().watches.dropped.lock());
    left.retain_mut(|(id, registered)| {
        registered.retain(|(db, hash)| {
            let shard = locks.keyspace().shard_of(*hash);
            let is_locked = locks.try_reach_shard(shard);
            if is_locked {
                unregister(locks.held(shard), *db, *hash, *id);
                locks.end_steps();
            }
            !is_locked
        });
        !registered.is_empty()
    });
    if left.is_empty() {
        return Left::Nothing;
    }
    locks.keyspace().watches.dropped.lock().append(&mut left);
    Left::Busy
}

/// Registers a watcher for a key; `false` if it was registered before.
fn register(held: &mut Held<'_>, db: DbIndex, key: Key<'_>, watcher: Arc<WatchState>) -> bool {
    let is_new = held.shard.observers.watched.add(db, key, watcher);
    held.note_watched();
    is_new
}

fn unregister(held: &mut Held<'_>, db: DbIndex, hash: KeyHash, id: WatchId) {
    held.shard.observers.watched.remove(db, hash, id);
    held.note_watched();
}
