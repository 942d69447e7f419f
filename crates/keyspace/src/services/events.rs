//! Events of whole databases, and delivery of events to the listeners.

use crate::access::shard_locks::ShardLocks;
use crate::change::event::Event;
#[cfg(debug_assertions)]
use crate::change::event::Named;
use crate::change::interest::Interest;
use crate::db_index::DbIndex;

/// Publishes the event of a change to a whole database.
pub(crate) fn event_of_database(locks: &mut ShardLocks<'_>, event: Event, db: DbIndex) {
    if locks.thread.effects.interest().includes(Interest::of_classes(event.class())) {
        let effects = &locks.thread.effects;
        effects.notices().events.note(event, db, b"", effects.origin());
    }
}

/// Returns the number of events, for [`deliver_events`].
#[must_use]
pub fn events_len(locks: &mut ShardLocks<'_>) -> usize {
    locks.thread.effects.noted().map_or(0, |notices| notices.events.len())
}

/// Delivers the first `len` events now, before a message that was sent after their changes. These events cannot be
/// rolled back any more.
pub fn deliver_events(locks: &mut ShardLocks<'_>, len: usize) {
    let sink = locks.thread.keyspace.event_sink();
    if let Some(notices) = locks.thread.effects.noted() {
        notices.events.deliver_first(len, sink);
    }
}

/// Returns true if there are events that may not have been delivered yet.
#[inline]
#[must_use]
pub fn has_events(locks: &mut ShardLocks<'_>) -> bool {
    locks.thread.effects.noted().is_some_and(|notices| !notices.events.is_empty())
}

/// Begins to note changed keys, and keys for which an event is named.
#[cfg(debug_assertions)]
pub fn begin_naming(locks: &mut ShardLocks<'_>) {
    *locks.thread.effects.naming.0.get_mut() = Some(Named::default());
}

/// Returns a key that has changed since [`begin_naming`] without an event, if there is one.
#[cfg(debug_assertions)]
pub fn end_naming(locks: &mut ShardLocks<'_>) -> Option<(DbIndex, Box<[u8]>)> {
    let Named { changed, named } = std::mem::take(locks.thread.effects.naming.0.get_mut())?;
    changed.into_iter().find(|key| !named.contains(key))
}
