//! Rebuilds segments: the only place where many entries move.
//!
//! The destinations of entries are computed first, while the old segments are whole, and entries are moved after that.
//! So none of the caller's code runs while entries move, and a panic in it leaves the table unchanged. The code here
//! neither fails nor panics, unless memory runs out.

use crate::bucket::Fingerprint;
use crate::geometry::SLOTS;
use crate::geometry::{SEGMENT_BUCKETS_MAX, size_for};
use crate::segment::Segment;

/// Returns the segment with another number of buckets; `homes` are those of [`Segment::homes_among`]. Fingerprints
/// stay the same.
pub(crate) fn resize<T>(segment: Segment<T>, homes: &[u8], buckets: usize) -> Segment<T> {
    assert_eq!(segment.len(), homes.len());
    let mut resized = Filler::new(buckets, segment.depth());
    for (home, (fingerprint, entry)) in homes.iter().zip(segment.drain()) {
        resized.add_at(usize::from(*home), fingerprint, entry);
    }
    resized.finish()
}

/// Returns two segments, each for half of the positions, of suitable sizes. `hashes` are those of [`Segment::hashes`].
pub(crate) fn split<T>(segment: Segment<T>, hashes: &[u64]) -> [Segment<T>; 2] {
    let depth = segment.depth();
    let is_upper = |hash: u64| (hash << depth) >> (u64::BITS - 1) == 1;
    let upper = hashes.iter().filter(|hash| is_upper(**hash)).count();
    let lens = [hashes.len() - upper, upper];
    let mut halves = lens.map(|len| Filler::new(size_for(len), depth + 1));
    for_each_with_hash(segment, hashes, |hash, entry| {
        halves[usize::from(is_upper(hash))].add(hash, entry);
    });
    halves.map(Filler::finish)
}

/// Merges two siblings into one segment of a suitable size.
pub(crate) fn merge<T>(halves: [Segment<T>; 2], hashes: &[Vec<u64>; 2]) -> Segment<T> {
    let len = halves.iter().map(Segment::len).sum();
    let mut merged = Filler::new(size_for(len), halves[0].depth() - 1);
    for (half, hashes) in halves.into_iter().zip(hashes) {
        for_each_with_hash(half, hashes, |hash, entry| merged.add(hash, entry));
    }
    merged.finish()
}

fn for_each_with_hash<T>(segment: Segment<T>, hashes: &[u64], mut each: impl FnMut(u64, T)) {
    assert_eq!(segment.len(), hashes.len());
    hashes.iter().zip(segment.drain()).for_each(|(hash, (_, entry))| each(*hash, entry));
}

/// Fills a new segment. First entries go to their homes, without a search, because counting suffices to know the
/// vacant slots; entries whose home is full are placed at the end.
struct Filler<T> {
    segment: Segment<T>,
    filled: [u8; SEGMENT_BUCKETS_MAX],
    homeless: Vec<(usize, Fingerprint, T)>,
}

impl<T> Filler<T> {
    fn new(buckets: usize, depth: u32) -> Self {
        let segment = Segment::new(buckets, depth);
        Self { segment, filled: [0; SEGMENT_BUCKETS_MAX], homeless: Vec::new() }
    }

    #[inline]
    fn add(&mut self, hash: u64, entry: T) {
        self.add_at(self.segment.home(hash), self.segment.fingerprint(hash), entry);
    }

    #[inline]
    fn add_at(&mut self, home: usize, fingerprint: Fingerprint, entry: T) {
        let slot = usize::from(self.filled[home]);
        if slot < SLOTS {
            self.segment.place_at_home(home, slot, fingerprint, entry);
            self.filled[home] += 1;
        } else {
            self.homeless.push((home, fingerprint, entry));
        }
    }

    fn finish(mut self) -> Segment<T> {
        for (home, fingerprint, entry) in self.homeless {
            self.segment.place_extending(home, fingerprint, entry);
        }
        self.segment
    }
}
