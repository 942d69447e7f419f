//! Keys that clients have read and may have cached, so that they must be told when these change.
//!
//! Each shard has a table ([`CachedKeys`]) of such keys with their readers, behind its lock. A change takes its key
//! out of the table under that lock, and the [`InvalidationSink`] of the keyspace is told before the shard is
//! unlocked. So a reader is told of one change, and is told again when it has read again. A key need not exist.
//!
//! Others want to be told of every change, whether or not a key was read: the sink asks for that with
//! `Keyspace::set_broadcast`.
//!
//! **No change is missed** as long as a reader is registered before it reads: a change is either visible to the read,
//! or finds the registration. A registration that is told in vain does no harm. So what is taken back is told like
//! any change, and beyond the limit of keys (`Keyspace::limit_cached_keys`) some are told as if they had changed.
//!
//! **What counts as a change** is more than for `services/watch`: the removal of fields whose deadline has come is one,
//! and the caches of all databases are emptied at FLUSHDB, FLUSHALL, SWAPDB and a full copy from a primary.

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

    /// Whether the reaper has to wait.
    pub(crate) fn is_congested(&self) -> bool {
        self.sink.get().is_some_and(|sink| sink.is_congested())
    }

    pub(crate) fn exceeds_limit(&self) -> bool {
        self.keys.load(Ordering::Relaxed) > self.limit.load(Ordering::Relaxed)
    }
}

/// What a thread has changed under its locks, and has to tell.
#[derive(Debug, Default)]
pub(crate) struct Invalidated {
    keys: RefCell<Vec<InvalidatedKey>>,
    pub(crate) all: bool,
    /// All keys are going to be told at once, and none on its own.
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

    /// Whether the last one says the same of a key that no client has read since.
    pub(crate) fn ends_with(&self, key: &[u8], changed_by: u64) -> bool {
        let keys = self.keys.borrow();
        let last = keys.last().filter(|last| last.is_broadcast && last.changed_by == changed_by);
        last.is_some_and(|last| last.key() == key)
    }
}
