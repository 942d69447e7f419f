//! Notices for others while keys change: events, and changed keys that clients watch, cache or wait for. They are
//! delivered before the shards are unlocked.

use std::sync::atomic::Ordering;

use crate::access::context::Context;
use crate::access::keyspace::Keyspace;
use crate::access::shard_locks::ShardLocks;
use crate::change::event::{Event, Origin};
use crate::change::interest::Interest;
use crate::data::key::{Key, KeyHash};
use crate::registries::cached::{CachedKey, CachedKeys};
use crate::registries::stats::ShardStats;
use crate::registries::waiters::{Unserved, Waiter};
use crate::registries::watch::touched::TouchedKey;

impl Context<'_> {
    /// Publishes the event of a change to a key.
    #[inline]
    pub(crate) fn event(&self, event: Event, key: &[u8]) {
        if self.effects.interest().includes(Interest::of_classes(event.class())) {
            self.effects.notices().events.note(event, self.db, key, self.effects.origin());
        }
    }

    /// Like [`Context::event`], for a change that happens by itself.
    #[inline]
    pub(crate) fn event_of_itself(&self, event: Event, key: &[u8]) {
        if self.effects.interest().includes(Interest::of_classes(event.class())) {
            self.effects.notices().events.note(event, self.db, key, Origin::SERVER);
        }
    }

    pub(crate) fn touch_observers(&self, key: Key<'_>) {
        let interest = self.interest();
        if interest.includes(Interest::WATCHED) {
            self.touch_watched(key.hash(), key.bytes());
        }
        if interest.includes(Interest::INVALIDATES) {
            self.invalidate(interest, key.hash(), key.bytes(), self.effects.origin());
        }
    }

    /// Notes a changed key if it is watched.
    #[inline]
    pub(crate) fn touch_watched(&self, hash: KeyHash, key: &[u8]) {
        if self.observers.watched.may_watch(hash) {
            self.note_if_watched(hash, key);
        }
    }

    #[cold]
    fn note_if_watched(&self, hash: KeyHash, key: &[u8]) {
        if self.observers.watched.is_watched(hash) {
            self.effects.notices().touched.note(self.shard_index, self.db, hash, key);
        }
    }

    /// Handles a changed key in a shard with cached keys, or under broadcast.
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

/// Tells writers of the shard if any key is cached, and accounts for the memory of the table.
pub(crate) fn note_table(keyspace: &Keyspace, stats: &ShardStats, cached: &CachedKeys) {
    stats.interest.set(Interest::CACHED, cached.len() > 0);
    stats.cached_bytes.set(cached.memory_bytes() as u64);
    stats.follow_size(&keyspace.pressure);
}

/// Tells the watchers of changed keys. Call it before their shards are unlocked.
#[inline]
pub(crate) fn tell_watchers(locks: &mut ShardLocks<'_>) {
    if locks.thread.effects.noted().is_some_and(|notices| !notices.touched.is_empty()) {
        tell_watchers_of_all(locks);
    }
}

#[cold]
fn tell_watchers_of_all(locks: &mut ShardLocks<'_>) {
    let touched = &mut locks.thread.effects.notices_mut().touched;
    for TouchedKey { shard, db, hash, key } in std::mem::take(touched.0.get_mut()) {
        let held = locks.held(shard);
        let watchers = held.shard.observers.watched.take(db, hash, &key);
        held.note_watched();
        watchers.iter().for_each(|watcher| watcher.mark());
    }
}

/// Leaves unserved keys to other threads. No shard is locked.
#[cold]
pub(super) fn hand_over_ready(locks: &mut ShardLocks<'_>) {
    let Unserved { keys, callback } = &locks.keyspace().unserved;
    // If nobody serves keys, there are no waiters either.
    let Some(callback) = callback.get() else { return };
    let was_empty = {
        let mut keys = keys.lock();
        let was_empty = keys.handed_over.in_order.is_empty();
        let ready = locks.thread.effects.take_ready();
        ready.into_iter().for_each(|key| keys.handed_over.add(key));
        was_empty
    };
    if was_empty {
        callback();
    }
}

/// Removes a waiter that was registered under an undo log, as if it had never existed.
pub(super) fn withdraw_waiter(locks: &mut ShardLocks<'_>, waiter: &Waiter) {
    waiter.state.withdraw();
    if !waiter.is_forgotten.swap(true, Ordering::Relaxed) {
        assert!(try_forget(locks, waiter), "its shards are locked");
    }
}

/// Removes a waiter from the queues of all shards that are not busy; `false` if some are.
pub(crate) fn try_forget(locks: &mut ShardLocks<'_>, waiter: &Waiter) -> bool {
    let mut has_met_busy = false;
    for key in &waiter.keys {
        let shard = locks.keyspace().hasher.shard(locks.keyspace().hash(&key.1));
        if !locks.try_reach_shard(shard) {
            has_met_busy = true;
            continue;
        }
        let held = locks.held(shard);
        if let Some(waiters) = &mut held.shard.waiters {
            waiters.remove(key, waiter.sequence);
        }
        held.note_waiters();
    }
    !has_met_busy
}
