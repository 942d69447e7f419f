//! Superseded locations, kept for as long as a snapshot may read them.
//!
//! A snapshot with number S sees, of each key, the last record written at or before S. The index knows only the
//! newest records; while snapshots are open, each write notes here the location it supersedes, with its own
//! number. The version S sees is the one with the lowest such number above S, if its own number is not above S.
//!
//! Writers add to the history before they change the index, and snapshots read the index first, so no version is
//! missed.
//!
//! One lock guards snapshots and versions: dropping a snapshot decides which versions to remove and removes them
//! before the next snapshot, which may need them, can open.

use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use tierce_storage::location::Location;

/// A location of a key until write `superseded_by`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Version {
    pub(crate) superseded_by: u64,
    pub(crate) location: Location,
}

/// Open snapshots and the versions they may see.
#[derive(Default)]
pub(crate) struct History {
    seen: RwLock<Seen>,
    /// Number of open snapshots, for a check without the lock.
    snapshot_count: AtomicUsize,
}

#[derive(Default)]
struct Seen {
    /// Superseded versions by key, or by big-endian hash for an index without keys.
    versions: BTreeMap<Vec<u8>, Vec<Version>>,
    /// Number of snapshots per sequence number.
    snapshots: BTreeMap<u64, usize>,
}

impl Seen {
    /// Returns the lowest number of an open snapshot.
    fn oldest(&self) -> Option<u64> {
        self.snapshots.keys().next().copied()
    }

    /// Removes one of the snapshots with this number.
    fn remove(&mut self, seq: u64) {
        if let Some(count) = self.snapshots.get_mut(&seq) {
            *count -= 1;
            if *count == 0 {
                self.snapshots.remove(&seq);
            }
        }
    }
}

impl History {
    /// Registers a snapshot. The caller blocks writers, so that none is between adding to the history and changing the
    /// index.
    pub(crate) fn open_snapshot(&self, seq: u64) {
        *self.seen.write().snapshots.entry(seq).or_insert(0) += 1;
        self.snapshot_count.fetch_add(1, Ordering::SeqCst);
    }

    /// Removes a snapshot and the versions that only it could see.
    pub(crate) fn close_snapshot(&self, seq: u64) {
        let mut seen = self.seen.write();
        seen.remove(seq);
        self.snapshot_count.fetch_sub(1, Ordering::SeqCst);
        match seen.oldest() {
            None => seen.versions.clear(),
            Some(oldest) if oldest > seq => seen.versions.retain(|_, chain| {
                chain.retain(|version| version.superseded_by > oldest);
                !chain.is_empty()
            }),
            Some(_) => {}
        }
    }

    /// Returns the lowest number of an open snapshot.
    pub(crate) fn oldest_snapshot(&self) -> Option<u64> {
        self.seen.read().oldest()
    }

    pub(crate) fn is_needed(&self) -> bool {
        self.snapshot_count.load(Ordering::SeqCst) > 0
    }

    /// Notes that write `superseded_by` is about to replace the key's location.
    pub(crate) fn note(&self, key: &[u8], superseded_by: u64, location: Location) {
        let mut seen = self.seen.write();
        let chain = seen.versions.entry(key.to_vec()).or_default();
        chain.push(Version { superseded_by, location });
    }

    /// Returns the versions of a key (or of all keys with a hash) that were superseded after `seq`, the earliest
    /// superseded first.
    pub(crate) fn versions_after(&self, key: &[u8], seq: u64) -> Vec<Version> {
        let seen = self.seen.read();
        let chain = seen.versions.get(key).map_or(&[][..], |chain| chain);
        chain.iter().filter(|version| version.superseded_by > seq).copied().collect()
    }

    /// Returns the keys in a range with versions superseded after `seq`, ascending, with the earliest superseded
    /// version of each.
    pub(crate) fn range_after(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        seq: u64,
    ) -> Vec<(Vec<u8>, Location)> {
        let seen = self.seen.read();
        let visible = |chain: &Vec<Version>| {
            chain.iter().find(|version| version.superseded_by > seq).map(|v| v.location)
        };
        seen.versions
            .range::<[u8], _>((lower, upper))
            .filter_map(|(key, chain)| Some((key.clone(), visible(chain)?)))
            .collect()
    }

    /// Returns all versions with hashes in a range that were superseded after `seq`.
    pub(crate) fn all_after(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        seq: u64,
    ) -> Vec<Location> {
        let seen = self.seen.read();
        seen.versions
            .range::<[u8], _>((lower, upper))
            .flat_map(|(_, chain)| chain.iter())
            .filter(|version| version.superseded_by > seq)
            .map(|version| version.location)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_a_snapshot_takes_nothing_from_one_opened_meanwhile() {
        const ROUNDS: u64 = 100_000;
        let history = History::default();
        let location = Location::new(tierce_storage::location::SegmentId(1), 128, 64);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    history.open_snapshot(0);
                    history.close_snapshot(0);
                }
            });
            for seq in 1..ROUNDS {
                history.open_snapshot(seq);
                history.note(b"key", seq + 1, location);
                let seen = history.versions_after(b"key", seq);
                assert!(!seen.is_empty(), "the version that snapshot {seq} sees is gone");
                history.close_snapshot(seq);
            }
        });
        assert!(history.seen.read().versions.is_empty());
    }
}
