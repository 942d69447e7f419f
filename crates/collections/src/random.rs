//! Random choices, from a seed the caller passes.

use tierce_dash::Table;

/// A sequence of random numbers: SplitMix64 of Steele, Lea and Flood, "Fast splittable pseudorandom
/// number generators", 2014.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next number.
    #[inline]
    pub fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `bound`, each equally likely except for a bias of `bound / 2^64`; 0 for 0.
    #[inline]
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.word()) * bound as u128) >> 64) as usize
    }
}

/// Selection sampling: chooses some of a known number of elements during one pass, each choice equally likely (Knuth,
/// The Art of Computer Programming, volume 2, algorithm 3.4.2 S).
#[derive(Debug)]
pub struct Selection {
    random: Random,
    wanted: usize,
    left: usize,
}

impl Selection {
    /// Chooses `wanted` of `len` elements, or all if there are fewer.
    pub fn new(random: Random, wanted: usize, len: usize) -> Self {
        Self { random, wanted, left: len }
    }

    /// Returns true if the next element is chosen. Call it once for each element.
    pub fn takes_next(&mut self) -> bool {
        let takes = self.random.below(self.left) < self.wanted;
        self.wanted -= usize::from(takes);
        self.left = self.left.saturating_sub(1);
        takes
    }
}

/// Drawing is better than a full pass if at most one of this many elements is wanted.
pub(crate) const SPARSE: usize = 3;

/// Returns `count` distinct `elements`, or all if there are fewer. With `draw`, which makes a random choice in
/// constant time, it avoids a full pass if few are wanted.
///
/// `hash_of` tells elements apart. Two have the same hash with a chance of one in 2^64, and then one of them is not
/// chosen.
pub(crate) fn draw_distinct<T: Copy>(
    elements: impl ExactSizeIterator<Item = T>,
    count: usize,
    random: &mut Random,
    hash_of: impl Fn(&T) -> u64,
    draw: Option<impl Fn(&mut Random) -> Option<T>>,
) -> Vec<T> {
    let len = elements.len();
    let Some(draw) = draw.filter(|_| count.saturating_mul(SPARSE) <= len) else {
        let mut selection = Selection::new(Random::new(random.word()), count, len);
        return elements.filter(|_| selection.takes_next()).collect();
    };
    let mut drawn = Vec::with_capacity(count);
    let mut seen: Table<u64> = Table::new();
    while drawn.len() < count {
        let Some(element) = draw(random) else { break };
        let hash = hash_of(&element);
        if seen.find(hash, |seen| *seen == hash).is_none() {
            seen.insert_unique(hash, hash, &|hash: &u64| *hash);
            drawn.push(element);
        }
    }
    drawn
}

/// Draws one of all `elements` `count` times, in a single pass.
pub(crate) fn draw_repeatedly<T: Copy>(
    elements: impl Iterator<Item = T>,
    count: usize,
    random: &mut Random,
    visit: impl FnMut(T),
) {
    let elements: Vec<T> = elements.collect();
    if !elements.is_empty() {
        (0..count).map(|_| elements[random.below(elements.len())]).for_each(visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_has_the_wanted_size_and_takes_all_alike() {
        let mut random = Random::new(1);
        let mut times = [0; 10];
        for _ in 0..2000 {
            let mut selection = Selection::new(Random::new(random.word()), 3, times.len());
            let taken: Vec<usize> = (0..times.len()).filter(|_| selection.takes_next()).collect();
            assert_eq!(taken.len(), 3);
            taken.iter().for_each(|index| times[*index] += 1);
        }
        assert!(times.iter().all(|times| (450..750).contains(times)), "{times:?}");
        let mut all = Selection::new(random.clone(), 7, 5);
        assert!((0..5).all(|_| all.takes_next()));
        assert_eq!(random.below(0), 0);
        assert!((0..100).all(|_| random.below(7) < 7));
    }
}
