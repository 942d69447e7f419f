//! Scans a table that changes meanwhile, a bucket at a time.
//!
//! The cursor is a point on the axis of positions: everything before it has been visited, the rest has not. It is
//! independent of segments and buckets, so it survives any growth, split, merge or shrinking between two calls. The
//! price: if the cursor falls inside a home bucket, because buckets were different at the last call, the entries of
//! that bucket have to be hashed to tell the two sides apart.

use crate::geometry::{AXIS_END, POSITION_BITS, segment_range};
use crate::hash::EntryHash;
use crate::table::Table;
use core::ops::Range;

impl<T> Table<T> {
    /// Visits the entries of the home bucket at `cursor`, and returns the cursor of the next one, or
    /// 0 after the last. A scan begins with 0; cursors are less than 2^48.
    /// Guarantee: an entry that exists during the whole scan is visited exactly once, and an entry that comes or goes
    /// in between at most once for each time it was inserted. This holds for all insertions, removals and clearing
    /// between the calls, and for any growth or shrinking. A scan takes at most as many calls as the table has
    /// buckets, and a few more if it changes. A call visits some twelve entries, more only if hashes are equal.
    ///
    /// A cursor that no scan has returned is used as the point that it names; one beyond the axis ends the scan.
    pub fn scan(&self, cursor: u64, hasher: &impl EntryHash<T>, visit: impl FnMut(&T)) -> u64 {
        if cursor >= AXIS_END {
            return 0;
        }
        let rest = cursor..self.home_range(cursor).end;
        self.visit_range(&rest, hasher, visit);
        rest.end % AXIS_END
    }

    /// Visits the entries stored in one bucket, to change them in place without changing their hashes, and returns the
    /// cursor of the next bucket, or 0 after the last.
    ///
    /// It is cheaper than [`Table::scan`], since it reads one bucket and hashes nothing, and weaker. In a table that
    /// does not change, a round from 0 to 0 visits every entry once; while it changes, an entry may be visited twice
    /// or not at all. A stash bucket is visited separately.
    pub fn visit_bucket_mut(&mut self, cursor: u64, visit: impl FnMut(&mut T)) -> u64 {
        if cursor >= AXIS_END {
            return 0;
        }
        let hash = cursor << (u64::BITS - POSITION_BITS);
        let Some(first) = self.directory_mut().first_slot(hash) else { return 0 };
        self.directory_mut().entries_mut(first).visit_bucket_mut(cursor, visit) % AXIS_END
    }

    /// Returns the positions that currently share a home bucket with this one.
    pub(crate) fn home_range(&self, position: u64) -> Range<u64> {
        match self.segment_at(position) {
            Some(segment) => segment.home_range(position),
            None => segment_range(position, 0),
        }
    }

    /// Visits the entries with positions in `range`, which lies within one home bucket.
    pub(crate) fn visit_range(
        &self,
        range: &Range<u64>,
        hasher: &impl EntryHash<T>,
        visit: impl FnMut(&T),
    ) {
        if let Some(segment) = self.segment_at(range.start) {
            segment.visit_range(range, hasher, visit);
        }
    }
}
