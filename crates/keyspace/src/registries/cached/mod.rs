//! Keys that clients may have cached, so that they must be told of changes (client-side caching).
//!
//! Each shard has a table ([`CachedKeys`]) of such keys with their readers, under its lock. A change removes its key
//! from the table, and the [`InvalidationSink`] of the keyspace is told before the shard is unlocked. So a reader is
//! told of one change, and again only after it has read again. A key need not exist.
//!
//! Other clients want to be told of every change, even of keys that nobody read: the sink requests that with
//! `Keyspace::set_broadcast`.
//!
//! **No change is missed** if a reader is registered before it reads: a change is either visible to the read, or
//! finds the registration. Superfluous invalidations do no harm. So a rollback is reported like any change, and keys
//! beyond the limit (`Keyspace::limit_cached_keys`) are reported as if they had changed.
//!
//! **More events count as changes** than for `services/watch`: the removal of expired fields is one, and FLUSHDB,
//! FLUSHALL, SWAPDB and a full copy from a primary invalidate the caches of all databases.

pub(crate) mod table;

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub(crate) use self::table::{CachedKey, CachedKeys};

/// The receiver of invalidations.
///
/// Called with shards locked: an implementation must be quick, must not call the keyspace, and cannot fail.
pub trait InvalidationSink: Send + Sync {
    /// Reports changed keys, in the order of their changes.
    fn invalidate(&self, invalidated: &[InvalidatedKey]);

    /// Reports that all keys may have changed.
    fn invalidate_all(&self);

    /// Returns true if a client must still be told of the keys it has read. Other clients are forgotten in time.
    fn still_reads(&self, reader: u64) -> bool;

    /// Returns true if the sink is so far behind that changes that no client waits for should be deferred.
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
    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.cached.key()
    }

    /// Returns the number of the client that changed it; 0 if none did.
    #[must_use]
    pub fn changed_by(&self) -> u64 {
        self.changed_by
    }

    /// Iterates over the clients that have read it since its last change, in ascending order.
    pub fn readers(&self) -> impl Iterator<Item = u64> + '_ {
        self.cached.readers()
    }

    /// Returns true if it is also for clients that want to be told of every change.
    #[must_use]
    pub fn is_broadcast(&self) -> bool {
        self.is_broadcast
    }
}

/// State shared by the tables of all shards.
#[derive(Default)]
pub(crate) struct Cached {
    pub(crate) keys: AtomicU64,
    pub(crate) readers: AtomicU64,
    pub(crate) limit: AtomicU64,
    pub(crate) sink: OnceLock<Arc<dyn InvalidationSink>>,
}

impl fmt::Debug for Cached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl Cached {
    // Relaxed throughout: the counts order nothing.
    pub(crate) fn add(&self, keys: u64, readers: u64) {
        self.keys.fetch_add(keys, Ordering::Relaxed);
        self.readers.fetch_add(readers, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, keys: usize, readers: usize) {
        self.keys.fetch_sub(keys as u64, Ordering::Relaxed);
        self.readers.fetch_sub(readers as u64, Ordering::Relaxed);
    }

    /// Returns true if the reaper must wait.
    pub(crate) fn is_congested(&self) -> bool {
        self.sink.get().is_some_and(|sink| sink.is_congested())
    }

    pub(crate) fn exceeds_limit(&self) -> bool {
        self.keys.load(Ordering::Relaxed) > self.limit.load(Ordering::Relaxed)
    }
}

/// Changes of a thread under its locks that are pending for the sink.
#[derive(Debug, Default)]
pub(crate) struct Invalidated {
    keys: RefCell<Vec<InvalidatedKey>>,
    pub(crate) all: bool,
    /// All keys are going to be reported at once, and none individually.
    pub(crate) is_quiet: bool,
}

impl Invalidated {
    #[inline]
    pub(crate) fn is_empty(&mut self) -> bool {
        self.keys.get_mut().is_empty() && !self.all
    }

    #[cold]
    pub(crate) fn tell(&mut self, cached: &Cached) {
        let keys = std::mem::take(self.keys.get_mut());
        let all = std::mem::take(&mut self.all);
        let Some(sink) = cached.sink.get() else { return };
        if all {
            sink.invalidate_all();
        }
        if !keys.is_empty() {
            sink.invalidate(&keys);
        }
    }

    pub(crate) fn push(&self, cached: CachedKey, changed_by: u64, is_broadcast: bool) {
        self.keys.borrow_mut().push(InvalidatedKey { cached, changed_by, is_broadcast });
    }

    /// Returns true if the last item reports the same key, and no client has read it since.
    pub(crate) fn ends_with(&self, key: &[u8], changed_by: u64) -> bool {
        let keys = self.keys.borrow();
        let last = keys.last().filter(|last| last.is_broadcast && last.changed_by == changed_by);
        last.is_some_and(|last| last.key() == key)
    }
}
