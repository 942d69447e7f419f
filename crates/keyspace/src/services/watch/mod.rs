//! Watchers of keys: transactions that must fail when a key has changed.
//!
//! Each shard has a registry of its watched keys (`registries/watch`), behind its lock. Every change of a key passes
//! [`Context::changed`](crate::access::context::Context::changed) under that lock, where the key is noted if it is
//! watched. Its watchers are told before the shard is unlocked, and not at all of what was rolled back. A key
//! need not exist to be watched.
//!
//! A [`Watch`] is what WATCH needs: it is dirty as soon as one of its keys has changed.
//!
//! **A registration is good for one change**: the change takes it out. So a key that changes often costs its
//! writers once. Versions of keys ([`crate::change::version`]) do not serve: they may look newer though nothing has
//! changed.
//!
//! **What counts as a change** is what Redis counts as one. A key that expires or is evicted has changed. One whose
//! deadline had come before it was watched did not exist, so its removal is no change. The same holds for the
//! fields of a hash. FLUSHDB changes the keys that exist, SWAPDB those that exist in either database. Groups of a
//! stream, their consumers and what is pending count as in Valkey, unlike in Redis. PFMERGE counts whether or not it
//! changes anything ([`Db::touch_watchers`]).
//!
//! **No change is missed**: it is found under the lock under which the key was registered. Whether a watch is dirty
//! is known for certain only while the shards of all its keys are locked ([`Watch::hashes`]).

mod tell;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::access::db::Db;
use crate::access::keyspace::Keyspace;
use crate::access::shard::Held;
use crate::access::shard_locks::ShardLocks;
use crate::change::interest::Interest;
use crate::data::key::{Key, KeyHash};
use crate::db_index::DbIndex;
use crate::registries::watch::registry::{Registered, WatchId, WatchState};

/// The keys that a client watches. Dropping it ends that, at once with [`ShardLocks::unwatch`], and otherwise when the
/// reaper comes to it.
pub struct Watch {
    shared: Arc<WatchState>,
    registered: Vec<Registered>,
    /// The earliest deadline of the keys: from then on one of them is gone, whether or not it was removed.
    deadline_ms: i64,
}

impl Watch {
    /// Of no keys yet.
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

    /// What may be known of it elsewhere.
    #[must_use]
    pub fn state(&self) -> &Arc<WatchState> {
        &self.shared
    }

    /// Whether one of the keys has changed or expired at this time. Once it is, it stays so. That it is not holds
    /// only as long as the shards of all keys are locked.
    #[inline]
    #[must_use]
    pub fn is_dirty(&self, now_ms: i64) -> bool {
        self.shared.is_dirty() || self.deadline_ms <= now_ms
    }

    /// The hashes of the keys.
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

impl Keyspace {
    /// How many watches have keys and are not dirty, and how many keys are watched. Without a lock.
    #[must_use]
    pub fn watching(&self) -> (u64, u64) {
        let keys = self.slots.iter().map(|slot| slot.stats.watched_keys.get()).sum();
        (self.watches.watching.load(Ordering::Relaxed), keys)
    }
}

impl ShardLocks<'_> {
    /// Adds a key to a watch. It need not exist; if its deadline has come, it does not. Locks its shard as
    /// [`ShardLocks::db`] does. Under an undo log, a change of the key that was made under it before counts as one
    /// when it is committed.
    pub fn watch(&mut self, watch: &mut Watch, db: DbIndex, key: Key<'_>, now_ms: i64) {
        if watch.is_dirty(now_ms) {
            return;
        }
        // Removes a key that has expired, so that its removal is no change later.
        let deadline_ms = self.db(db, key.hash(), now_ms).deadline_of(key);
        // What was done before in the shard that is locked is nothing to the new watcher.
        // But what may be rolled back is not told yet.
        if !self.has_undo() {
            self.tell_watchers();
        }
        let state = &watch.shared;
        let watcher = Arc::clone(state);
        if !self.held(self.keyspace().shard_of(key.hash())).register(db, key, watcher) {
            return;
        }
        watch.registered.push((db, key.hash()));
        watch.deadline_ms = watch.deadline_ms.min(deadline_ms);
        if state.keys.fetch_add(1, Ordering::Relaxed) == 0 {
            state.board.watching.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends a watch. Shards that are busy are left to the reaper; so are those that a
    /// [`MultiShardGuard`](crate::MultiShardGuard) around this does not hold.
    pub fn unwatch(&mut self, mut watch: Watch) {
        watch.shared.mark();
        let id = watch.shared.id;
        watch.registered.retain(|(db, hash)| {
            let is_locked = match self.is_within() {
                true => self.covers(*hash),
                false => self.try_reach(*hash),
            };
            if is_locked {
                self.held(self.keyspace().shard_of(*hash)).unregister(*db, *hash, id);
            }
            !is_locked
        });
    }

    /// Ends what was dropped without shard locks: what the reaper does, for keyspaces without one.
    pub fn end_dropped_watches(&mut self) {
        let dropped = std::mem::take(&mut *self.keyspace().watches.dropped.lock());
        for (id, registered) in dropped {
            for (db, hash) in registered {
                self.held(self.keyspace().shard_of(hash)).unregister(db, hash, id);
                self.end_steps();
            }
        }
    }
}

impl Db<'_> {
    /// When a key, or a field of it, expires that is there now. A key whose deadline has come is removed.
    pub(crate) fn deadline_of(&mut self, key: Key<'_>) -> i64 {
        let fields_ms = self.next_expiry_of_fields(key);
        let Some(entry) = self.peek(key) else { return i64::MAX };
        [entry.deadline_ms(), fields_ms].into_iter().flatten().min().unwrap_or(i64::MAX)
    }
}

impl Held<'_> {
    /// Whether the watcher was not registered for the key before.
    fn register(&mut self, db: DbIndex, key: Key<'_>, watcher: Arc<WatchState>) -> bool {
        let is_new = self.shard.observers.watched.add(db, key, watcher);
        self.note_watched();
        is_new
    }

    fn unregister(&mut self, db: DbIndex, hash: KeyHash, id: WatchId) {
        self.shard.observers.watched.remove(db, hash, id);
        self.note_watched();
    }

    /// Tells threads that change keys of the shard whether any key is watched.
    fn note_watched(&self) {
        let keys = self.shard.observers.watched.len();
        self.stats.watched_keys.set(keys as u64);
        self.stats.interest.set(Interest::WATCHED, keys > 0);
    }
}
