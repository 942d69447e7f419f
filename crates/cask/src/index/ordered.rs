//! The ordered index: all keys in memory, in leaves of up to [`LEAF_ENTRIES_MAX`] entries.
//!
//! A map of fences (the shortest key that separates two leaves) finds the leaf, bisection the key in it.
//! Writers of different leaves do not contend. The map is locked exclusively only to split or join a leaf,
//! about once in a hundred insertions.
//!
//! Invariants:
//! * The first fence is empty; a leaf's keys are at or above its fence and below the next one.
//! * A leaf lock is only taken with the map locked, so fences do not move under a leaf's user.
//!
//! Measured: 8-byte random keys take 18 to 20 bytes of memory each in total.

use super::leaf::Leaf;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Bound;
use tierce_storage::location::Location;

/// A leaf with more entries is split.
const LEAF_ENTRIES_MAX: usize = 256;
/// A leaf with more key bytes is split, unless it has a single entry.
const LEAF_BYTES_MAX: usize = 32 << 10;
/// A leaf with fewer entries is joined with its neighbour.
const LEAF_ENTRIES_MIN: usize = 32;

/// Number of leaves whose locations are copied at a time, while the map of leaves is locked.
const LEAVES_AT_A_TIME: usize = 16;

/// Maps keys to locations, in order.
pub(crate) struct OrderedIndex {
    leaves: RwLock<BTreeMap<Box<[u8]>, RwLock<Leaf>>>,
    len: std::sync::atomic::AtomicUsize,
}

/// Consecutive entries copied out of the index.
#[derive(Default)]
pub(crate) struct Run {
    keys: Vec<u8>,
    ends: Vec<usize>,
    locations: Vec<Location>,
}

impl Run {
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.ends.clear();
        self.locations.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.locations.len()
    }

    pub(crate) fn locations(&self) -> &[Location] {
        &self.locations
    }

    pub(crate) fn get(&self, at: usize) -> (&[u8], Location) {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        (&self.keys[start..self.ends[at]], self.locations[at])
    }

    /// Drops all entries except some.
    pub(crate) fn keep(&mut self, positions: std::ops::Range<usize>) {
        let start = positions.start.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.locations.truncate(positions.end);
        self.locations.drain(..positions.start);
        self.ends.truncate(positions.end);
        self.ends.drain(..positions.start);
        self.keys.truncate(self.ends.last().map_or(start, |end| *end));
        self.keys.drain(..start);
        self.ends.iter_mut().for_each(|end| *end -= start);
    }

    /// Adds an entry above all others.
    pub(crate) fn append(&mut self, key: &[u8], location: Location) {
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len());
        self.locations.push(location);
    }

    fn push(&mut self, leaf: &Leaf, at: usize) {
        leaf.key_into(at, &mut self.keys);
        self.ends.push(self.keys.len());
        self.locations.push(leaf.location(at));
    }
}

/// The end of a range that [`OrderedIndex::run`] starts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Lower,
    Upper,
}

enum Change {
    Nothing,
    Split,
    Join,
}

impl OrderedIndex {
    /// Creates an index of leaves that [`LeafBuilder`]s made, in order.
    pub(crate) fn from_leaves(leaves: Vec<(Box<[u8]>, Leaf)>) -> Self {
        let len: usize = leaves.iter().map(|(_, leaf)| leaf.len()).sum();
        let mut leaves: BTreeMap<_, _> =
            leaves.into_iter().map(|(fence, leaf)| (fence, RwLock::new(leaf))).collect();
        if leaves.first_key_value().is_none_or(|(fence, _)| !fence.is_empty()) {
            let first = leaves.pop_first().map_or_else(RwLock::default, |(_, leaf)| leaf);
            leaves.insert(Box::default(), first);
        }
        OrderedIndex { leaves: RwLock::new(leaves), len: len.into() }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Location> {
        let leaves = self.leaves.read();
        let leaf = find(&leaves, key).read();
        leaf.search(key).ok().map(|at| leaf.location(at))
    }

    /// Sets the key's location and returns the old one.
    pub(crate) fn put(&self, key: &[u8], location: Location) -> Option<Location> {
        let change = {
            let leaves = self.leaves.read();
            let mut leaf = find(&leaves, key).write();
            match leaf.search(key) {
                Ok(at) => {
                    let old = leaf.location(at);
                    leaf.set_location(at, location);
                    return Some(old);
                }
                Err(at) => leaf.insert(at, key, location),
            }
            change_of(&leaf)
        };
        self.len.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if matches!(change, Change::Split) {
            self.split(key);
        }
        None
    }

    /// Removes the key and returns its location.
    pub(crate) fn remove(&self, key: &[u8]) -> Option<Location> {
        let (old, change) = {
            let leaves = self.leaves.read();
            let mut leaf = find(&leaves, key).write();
            let at = leaf.search(key).ok()?;
            let old = leaf.location(at);
            leaf.remove(at);
            (old, change_of(&leaf))
        };
        self.len.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        if matches!(change, Change::Join) {
            self.join(key);
        }
        Some(old)
    }

    /// Changes the key's location to `new` if it is `old`.
    pub(crate) fn replace(&self, key: &[u8], old: Location, new: Location) -> bool {
        let leaves = self.leaves.read();
        let mut leaf = find(&leaves, key).write();
        match leaf.search(key) {
            Ok(at) if leaf.location(at) == old => {
                leaf.set_location(at, new);
                true
            }
            _ => false,
        }
    }

    /// Copies the entries of one leaf that lie between the bounds, ascending: those nearest to the given side. An
    /// empty run means that there are none.
    pub(crate) fn run(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>, side: Side, out: &mut Run) {
        out.clear();
        let leaves = self.leaves.read();
        let (Bound::Included(low) | Bound::Excluded(low)) = lower else {
            unreachable!("lower bounds are given, be it as the empty key");
        };
        let first = leaves.range::<[u8], _>(up_to(low)).next_back().map_or(&[][..], |(f, _)| f);
        let upper_fence = match upper {
            Bound::Unbounded => Bound::Unbounded,
            Bound::Included(high) | Bound::Excluded(high) => Bound::Included(high),
        };
        let above = |fence: &[u8]| matches!(upper_fence, Bound::Included(high) if high < fence);
        if above(first) {
            return;
        }
        let mut candidates =
            leaves.range::<[u8], _>((Bound::Included(first), upper_fence)).map(|(_, leaf)| leaf);
        let mut next = || match side {
            Side::Lower => candidates.next(),
            Side::Upper => candidates.next_back(),
        };
        while let Some(leaf) = next() {
            let leaf = leaf.read();
            let start = match lower {
                Bound::Included(key) => leaf.search(key).unwrap_or_else(|at| at),
                Bound::Excluded(key) => leaf.search(key).map_or_else(|at| at, |at| at + 1),
                Bound::Unbounded => 0,
            };
            let end = match upper {
                Bound::Included(key) => leaf.search(key).map_or_else(|at| at, |at| at + 1),
                Bound::Excluded(key) => leaf.search(key).unwrap_or_else(|at| at),
                Bound::Unbounded => leaf.len(),
            };
            (start..end).for_each(|at| out.push(&leaf, at));
            if out.len() > 0 {
                return;
            }
        }
    }

    /// Appends the locations of some leaves' keys from `lower` on, and returns the key to continue with. `None` at the
    /// end.
    pub(crate) fn locations(&self, lower: &[u8], out: &mut Vec<Location>) -> Option<Box<[u8]>> {
        let leaves = self.leaves.read();
        let first = leaves.range::<[u8], _>(up_to(lower)).next_back().map_or(&[][..], |(f, _)| f);
        let mut following = leaves.range::<[u8], _>((Bound::Included(first), Bound::Unbounded));
        for (_, leaf) in following.by_ref().take(LEAVES_AT_A_TIME) {
            let leaf = leaf.read();
            // Only the first leaf, and only after leaves were joined, begins below `lower`.
            let start = leaf.search(lower).unwrap_or_else(|at| at);
            out.extend((start..leaf.len()).map(|at| leaf.location(at)));
        }
        following.next().map(|(fence, _)| fence.clone())
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns the bytes of memory used, with an estimate of the map's own.
    pub(crate) fn memory_bytes(&self) -> usize {
        let leaves = self.leaves.read();
        // B-tree nodes are two thirds full on average.
        let node = (size_of::<Box<[u8]>>() + size_of::<RwLock<Leaf>>()) * 3 / 2;
        leaves.iter().map(|(fence, leaf)| fence.len() + node + leaf.read().memory_bytes()).sum()
    }

    /// Splits the key's leaf, unless another writer did already.
    fn split(&self, key: &[u8]) {
        let mut leaves = self.leaves.write();
        let leaf = find_mut(&mut leaves, key);
        if matches!(change_of(leaf), Change::Split) {
            let (fence, right) = leaf.split();
            leaves.insert(fence, RwLock::new(right));
        }
    }

    /// Joins the key's leaf with the next one, or the one before, if both are small.
    fn join(&self, key: &[u8]) {
        let mut leaves = self.leaves.write();
        let Some(here) = leaves.range::<[u8], _>(up_to(key)).next_back().map(|(f, _)| f.clone())
        else {
            return;
        };
        let after = (Bound::Excluded(&here[..]), Bound::Unbounded);
        let next = leaves.range::<[u8], _>(after).next().map(|(fence, _)| fence.clone());
        let (left, right) = match next {
            Some(next) => (here, next),
            None => match leaves
                .range::<[u8], _>((Bound::Unbounded, Bound::Excluded(&here[..])))
                .next_back()
            {
                Some((before, _)) => (before.clone(), here),
                None => return,
            },
        };
        let sizes = |fence: &[u8]| leaves[fence].read().len();
        if sizes(&left).min(sizes(&right)) >= LEAF_ENTRIES_MIN
            || sizes(&left) + sizes(&right) > LEAF_ENTRIES_MAX / 2
        {
            return;
        }
        if let Some(gone) = leaves.remove(&right)
            && let Some(stays) = leaves.get_mut(&left)
        {
            stays.get_mut().append(&gone.into_inner());
        }
    }
}

fn change_of(leaf: &Leaf) -> Change {
    if leaf.len() > LEAF_ENTRIES_MAX || (leaf.rests_len() > LEAF_BYTES_MAX && leaf.len() > 1) {
        return Change::Split;
    }
    if leaf.len() < LEAF_ENTRIES_MIN { Change::Join } else { Change::Nothing }
}

fn up_to(key: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Unbounded, Bound::Included(key))
}

fn find<'a>(leaves: &'a BTreeMap<Box<[u8]>, RwLock<Leaf>>, key: &[u8]) -> &'a RwLock<Leaf> {
    let found = leaves.range::<[u8], _>(up_to(key)).next_back();
    found.expect("the first fence is below every key").1
}

fn find_mut<'a>(leaves: &'a mut BTreeMap<Box<[u8]>, RwLock<Leaf>>, key: &[u8]) -> &'a mut Leaf {
    let found = leaves.range_mut::<[u8], _>(up_to(key)).next_back();
    found.expect("the first fence is below every key").1.get_mut()
}

/// Builder of full leaves from entries that come in order.
#[derive(Default)]
pub(crate) struct LeafBuilder {
    run: Run,
    leaves: Vec<(Box<[u8]>, Leaf)>,
}

impl LeafBuilder {
    pub(crate) fn push(&mut self, key: &[u8], location: Location) {
        self.run.append(key, location);
        // Not quite full, so that the first insertions do not split every leaf.
        if self.run.len() >= LEAF_ENTRIES_MAX * 9 / 10 || self.run.keys.len() > LEAF_BYTES_MAX {
            self.finish_leaf();
        }
    }

    fn finish_leaf(&mut self) {
        if self.run.len() == 0 {
            return;
        }
        let entries: Vec<_> = (0..self.run.len()).map(|at| self.run.get(at)).collect();
        let leaf = Leaf::from_sorted(&entries);
        self.leaves.push((entries[0].0.into(), leaf));
        self.run.clear();
    }

    pub(crate) fn finish(mut self) -> Vec<(Box<[u8]>, Leaf)> {
        self.finish_leaf();
        self.leaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierce_harness::effort;
    use tierce_storage::location::SegmentId;

    fn location(n: u64) -> Location {
        Location::new(SegmentId(1 + (n >> 20) as u32), (n & 0xf_ffff) * 8, 8)
    }

    fn forward(index: &OrderedIndex, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut run = Run::default();
        let mut from = lower.map(<[u8]>::to_vec);
        loop {
            index.run(from.as_ref().map(|key| &key[..]), upper, Side::Lower, &mut run);
            if run.len() == 0 {
                return keys;
            }
            keys.extend((0..run.len()).map(|at| run.get(at).0.to_vec()));
            from = Bound::Excluded(keys[keys.len() - 1].clone());
        }
    }

    fn backward(index: &OrderedIndex, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut run = Run::default();
        let mut to = upper.map(<[u8]>::to_vec);
        loop {
            index.run(lower, to.as_ref().map(|key| &key[..]), Side::Upper, &mut run);
            if run.len() == 0 {
                keys.reverse();
                return keys;
            }
            keys.extend((0..run.len()).rev().map(|at| run.get(at).0.to_vec()));
            to = Bound::Excluded(keys[keys.len() - 1].clone());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(48)))]
        #[test]
        fn index_behaves_like_a_map(
            ops in prop::collection::vec((0u16..1200, any::<bool>(), 0u8..8), 0..3000),
            bounds in prop::collection::vec((0u16..1300, 0u16..1300, any::<bool>(), any::<bool>()), 8),
            growing in any::<bool>(),
        ) {
            let index = OrderedIndex::from_leaves(Vec::new());
            let mut model = BTreeMap::new();
            for (n, (key, long, op)) in ops.into_iter().enumerate() {
                let mut key = key.to_string().into_bytes();
                if long {
                    key.extend_from_slice(&[b'x'; 300]);
                }
                // Both directions: mostly insertions, or mostly removals.
                let insert = if growing { op < 7 } else { op < 3 };
                let location = location(n as u64);
                if insert {
                    prop_assert_eq!(index.put(&key, location), model.insert(key, location));
                } else {
                    prop_assert_eq!(index.remove(&key), model.remove(&key));
                }
            }
            prop_assert_eq!(index.len(), model.len());
            for (key, &location) in &model {
                prop_assert_eq!(index.get(key), Some(location));
            }
            for (a, b, a_included, b_included) in bounds {
                let (a, b) = (a.to_string().into_bytes(), b.to_string().into_bytes());
                if a >= b {
                    continue;
                }
                let lower = if a_included { Bound::Included(&a[..]) } else { Bound::Excluded(&a[..]) };
                let upper = if b_included { Bound::Included(&b[..]) } else { Bound::Excluded(&b[..]) };
                let expected: Vec<_> =
                    model.range::<[u8], _>((lower, upper)).map(|(key, _)| key.clone()).collect();
                prop_assert_eq!(forward(&index, lower, upper), expected.clone());
                prop_assert_eq!(backward(&index, lower, upper), expected);
            }
            let all = (Bound::Included(&[][..]), Bound::Unbounded);
            prop_assert_eq!(forward(&index, all.0, all.1).len(), model.len());
            prop_assert_eq!(backward(&index, all.0, all.1).len(), model.len());
        }
    }

    #[test]
    fn at_most_32_bytes_for_an_8_byte_key() {
        let index = OrderedIndex::from_leaves(Vec::new());
        for n in 0..200_000u64 {
            let key = tierce_storage::hash::HashKey([1, 2]).hash(&n.to_le_bytes()).to_be_bytes();
            index.put(&key, location(n));
        }
        assert!(index.memory_bytes() < 24 * index.len(), "{}", index.memory_bytes());
    }

    #[test]
    fn built_from_sorted_entries_it_is_the_same() {
        let mut builder = LeafBuilder::default();
        for n in 1000..3000u64 {
            builder.push(&n.to_be_bytes(), location(n));
        }
        let index = OrderedIndex::from_leaves(builder.finish());
        index.put(&7u64.to_be_bytes(), location(7));
        assert_eq!(index.len(), 2001);
        assert_eq!(index.get(&2999u64.to_be_bytes()), Some(location(2999)));
        assert!(index.replace(&7u64.to_be_bytes(), location(7), location(8)));
        assert!(!index.replace(&7u64.to_be_bytes(), location(7), location(9)));
        let all = forward(&index, Bound::Included(&[]), Bound::Unbounded);
        assert!(all.is_sorted() && all.len() == 2001);
    }

    #[test]
    fn locations_are_all_there_in_order_of_their_keys() {
        let index = OrderedIndex::from_leaves(Vec::new());
        let key = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes();
        let location = |n: u64| Location::new(tierce_storage::location::SegmentId(1), n * 8, 8);
        assert!((0..20_000).all(|n| index.put(&key(n), location(n)).is_none()));
        let mut sorted: Vec<_> = (0..20_000).map(|n| (key(n), location(n))).collect();
        sorted.sort_unstable();
        let (mut found, mut steps) = (Vec::new(), 0);
        let mut next = Some(Box::default());
        while let Some(lower) = next {
            next = index.locations(&lower, &mut found);
            steps += 1;
        }
        assert!(steps > 3, "{steps}");
        assert!(found.iter().eq(sorted.iter().map(|(_, location)| location)));
        found.clear();
        index.locations(&sorted[19_990].0, &mut found);
        assert_eq!(found.len(), 10);
    }
}
