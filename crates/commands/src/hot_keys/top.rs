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
    /// Where each key is among the entries.
    places: HashMap<Arc<[u8]>, usize>,
}

#[derive(Debug)]
struct Entry {
    key: Arc<[u8]>,
    /// At least the weight of the key: that of a key which had this place before is in it.
    weight: u64,
    /// Of that, what may belong to others.
    foreign: u64,
}

impl Top {
    /// For `capacity` entries, of which memory is taken when they come.
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
            // It would take the place of the lightest one.
            return;
        }
        let key: Arc<[u8]> = key.into();
        if self.entries.len() < self.capacity {
            self.places.insert(Arc::clone(&key), self.entries.len());
            self.entries.push(Entry { key, weight, foreign: 0 });
            return;
        }
        // A scan of some hundred numbers costs less than keeping them in order, since most keys are there already.
        let lightest = self.entries.iter().enumerate().min_by_key(|(_, entry)| entry.weight);
        let Some((place, entry)) = lightest else { return };
        let foreign = entry.weight;
        self.places.remove(&entry.key);
        self.places.insert(Arc::clone(&key), place);
        self.entries[place] = Entry { key, weight: foreign + weight, foreign };
    }

    /// What is known of each key: its weight or less.
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

        /// Both promises, for any stream.
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
