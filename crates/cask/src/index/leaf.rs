//! A sorted run of keys and locations in a few exactly sized buffers.
//!
//! The common prefix of the keys is stored once, the suffixes in one buffer. Suffixes of equal length, as with
//! fixed-size keys, need nothing else; otherwise their ends are stored too. Buffers grow by an eighth, so that a
//! half-full leaf does not waste half its memory.

use tierce_storage::location::Location;

/// Keys and locations, ascending by key.
#[derive(Default, Debug)]
pub(crate) struct Leaf {
    prefix: Box<[u8]>,
    /// The keys without the prefix, one after the other.
    rests: Vec<u8>,
    /// End of each rest; empty while all are `rest_len` long.
    ends: Vec<u32>,
    rest_len: usize,
    locations: Vec<u64>,
}

impl Leaf {
    /// Builds a leaf of exactly the right size.
    pub(crate) fn from_sorted(entries: &[(&[u8], Location)]) -> Self {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            return Leaf::default();
        };
        let prefix_len = common_len(first.0, last.0);
        let rest_len = first.0.len() - prefix_len;
        let uniform = entries.iter().all(|entry| entry.0.len() == first.0.len());
        let mut leaf = Leaf {
            prefix: first.0[..prefix_len].into(),
            rests: Vec::with_capacity(entries.iter().map(|e| e.0.len() - prefix_len).sum()),
            ends: Vec::with_capacity(if uniform { 0 } else { entries.len() }),
            rest_len: if uniform { rest_len } else { 0 },
            locations: Vec::with_capacity(entries.len()),
        };
        for (key, location) in entries {
            leaf.rests.extend_from_slice(&key[prefix_len..]);
            leaf.locations.push(location.raw());
            if !uniform {
                leaf.ends.push(leaf.rests.len() as u32);
            }
        }
        leaf
    }

    pub(crate) fn len(&self) -> usize {
        self.locations.len()
    }

    /// Returns the bytes of the keys, without their common prefix.
    pub(crate) fn rests_len(&self) -> usize {
        self.rests.len()
    }

    pub(crate) fn location(&self, at: usize) -> Location {
        Location::from_raw(self.locations[at]).expect("leaves hold real locations only")
    }

    pub(crate) fn set_location(&mut self, at: usize, location: Location) {
        self.locations[at] = location.raw();
    }

    fn start(&self, at: usize) -> usize {
        match (self.ends.is_empty(), at) {
            (true, _) => at * self.rest_len,
            (false, 0) => 0,
            (false, _) => self.ends[at - 1] as usize,
        }
    }

    fn rest(&self, at: usize) -> &[u8] {
        &self.rests[self.start(at)..self.start(at + 1)]
    }

    /// Appends the key at an index.
    pub(crate) fn key_into(&self, at: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        out.extend_from_slice(self.rest(at));
    }

    /// Returns the index of the key, or its insertion point.
    pub(crate) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let Some(rest) = key.strip_prefix(&*self.prefix) else {
            return Err(if *key < *self.prefix { 0 } else { self.len() });
        };
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.rest(middle).cmp(rest) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// Inserts a key at the index that [`Self::search`] returned.
    pub(crate) fn insert(&mut self, at: usize, key: &[u8], location: Location) {
        if self.len() == 0 {
            *self = Leaf::from_sorted(&[(key, location)]);
            return;
        }
        let shared = common_len(&self.prefix, key);
        if shared < self.prefix.len() {
            self.shorten_prefix(shared);
        }
        let rest = &key[shared..];
        if self.ends.is_empty() && rest.len() != self.rest_len {
            self.ends = (1..=self.len()).map(|i| (i * self.rest_len) as u32).collect();
        }
        let start = self.start(at);
        reserve_an_eighth(&mut self.rests, rest.len());
        self.rests.splice(start..start, rest.iter().copied());
        if !self.ends.is_empty() {
            reserve_an_eighth(&mut self.ends, 1);
            self.ends.insert(at, (start + rest.len()) as u32);
            self.ends[at + 1..].iter_mut().for_each(|end| *end += rest.len() as u32);
        }
        reserve_an_eighth(&mut self.locations, 1);
        self.locations.insert(at, location.raw());
    }

    pub(crate) fn remove(&mut self, at: usize) {
        let (start, end) = (self.start(at), self.start(at + 1));
        self.rests.drain(start..end);
        if !self.ends.is_empty() {
            self.ends.remove(at);
            self.ends[at..].iter_mut().for_each(|e| *e -= (end - start) as u32);
        }
        self.locations.remove(at);
        if self.locations.capacity() > 2 * self.len() + 8 {
            self.rests.shrink_to_fit();
            self.ends.shrink_to_fit();
            self.locations.shrink_to_fit();
        }
    }

    /// Removes the upper half and returns it, with the shortest key that separates the halves.
    pub(crate) fn split(&mut self) -> (Box<[u8]>, Leaf) {
        let middle = self.len() / 2;
        let keys = self.keys();
        let entries: Vec<(&[u8], Location)> =
            keys.iter().enumerate().map(|(i, key)| (&key[..], self.location(i))).collect();
        let (left, right) = entries.split_at(middle);
        let (last, first) = (left[middle - 1].0, right[0].0);
        let fence = first[..common_len(last, first) + 1].into();
        let (left, right) = (Leaf::from_sorted(left), Leaf::from_sorted(right));
        *self = left;
        (fence, right)
    }

    /// Adds the entries of the next leaf.
    pub(crate) fn append(&mut self, next: &Leaf) {
        let (mine, others) = (self.keys(), next.keys());
        let entries: Vec<(&[u8], Location)> = mine
            .iter()
            .enumerate()
            .map(|(i, key)| (&key[..], self.location(i)))
            .chain(others.iter().enumerate().map(|(i, key)| (&key[..], next.location(i))))
            .collect();
        *self = Leaf::from_sorted(&entries);
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        let key = |i| {
            let mut key = Vec::with_capacity(self.prefix.len() + self.rest(i).len());
            self.key_into(i, &mut key);
            key
        };
        (0..self.len()).map(key).collect()
    }

    fn shorten_prefix(&mut self, len: usize) {
        let moved = self.prefix[len..].to_vec();
        let mut rests = Vec::with_capacity(self.rests.len() + self.len() * moved.len());
        for i in 0..self.len() {
            rests.extend_from_slice(&moved);
            rests.extend_from_slice(self.rest(i));
        }
        for (i, end) in self.ends.iter_mut().enumerate() {
            *end += ((i + 1) * moved.len()) as u32;
        }
        self.rest_len += if self.ends.is_empty() { moved.len() } else { 0 };
        self.rests = rests;
        self.prefix = self.prefix[..len].into();
    }

    /// Returns the bytes of memory the buffers take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.prefix.len()
            + self.rests.capacity()
            + self.ends.capacity() * size_of::<u32>()
            + self.locations.capacity() * size_of::<u64>()
    }
}

fn common_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Reserves an eighth more. Doubling would waste a quarter of the index on average.
fn reserve_an_eighth<T>(buf: &mut Vec<T>, more: usize) {
    if buf.capacity() - buf.len() < more {
        buf.reserve_exact(more.max(buf.len() / 8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use tierce_harness::effort;
    use tierce_storage::location::SegmentId;

    fn location(n: u64) -> Location {
        Location::new(SegmentId(1), n * 8, 8)
    }

    fn check(leaf: &Leaf, model: &BTreeMap<Vec<u8>, u64>) {
        assert_eq!(leaf.keys(), model.keys().cloned().collect::<Vec<_>>());
        for (i, (key, &n)) in model.iter().enumerate() {
            assert_eq!(leaf.search(key), Ok(i));
            assert_eq!(leaf.location(i), location(n));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        #[test]
        fn leaf_behaves_like_a_map(
            ops in prop::collection::vec((prop::collection::vec(0u8..3, 0..5), 0u64..99, 0u8..4), 0..120)
        ) {
            let mut leaf = Leaf::default();
            let mut model = BTreeMap::new();
            for (key, n, op) in ops {
                match (op, leaf.search(&key)) {
                    (0, Ok(at)) => {
                        leaf.remove(at);
                        model.remove(&key);
                    }
                    (0, Err(_)) => prop_assert!(!model.contains_key(&key)),
                    (_, Ok(at)) => {
                        leaf.set_location(at, location(n));
                        model.insert(key, n);
                    }
                    (_, Err(at)) => {
                        leaf.insert(at, &key, location(n));
                        model.insert(key, n);
                    }
                }
                check(&leaf, &model);
            }
            if leaf.len() >= 2 {
                let (fence, right) = leaf.split();
                let upper = model.split_off(&fence[..]);
                check(&leaf, &model);
                check(&right, &upper);
                leaf.append(&right);
                model.extend(upper);
                check(&leaf, &model);
            }
        }
    }

    #[test]
    fn equally_long_keys_need_no_ends() {
        let mut leaf = Leaf::default();
        for n in 0..200u64 {
            let key = (n * 77 % 200).to_be_bytes();
            let at = leaf.search(&key).unwrap_err();
            leaf.insert(at, &key, location(n));
        }
        assert!(leaf.ends.is_empty());
        assert!(leaf.memory_bytes() < 200 * (8 + 8) * 9 / 8, "{}", leaf.memory_bytes());
    }
}
