//! Naming what has happened to keys, and telling the listeners.

use crate::access::db::Db;
use crate::access::keyspace::Keyspace;
use crate::access::shard_locks::ShardLocks;
#[cfg(debug_assertions)]
use crate::change::event::Named;
use crate::change::event::{Event, EventClasses, EventSink, Origin};
use crate::change::interest::Interest;
use crate::data::expiry::{DeadlineSet, Expiry};
use crate::data::key::Key;
use crate::db_index::DbIndex;

impl Db<'_> {
    /// Names what has just been done to a key, for listeners.
    #[inline]
    pub fn event(&self, event: Event, key: Key<'_>) {
        #[cfg(debug_assertions)]
        self.at.effects.naming.named(self.at.db, key.bytes());
        self.at.event(event, key.bytes());
    }

    /// Names that a string was stored with this expiry. One whose deadline has come already leaves no key behind,
    /// as if that had come right afterwards.
    #[inline]
    pub fn event_of_store(&self, key: Key<'_>, expiry: Expiry) {
        self.event(Event::Set, key);
        if let Expiry::At(deadline_ms) = expiry {
            self.event(Event::Expire, key);
            if deadline_ms <= self.now_ms() {
                self.at.event_of_itself(Event::Expired, key.bytes());
            }
        }
    }

    /// Names what became of a key that was given a deadline.
    pub fn event_of_deadline(&self, key: Key<'_>, set: DeadlineSet) {
        match set {
            DeadlineSet::Absent => {}
            DeadlineSet::Done => self.event(Event::Expire, key),
            DeadlineSet::Deleted => self.event(Event::Del, key),
        }
    }

    /// The same for an edit of a collection, which may have removed its last element: then [`Event::Del`]
    /// follows.
    #[inline]
    pub fn event_of_edit(&mut self, event: Event, key: Key<'_>) {
        self.event(event, key);
        let generic = Interest::of_classes(EventClasses::GENERIC);
        if self.at.effects.interest().includes(generic) && self.peek(key).is_none() {
            self.at.event(Event::Del, key.bytes());
        }
    }
}

impl Keyspace {
    /// Has events delivered to `sink`: those of the classes that [`Keyspace::set_event_classes`] says, at
    /// first none. A second call has no effect.
    pub fn set_event_sink(&self, sink: impl EventSink + 'static) {
        let _ = self.sink.set(Box::new(sink));
    }

    /// Which events are collected from now on, except in shards that are locked at this moment; see
    /// [`ShardLocks::look_for_event_classes`].
    pub fn set_event_classes(&self, classes: EventClasses) {
        self.interest.set_classes(classes);
    }

    /// Whether there are classes of events that are collected.
    #[inline]
    pub fn wants_events(&self) -> bool {
        self.interest.get().includes(Interest::of_classes(EventClasses::ALL))
    }

    pub(crate) fn event_sink(&self) -> Option<&dyn EventSink> {
        self.sink.get().map(|sink| &**sink)
    }
}

impl ShardLocks<'_> {
    /// Sets the origin of the changes that follow, for their events.
    #[inline]
    pub fn set_origin(&mut self, origin: Origin) {
        self.thread.effects.set_origin(origin);
    }

    /// The origin of the changes.
    pub fn origin(&self) -> Origin {
        self.thread.effects.origin()
    }

    /// Names what has happened to a whole database.
    pub(crate) fn event_of_database(&mut self, event: Event, db: DbIndex) {
        if self.thread.effects.interest().includes(Interest::of_classes(event.class())) {
            let effects = &self.thread.effects;
            effects.notices().events.note(event, db, b"", effects.origin());
        }
    }

    /// The number of events, for [`ShardLocks::deliver_events`].
    #[must_use]
    pub fn events_len(&mut self) -> usize {
        self.thread.effects.noted().map_or(0, |notices| notices.events.len())
    }

    /// Delivers the first `len` events now: a message follows that was sent behind their changes. Nothing of these is
    /// taken back any more.
    pub fn deliver_events(&mut self, len: usize) {
        let sink = self.thread.keyspace.event_sink();
        if let Some(notices) = self.thread.effects.noted() {
            notices.events.deliver_first(len, sink);
        }
    }

    /// True if there are events that may not have been delivered yet.
    #[inline]
    #[must_use]
    pub fn has_events(&mut self) -> bool {
        self.thread.effects.noted().is_some_and(|notices| !notices.events.is_empty())
    }
}

#[cfg(debug_assertions)]
impl ShardLocks<'_> {
    /// From now on it is noted which keys change, and for which an event is named.
    pub fn begin_naming(&mut self) {
        *self.thread.effects.naming.0.get_mut() = Some(Named::default());
    }

    /// A key that has changed since [`ShardLocks::begin_naming`] without an event that says so, if there is one.
    pub fn end_naming(&mut self) -> Option<(DbIndex, Box<[u8]>)> {
        let Named { changed, named } = std::mem::take(self.thread.effects.naming.0.get_mut())?;
        changed.into_iter().find(|key| !named.contains(key))
    }
}
