//! The database, shard and time of an operation, and its reports to the shard.

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
use crate::clock::{Clock, SystemClock};
use crate::data::db_counters::DbCounters;
use crate::data::entry::Entry;
use crate::data::key::{Key, KeyHash};
use crate::data::stamp::Stamp;
use crate::data::usage::{Access, Frequency, Tracking, Usage};
use crate::db_index::DbIndex;
use crate::planted::{self, Fault};
use crate::random::mix;
use crate::registries::stats::ShardStats;

/// Policy for counting accesses as uses of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Touch {
    /// Each access counts: the key's idle time restarts.
    #[default]
    Yes,
    /// No access counts, as with CLIENT NO-TOUCH.
    No,
}

/// State shared by all operations of a thread while it has shards locked.
#[derive(Debug)]
pub(crate) struct ThreadContext<'k> {
    pub(crate) keyspace: &'k Keyspace,
    /// Collected notices and log records for others.
    pub(crate) effects: Effects<'k>,
    /// Undo log, if changes may have to be rolled back.
    pub(crate) undo: Option<Rc<UndoLog>>,
    /// Policy for counting a use of an entry.
    pub(crate) usage: Usage,
    /// Usage data that an entry keeps.
    pub(crate) tracking: Tracking,
}

/// Context of an operation: everything but the data. Small, since each request makes one and edits copy it.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) thread: &'a ThreadContext<'a>,
    pub(crate) stats: &'a ShardStats,
    /// Watchers and caching clients that are told when keys of the shard change.
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
    /// Returns the undo log, if changes may have to be rolled back.
    #[inline]
    pub(crate) fn undo(&self) -> Option<&'a UndoLog> {
        self.thread.undo.as_deref()
    }

    /// Returns the batch that collects operations for the log, if there is a log.
    #[inline]
    pub(crate) fn batch(&self) -> Option<&'a Batch<'a>> {
        self.thread.effects.batch.as_ref()
    }

    /// Returns the time stamp of a use, as an entry stores it.
    #[inline]
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp::at(self.now_ms)
    }

    /// Returns the time stamp of a change. The stream of a primary is applied at time 0, at which nothing expires, and
    /// gets the time of the clock.
    fn stamp_of_change(&self) -> Stamp {
        match self.now_ms {
            0 => Stamp::at(SystemClock.now_ms()),
            now_ms => Stamp::at(now_ms),
        }
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

    /// Records a use of an entry.
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
            Tracking::Changes => {
                entry.set_access(Access { stamp: self.stamp_of_change(), uses: 0 });
            }
            Tracking::Uses => entry.set_access(entry.access().used_again(self.stamp())),
            Tracking::Frequency => {
                let tuning = self.keyspace.pressure.frequency();
                // A number that differs for each key and each use.
                let seed = entry.address().addr() as u64 ^ self.stats.hits.get();
                let random = mix(seed ^ self.stats.changes.get() << 32);
                let frequency = Frequency::of(entry.access()).used(&tuning, self.now_ms, random);
                entry.set_access(frequency.to_access());
            }
        }
    }

    /// Returns the usage data of a new entry.
    #[inline]
    pub(crate) fn first_access(&self) -> Access {
        match self.tracking {
            Tracking::Time | Tracking::Uses | Tracking::Changes => {
                Access { stamp: self.stamp(), uses: 0 }
            }
            Tracking::Frequency => {
                Frequency::new(&self.keyspace.pressure.frequency(), self.now_ms).to_access()
            }
        }
    }

    /// Called for every change of a key, after it happened; see [`crate::change`].
    #[inline(always)]
    pub(crate) fn changed(&self, hash: KeyHash, entry: &mut Entry, change: Change) {
        self.stats.changes.add(1);
        #[cfg(debug_assertions)]
        self.effects.naming.changed(self.db, entry.key());
        if self.tracking == Tracking::Changes {
            self.track(entry);
        }
        let interest = self.interest();
        // Usually there is no listener, or only the log.
        if interest.includes(Interest::CHANGES)
            && (interest.includes(Interest::UNFILTERED) || self.observers.watched.may_watch(hash))
        {
            self.report(interest, hash, entry, change);
        }
    }

    /// Returns the listeners to changes in this shard.
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
        // For a server that follows another one, a new deadline may make a hidden key visible again.
        let shows = change == Change::Deadline && self.keyspace.is_following();
        if change == Change::Stored || shows || renews && interest.includes(Interest::EDITS) {
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

    /// Notes that clients waiting for this key may be served, or told that it is gone. A key becomes ready when it is
    /// created, replaced or removed. A present stream becomes ready when it gains entries, or when pending ones can
    /// be claimed earlier, and any present key when it is edited while a client waits for that.
    #[inline]
    pub(crate) fn note_ready(&self, key: &[u8]) {
        if self.interest().includes(Interest::WAITERS) {
            self.effects.notices().ready.note(self.db, key);
        }
    }

    /// Reports that expired fields of a hash were removed. The hash gets a new version: copies of it that are being
    /// made lack the fields, and their readers may see a time before the deadline.
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

    /// Like [`Context::changed`], for an entry that was removed.
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
                self.event_of_itself(Event::of_reaped(entry.value_type()), entry.key());
                self.event_of_itself(Event::Del, entry.key());
            }
            Removal::Evicted => self.event_of_itself(Event::Evicted, entry.key()),
            // The command names the event.
            Removal::Deleted | Removal::Moved => {}
        }
    }

    /// Returns the counters for writing; they mark the database as used.
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

    /// Publishes a deadline of this shard to the reaper.
    pub(crate) fn publish_deadline(&self, deadline_ms: i64) {
        self.publish(&self.keyspace.next_deadlines_ms[self.shard_index], deadline_ms);
    }

    /// Publishes a deadline of a hash field or a member of a set to the reaper.
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
    /// Returns the version that the latest change in this shard made.
    #[inline]
    pub(crate) fn latest_version(&self) -> NonZeroU64 {
        self.keyspace.version_after(self.stats.changes.get())
    }

    /// Returns the version of a key, for a client.
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
        // No client knows a version of this shard: any version handed out later is newer.
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
