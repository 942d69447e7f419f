//! Waiters for keys: blocked clients, in the order of their arrival.
//!
//! A waiter is registered under each of its keys, with all of their shards locked, after it has found nothing there
//! (`wait_for_keys`). From then on, a thread that changes a key in such a shard notes the key as ready. After the
//! command it looks up the waiters (`ShardLocks::take_ready`, `claim_waiter`) and serves them itself, in their order.
//! This module does not know how to serve them.
//!
//! **No wake-up is lost**: a waiter checks its keys and is registered under the same locks. A later change finds it
//! registered. If that change finds the waiter claimed, it leaves a note (`state`).
//!
//! **Every waiter is served once**: see `state`.
//!
//! **No waiter is skipped**: the lock is released while one is being served, and others may leave the queue
//! meanwhile. So the search continues after a [`Sequence`], not at a position.
//!
//! Some threads that change keys cannot serve waiters. Keys that expire, are evicted, loaded, or changed by a
//! protocol without waiters are handed over when the locks are dropped (`Keyspace::on_unserved`).
//!
//! The thread that answers a waiter removes it from its queues, with `forget_waiter`. If a shard is busy and the
//! caller must not wait, the reaper does it; until then, the waiter's state prevents that others serve it.

mod state;
mod sync;

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub use state::{Cancelled, Claimed, Reason, Returned, WaiterState};

use parking_lot::Mutex;

use crate::db_index::{DbIndex, DbSet};

/// A key that clients may wait for, in its database.
pub type WaitKey = (DbIndex, Box<[u8]>);

/// Order of arrival: a later waiter has a higher one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sequence(u64);

/// Source of sequence numbers, which never run out.
#[derive(Debug, Default)]
pub(crate) struct Sequences(AtomicU64);

impl Sequences {
    /// Returns the next one. Waiters of a key get theirs under its lock, in their order.
    pub(crate) fn next(&self) -> Sequence {
        Sequence(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// Changes that wake a waiter, besides the creation of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakes {
    /// No others.
    Creation,
    /// The removal of a key.
    Removal,
    /// Edits of a present key: it waits for more elements.
    Edit,
}

/// A client that waits for one of some keys.
pub struct Waiter {
    /// State that decides which thread may answer it.
    pub state: WaiterState,
    /// Changes that wake it.
    pub wakes: Wakes,
    pub(crate) sequence: Sequence,
    pub(crate) keys: Box<[WaitKey]>,
    /// True if it is in no queue any more.
    pub(crate) is_forgotten: AtomicBool,
    pub(crate) about: Box<dyn Any + Send + Sync>,
}

impl Waiter {
    /// Returns its position in the order of arrival.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// Returns the keys that it waits for.
    #[must_use]
    pub fn keys(&self) -> &[WaitKey] {
        &self.keys
    }

    /// Returns the caller's data for serving it, if they are of this type.
    #[must_use]
    pub fn about<T: Any>(&self) -> Option<&T> {
        self.about.downcast_ref()
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter")
            .field("sequence", &self.sequence)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// The waiters for keys of one shard, behind its lock.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    pub(crate) queues: HashMap<WaitKey, Queue>,
    /// Number of waiters in all queues.
    pub(crate) len: usize,
    /// Number of queues with a waiter that must be told when the key is gone.
    pub(crate) woken_on_delete: usize,
    /// Number of waiters in all queues that edits wake.
    pub(crate) woken_by_edits: usize,
}

/// The waiters for one key, in their order.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) waiters: BTreeMap<Sequence, Arc<Waiter>>,
    /// Number of waiters that must be told when the key is gone.
    pub(crate) woken_on_delete: usize,
}

impl Waiters {
    pub(crate) fn add(&mut self, key: WaitKey, waiter: Arc<Waiter>) {
        let queue = self.queues.entry(key).or_default();
        let wakes = waiter.wakes;
        if queue.waiters.insert(waiter.sequence, waiter).is_some() {
            return;
        }
        self.len += 1;
        self.woken_by_edits += usize::from(wakes == Wakes::Edit);
        if wakes == Wakes::Removal {
            queue.woken_on_delete += 1;
            self.woken_on_delete += usize::from(queue.woken_on_delete == 1);
        }
    }

    pub(crate) fn remove(&mut self, key: &WaitKey, sequence: Sequence) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        let Some(waiter) = queue.waiters.remove(&sequence) else { return };
        self.len -= 1;
        self.woken_by_edits -= usize::from(waiter.wakes == Wakes::Edit);
        if waiter.wakes == Wakes::Removal {
            queue.woken_on_delete -= 1;
            self.woken_on_delete -= usize::from(queue.woken_on_delete == 0);
        }
        if queue.waiters.is_empty() {
            self.queues.remove(key);
        }
    }

    /// Iterates over the waiters for a key after `after`, in their order.
    pub(crate) fn queue(
        &self,
        key: &WaitKey,
        after: Option<Sequence>,
    ) -> impl Iterator<Item = &Arc<Waiter>> {
        let from = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let queue = self.queues.get(key).into_iter();
        queue.flat_map(move |queue| queue.waiters.range(from)).map(|it| it.1)
    }

    /// Returns all keys, each with the data of its waiters, in their order.
    #[cfg(test)]
    pub(crate) fn all<T: Any + Clone>(&self) -> Vec<(WaitKey, Vec<T>)> {
        let about = |waiter: &Arc<Waiter>| waiter.about::<T>().expect("one type in a test").clone();
        let queues = self.queues.iter();
        queues.map(|(key, it)| (key.clone(), it.waiters.values().map(about).collect())).collect()
    }

    /// Iterates over the keys of a database that have waiters.
    pub(crate) fn keys_of(&self, dbs: &DbSet) -> impl Iterator<Item = &WaitKey> {
        self.queues.keys().filter(|(db, _)| dbs.contains(*db))
    }
}

/// Keys that a thread has made ready while there were waiters in their shards, without duplicates.
#[derive(Debug, Default)]
pub(crate) struct Ready(pub(crate) RefCell<ReadyKeys>);

#[derive(Debug, Default)]
pub(crate) struct ReadyKeys {
    pub(crate) in_order: Vec<WaitKey>,
    /// These keys again, sorted for lookups.
    sorted: BTreeSet<WaitKey>,
}

impl ReadyKeys {
    pub(crate) fn add(&mut self, key: WaitKey) {
        if self.sorted.insert(key.clone()) {
            self.in_order.push(key);
        }
    }

    fn truncate(&mut self, len: usize) {
        let forgotten = self.in_order.drain(len.min(self.in_order.len())..);
        forgotten.for_each(|key| _ = self.sorted.remove(&key));
    }
}

impl Ready {
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().in_order.len()
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<WaitKey> {
        self.0.borrow().in_order.clone()
    }

    /// Forgets all but the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.0.get_mut().truncate(len);
    }

    #[cold]
    pub(crate) fn note(&self, db: DbIndex, key: &[u8]) {
        self.0.borrow_mut().add((db, key.into()));
    }

    /// Takes the keys, in the order in which they became ready.
    pub(crate) fn take(&mut self) -> Vec<WaitKey> {
        std::mem::take(self.0.get_mut()).in_order
    }
}

/// Keys that were changed by code that does not serve their waiters.
#[derive(Default)]
pub(crate) struct Unserved {
    pub(crate) keys: Mutex<UnservedKeys>,
    /// Called when keys were handed over.
    pub(crate) callback: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
pub(crate) struct UnservedKeys {
    /// Handed over by threads that do not serve. The callback is called for the first of them.
    pub(crate) handed_over: ReadyKeys,
    /// Left by workers that found the shard busy, and are woken when it is free. Separate, because until then no
    /// thread may check these.
    pub(crate) left: ReadyKeys,
}

/// Waiters that were answered but are still in queues of busy shards.
#[derive(Default)]
pub(crate) struct Forgotten(pub(crate) Mutex<Vec<Arc<Waiter>>>);
