//! Where and when an operation takes place, and what it reports to the shard.

use std::sync::atomic::Ordering;

use crate::change::{Change, Event};
use crate::entry::Entry;
use crate::keyspace::{DbIndex, Keyspace};
use crate::stats::{DbCounters, ShardStats};

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
    pub(crate) touch: Touch,
}

impl Context<'_> {
    /// The time in an entry's clock.
    #[inline]
    pub(crate) fn clock(&self) -> u16 {
        (self.now_ms / 1000) as u16
    }

    /// Counts a use of an entry.
    #[inline]
    pub(crate) fn used(&self, entry: &mut Entry) {
        if self.touch == Touch::Yes {
            entry.touch(self.clock());
        }
    }

    /// The one place every mutation of a key passes, after it happened; see [`crate::change`].
    #[inline]
    pub(crate) fn changed(&self, entry: &Entry, change: Change) {
        self.stats.changes.add(1);
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
        let next = &self.keyspace.next_deadlines_ms[self.shard_index];
        if deadline_ms < next.load(Ordering::Relaxed) {
            next.store(deadline_ms, Ordering::Relaxed);
            self.keyspace.alarm.deadline_published(deadline_ms);
        }
    }
}
