//! The hash index: an entry is 12 bytes, whatever the key length.
//!
//! The top bits of a key's hash choose a partition, the next 32 bits are its fingerprint. A partition is an
//! open-addressing table with linear probing in which a fingerprint's home slot is a monotone function of the
//! fingerprint, so the occupied slots are always sorted. Therefore
//! * growing and shrinking is one sequential copy of a partition and needs no keys, so no disk reads;
//! * tables grow by an eighth, never by doubling: the load stays between [`LOAD_AFTER_RESIZE`] and [`LOAD_MAX`],
//!   and a key costs at most 12 / 0.83 = 14.5 bytes plus a few slots a partition;
//! * probing for an absent fingerprint ends at the first greater one;
//! * opening builds a table of exactly the right size from sorted hint files.
//!
//! Equal fingerprints (42 bits with the partition) may belong to different keys; the caller reads their records to
//! find out. Each key has one entry.

use parking_lot::RwLock;
use tierce_storage::location::Location;

const PARTITION_BITS: u32 = 10;
/// Upper bound of a table's load, above which it grows. Percent, of home slots.
const LOAD_MAX: usize = 92;
/// Load of a resized table. Percent, of home slots.
const LOAD_AFTER_RESIZE: usize = 83;
/// Lower bound of a table's load, below which it shrinks. Percent, of home slots.
const LOAD_MIN: usize = 60;
/// Slots after the last home slot, for entries pushed over the end.
const TAIL_SLOTS: usize = 6;
/// An empty slot; no location has this value.
const EMPTY: u64 = 0;

/// Maps key hashes to locations.
pub(crate) struct HashIndex {
    partitions: Box<[RwLock<Partition>]>,
}

/// A table sorted by fingerprint, with gaps.
#[derive(Default)]
struct Partition {
    fingerprints: Vec<u32>,
    locations: Vec<u64>,
    homes: usize,
    len: usize,
}

impl HashIndex {
    pub(crate) const PARTITIONS: usize = 1 << PARTITION_BITS;

    pub(crate) fn new() -> Self {
        HashIndex { partitions: (0..Self::PARTITIONS).map(|_| RwLock::default()).collect() }
    }

    fn partition(&self, hash: u64) -> &RwLock<Partition> {
        &self.partitions[Self::partition_of(hash)]
    }

    pub(crate) fn partition_of(hash: u64) -> usize {
        (hash >> (64 - PARTITION_BITS)) as usize
    }

    /// Appends the locations of all entries with the fingerprint of this hash.
    pub(crate) fn candidates(&self, hash: u64, out: &mut Vec<Location>) {
        let partition = self.partition(hash).read();
        let slots = partition.equal_slots(fingerprint(hash));
        out.extend(slots.filter_map(|slot| Location::from_raw(partition.locations[slot])));
    }

    /// Adds an entry for a key that has none.
    pub(crate) fn insert(&self, hash: u64, location: Location) {
        self.partition(hash).write().insert(fingerprint(hash), location.raw());
    }

    /// Lets the entry at `old` point to `new`; `false` when there is no such entry.
    pub(crate) fn replace(&self, hash: u64, old: Location, new: Location) -> bool {
        let mut partition = self.partition(hash).write();
        let slot = partition.find(fingerprint(hash), old);
        slot.map(|slot| partition.locations[slot] = new.raw()).is_some()
    }

    /// Removes the entry at `old`; `false` when there is no such entry.
    pub(crate) fn remove(&self, hash: u64, old: Location) -> bool {
        let mut partition = self.partition(hash).write();
        let slot = partition.find(fingerprint(hash), old);
        slot.map(|slot| partition.remove(slot)).is_some()
    }

    /// Returns true if an entry points to this location.
    pub(crate) fn points_to(&self, hash: u64, location: Location) -> bool {
        self.partition(hash).read().find(fingerprint(hash), location).is_some()
    }

    pub(crate) fn partition_locations(&self, partition: usize, out: &mut Vec<Location>) {
        let partition = self.partitions[partition].read();
        out.extend(partition.locations.iter().filter_map(|&raw| Location::from_raw(raw)));
    }

    pub(crate) fn len(&self) -> usize {
        self.partitions.iter().map(|partition| partition.read().len).sum()
    }

    /// Returns the bytes of memory used.
    pub(crate) fn memory_bytes(&self) -> usize {
        let tables: usize =
            self.partitions.iter().map(|partition| partition.read().memory_bytes()).sum();
        tables + self.partitions.len() * size_of::<RwLock<Partition>>()
    }

    /// Fills one partition with entries in ascending order of their hashes.
    pub(crate) fn load_partition(&self, partition: usize, entries: &[(u64, Location)]) {
        debug_assert!(entries.is_sorted_by_key(|entry| entry.0));
        let fingerprints = entries.iter().map(|entry| fingerprint(entry.0));
        let sorted = fingerprints.zip(entries.iter().map(|entry| entry.1.raw()));
        *self.partitions[partition].write() = Partition::from_sorted(sorted, entries.len());
    }
}

fn fingerprint(hash: u64) -> u32 {
    (hash << PARTITION_BITS >> 32) as u32
}

impl Partition {
    fn from_sorted(sorted: impl Iterator<Item = (u32, u64)>, len: usize) -> Self {
        let homes = (len * 100).div_ceil(LOAD_AFTER_RESIZE);
        let slots = homes + TAIL_SLOTS;
        let mut fingerprints = Vec::with_capacity(slots);
        let mut locations = Vec::with_capacity(slots);
        for (fingerprint, location) in sorted {
            let slot = home(fingerprint, homes).max(locations.len());
            fingerprints.resize(slot, 0);
            locations.resize(slot, EMPTY);
            fingerprints.push(fingerprint);
            locations.push(location);
        }
        // Entries pushed over the end may have taken the tail; keep some of it free.
        let slots = slots.max(locations.len() + TAIL_SLOTS / 2);
        fingerprints.resize(slots, 0);
        locations.resize(slots, EMPTY);
        fingerprints.shrink_to_fit();
        locations.shrink_to_fit();
        Partition { fingerprints, locations, homes, len }
    }

    /// Returns the slots of all entries with this fingerprint.
    fn equal_slots(&self, fingerprint: u32) -> impl Iterator<Item = usize> {
        let start = self.lower_bound(fingerprint);
        (start..self.locations.len()).take_while(move |&slot| {
            self.locations[slot] != EMPTY && self.fingerprints[slot] == fingerprint
        })
    }

    /// Returns the first slot from the fingerprint's home on that is empty or not below it.
    fn lower_bound(&self, fingerprint: u32) -> usize {
        let mut slot = home(fingerprint, self.homes);
        while slot < self.locations.len()
            && self.locations[slot] != EMPTY
            && self.fingerprints[slot] < fingerprint
        {
            slot += 1;
        }
        slot
    }

    fn find(&self, fingerprint: u32, location: Location) -> Option<usize> {
        self.equal_slots(fingerprint).find(|&slot| self.locations[slot] == location.raw())
    }

    fn insert(&mut self, fingerprint: u32, location: u64) {
        if (self.len + 1) * 100 > self.homes * LOAD_MAX {
            self.resize();
        }
        let at = self.lower_bound(fingerprint);
        let Some(gap) = (at..self.locations.len()).find(|&slot| self.locations[slot] == EMPTY)
        else {
            self.resize();
            return self.insert(fingerprint, location);
        };
        self.fingerprints.copy_within(at..gap, at + 1);
        self.locations.copy_within(at..gap, at + 1);
        self.fingerprints[at] = fingerprint;
        self.locations[at] = location;
        self.len += 1;
    }

    fn remove(&mut self, slot: usize) {
        // Entries that follow without a gap and are not in their home slot move up by one.
        let mut end = slot + 1;
        while end < self.locations.len()
            && self.locations[end] != EMPTY
            && home(self.fingerprints[end], self.homes) < end
        {
            end += 1;
        }
        self.fingerprints.copy_within(slot + 1..end, slot);
        self.locations.copy_within(slot + 1..end, slot);
        self.locations[end - 1] = EMPTY;
        self.len -= 1;
        if self.len * 100 < self.homes * LOAD_MIN && self.homes > 4 * TAIL_SLOTS {
            self.resize();
        }
    }

    fn resize(&mut self) {
        let entries = self.fingerprints.iter().copied().zip(self.locations.iter().copied());
        let len = self.len;
        // One more than the entries, so that even an empty table gets a home slot.
        let mut resized = Self::from_sorted(entries.filter(|entry| entry.1 != EMPTY), len + 1);
        resized.len = len;
        *self = resized;
    }

    fn memory_bytes(&self) -> usize {
        self.fingerprints.capacity() * size_of::<u32>()
            + self.locations.capacity() * size_of::<u64>()
    }
}

/// Returns the home slot of an entry; monotone in the fingerprint.
fn home(fingerprint: u32, homes: usize) -> usize {
    ((u64::from(fingerprint) * homes as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use tierce_harness::effort;
    use tierce_storage::location::SegmentId;

    fn location(n: u64) -> Location {
        Location::new(SegmentId(1 + (n >> 20) as u32), (n & 0xf_ffff) * 8, 8)
    }

    fn mix(n: u64) -> u64 {
        tierce_storage::hash::HashKey([1, 2]).hash(&n.to_le_bytes())
    }

    fn check_sorted(partition: &Partition) {
        let occupied: Vec<usize> =
            (0..partition.locations.len()).filter(|&s| partition.locations[s] != EMPTY).collect();
        assert_eq!(occupied.len(), partition.len);
        assert!(occupied.is_sorted_by_key(|&slot| partition.fingerprints[slot]));
        for &slot in &occupied {
            let home = home(partition.fingerprints[slot], partition.homes);
            assert!(home <= slot);
            assert!((home..slot).all(|slot| partition.locations[slot] != EMPTY));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        #[test]
        fn partition_behaves_like_a_set(ops in prop::collection::vec((0u32..40, 1u64..6, any::<bool>()), 0..400)) {
            let mut partition = Partition::default();
            let mut model = BTreeSet::new();
            for (fingerprint, n, insert) in ops {
                // A few clustered fingerprints at both ends of the axis.
                let fingerprint = if fingerprint < 20 { fingerprint } else { u32::MAX - fingerprint };
                let location = location(n);
                let found = partition.find(fingerprint, location);
                prop_assert_eq!(found.is_some(), model.contains(&(fingerprint, location)));
                match (insert, found) {
                    (true, None) => {
                        partition.insert(fingerprint, location.raw());
                        model.insert((fingerprint, location));
                    }
                    (false, Some(slot)) => {
                        partition.remove(slot);
                        model.remove(&(fingerprint, location));
                    }
                    _ => {}
                }
                check_sorted(&partition);
            }
            for &(fingerprint, location) in &model {
                prop_assert!(partition.find(fingerprint, location).is_some());
            }
        }
    }

    #[test]
    fn at_most_16_bytes_a_key_while_growing_and_shrinking() {
        let index = HashIndex::new();
        let count = 400_000;
        for n in 0..count {
            index.insert(mix(n), location(n));
            if n > 200_000 && n.is_multiple_of(10_007) {
                assert!(
                    index.memory_bytes() <= 16 * index.len(),
                    "{} at {n}",
                    index.memory_bytes()
                );
            }
        }
        let mut found = Vec::new();
        for n in 0..count {
            found.clear();
            index.candidates(mix(n), &mut found);
            assert!(found.contains(&location(n)));
        }
        for n in 0..count * 3 / 4 {
            assert!(index.remove(mix(n), location(n)));
        }
        assert_eq!(index.len() as u64, count / 4);
        assert!(index.memory_bytes() <= 24 * index.len());
    }

    #[test]
    fn loading_gives_the_same_as_inserting() {
        let index = HashIndex::new();
        let mut entries: Vec<_> = (0..5000u64).map(|n| (mix(n), location(n))).collect();
        entries.sort_unstable();
        for partition in entries.chunk_by(|a, b| a.0 >> 54 == b.0 >> 54) {
            index.load_partition(HashIndex::partition_of(partition[0].0), partition);
        }
        assert_eq!(index.len(), 5000);
        index.partitions.iter().for_each(|partition| check_sorted(&partition.read()));
        assert!(entries.iter().all(|&(hash, location)| index.points_to(hash, location)));
        assert!(index.replace(entries[7].0, entries[7].1, location(9999)));
        assert!(!index.replace(entries[7].0, entries[7].1, location(9998)));
        let mut all = Vec::new();
        (0..HashIndex::PARTITIONS).for_each(|p| index.partition_locations(p, &mut all));
        assert_eq!(all.len(), 5000);
    }
}
