//! The receivers of changes: the log, followers, listeners to events, clients that wait for keys, watch or cache them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::access::keyspace::Keyspace;
use crate::access::shard::Slot;
use crate::change::event::{EventClasses, EventSink};
use crate::change::interest::Interest;
use crate::change::log::batch::BatchSink;
use crate::registries::cached::{Cached, InvalidationSink};

impl Keyspace {
    /// From now on changes go to the log of [`Options::log`](crate::Options::log), except in shards that are locked at
    /// this moment. So a [`Checkpoint`](crate::log::Checkpoint) that begins afterwards misses none.
    pub fn begin_logging(&self) {
        self.interest.set_log(self.log.is_some());
    }

    /// From now on changes are not logged any more; see [`Keyspace::begin_logging`].
    pub fn end_logging(&self) {
        self.interest.set_log(false);
    }

    /// From now on changes are recorded for a follower, too, whether or not there is a log that makes them durable: the
    /// sink of [`Options::log`](crate::Options::log) gets them, except for those in shards that are locked at this
    /// moment. So a follower knows all that happens after a moment at which all shards are locked.
    pub fn begin_following(&self) {
        self.interest.set_followed(self.log.is_some());
    }

    /// Has what a checkpoint writes again say in the log that it is no change, from now on; see
    /// [`Sieve`](crate::log::Sieve).
    pub fn mark_restatements(&self) {
        if let Some(log) = &self.log {
            log.mark_restatements();
        }
    }

    /// From now on there is no follower; see [`Keyspace::begin_following`].
    pub fn end_following(&self) {
        self.interest.set_followed(false);
    }

    /// True while changes are recorded for a follower.
    #[inline]
    pub fn is_followed(&self) -> bool {
        self.interest.get().includes(Interest::FOLLOWED)
    }

    /// The log, while changes go there.
    #[inline]
    pub(crate) fn log(&self) -> Option<&BatchSink> {
        self.log.as_ref().filter(|_| self.interest.get().includes(Interest::LOG))
    }

    /// Has events delivered to `sink`: those of the classes that [`Keyspace::set_event_classes`] says, at
    /// first none. A second call has no effect.
    pub fn set_event_sink(&self, sink: impl EventSink + 'static) {
        let _ = self.sink.set(Box::new(sink));
    }

    /// Which events are collected from now on, except in shards that are locked at this moment; see
    /// [`ShardLocks::look_for_event_classes`](crate::ShardLocks::look_for_event_classes).
    pub fn set_event_classes(&self, classes: EventClasses) {
        self.interest.set_classes(classes);
    }

    /// True if events of any class are collected.
    #[inline]
    pub fn wants_events(&self) -> bool {
        self.interest.get().includes(Interest::of_classes(EventClasses::ALL))
    }

    /// The receiver of events.
    pub(crate) fn event_sink(&self) -> Option<&dyn EventSink> {
        self.sink.get().map(|sink| &**sink)
    }

    /// Has `sink` told of changes. A second call has no effect.
    pub fn set_invalidation_sink(&self, sink: Arc<dyn InvalidationSink>) {
        let _ = self.cached.sink.set(sink);
    }

    /// Has the sink told of every change from now on, or no more, except in shards that are locked at this moment.
    pub fn set_broadcast(&self, is_on: bool) {
        self.interest.set_broadcast(is_on);
    }

    /// Sets the most cached keys that are remembered, at first none. The reaper takes out the others.
    pub fn limit_cached_keys(&self, limit: u64) {
        self.cached.limit.store(limit, Ordering::Relaxed);
        if self.cached.exceeds_limit() {
            self.reaper_wakeup.notify();
        }
    }

    /// The number of cached keys that are remembered, and of all their readers. Without a lock.
    #[must_use]
    pub fn cached_keys(&self) -> (u64, u64) {
        let Cached { keys, readers, .. } = &self.cached;
        (keys.load(Ordering::Relaxed), readers.load(Ordering::Relaxed))
    }

    /// The number of watches that have keys and are not dirty, and of watched keys. Without a lock.
    #[must_use]
    pub fn watching(&self) -> (u64, u64) {
        let keys = self.slots.iter().map(|slot| slot.stats.watched_keys.get()).sum();
        (self.watches.watching.load(Ordering::Relaxed), keys)
    }

    /// Keys that clients wait for, and those of them whose removal ends a wait, too. Without a lock.
    pub fn awaited_keys(&self) -> (u64, u64) {
        let of = |slot: &Slot| (slot.stats.awaited_keys.get(), slot.stats.awaited_removals.get());
        self.slots.iter().map(of).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Has `callback` called when keys were changed by code that does not serve their waiters.
    /// It has to see to it that [`take_unserved`](crate::take_unserved) is called soon. A second call has no effect.
    pub fn on_unserved(&self, callback: impl Fn() + Send + Sync + 'static) {
        let _ = self.unserved.callback.set(Box::new(callback));
    }
}
