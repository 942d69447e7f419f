//! Registering waiters, finding those of a key, and forgetting them.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::access::keyspace::Keyspace;
use crate::access::shard::Held;
use crate::access::shard_locks::ShardLocks;
use crate::change::interest::Interest;
use crate::data::key::Key;
use crate::db_index::DbIndex;
use crate::error::Busy;
use crate::planted::{self, Fault};
use crate::registries::waiters::{
    Claimed, Sequence, Unserved, UnservedKeys, WaitKey, Waiter, WaiterState,
};

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

impl Held<'_> {
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
    use crate::access::keyspace::Options;

    #[test]
    fn a_key_is_left_once_however_often_its_shard_is_busy() {
        let keyspace = Keyspace::new(Options::default()).expect("options within bounds");
        for key in [b"a", b"b", b"a"] {
            keyspace.locks().leave_unserved((DbIndex::ZERO, key.as_slice().into()));
        }
        assert_eq!(keyspace.unserved.keys.lock().left.in_order.len(), 2);
    }
}
