//! Registering the readers of keys, forgetting keys beyond the limit, and changes of whole databases.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::access::keyspace::Keyspace;
use crate::access::notices::note_table;
use crate::access::shard::Held;
use crate::access::shard_locks::ShardLocks;
use crate::change::event::Origin;
use crate::data::key::Key;
use crate::db_index::DbIndex;
use crate::random::mix;
use crate::registries::cached::table::Added;
use crate::registries::cached::{Cached, InvalidationSink};
use crate::registries::lazy_free::LazyFreeItem;
use crate::registries::reaper_wakeup::Left;

/// Beyond the limit at most this many keys are taken out under one lock.
const TRIM_BATCH: usize = 64;

impl Keyspace {
    /// Has `sink` told of changes. A second call has no effect.
    pub fn set_invalidation_sink(&self, sink: Arc<dyn InvalidationSink>) {
        let _ = self.cached.sink.set(sink);
    }

    /// Whether the sink is told of every change from now on, except in shards that are locked at this moment.
    pub fn set_broadcast(&self, is_on: bool) {
        self.interest.set_broadcast(is_on);
    }

    /// How many cached keys are remembered at most, at first none. The reaper takes out what is too much.
    pub fn limit_cached_keys(&self, limit: u64) {
        self.cached.limit.store(limit, Ordering::Relaxed);
        if self.cached.exceeds_limit() {
            self.reaper_wakeup.notify();
        }
    }

    /// How many cached keys are remembered, and how many readers of all of them. Without a lock.
    #[must_use]
    pub fn cached_keys(&self) -> (u64, u64) {
        let Cached { keys, readers, .. } = &self.cached;
        (keys.load(Ordering::Relaxed), readers.load(Ordering::Relaxed))
    }
}

impl ShardLocks<'_> {
    /// Remembers that a client is about to read a key, so that it is told of the next change. Locks its shard as
    /// [`ShardLocks::db`] does.
    pub fn remember_reader(&mut self, db: DbIndex, key: Key<'_>, reader: u64, now_ms: i64) {
        let keyspace = self.keyspace();
        // Removes what has expired, so that the read does not.
        self.db(db, key.hash(), now_ms).deadline_of(key);
        let held = self.held(keyspace.shard_of(key.hash()));
        let cached = held.shard.observers.cached.get_mut();
        let sink = keyspace.cached.sink.get();
        let still_reads = |reader| sink.is_none_or(|sink| sink.still_reads(reader));
        let added = cached.add(&keyspace.hasher, db, key, reader, still_reads);
        match added {
            Added::Nothing => return,
            Added::Reader { gone } => {
                keyspace.cached.add(0, 1);
                keyspace.cached.sub(0, gone);
            }
            Added::Key => keyspace.cached.add(1, 1),
        }
        held.note_cached(keyspace);
        if added != Added::Key {
            return;
        }
        if keyspace.cached.exceeds_limit() {
            self.forget_cached_key(keyspace.shard_of(key.hash()), key.hash().0);
        }
    }

    /// Has the changes that follow under the locks that are held told as [`Keyspace::set_broadcast`] says now.
    pub fn adopt_broadcast(&mut self) {
        self.thread.effects.adopt_broadcast(self.thread.keyspace);
    }

    /// Tells now of what has changed, as unlocking would. Not to be called under a
    /// [`MultiShardGuard`](crate::MultiShardGuard), whose changes are one.
    #[inline]
    pub fn tell_invalidated(&mut self) {
        if self.thread.effects.noted().is_some_and(|notices| !notices.invalidated.is_empty()) {
            self.commit_effects();
        }
    }

    /// Takes a cached key out of a shard, and tells its readers as if it had changed. Whether there was any.
    fn forget_cached_key(&mut self, shard: usize, random: u64) -> bool {
        let keyspace = self.keyspace();
        let held = self.held(shard);
        let cached = held.shard.observers.cached.get_mut();
        let Some(taken) = cached.take_any(&keyspace.hasher, mix(random)) else { return false };
        held.note_cached(keyspace);
        keyspace.cached.sub(1, taken.readers_len());
        self.thread.effects.notices().invalidated.push(taken, Origin::SERVER.client, false);
        true
    }

    /// Takes out some of the keys beyond the limit.
    pub(crate) fn trim_cached_keys(&mut self) -> Left {
        let keyspace = self.keyspace();
        if !keyspace.cached.exceeds_limit() {
            return Left::Nothing;
        }
        for shard in 0..keyspace.shard_count() {
            let mut taken = 0;
            while taken < TRIM_BATCH
                && keyspace.cached.exceeds_limit()
                && self.forget_cached_key(shard, taken as u64)
            {
                taken += 1;
            }
            self.release();
        }
        if keyspace.cached.exceeds_limit() { Left::Something } else { Left::Nothing }
    }

    /// Makes changes that clients are told of as one, as of a change of all keys, however many keys they are. All
    /// shards are locked.
    pub fn invalidate_at_once<T>(&mut self, change: impl FnOnce(&mut Self) -> T) -> T {
        self.thread.effects.notices_mut().invalidated.is_quiet = true;
        let changed = change(self);
        self.thread.effects.notices_mut().invalidated.is_quiet = false;
        self.invalidate_all();
        changed
    }

    /// The contents of whole databases change: clients have to forget all they have cached. All shards are locked.
    pub(crate) fn invalidate_all(&mut self) {
        let keyspace = self.keyspace();
        if keyspace.cached.sink.get().is_none() {
            return;
        }
        let mut tables = Vec::new();
        for held in self.all_held() {
            let table = std::mem::take(held.shard.observers.cached.get_mut());
            if table.len() > 0 {
                held.note_cached(keyspace);
                keyspace.cached.sub(table.len(), table.readers_len());
                tables.push(table);
            }
        }
        self.thread.effects.notices_mut().invalidated.all = true;
        if !tables.is_empty() {
            keyspace.discard(LazyFreeItem::Cached(tables));
        }
    }
}

impl Held<'_> {
    /// Notes what a table is like that has changed.
    fn note_cached(&mut self, keyspace: &Keyspace) {
        note_table(keyspace, self.stats, self.shard.observers.cached.get_mut());
    }
}
