//! The heaviest keys of a stream of weighted keys, in bounded memory (Space-Saving: Metwally, Agrawal, El Abbadi,
//! 2005).
//!
//! - A key with at least a `capacity`-th part of the total weight is among the entries.
//! - The guaranteed weight of an entry is never more than its true weight.

use std::collections::HashMap;
use std::sync::Arc;

/// The heaviest keys so far.
#[derive(Debug)]
pub(super) struct Top {
    capacity: usize,
    entries: Vec<Entry>,
    /// Index of each key in the entries.
    places: HashMap<Arc<[u8]>, usize>,
}

#[derive(Debug)]
struct Entry {
    key: Arc<[u8]>,
    /// Upper bound of the key's weight. It includes the weight of the key that this entry replaced.
    weight: u64,
    /// Part of the weight that may belong to replaced keys.
    foreign: u64,
}

impl Top {
    /// Creates an empty set of at most `capacity` entries. Memory is allocated as they are added.
    pub(super) fn new(capacity: usize) -> Self {
        debug_assert!(capacity > 0);
        Self { capacity, entries: Vec::new(), places: HashMap::new() }
    }

    /// Adds to the weight of a key.
    pub(super) fn add(&mut self, key: &[u8], weight: u64) {
        if let Some(&place) = self.places.get(key) {
            self.entries[place].weight += weight;
            return;
        }
        if weight == 0 {
            // It would replace the lightest entry.
            return;
        }
        let key: Arc<[u8]> = key.into();
        if self.entries.len() < self.capacity {
            self.places.insert(Arc::clone(&key), self.entries.len());
            self.entries.push(Entry { key, weight, foreign: 0 });
            return;
        }
        // A scan of some hundred numbers costs less than a sorted order, since most keys are already there.
        let lightest = self.entries.iter().enumerate().min_by_key(|(_, entry)| entry.weight);
        let Some((place, entry)) = lightest else { return };
        let foreign = entry.weight;
        self.places.remove(&entry.key);
        self.places.insert(Arc::clone(&key), place);
        self.entries[place] = Entry { key, weight: foreign + weight, foreign };
    }

    /// Returns the guaranteed weight of each key. The true weight is never lower.
    pub(super) fn known(&self) -> impl Iterator<Item = (&Arc<[u8]>, u64)> {
        self.entries.iter().map(|entry| (&entry.key, entry.weight - entry.foreign))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierce_harness::effort;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        /// Both guarantees hold for any stream.
        #[test]
        fn heavy_keys_are_kept_and_none_is_overstated(
            capacity in 1_usize..8,
            stream in prop::collection::vec((0_u8..20, 0_u64..50), 0..300),
        ) {
            let (mut top, mut model) = (Top::new(capacity), HashMap::new());
            for (key, weight) in &stream {
                top.add(&[*key], *weight);
                *model.entry(*key).or_insert(0) += weight;
            }
            prop_assert!(top.entries.len() <= capacity);
            prop_assert_eq!(top.entries.len(), top.places.len());
            for (key, weight) in top.known() {
                prop_assert!(weight <= model[&key[0]]);
            }
            let all: u64 = model.values().sum();
            for (key, weight) in model {
                let is_heavy = weight * capacity as u64 > all;
                prop_assert!(!is_heavy || top.places.contains_key(&[key][..]), "{} of {}", weight, all);
            }
        }
    }
}
