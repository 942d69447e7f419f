//! Where and when an operation takes place, and what it reports to the shard.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::change::{Change, Event, Removal};
use crate::db_index::DbIndex;
use crate::entry::Entry;
use crate::key::KeyHash;
use crate::keyspace::Keyspace;
use crate::log::pending::Pending;
use crate::planted::{self, Fault};
use crate::scan::mix;
use crate::stamp::Stamp;
use crate::stats::{DbCounters, ShardStats};
use crate::usage::{Access, Frequency, Tracking};
use crate::waiters::Ready;

/// Whether looking at a key counts as using it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Touch {
    /// It does: the key's idle time starts over.
    #[default]
    Yes,
    /// It does not, as CLIENT NO-TOUCH asks for.
    No,
}

/// Where and when an operation takes place: everything but the data.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) keyspace: &'a Keyspace,
    pub(crate) stats: &'a ShardStats,
    pub(crate) shard_index: usize,
    pub(crate) db: DbIndex,
    pub(crate) now_ms: i64,
    /// Where operations for the log are collected, if there is a log.
    pub(crate) pending: Option<&'a Pending<'a>>,
    /// Where keys are noted that somebody may wait for.
    pub(crate) ready: &'a Ready,
    /// What is kept of a use of an entry; `None` if it does not count as one.
    pub(crate) usage: Option<Tracking>,
    /// The same where it counts in any case.
    pub(crate) tracking: Tracking,
}

impl Context<'_> {
    /// What an entry keeps of the time of a use.
    #[inline]
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp::at(self.now_ms)
    }

    /// Counts a use of an entry.
    #[inline]
    pub(crate) fn used(&self, entry: &mut Entry) {
        match self.usage {
            Some(Tracking::Time) => entry.touch(self.stamp()),
            Some(_) => self.track(entry),
            None => {}
        }
    }

    /// Notes a use of an entry.
    #[inline(never)]
    pub(crate) fn track(&self, entry: &mut Entry) {
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
    #[inline]
    pub(crate) fn changed(&self, hash: KeyHash, entry: &mut Entry, change: Change) {
        self.stats.changes.add(1);
        if matches!(change, Change::Stored | Change::Written { .. } | Change::Marked) {
            self.renew_version(hash, entry);
        }
        if self.stats.waiters.get() > 0 {
            self.ready.note(self.db, entry.key());
        }
        if let Some(pending) = self.pending {
            pending.push_change(self.db, entry, change);
        }
        self.keyspace.notify(&Event::Key { db: self.db, entry, change });
    }

    /// Like [`Context::changed`], for an entry that was taken out.
    #[inline]
    pub(crate) fn removed(&self, entry: &Entry, why: Removal) {
        self.stats.changes.add(1);
        let change = Change::Removed(why);
        if self.stats.waiters.get() > 0 {
            self.ready.note(self.db, entry.key());
        }
        match self.pending {
            Some(_) if why == Removal::Expired && planted::is(Fault::ExpiryIsNotLogged) => {}
            Some(pending) if why == Removal::Expired => pending.push_expired(self.db, entry),
            Some(pending) => pending.push_change(self.db, entry, change),
            None => {}
        }
        self.keyspace.notify(&Event::Key { db: self.db, entry, change });
    }

    #[inline]
    pub(crate) fn counters(&self) -> &DbCounters {
        &self.stats.dbs[self.db.get()]
    }

    #[inline]
    pub(crate) fn count_read(&self, found: bool) {
        if found { &self.stats.hits } else { &self.stats.misses }.add(1);
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
            self.keyspace.alarm.deadline_published(deadline_ms);
        }
    }
}
