//! Waiters for keys: blocked clients, in the order in which they came.
//!
//! A waiter is registered under each of its keys, with all of their shards locked, after it has found
//! nothing there ([`ShardLocks::wait`]). From then on a thread that changes a key in such a shard
//! notes the key as ready, and looks up its waiters when the command is through
//! ([`ShardLocks::take_ready`], [`ShardLocks::claim_waiter`]). It serves them itself, in their order;
//! this module does not know how.
//!
//! **No wake-up is lost**: a waiter looks at its keys and is registered under the same locks. A change
//! that comes later finds it registered. If that change finds the waiter claimed, it leaves a note
//! (`state`).
//!
//! **Every waiter is served once**: see `state`.
//!
//! **No waiter is passed over**: the lock is given up while one is being served, and others may leave
//! the queue meanwhile. So the search goes on behind a [`Sequence`], not at a position.
//!
//! Not every thread that changes keys can serve: what expires, is evicted, loaded or changed by a protocol
//! without waiters is handed over when its locks are dropped ([`Keyspace::on_unserved`]).
//!
//! The thread that answers a waiter takes it out of its queues, with [`ShardLocks::forget_waiter`]. Where a shard
//! is busy and the caller must not wait, the reaper does: until then its state keeps others from serving it.

mod state;

/// What `state` is made of; its model checker puts something else here.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU32, Ordering};
}

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub use state::{Cancelled, Claimed, Reason, Returned, WaiterState};

use parking_lot::Mutex;

use crate::busy::Busy;
use crate::db_index::{DbIndex, DbSet};
use crate::interest::Interest;
use crate::key::Key;
use crate::keyspace::Keyspace;
use crate::planted::{self, Fault};
use crate::shard_locks::ShardLocks;

/// A key that clients may wait for, in its database.
pub type WaitKey = (DbIndex, Box<[u8]>);

/// The order of arrival: a later waiter has a higher one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sequence(u64);

/// Gives out sequence numbers, without end.
#[derive(Debug, Default)]
pub(crate) struct Sequences(AtomicU64);

impl Sequences {
    /// The next one. Waiters of the same key are given theirs under its lock, in their order.
    fn next(&self) -> Sequence {
        Sequence(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// A client that waits for one of some keys.
pub struct Waiter {
    /// Which thread may answer it.
    pub state: WaiterState,
    /// Whether it has to learn that a key is gone.
    pub wake_on_delete: bool,
    sequence: Sequence,
    keys: Box<[WaitKey]>,
    /// It is in no queue any more.
    is_forgotten: AtomicBool,
    about: Box<dyn Any + Send + Sync>,
}

impl Waiter {
    /// Its place in the order of arrival.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// The keys that it waits for.
    #[must_use]
    pub fn keys(&self) -> &[WaitKey] {
        &self.keys
    }

    /// What was given for serving it, if it is of this type.
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
    queues: HashMap<WaitKey, Queue>,
    /// How many there are in all queues.
    len: usize,
    /// Queues with a waiter that has to learn that the key is gone.
    woken_on_delete: usize,
}

/// The waiters for one key, in their order.
#[derive(Debug, Default)]
struct Queue {
    waiters: BTreeMap<Sequence, Arc<Waiter>>,
    /// How many of them have to learn that the key is gone.
    woken_on_delete: usize,
}

impl Waiters {
    fn add(&mut self, key: WaitKey, waiter: Arc<Waiter>) {
        let queue = self.queues.entry(key).or_default();
        let wakes = waiter.wake_on_delete;
        if queue.waiters.insert(waiter.sequence, waiter).is_some() {
            return;
        }
        self.len += 1;
        if wakes {
            queue.woken_on_delete += 1;
            self.woken_on_delete += usize::from(queue.woken_on_delete == 1);
        }
    }

    fn remove(&mut self, key: &WaitKey, sequence: Sequence) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        let Some(waiter) = queue.waiters.remove(&sequence) else { return };
        self.len -= 1;
        if waiter.wake_on_delete {
            queue.woken_on_delete -= 1;
            self.woken_on_delete -= usize::from(queue.woken_on_delete == 0);
        }
        if queue.waiters.is_empty() {
            self.queues.remove(key);
        }
    }

    /// The waiters for a key, in their order, those after `after`.
    fn queue(&self, key: &WaitKey, after: Option<Sequence>) -> impl Iterator<Item = &Arc<Waiter>> {
        let from = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let queue = self.queues.get(key).into_iter();
        queue.flat_map(move |queue| queue.waiters.range(from)).map(|it| it.1)
    }

    /// All keys, each with what its waiters are about, in their order.
    #[cfg(test)]
    pub(crate) fn all<T: Any + Clone>(&self) -> Vec<(WaitKey, Vec<T>)> {
        let about = |waiter: &Arc<Waiter>| waiter.about::<T>().expect("one type in a test").clone();
        let queues = self.queues.iter();
        queues.map(|(key, it)| (key.clone(), it.waiters.values().map(about).collect())).collect()
    }

    /// The keys of a database that have waiters.
    pub(crate) fn keys_of(&self, dbs: &DbSet) -> impl Iterator<Item = &WaitKey> {
        self.queues.keys().filter(|(db, _)| dbs.contains(*db))
    }
}

/// The keys that a thread has made ready while there were waiters in their shards, each once.
#[derive(Debug, Default)]
pub(crate) struct Ready(RefCell<ReadyKeys>);

#[derive(Debug, Default)]
struct ReadyKeys {
    in_order: Vec<WaitKey>,
    /// All of them once more, to find one.
    sorted: BTreeSet<WaitKey>,
}

impl ReadyKeys {
    fn add(&mut self, key: WaitKey) {
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

    /// The keys, in the order in which they became ready. None are left.
    pub(crate) fn take(&mut self) -> Vec<WaitKey> {
        std::mem::take(self.0.get_mut()).in_order
    }
}

/// Keys that were changed by code that does not serve their waiters.
#[derive(Default)]
pub(crate) struct Unserved {
    keys: Mutex<UnservedKeys>,
    /// Told when some were handed over.
    callback: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct UnservedKeys {
    /// Handed over by threads that do not serve. The callback is called for the first of them.
    handed_over: ReadyKeys,
    /// Left by workers that found the shard busy, which are woken when it is free. They are apart, because until
    /// then no thread may look here.
    left: ReadyKeys,
}

/// Waiters that have their answer and still stand in queues of busy shards.
#[derive(Default)]
pub(crate) struct Forgotten(Mutex<Vec<Arc<Waiter>>>);

impl Keyspace {
    /// Has `callback` called when keys were changed by code that does not serve their waiters.
    /// It has to see to it that [`ShardLocks::take_unserved`] is called soon. A second call has no effect.
    pub fn on_unserved(&self, callback: impl Fn() + Send + Sync + 'static) {
        let _ = self.unserved.callback.set(Box::new(callback));
    }

    /// Leaves it to the reaper to take a waiter out of all queues that has its answer: for callers that may hold
    /// shards. A second call does nothing.
    pub fn forget_waiter_later(&self, waiter: &Arc<Waiter>) {
        if !waiter.is_forgotten.swap(true, Ordering::Relaxed) {
            self.leave_to_reaper(waiter);
        }
    }

    fn leave_to_reaper(&self, waiter: &Arc<Waiter>) {
        self.forgotten.0.lock().push(Arc::clone(waiter));
        self.reaper_wakeup.notify();
    }
}

impl ShardLocks<'_> {
    /// Leaves unserved keys to other threads; no shard is held.
    #[cold]
    pub(crate) fn hand_over_ready(&mut self) {
        let Unserved { keys, callback } = &self.keyspace().unserved;
        // Without anybody to serve there are no waiters either.
        let Some(callback) = callback.get() else { return };
        let was_empty = {
            let mut keys = keys.lock();
            let was_empty = keys.handed_over.in_order.is_empty();
            let ready = self.thread.effects.take_ready();
            ready.into_iter().for_each(|key| keys.handed_over.add(key));
            was_empty
        };
        if was_empty {
            callback();
        }
    }

    /// Leaves a key to the next call of [`ShardLocks::take_unserved`], because it is in a busy shard. No thread is
    /// told.
    pub fn leave_unserved(&mut self, key: WaitKey) {
        if planted::is(Fault::BusyKeysStayUnserved) {
            return;
        }
        self.keyspace().unserved.keys.lock().left.add(key);
    }

    /// Notes a key as changed, which others have changed and not served.
    pub fn note_ready(&self, (db, key): &WaitKey) {
        self.thread.effects.notices().ready.note(*db, key);
    }

    /// Takes over what others have changed and not served.
    pub fn take_unserved(&mut self) {
        let UnservedKeys { handed_over, left } =
            std::mem::take(&mut *self.keyspace().unserved.keys.lock());
        let mut taken = left.in_order.into_iter().chain(handed_over.in_order).peekable();
        if taken.peek().is_some() {
            let ready = self.thread.effects.notices_mut().ready.0.get_mut();
            taken.for_each(|key| ready.add(key));
        }
    }

    /// Notes all keys with waiters as changed: to be called when keys have come to be in a way
    /// that passes no change of each.
    pub fn note_all_waiters(&mut self) {
        let dbs: DbSet = self.keyspace().db_indices().collect();
        self.lock_all().locks().note_waiters_of(&dbs);
    }

    /// Whether keys were changed with these locks that clients may wait for.
    #[inline]
    #[must_use]
    pub fn has_ready(&self) -> bool {
        self.thread.effects.has_ready()
    }

    /// These keys, in the order of their changes.
    #[must_use]
    pub fn take_ready(&mut self) -> Vec<WaitKey> {
        self.thread.effects.take_ready()
    }

    /// Claims the first of those who wait for a key, came `after`, and are in question. Where the key is gone, only
    /// those are that mind. A worker reaches the shard of the key first.
    pub fn claim_waiter(
        &mut self,
        key: &WaitKey,
        after: Option<Sequence>,
        now_ms: i64,
        is_in_question: impl Fn(&Waiter) -> bool,
    ) -> Option<Arc<Waiter>> {
        let (db, bytes) = key;
        let hashed = self.keyspace().key(bytes);
        let is_there = self.db(*db, hashed.hash(), now_ms).peek(hashed).is_some();
        let shard = self.keyspace().hasher.shard(hashed.hash());
        let waiters = self.held(shard).shard.waiters.as_ref()?;
        let claimed = waiters.queue(key, after).find(|waiter| {
            (is_there || waiter.wake_on_delete)
                && is_in_question(waiter)
                && waiter.state.claim() == Claimed::Yes
        });
        claimed.map(Arc::clone)
    }

    /// Takes a waiter that has its answer out of all queues. A second call does nothing, and needs no shard. Does
    /// not wait for a busy shard if the locks are a worker's: the reaper does that.
    pub fn forget_waiter(&mut self, waiter: &Arc<Waiter>) {
        if waiter.is_forgotten.swap(true, Ordering::Relaxed) {
            return;
        }
        if self.try_forget(waiter).is_err() {
            self.keyspace().leave_to_reaper(waiter);
        }
    }

    /// Takes a waiter out that was registered under an undo log, as if it had never come.
    pub(crate) fn withdraw_waiter(&mut self, waiter: &Waiter) {
        waiter.state.withdraw();
        if !waiter.is_forgotten.swap(true, Ordering::Relaxed) {
            self.try_forget(waiter).expect("its shards are locked");
        }
    }

    /// Takes waiters out of their queues that other threads could not.
    pub(crate) fn forget_others(&mut self) {
        let forgotten = std::mem::take(&mut *self.keyspace().forgotten.0.lock());
        forgotten.iter().for_each(|waiter| self.try_forget(waiter).expect("it waits"));
    }

    fn try_forget(&mut self, waiter: &Waiter) -> Result<(), Busy> {
        for key in &waiter.keys {
            let shard = self.keyspace().hasher.shard(self.keyspace().hash(&key.1));
            self.reach_shard(shard)?;
            let held = self.held(shard);
            if let Some(waiters) = &mut held.shard.waiters {
                waiters.remove(key, waiter.sequence);
            }
            held.note_waiters();
        }
        Ok(())
    }
}

impl ShardLocks<'_> {
    /// Registers a waiter for `keys` of a database, which has looked under the same locks and
    /// found nothing. `about` is for the thread that serves it. Under an undo log a rollback takes it out again;
    /// until the commit no other thread must know of it.
    ///
    /// # Panics
    ///
    /// If the shards of the keys are not locked together.
    pub fn wait(
        &mut self,
        db: DbIndex,
        keys: &[Key<'_>],
        wake_on_delete: bool,
        about: impl Any + Send + Sync,
    ) -> Arc<Waiter> {
        self.assert_together(keys);
        let waiter = Arc::new(Waiter {
            state: WaiterState::new(),
            wake_on_delete,
            sequence: self.keyspace().sequences.next(),
            keys: keys.iter().map(|key| (db, key.bytes().into())).collect(),
            is_forgotten: AtomicBool::new(false),
            about: Box::new(about),
        });
        for (key, wait_key) in keys.iter().zip(&waiter.keys) {
            let shard = self.keyspace().hasher.shard(key.hash());
            let held = self.held(shard);
            let waiters = held.shard.waiters.get_or_insert_default();
            waiters.add(wait_key.clone(), Arc::clone(&waiter));
            held.note_waiters();
        }
        if let Some(undo) = &self.thread.undo {
            undo.waits(Arc::clone(&waiter));
        }
        waiter
    }
}

impl crate::shard::Held<'_> {
    /// Tells threads that change keys of the shard whether there is a waiter.
    fn note_waiters(&mut self) {
        let waiters = self.shard.waiters.as_ref();
        let [count, keys, woken_on_delete] = waiters
            .map_or([0; 3], |waiters| [waiters.len, waiters.queues.len(), waiters.woken_on_delete]);
        if count == 0 {
            self.shard.waiters = None;
        }
        self.stats.interest.set(Interest::WAITERS, count > 0);
        self.stats.awaited_keys.set(keys as u64);
        self.stats.awaited_removals.set(woken_on_delete as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::Options;

    #[test]
    fn a_key_is_left_once_however_often_its_shard_is_busy() {
        let keyspace = Keyspace::new(Options::default()).expect("options within bounds");
        for key in [b"a", b"b", b"a"] {
            keyspace.locks().leave_unserved((DbIndex::ZERO, key.as_slice().into()));
        }
        assert_eq!(keyspace.unserved.keys.lock().left.in_order.len(), 2);
    }
}
