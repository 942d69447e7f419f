//! Those who wait for keys: blocked clients, in the order in which they came.
//!
//! A waiter is registered under each of its keys, with all of their shards locked, after it has found
//! nothing there ([`Locker::wait`]). From then on whoever changes a key in such a shard notes the key as
//! ready, and looks, when its command is through, who waits for it ([`Locker::take_ready`],
//! [`Locker::claim_waiter`]). It serves them itself, in their order. How is not known here.
//!
//! **No wake-up is lost**: a waiter looks at its keys and is registered under the same locks. A change
//! that comes later finds it registered. If that finds it claimed, it leaves a note (`claim`).
//!
//! **Everybody is served once**: see `claim`.
//!
//! **Nobody is passed over**: the lock is given up while somebody is being served, and others may leave
//! the queue meanwhile. So the search goes on behind a [`Ticket`], not at a position.
//!
//! Not everybody who changes keys can serve: what expires, is evicted, loaded or changed by a protocol
//! without waiters is handed over when its locker is dropped ([`Keyspace::on_unserved`]).
//!
//! Whoever gives a waiter its answer takes it out of its queues, with [`Locker::forget_waiter`].

mod claim;

/// What `claim` is made of; its model checker puts something else here.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU32, Ordering};
}

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub use claim::{Cancelled, Claim, Claimed, Reason, Returned};

use parking_lot::Mutex;

use crate::db_index::DbIndex;
use crate::key::Key;
use crate::keyspace::Keyspace;
use crate::locker::Locker;

/// A key that somebody may wait for, in its database.
pub type WaitKey = (DbIndex, Box<[u8]>);

/// When somebody began to wait: who came later has a higher one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Gives out tickets, without end.
#[derive(Debug, Default)]
pub(crate) struct Tickets(AtomicU64);

impl Tickets {
    /// The next one. Waiters of the same key are given theirs under its lock, in their order.
    fn next(&self) -> Ticket {
        Ticket(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// Somebody who waits for one of some keys.
pub struct Waiter {
    /// Who may answer it.
    pub claim: Claim,
    /// Whether it has to learn that a key is gone.
    pub minds_removal: bool,
    ticket: Ticket,
    keys: Box<[WaitKey]>,
    about: Box<dyn Any + Send + Sync>,
}

impl Waiter {
    /// Its place in the order of arrival.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// What was given for whoever serves it, if it is of this type.
    #[must_use]
    pub fn about<T: Any>(&self) -> Option<&T> {
        self.about.downcast_ref()
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter")
            .field("ticket", &self.ticket)
            .field("claim", &self.claim)
            .finish_non_exhaustive()
    }
}

/// Those who wait for keys of one shard, behind its lock.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    queues: HashMap<WaitKey, Queue>,
    /// How many there are in all queues.
    len: usize,
    /// Queues with a waiter that has to learn that the key is gone.
    minding: usize,
}

/// Those who wait for one key, in their order.
#[derive(Debug, Default)]
struct Queue {
    waiters: BTreeMap<Ticket, Arc<Waiter>>,
    /// How many of them have to learn that the key is gone.
    minding: usize,
}

impl Waiters {
    fn add(&mut self, key: WaitKey, waiter: Arc<Waiter>) {
        let queue = self.queues.entry(key).or_default();
        let minds = waiter.minds_removal;
        if queue.waiters.insert(waiter.ticket, waiter).is_some() {
            return;
        }
        self.len += 1;
        if minds {
            queue.minding += 1;
            self.minding += usize::from(queue.minding == 1);
        }
    }

    fn remove(&mut self, key: &WaitKey, ticket: Ticket) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        let Some(waiter) = queue.waiters.remove(&ticket) else { return };
        self.len -= 1;
        if waiter.minds_removal {
            queue.minding -= 1;
            self.minding -= usize::from(queue.minding == 0);
        }
        if queue.waiters.is_empty() {
            self.queues.remove(key);
        }
    }

    /// Those who wait for a key, in their order, from behind `after` on.
    fn queue(&self, key: &WaitKey, after: Option<Ticket>) -> impl Iterator<Item = &Arc<Waiter>> {
        let from = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let queue = self.queues.get(key).into_iter();
        queue.flat_map(move |queue| queue.waiters.range(from)).map(|it| it.1)
    }

    /// The keys of a database that somebody waits for.
    pub(crate) fn keys_of(&self, db: DbIndex) -> impl Iterator<Item = &WaitKey> {
        self.queues.keys().filter(move |(of, _)| *of == db)
    }
}

/// The keys that a thread has changed while somebody waited in their shards.
#[derive(Debug, Default)]
pub(crate) struct Ready(RefCell<Vec<WaitKey>>);

impl Ready {
    #[cold]
    pub(crate) fn note(&self, db: DbIndex, key: &[u8]) {
        let mut keys = self.0.borrow_mut();
        if keys.last().is_none_or(|(other, last)| *other != db || **last != *key) {
            keys.push((db, key.into()));
        }
    }
}

/// Keys that were changed by somebody who does not serve those who wait for them.
#[derive(Default)]
pub(crate) struct Unserved {
    keys: Mutex<Vec<WaitKey>>,
    /// Told when there are any.
    alarm: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Keyspace {
    /// Has `alarm` called when keys were changed by somebody who does not serve those who wait for them.
    /// It is to have somebody call [`Locker::take_unserved`] soon. A second call has no effect.
    pub fn on_unserved(&self, alarm: impl Fn() + Send + Sync + 'static) {
        let _ = self.unserved.alarm.set(Box::new(alarm));
    }
}

impl Locker<'_> {
    /// Leaves the keys that nobody has served to others; no shard is held.
    #[cold]
    pub(crate) fn hand_over_ready(&mut self) {
        let Unserved { keys, alarm } = &self.keyspace().unserved;
        // Without anybody to serve there are no waiters either.
        let Some(alarm) = alarm.get() else { return };
        let was_empty = {
            let mut keys = keys.lock();
            let was_empty = keys.is_empty();
            keys.append(self.ready.0.get_mut());
            was_empty
        };
        if was_empty {
            alarm();
        }
    }

    /// Takes over what others have changed and not served.
    pub fn take_unserved(&mut self) {
        let unserved = std::mem::take(&mut *self.keyspace().unserved.keys.lock());
        self.ready.0.get_mut().extend(unserved);
    }

    /// Notes all keys as changed that somebody waits for: to be called when keys have come to be in a way
    /// that passes no change of each.
    pub fn note_all_waiters(&mut self) {
        let dbs: Vec<DbIndex> = self.keyspace().db_indices().collect();
        self.lock_all().locker().note_waiters_of(&dbs);
    }

    /// Whether keys were changed with this locker that somebody may wait for.
    #[inline]
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.0.borrow().is_empty()
    }

    /// These keys, in the order of their changes.
    #[must_use]
    pub fn take_ready(&mut self) -> Vec<WaitKey> {
        std::mem::take(self.ready.0.get_mut())
    }

    /// Claims the first of those who wait for a key and came `after`. Where the key is gone only those come
    /// into question who mind.
    pub fn claim_waiter(
        &mut self,
        key: &WaitKey,
        after: Option<Ticket>,
        now_ms: i64,
    ) -> Option<Arc<Waiter>> {
        let (db, bytes) = key;
        let hashed = self.keyspace().key(bytes);
        let is_there = self.db(*db, hashed.hash(), now_ms).peek(hashed).is_some();
        let shard = self.keyspace().hasher.shard(hashed.hash());
        let waiters = self.held(shard).shard.waiters.as_ref()?;
        let claimed = waiters.queue(key, after).find(|waiter| {
            (is_there || waiter.minds_removal) && waiter.claim.claim() == Claimed::Yes
        });
        claimed.map(Arc::clone)
    }

    /// Takes a waiter that has its answer out of all queues.
    pub fn forget_waiter(&mut self, waiter: &Arc<Waiter>) {
        for key in &waiter.keys {
            let shard = self.keyspace().hasher.shard(self.keyspace().hash(&key.1));
            let held = self.held(shard);
            if let Some(waiters) = &mut held.shard.waiters {
                waiters.remove(key, waiter.ticket);
            }
            held.note_waiters();
        }
    }
}

impl Locker<'_> {
    /// Registers somebody who waits for `keys` of a database, and who has looked under the same locks and
    /// found nothing. `about` is for whoever serves it.
    ///
    /// # Panics
    ///
    /// If the shards of the keys are not locked together.
    pub fn wait(
        &mut self,
        db: DbIndex,
        keys: &[Key<'_>],
        minds_removal: bool,
        about: impl Any + Send + Sync,
    ) -> Arc<Waiter> {
        self.assert_together(keys);
        let waiter = Arc::new(Waiter {
            claim: Claim::new(),
            minds_removal,
            ticket: self.keyspace().tickets.next(),
            keys: keys.iter().map(|key| (db, key.bytes().into())).collect(),
            about: Box::new(about),
        });
        for (key, wait_key) in keys.iter().zip(&waiter.keys) {
            let shard = self.keyspace().hasher.shard(key.hash());
            let held = self.held(shard);
            let waiters = held.shard.waiters.get_or_insert_default();
            waiters.add(wait_key.clone(), Arc::clone(&waiter));
            held.note_waiters();
        }
        waiter
    }
}

impl crate::shard::Held<'_> {
    /// Lets those who change keys of the shard know whether anybody waits.
    fn note_waiters(&mut self) {
        let waiters = self.shard.waiters.as_ref();
        let [count, keys, minding] =
            waiters.map_or([0; 3], |waiters| [waiters.len, waiters.queues.len(), waiters.minding]);
        if count == 0 {
            self.shard.waiters = None;
        }
        self.stats.waiters.set(count as u64);
        self.stats.awaited_keys.set(keys as u64);
        self.stats.awaited_removals.set(minding as u64);
    }
}
