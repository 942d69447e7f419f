//! Notes for others while keys change: events, watched keys that changed, cached keys that changed.

use crate::access::context::Context;
use crate::access::keyspace::Keyspace;
use crate::change::event::{Event, Origin};
use crate::change::interest::Interest;
use crate::data::key::{Key, KeyHash};
use crate::registries::cached::{CachedKey, CachedKeys};
use crate::registries::stats::ShardStats;

impl Context<'_> {
    /// Names what has happened to a key.
    #[inline]
    pub(crate) fn event(&self, event: Event, key: &[u8]) {
        if self.effects.interest().includes(Interest::of_classes(event.class())) {
            self.effects.notices().events.note(event, self.db, key, self.effects.origin());
        }
    }

    /// The same for what happens by itself.
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

    /// Notes a key that has changed if it is watched.
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

/// Tells threads that change keys of the shard whether any key is cached, and counts the memory of its table.
pub(crate) fn note_table(keyspace: &Keyspace, stats: &ShardStats, cached: &CachedKeys) {
    stats.interest.set(Interest::CACHED, cached.len() > 0);
    stats.cached_bytes.set(cached.memory_bytes() as u64);
    keyspace.follow_size(stats);
}
