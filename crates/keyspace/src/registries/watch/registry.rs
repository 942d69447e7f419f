//! The watched keys of one shard, found by their hash.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::filter::Filter;
use crate::data::key::{Key, KeyHash};
use crate::db_index::{DbIndex, DbSet};
use crate::registries::reaper_wakeup::ReaperWakeup;

/// Maximum capacity, about a kilobyte, of tables that are kept, so that a frequently used one is not rebuilt each
/// time.
const KEPT_CAPACITY_MAX: usize = 32;

/// A key that is watched.
#[derive(Debug)]
struct WatchedKey {
    db: DbIndex,
    key: Box<[u8]>,
    /// Watchers in the order of their numbers, never empty.
    watchers: Vec<Arc<WatchState>>,
}

/// The watchers of keys of one shard, under its lock. Code that changes a key calls [`Registry::may_watch`];
/// everything else is rare.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// The keys of each hash: usually one; more for keys of the same name in several databases.
    keys: HashMap<KeyHash, Vec<WatchedKey>, BuildHasherDefault<SpreadHash>>,
    filter: Filter,
    len: usize,
}

impl Registry {
    /// Returns the number of watched keys.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns true if a key of this hash may be watched, according to the filter.
    #[inline]
    pub(crate) fn may_watch(&self, hash: KeyHash) -> bool {
        self.filter.passes(hash)
    }

    /// Returns true if a key of this hash is watched.
    pub(crate) fn is_watched(&self, hash: KeyHash) -> bool {
        self.keys.contains_key(&hash)
    }

    /// Registers a watcher; `false` if it was registered already.
    pub(crate) fn add(&mut self, db: DbIndex, key: Key<'_>, watcher: Arc<WatchState>) -> bool {
        let keys = self.keys.entry(key.hash()).or_insert_with(|| {
            self.filter.add(key.hash());
            // Usually there is one, and no other follows.
            Vec::with_capacity(1)
        });
        let Some(watched) = keys.iter_mut().find(|it| it.db == db && *it.key == *key.bytes())
        else {
            keys.push(WatchedKey { db, key: key.bytes().into(), watchers: vec![watcher] });
            self.len += 1;
            self.fit_filter();
            return true;
        };
        let id = watcher.id;
        let Err(position) = watched.watchers.binary_search_by_key(&id, |watcher| watcher.id) else {
            return false;
        };
        watched.watchers.insert(position, watcher);
        true
    }

    /// Removes a watcher, if it is registered for keys of this hash.
    pub(crate) fn remove(&mut self, db: DbIndex, hash: KeyHash, id: WatchId) {
        let Some(keys) = self.keys.get_mut(&hash) else { return };
        let before = keys.len();
        keys.retain_mut(|watched| {
            if watched.db == db
                && let Ok(position) =
                    watched.watchers.binary_search_by_key(&id, |watcher| watcher.id)
            {
                watched.watchers.remove(position);
            }
            !watched.watchers.is_empty()
        });
        self.len -= before - keys.len();
        if keys.is_empty() {
            self.remove_hash(hash);
        }
    }

    /// Removes all watchers of a key.
    pub(crate) fn take(&mut self, db: DbIndex, hash: KeyHash, key: &[u8]) -> Vec<Arc<WatchState>> {
        let Some(keys) = self.keys.get_mut(&hash) else { return Vec::new() };
        let is_it = |watched: &WatchedKey| watched.db == db && *watched.key == *key;
        let Some(position) = keys.iter().position(is_it) else { return Vec::new() };
        let watchers = keys.swap_remove(position).watchers;
        self.len -= 1;
        if keys.is_empty() {
            self.remove_hash(hash);
        }
        watchers
    }

    /// Iterates over the watched keys of some databases.
    pub(crate) fn keys_of(&self, dbs: &DbSet) -> impl Iterator<Item = (DbIndex, KeyHash, &[u8])> {
        let keys = self.keys.iter().flat_map(|(hash, keys)| keys.iter().map(|it| (*hash, it)));
        let keys = keys.filter(|(_, watched)| dbs.contains(watched.db));
        keys.map(|(hash, watched)| (watched.db, hash, &*watched.key))
    }

    /// Removes a hash without keys, and releases excess memory.
    fn remove_hash(&mut self, hash: KeyHash) {
        self.keys.remove(&hash);
        self.filter.remove(hash);
        self.fit_filter();
        if self.keys.capacity() > KEPT_CAPACITY_MAX.max(8 * self.keys.len()) {
            self.keys.shrink_to(2 * self.keys.len());
        }
    }

    fn fit_filter(&mut self) {
        if self.filter.is_unfit(self.keys.len()) {
            self.filter = Filter::new(self.keys.keys().copied());
        }
    }
}

/// Spreads the hash of a key over a table: its upper bits are constant within a shard.
#[derive(Debug, Default)]
struct SpreadHash(u64);

impl Hasher for SpreadHash {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write_u64(&mut self, hash: u64) {
        // The table takes its index from the lowest bits and a tag from the highest ones.
        self.0 = hash ^ hash << 32;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a key's hash is one word")
    }
}

/// Identity of a watch.
pub(crate) type WatchId = u64;

/// Key of a registration, for its removal.
pub(crate) type Registered = (DbIndex, KeyHash);

/// State that a [`Watch`](crate::Watch) shares with threads that change its keys.
pub struct WatchState {
    pub(crate) id: WatchId,
    pub(crate) is_dirty: AtomicBool,
    pub(crate) keys: AtomicUsize,
    pub(crate) board: Arc<Board>,
}

/// State shared by all watches of a keyspace.
pub(crate) struct Board {
    pub(crate) last_id: AtomicU64,
    /// Number of watches with keys that are not dirty.
    pub(crate) watching: AtomicU64,
    /// Watches dropped without shard locks, for the reaper.
    pub(crate) dropped: Mutex<Vec<(WatchId, Vec<Registered>)>>,
    pub(crate) reaper_wakeup: Arc<ReaperWakeup>,
}

impl Board {
    pub(crate) fn new(reaper_wakeup: Arc<ReaperWakeup>) -> Self {
        Self {
            last_id: AtomicU64::new(0),
            watching: AtomicU64::new(0),
            dropped: Mutex::default(),
            reaper_wakeup,
        }
    }
}

impl WatchState {
    /// Returns true if a key has changed, regardless of expiry.
    #[inline]
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        // Relaxed: for certainty, a caller has locked the shards of all keys, like those that write it.
        self.is_dirty.load(Ordering::Relaxed)
    }

    /// Returns the number of watched keys: none when it is dirty.
    #[must_use]
    pub fn keys(&self) -> usize {
        if self.is_dirty() { 0 } else { self.keys.load(Ordering::Relaxed) }
    }

    /// Marks it dirty, or ends it.
    pub(crate) fn mark(&self) {
        if !self.is_dirty.swap(true, Ordering::Relaxed) && self.keys.load(Ordering::Relaxed) > 0 {
            self.board.watching.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for WatchState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, is_dirty, .. } = self;
        f.debug_struct("WatchState").field("id", id).field("is_dirty", is_dirty).finish()
    }
}
