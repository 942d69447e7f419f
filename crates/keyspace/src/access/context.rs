//! The database, shard and time of an operation, and what it reports to the shard.

use std::num::NonZeroU64;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::access::effects::Effects;
use crate::access::keyspace::Keyspace;
use crate::access::shard::Observers;
use crate::access::undo::UndoLog;
use crate::change::event::{Event, Origin};
use crate::change::interest::Interest;
use crate::change::log::batch::Batch;
use crate::change::version::stripe;
use crate::change::{Change, Removal};
use crate::data::db_counters::DbCounters;
use crate::data::entry::Entry;
use crate::data::key::{Key, KeyHash};
use crate::data::stamp::Stamp;
use crate::data::usage::{Access, Frequency, Tracking, Usage};
use crate::db_index::DbIndex;
use crate::planted::{self, Fault};
use crate::random::mix;
use crate::registries::stats::ShardStats;

/// Whether looking at a key counts as using it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Touch {
    /// It does: the key's idle time starts over.
    #[default]
    Yes,
    /// It does not, as CLIENT NO-TOUCH asks for.
    No,
}

/// What all operations of a thread have in common while it has shards locked.
#[derive(Debug)]
pub(crate) struct ThreadContext<'k> {
    pub(crate) keyspace: &'k Keyspace,
    /// Where it is noted what others have to learn of.
    pub(crate) effects: Effects<'k>,
    /// Where it is recorded how to take changes back, if they may have to be.
    pub(crate) undo: Option<Rc<UndoLog>>,
    /// How a use of an entry counts.
    pub(crate) usage: Usage,
    /// What is kept of one that counts in any case.
    pub(crate) tracking: Tracking,
}

/// Where and when an operation takes place: everything but the data. Small, as each request makes one and edits
/// copy it.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) thread: &'a ThreadContext<'a>,
    pub(crate) stats: &'a ShardStats,
    /// Who has to be told when keys of the shard change.
    pub(crate) observers: &'a Observers,
    pub(crate) shard_index: usize,
    pub(crate) db: DbIndex,
    pub(crate) now_ms: i64,
}

impl<'a> Deref for Context<'a> {
    type Target = ThreadContext<'a>;

    #[inline]
    fn deref(&self) -> &ThreadContext<'a> {
        self.thread
    }
}

impl<'a> Context<'a> {
    /// Where it is recorded how to take changes back, if they may have to be.
    #[inline]
    pub(crate) fn undo(&self) -> Option<&'a UndoLog> {
        self.thread.undo.as_deref()
    }

    /// Where operations for the log are collected, if there is a log.
    #[inline]
    pub(crate) fn batch(&self) -> Option<&'a Batch<'a>> {
        self.thread.effects.batch.as_ref()
    }

    /// What an entry keeps of the time of a use.
    #[inline]
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp::at(self.now_ms)
    }

    /// Counts a use of an entry.
    #[inline]
    pub(crate) fn used(&self, entry: &mut Entry) {
        match self.usage {
            Usage::Stamp => entry.touch(self.stamp()),
            Usage::Tracked => self.track(entry),
            Usage::None => {}
        }
    }

    /// Notes a use of an entry.
    #[inline(never)]
    pub(crate) fn track(&self, entry: &mut Entry) {
        if self.undo().is_some() {
            return self.track_undoable(entry, |entry| self.track_by_policy(entry));
        }
        self.track_by_policy(entry);
    }

    fn track_by_policy(&self, entry: &mut Entry) {
        match self.tracking {
            Tracking::Time => entry.touch(self.stamp()),
            Tracking::Uses => entry.set_access(entry.access().used_again(self.stamp())),
            Tracking::Frequency => {
                let tuning = self.keyspace.pressure.frequency();
                // Something that is another number for each key and each use.
                let seed = entry.address().addr() as u64 ^ self.stats.hits.get();
                let random = mix(seed ^ self.stats.changes.get() << 32);
                let frequency = Frequency::of(entry.access()).used(&tuning, self.now_ms, random);
                entry.set_access(frequency.to_access());
            }
        }
    }

    /// What is known of the uses of a new entry.
    #[inline]
    pub(crate) fn first_access(&self) -> Access {
        match self.tracking {
            Tracking::Time | Tracking::Uses => Access { stamp: self.stamp(), uses: 0 },
            Tracking::Frequency => {
                Frequency::new(&self.keyspace.pressure.frequency(), self.now_ms).to_access()
            }
        }
    }

    /// The one place every mutation of a key passes, after it happened; see [`crate::change`].
    #[inline(always)]
    pub(crate) fn changed(&self, hash: KeyHash, entry: &mut Entry, change: Change) {
        self.stats.changes.add(1);
        #[cfg(debug_assertions)]
        self.effects.naming.changed(self.db, entry.key());
        let interest = self.interest();
        // Mostly there is no listener, or the log alone.
        if interest.includes(Interest::CHANGES)
            && (interest.includes(Interest::UNFILTERED) || self.observers.watched.may_watch(hash))
        {
            self.report(interest, hash, entry, change);
        }
    }

    /// The listeners to changes here.
    #[inline]
    pub(crate) fn interest(&self) -> Interest {
        self.stats.interest.get() | self.effects.interest()
    }

    /// Reports a change to all listeners.
    #[inline(never)]
    fn report(&self, interest: Interest, hash: KeyHash, entry: &mut Entry, change: Change) {
        let renews = matches!(
            change,
            Change::Stored | Change::Written { .. } | Change::Edited | Change::Marked
        );
        if interest.includes(Interest::VERSIONS) && renews {
            self.renew_version(hash, entry);
        }
        // To a server that follows another one a key with a new deadline may have been hidden.
        let shows = change == Change::Deadline && self.keyspace.is_following();
        if change == Change::Stored || shows {
            self.note_ready(entry.key());
        }
        if interest.includes(Interest::WATCHED) {
            self.touch_watched(hash, entry.key());
        }
        if interest.includes(Interest::INVALIDATES) {
            self.invalidate(interest, hash, entry.key(), self.effects.origin());
        }
        if let Some(batch) = self.batch() {
            batch.record_change(self.db, entry, change);
        }
    }

    /// Notes that clients that wait for this key may be served, or learn that it is gone. A key becomes ready when it
    /// is created, replaced or removed, or when it gains what clients wait for while it is there, as a stream does.
    #[inline]
    pub(crate) fn note_ready(&self, key: &[u8]) {
        if self.interest().includes(Interest::WAITERS) {
            self.effects.notices().ready.note(self.db, key);
        }
    }

    /// Fields of a hash were removed whose deadline had come. That gives it a new version: copies of it that are
    /// being made lack the fields, and their readers may be of a time before the deadline.
    pub(crate) fn reaped(&self, hash: KeyHash, entry: &mut Entry) {
        self.stats.changes.add(1);
        let interest = self.interest();
        if interest.includes(Interest::VERSIONS) {
            self.renew_version(hash, entry);
        }
        if interest.includes(Interest::INVALIDATES) {
            self.invalidate(interest, hash, entry.key(), Origin::SERVER);
        }
    }

    /// Like [`Context::changed`], for an entry that was taken out.
    #[inline]
    pub(crate) fn removed(&self, entry: &Entry, why: Removal) {
        self.stats.changes.add(1);
        #[cfg(debug_assertions)]
        if matches!(why, Removal::Deleted | Removal::Moved) {
            self.effects.naming.changed(self.db, entry.key());
        }
        let interest = self.interest();
        if interest.includes(Interest::REMOVALS) {
            self.report_removal(interest, entry, why);
        }
    }

    #[inline(never)]
    fn report_removal(&self, interest: Interest, entry: &Entry, why: Removal) {
        self.note_ready(entry.key());
        if interest.includes(Interest::WATCHED) {
            self.touch_watched(self.keyspace.hash(entry.key()), entry.key());
        }
        if interest.includes(Interest::INVALIDATES) {
            let origin = match why {
                Removal::Deleted | Removal::Moved => self.effects.origin(),
                Removal::Expired | Removal::Emptied | Removal::Evicted => Origin::SERVER,
            };
            self.invalidate(interest, self.keyspace.hash(entry.key()), entry.key(), origin);
        }
        match self.batch() {
            Some(_) if why.is_expiry() && planted::is(Fault::ExpiryIsNotLogged) => {}
            Some(batch) if why.is_expiry() => batch.record_expired(self.db, entry),
            Some(batch) => batch.record_change(self.db, entry, Change::Removed(why)),
            None => {}
        }
        match why {
            Removal::Expired => self.event_of_itself(Event::Expired, entry.key()),
            Removal::Emptied => {
                self.event_of_itself(Event::HExpired, entry.key());
                self.event_of_itself(Event::Del, entry.key());
            }
            Removal::Evicted => self.event_of_itself(Event::Evicted, entry.key()),
            // The command says what it was.
            Removal::Deleted | Removal::Moved => {}
        }
    }

    /// For writing: the database is used from now on.
    #[inline]
    pub(crate) fn counters(&self) -> &DbCounters {
        self.stats.dbs.of(self.db)
    }

    #[inline]
    pub(crate) fn count_read(&self, key: Key<'_>, found: bool) {
        self.count_look(found);
        if !found {
            self.event(Event::KeyMiss, key.bytes());
        }
    }

    #[inline]
    pub(crate) fn count_look(&self, found: bool) {
        let counter = if found { &self.stats.hits } else { &self.stats.misses };
        counter.add(1);
    }

    /// Makes a deadline of this shard known to the reaper.
    pub(crate) fn publish_deadline(&self, deadline_ms: i64) {
        self.publish(&self.keyspace.next_deadlines_ms[self.shard_index], deadline_ms);
    }

    /// Makes a deadline of a hash's fields known to the reaper.
    pub(crate) fn publish_field_deadline(&self, deadline_ms: i64) {
        self.publish(&self.keyspace.next_field_deadlines_ms[self.shard_index], deadline_ms);
    }

    fn publish(&self, next: &AtomicI64, deadline_ms: i64) {
        if deadline_ms < next.load(Ordering::Relaxed) {
            next.store(deadline_ms, Ordering::Relaxed);
            self.keyspace.reaper_wakeup.deadline_published(deadline_ms);
        }
    }
}

impl Context<'_> {
    /// The version that the latest change in this shard made.
    #[inline]
    pub(crate) fn latest_version(&self) -> NonZeroU64 {
        self.keyspace.version_after(self.stats.changes.get())
    }

    /// The version of a key, for a client.
    #[inline]
    pub(crate) fn version_of(&self, hash: KeyHash, entry: &Entry) -> NonZeroU64 {
        if let Some(own) = entry.attributes().version {
            return own;
        }
        self.striped_version(hash)
    }

    #[inline]
    pub(crate) fn striped_version(&self, hash: KeyHash) -> NonZeroU64 {
        let versions = &self.stats.versions;
        let versions = versions.get().unwrap_or_else(|| {
            self.stats.interest.set(Interest::VERSIONS, true);
            versions.start(self.latest_version())
        });
        NonZeroU64::new(versions[stripe(hash)].get()).expect("versions begin at one")
    }

    /// Gives a key that has just changed its new version.
    #[inline(always)]
    pub(crate) fn renew_version(&self, hash: KeyHash, entry: &mut Entry) {
        // No client knows a version of this shard: whatever one is told later is newer.
        let Some(versions) = self.stats.versions.get() else { return };
        let latest = self.latest_version();
        let version = &versions[stripe(hash)];
        if let Some(undo) = self.undo() {
            undo.version_changes(self.shard_index, stripe(hash), version.get());
        }
        version.set(latest.get());
        entry.renew_version(latest);
    }
}
