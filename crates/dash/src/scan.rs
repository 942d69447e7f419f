//! Going through a table that changes meanwhile, a bucket at a time.
//!
//! The cursor is a point on the axis of positions: what lies before it has been visited, the rest
//! has not. It says nothing about segments or buckets, so that it survives any growth, split, merge
//! or shrinking between two calls. The price: when the cursor falls inside a home bucket, because
//! buckets were different at the last call, the entries of that bucket have to be hashed to tell the
//! two sides apart.

use crate::geometry::{AXIS_END, POSITION_BITS, segment_range};
use crate::hash::EntryHash;
use crate::table::Table;
use core::ops::Range;

impl<T> Table<T> {
    /// Visits the entries of the home bucket at `cursor`, and returns the cursor of the next one, or
    /// 0 after the last. A scan begins with 0; cursors are less than 2^48.
    ///
    /// Whatever is inserted, removed or cleared between the calls of a scan, and however the table
    /// grows and shrinks: an entry that is there from beginning to end is visited exactly once, an
    /// entry that comes or goes in between at most once for each time it was inserted. A scan takes
    /// at most as many calls as the table has buckets, and a few more when it changes; a call visits
    /// some twelve entries, more only when hashes agree.
    ///
    /// A cursor that no scan has returned is taken for the point that it names; one that is beyond
    /// the axis ends the scan.
    pub fn scan(&self, cursor: u64, hasher: &impl EntryHash<T>, visit: impl FnMut(&T)) -> u64 {
        if cursor >= AXIS_END {
            return 0;
        }
        let rest = cursor..self.home_range(cursor).end;
        self.visit_range(&rest, hasher, visit);
        rest.end % AXIS_END
    }

    /// Visits the entries that lie in one bucket, to change them in place without changing their
    /// hashes, and returns the cursor of the next bucket, or 0 after the last.
    ///
    /// Cheaper than [`Table::scan`], for it reads one bucket and hashes nothing, and weaker: in a
    /// table that does not change, a round from 0 to 0 visits every entry once; while it changes, an
    /// entry may be visited twice or not at all. A stash bucket has a turn of its own.
    pub fn visit_bucket_mut(&mut self, cursor: u64, visit: impl FnMut(&mut T)) -> u64 {
        if cursor >= AXIS_END {
            return 0;
        }
        let hash = cursor << (u64::BITS - POSITION_BITS);
        let Some(first) = self.directory_mut().first_slot(hash) else { return 0 };
        self.directory_mut().entries_mut(first).visit_bucket_mut(cursor, visit) % AXIS_END
    }

    /// The positions that share a home bucket with this one at present.
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
