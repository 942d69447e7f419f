//! Receivers of changes: the log, followers, event listeners, and clients that wait for, watch or cache keys.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::access::keyspace::Keyspace;
use crate::access::shard::Slot;
use crate::change::event::{EventClasses, EventSink};
use crate::change::interest::Interest;
use crate::change::log::batch::BatchSink;
use crate::registries::cached::{Cached, InvalidationSink};

impl Keyspace {
    /// Begins to log changes to [`Options::log`](crate::Options::log), except in shards that are locked at this
    /// moment. So a [`Checkpoint`](crate::log::Checkpoint) that begins afterwards misses none.
    pub fn begin_logging(&self) {
        self.interest.set_log(self.log.is_some());
    }

    /// Ends the logging of changes; see [`Keyspace::begin_logging`].
    pub fn end_logging(&self) {
        self.interest.set_log(false);
    }

    /// Begins to record changes for a follower, whether or not a log makes them durable. The sink of
    /// [`Options::log`](crate::Options::log) gets them, except from shards that are locked at this moment. So after a
    /// moment with all shards locked, the follower gets all changes.
    pub fn begin_following(&self) {
        self.interest.set_followed(self.log.is_some());
    }

    /// Marks, from now on, what a checkpoint writes again as no change; see [`Sieve`](crate::log::Sieve).
    pub fn mark_restatements(&self) {
        if let Some(log) = &self.log {
            log.mark_restatements();
        }
    }

    /// Ends the recording for a follower; see [`Keyspace::begin_following`].
    pub fn end_following(&self) {
        self.interest.set_followed(false);
    }

    /// Returns true while changes are recorded for a follower.
    #[inline]
    pub fn is_followed(&self) -> bool {
        self.interest.get().includes(Interest::FOLLOWED)
    }

    /// Returns the log, while changes go there.
    #[inline]
    pub(crate) fn log(&self) -> Option<&BatchSink> {
        self.log.as_ref().filter(|_| self.interest.get().includes(Interest::LOG))
    }

    /// Sets the receiver of events. It gets the classes set by [`Keyspace::set_event_classes`], at first none. A
    /// second call has no effect.
    pub fn set_event_sink(&self, sink: impl EventSink + 'static) {
        let _ = self.sink.set(Box::new(sink));
    }

    /// Sets the event classes to collect from now on, except in shards that are locked at this moment; see
    /// [`ShardLocks::look_for_event_classes`](crate::ShardLocks::look_for_event_classes).
    pub fn set_event_classes(&self, classes: EventClasses) {
        self.interest.set_classes(classes);
    }

    /// Returns true if events of any class are collected.
    #[inline]
    pub fn wants_events(&self) -> bool {
        self.interest.get().includes(Interest::of_classes(EventClasses::ALL))
    }

    /// Returns the receiver of events.
    pub(crate) fn event_sink(&self) -> Option<&dyn EventSink> {
        self.sink.get().map(|sink| &**sink)
    }

    /// Sets the receiver of invalidations. A second call has no effect.
    pub fn set_invalidation_sink(&self, sink: Arc<dyn InvalidationSink>) {
        let _ = self.cached.sink.set(sink);
    }

    /// Turns on or off the broadcast of every change to the sink, except in shards that are locked at this moment.
    pub fn set_broadcast(&self, is_on: bool) {
        self.interest.set_broadcast(is_on);
    }

    /// Sets the maximum number of cached keys to remember, at first 0. The reaper removes the excess.
    pub fn limit_cached_keys(&self, limit: u64) {
        self.cached.limit.store(limit, Ordering::Relaxed);
        if self.cached.exceeds_limit() {
            self.reaper_wakeup.notify();
        }
    }

    /// Returns the number of remembered cached keys, and of all their readers. Without a lock.
    #[must_use]
    pub fn cached_keys(&self) -> (u64, u64) {
        let Cached { keys, readers, .. } = &self.cached;
        (keys.load(Ordering::Relaxed), readers.load(Ordering::Relaxed))
    }

    /// Returns the number of watches that have keys and are not dirty, and of watched keys. Without a lock.
    #[must_use]
    pub fn watching(&self) -> (u64, u64) {
        let keys = self.slots.iter().map(|slot| slot.stats.watched_keys.get()).sum();
        (self.watches.watching.load(Ordering::Relaxed), keys)
    }

    /// Returns the number of keys that clients wait for, and of those whose removal also ends a wait. Without a lock.
    pub fn awaited_keys(&self) -> (u64, u64) {
        let of = |slot: &Slot| (slot.stats.awaited_keys.get(), slot.stats.awaited_removals.get());
        self.slots.iter().map(of).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Sets a callback for keys that were changed by code that does not serve their waiters. It must make sure that
    /// [`take_unserved`](crate::take_unserved) is called soon. A second call has no effect.
    pub fn on_unserved(&self, callback: impl Fn() + Send + Sync + 'static) {
        let _ = self.unserved.callback.set(Box::new(callback));
    }
}
