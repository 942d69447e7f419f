//! Keys that clients have read and may have cached, so that they must be told when these change.
//!
//! Each shard has a table ([`CachedKeys`]) of such keys with their readers, behind its lock. A change takes its key
//! out of the table under that lock, and the [`InvalidationSink`] of the keyspace is told before the shard is
//! unlocked. So a reader is told of one change, and is told again when it has read again. A key need not exist.
//!
//! Others want to be told of every change, whether or not a key was read: the sink asks for that with
//! [`Keyspace::set_broadcast`].
//!
//! **No change is missed** as long as a reader is registered before it reads: a change is either visible to the read,
//! or finds the registration. A registration that is told in vain does no harm. So what is taken back is told like
//! any change, and beyond the limit of keys ([`Keyspace::limit_cached_keys`]) some are told as if they had changed.
//!
//! **What counts as a change** is more than for [`crate::watch`]: the removal of fields whose deadline has come is one,
//! and the caches of all databases are emptied at FLUSHDB, FLUSHALL, SWAPDB and a full copy from a primary.

mod table;

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use self::table::Added;
pub(crate) use self::table::{CachedKey, CachedKeys};
use crate::context::Context;
use crate::db_index::DbIndex;
use crate::event::Origin;
use crate::interest::Interest;
use crate::key::{Key, KeyHash};
use crate::keyspace::Keyspace;
use crate::lazy_free::LazyFreeItem;
use crate::reaper::Left;
use crate::scan::mix;
use crate::shard::Held;
use crate::shard_locks::ShardLocks;
use crate::stats::ShardStats;

/// Beyond the limit at most this many keys are taken out under one lock.
const TRIM_BATCH: usize = 64;

/// The receiver of invalidations.
///
/// Called with shards locked: an implementation must be quick, must not call the keyspace, and cannot fail.
pub trait InvalidationSink: Send + Sync {
    /// These keys have changed, in this order.
    fn invalidate(&self, invalidated: &[InvalidatedKey]);

    /// All keys may have changed.
    fn invalidate_all(&self);

    /// Whether a client that has read keys is still to be told of them. The others are forgotten in time.
    fn still_reads(&self, reader: u64) -> bool;

    /// Whether it is so far behind that changes that no client waits for should wait.
    fn is_congested(&self) -> bool;
}

/// A key that has changed.
#[derive(Debug)]
pub struct InvalidatedKey {
    cached: CachedKey,
    changed_by: u64,
    is_broadcast: bool,
}

impl InvalidatedKey {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.cached.key()
    }

    /// The number of the client that has changed it; 0 if none did.
    #[must_use]
    pub fn changed_by(&self) -> u64 {
        self.changed_by
    }

    /// Those that have read it since its last change, in ascending order.
    pub fn readers(&self) -> impl Iterator<Item = u64> + '_ {
        self.cached.readers()
    }

    /// Whether it is also for those that want to be told of every change.
    #[must_use]
    pub fn is_broadcast(&self) -> bool {
        self.is_broadcast
    }
}

/// What belongs to the tables of all shards.
#[derive(Default)]
pub(crate) struct Cached {
    keys: AtomicU64,
    readers: AtomicU64,
    limit: AtomicU64,
    sink: OnceLock<Arc<dyn InvalidationSink>>,
}

impl fmt::Debug for Cached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl Cached {
    // Relaxed throughout: the counts order nothing.
    fn add(&self, keys: u64, readers: u64) {
        self.keys.fetch_add(keys, Ordering::Relaxed);
        self.readers.fetch_add(readers, Ordering::Relaxed);
    }

    fn sub(&self, keys: usize, readers: usize) {
        self.keys.fetch_sub(keys as u64, Ordering::Relaxed);
        self.readers.fetch_sub(readers as u64, Ordering::Relaxed);
    }

    /// Whether the reaper has to wait.
    pub(crate) fn is_congested(&self) -> bool {
        self.sink.get().is_some_and(|sink| sink.is_congested())
    }

    fn exceeds_limit(&self) -> bool {
        self.keys.load(Ordering::Relaxed) > self.limit.load(Ordering::Relaxed)
    }
}

/// What a thread has changed under its locks, and has to tell.
#[derive(Debug, Default)]
pub(crate) struct Invalidated {
    keys: RefCell<Vec<InvalidatedKey>>,
    all: bool,
    /// All keys are going to be told at once, and none on its own.
    is_quiet: bool,
}

impl Invalidated {
    #[inline]
    pub(crate) fn is_empty(&mut self) -> bool {
        self.keys.get_mut().is_empty() && !self.all
    }

    #[cold]
    pub(crate) fn tell(&mut self, keyspace: &Keyspace) {
        let keys = std::mem::take(self.keys.get_mut());
        let all = std::mem::take(&mut self.all);
        let Some(sink) = keyspace.cached.sink.get() else { return };
        if all {
            sink.invalidate_all();
        }
        if !keys.is_empty() {
            sink.invalidate(&keys);
        }
    }

    fn push(&self, cached: CachedKey, changed_by: u64, is_broadcast: bool) {
        self.keys.borrow_mut().push(InvalidatedKey { cached, changed_by, is_broadcast });
    }

    /// Whether the last one says the same of a key that no client has read since.
    fn ends_with(&self, key: &[u8], changed_by: u64) -> bool {
        let keys = self.keys.borrow();
        let last = keys.last().filter(|last| last.is_broadcast && last.changed_by == changed_by);
        last.is_some_and(|last| last.key() == key)
    }
}

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

/// Tells threads that change keys of the shard whether any key is cached, and counts the memory of its table.
fn note_table(keyspace: &Keyspace, stats: &ShardStats, cached: &CachedKeys) {
    stats.interest.set(Interest::CACHED, cached.len() > 0);
    stats.cached_bytes.set(cached.memory_bytes() as u64);
    keyspace.follow_size(stats);
}

impl Context<'_> {
    /// A key has changed in a shard with cached keys, or while every change is told.
    #[inline(never)]
    pub(crate) fn invalidate(&self, interest: Interest, hash: KeyHash, key: &[u8], origin: Origin) {
        let invalidated = &self.thread.effects.notices().invalidated;
        if invalidated.is_quiet {
            return;
        }
        let is_broadcast = interest.includes(Interest::BROADCAST);
        let taken = match interest.includes(Interest::CACHED) {
            true => self.take_cached(Key::new(key, hash)),
            false => None,
        };
        match taken {
            Some(cached) => invalidated.push(cached, origin.client, is_broadcast),
            None if is_broadcast && !invalidated.ends_with(key, origin.client) => {
                invalidated.push(CachedKey::new(self.db, key, &[]), origin.client, true);
            }
            None => {}
        }
    }

    fn take_cached(&self, key: Key<'_>) -> Option<CachedKey> {
        let mut cached = self.observers.cached.borrow_mut();
        let taken = cached.take(&self.keyspace.hasher, self.db, key)?;
        note_table(self.keyspace, self.stats, &cached);
        self.keyspace.cached.sub(1, taken.readers_len());
        Some(taken)
    }
}
