//! Registers, finds and removes waiters.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::access::keyspace::Keyspace;
use crate::access::notices::try_forget;
use crate::access::shard_locks::ShardLocks;
use crate::data::key::Key;
use crate::db_index::DbIndex;
use crate::planted::{self, Fault};
use crate::registries::reaper_wakeup::Left;
use crate::registries::waiters::{
    Claimed, Sequence, UnservedKeys, WaitKey, Waiter, WaiterState, Wakes,
};

/// Has the reaper remove an answered waiter from all queues: for callers that may have shards locked. A second call
/// does nothing.
pub fn forget_waiter_later(keyspace: &Keyspace, waiter: &Arc<Waiter>) {
    if !waiter.is_forgotten.swap(true, Ordering::Relaxed) {
        leave_to_reaper(keyspace, waiter);
    }
}

fn leave_to_reaper(keyspace: &Keyspace, waiter: &Arc<Waiter>) {
    keyspace.forgotten.0.lock().push(Arc::clone(waiter));
    keyspace.reaper_wakeup.notify();
}

/// Leaves a key to the next call of [`take_unserved`], because it is in a busy shard. No thread is woken.
pub fn leave_unserved(locks: &mut ShardLocks<'_>, key: WaitKey) {
    if planted::is(Fault::BusyKeysStayUnserved) {
        return;
    }
    locks.keyspace().unserved.keys.lock().left.add(key);
}

/// Takes over keys that others have changed and not served.
pub fn take_unserved(locks: &mut ShardLocks<'_>) {
    let UnservedKeys { handed_over, left } =
        std::mem::take(&mut *locks.keyspace().unserved.keys.lock());
    let mut taken = left.in_order.into_iter().chain(handed_over.in_order).peekable();
    if taken.peek().is_some() {
        let ready = locks.thread.effects.notices_mut().ready.0.get_mut();
        taken.for_each(|key| ready.add(key));
    }
}

/// Claims the first eligible waiter for a key after `after`. If the key is gone, only waiters that must be told are
/// eligible. A worker must reach the shard of the key first.
pub fn claim_waiter(
    locks: &mut ShardLocks<'_>,
    key: &WaitKey,
    after: Option<Sequence>,
    now_ms: i64,
    is_in_question: impl Fn(&Waiter) -> bool,
) -> Option<Arc<Waiter>> {
    let (db, bytes) = key;
    let hashed = locks.keyspace().key(bytes);
    let is_there = locks.db(*db, hashed.hash(), now_ms).peek(hashed).is_some();
    let shard = locks.keyspace().hasher.shard(hashed.hash());
    let waiters = locks.held(shard).shard.waiters.as_ref()?;
    let claimed = waiters.queue(key, after).find(|waiter| {
        (is_there || waiter.wakes == Wakes::Removal)
            && is_in_question(waiter)
            && waiter.state.claim() == Claimed::Yes
    });
    claimed.map(Arc::clone)
}

/// Removes an answered waiter from all queues. A second call does nothing, and needs no shard. Busy shards are left
/// to the reaper.
pub fn forget_waiter(locks: &mut ShardLocks<'_>, waiter: &Arc<Waiter>) {
    if waiter.is_forgotten.swap(true, Ordering::Relaxed) {
        return;
    }
    if !try_forget(locks, waiter) {
        leave_to_reaper(locks.keyspace(), waiter);
    }
}

/// Removes waiters from queues that other threads could not lock. Returns whether some are left.
pub(crate) fn forget_others(locks: &mut ShardLocks<'_>) -> Left {
    let mut left = std::mem::take(&mut *locks.keyspace().forgotten.0.lock());
    left.retain(|waiter| !try_forget(locks, waiter));
    if left.is_empty() {
        return Left::Nothing;
    }
    locks.keyspace().forgotten.0.lock().append(&mut left);
    Left::Busy
}

/// Registers a waiter for `keys` of a database, which it has checked under the same locks in vain. `about` is
/// data for the thread that serves it. Under an undo log a rollback removes it again; until the commit no other
/// thread must know of it.
///
/// # Panics
///
/// If the shards of the keys are not locked together.
pub fn wait_for_keys(
    locks: &mut ShardLocks<'_>,
    db: DbIndex,
    keys: &[Key<'_>],
    wakes: Wakes,
    about: impl Any + Send + Sync,
) -> Arc<Waiter> {
    locks.assert_together(keys);
    let waiter = Arc::new(Waiter {
        state: WaiterState::new(),
        wakes,
        sequence: locks.keyspace().sequences.next(),
        keys: keys.iter().map(|key| (db, key.bytes().into())).collect(),
        is_forgotten: AtomicBool::new(false),
        about: Box::new(about),
    });
    for (key, wait_key) in keys.iter().zip(&waiter.keys) {
        let shard = locks.keyspace().hasher.shard(key.hash());
        let held = locks.held(shard);
        let waiters = held.shard.waiters.get_or_insert_default();
        waiters.add(wait_key.clone(), Arc::clone(&waiter));
        held.note_waiters();
    }
    if let Some(undo) = &locks.thread.undo {
        undo.waits(Arc::clone(&waiter));
    }
    waiter
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::keyspace::Options;

    #[test]
    fn a_key_is_left_once_however_often_its_shard_is_busy() {
        let keyspace = Keyspace::new(Options::default()).expect("options within bounds");
        for key in [b"a", b"b", b"a"] {
            leave_unserved(&mut keyspace.locks(), (DbIndex::ZERO, key.as_slice().into()));
        }
        assert_eq!(keyspace.unserved.keys.lock().left.in_order.len(), 2);
    }
}
