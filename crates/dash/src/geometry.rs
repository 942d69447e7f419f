//! Placement of hashes, and sizes of segments.
//!
//! The upper 48 bits of a hash are its *position*, a point on an axis from 0 to 2^48. All placement is a monotone
//! function of the position: the leading `depth` bits select the segment, and the bits after them are scaled to the
//! number of home buckets. So a home bucket is an interval of the axis, whatever the sizes of segments and of the
//! directory. Scan cursors and snapshots rely on this.
//!
//! The low 16 bits of a hash are not used. So a caller that has used up to 16 leading bits to select a table can shift
//! them out, and the rest is as good as a whole hash.
//!
//! The figures behind the constants are in `docs/decisions/0001-index-geometry.md`.

use core::ops::Range;

/// Number of entries of a bucket: the rest of a 16-byte header after 2 bytes of marks.
pub(crate) const SLOTS: usize = 14;

/// Bits of a position.
pub(crate) const POSITION_BITS: u32 = 48;

/// The end of the axis, one past the last position.
pub(crate) const AXIS_END: u64 = 1 << POSITION_BITS;

const BITS_BELOW_POSITION: u32 = u64::BITS - POSITION_BITS;

/// Sizes of segments in buckets, stash included. Times 128 bytes they are size classes of common allocators (jemalloc,
/// mimalloc), four per doubling, so that nothing is lost to rounding and a segment that has just grown is still three
/// quarters full.
const SIZES: [usize; 20] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64];

/// Number of buckets of a segment of full size, which splits next. A rebuild of 64 x 14 entries takes some ten
/// microseconds, and a directory slot for 64 buckets costs 0.02 bytes per entry: larger segments would lengthen the
/// former and hardly reduce the latter. Under Miri, segments split early, so that splits and merges happen within the
/// available time.
pub(crate) const SEGMENT_BUCKETS_MAX: usize = if cfg!(miri) { 10 } else { 64 };

/// Maximum fill, in percent, of a segment made by a split, a merge or by shrinking: then a seventh can be added before
/// it grows.
const FILL_PERCENT_NEW: usize = 82;

/// Maximum joint fill, in percent of a full-size segment, at which two siblings are merged. A segment splits at some
/// 95 %: the distance keeps a table whose size oscillates around the boundary from splitting and merging in turn.
const FILL_PERCENT_MERGE: usize = 60;

/// A segment that refuses an entry below this fill, in percent, has skewed hashes. More home buckets would not help,
/// so only its stash is extended. With evenly distributed hashes a segment is at least 80 % full before it refuses.
const FILL_PERCENT_SKEWED: usize = 60;

#[inline(always)]
pub(crate) fn position(hash: u64) -> u64 {
    hash >> BITS_BELOW_POSITION
}

/// Returns the number of entries that this many buckets can hold.
#[inline(always)]
pub(crate) fn capacity(buckets: usize) -> usize {
    buckets * SLOTS
}

/// Returns how many of a new segment's `buckets` are stash: none in small segments, where displacement reaches every
/// bucket, then one per 32, for 95 % load when the segment refuses an entry.
pub(crate) fn stash_of(buckets: usize) -> usize {
    if buckets < 10 { 0 } else { buckets.div_ceil(32) }
}

/// Returns the size for a new segment of `len` entries.
pub(crate) fn size_for(len: usize) -> usize {
    let roomy = |size: &usize| len * 100 <= capacity(*size) * FILL_PERCENT_NEW;
    sizes().find(roomy).unwrap_or(SEGMENT_BUCKETS_MAX)
}

/// Returns the size after `buckets`; `None` if a segment of that many buckets must split.
pub(crate) fn next_size(buckets: usize) -> Option<usize> {
    sizes().find(|size| *size > buckets)
}

fn sizes() -> impl Iterator<Item = usize> {
    SIZES.into_iter().take_while(|size| *size <= SEGMENT_BUCKETS_MAX)
}

/// Returns true if siblings with `len` entries together should be merged.
pub(crate) fn should_merge(len: usize) -> bool {
    len * 100 <= capacity(SEGMENT_BUCKETS_MAX) * FILL_PERCENT_MERGE
}

/// Returns true if skewed hashes are the reason that a segment refuses an entry at this fill.
pub(crate) fn is_skewed(len: usize, buckets: usize) -> bool {
    len * 100 < capacity(buckets) * FILL_PERCENT_SKEWED
}

/// Returns the home bucket of a hash in a segment of `homes` home buckets at `depth`.
#[inline(always)]
pub(crate) fn home(hash: u64, depth: u32, homes: u32) -> usize {
    // The bits below the position are cleared, so that they cannot decide between two homes; then the position's bits
    // after the first `depth` are a fraction of 2^64, scaled by `homes`.
    let fraction = (hash >> BITS_BELOW_POSITION << BITS_BELOW_POSITION) << depth;
    ((u128::from(fraction) * u128::from(homes)) >> 64) as usize
}

/// Number of position bits after the first `depth` that home and fingerprint together determine. They number the
/// *units* of a segment, 8192 of them; the fingerprint is the last eight bits of a unit's number. So home and
/// fingerprint together locate an entry's unit without reading the entry, since a home bucket of a segment made by a
/// split is at most 256 units long. A full-size segment has some 130 units per bucket, so that many fingerprints are
/// distinct there.
const UNIT_BITS: u32 = 13;

/// Bits of a fingerprint.
const FINGERPRINT_BITS: u32 = 8;

/// Returns the number of the unit of a hash, in a segment at `depth`, without its upper bits.
#[inline(always)]
pub(crate) fn unit_fingerprint(hash: u64, depth: u32) -> u8 {
    ((position(hash) << depth) >> (POSITION_BITS - UNIT_BITS)) as u8
}

/// Returns the first unit and the number of units that share this fingerprint: 0 is not a fingerprint, so units of 0
/// have that of 1.
fn units_of(fingerprint: u8) -> (i32, i32) {
    if fingerprint == 1 { (0, 2) } else { (i32::from(fingerprint), 1) }
}

/// New homes of the entries of one home bucket when their segment changes its number of homes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rehoming {
    /// The first and the last unit that overlap the bucket.
    first: i32,
    last: i32,
    homes_new: i32,
}

impl Rehoming {
    /// Prepares for the entries with home `home` of `homes`, when there will be `homes_new`.
    pub(crate) fn new(home: usize, homes: usize, homes_new: usize) -> Self {
        let units = 1 << UNIT_BITS;
        Self {
            first: (home * units / homes) as i32,
            last: (((home + 1) * units - 1) / homes) as i32,
            homes_new: homes_new as i32,
        }
    }

    /// Returns the new home of an entry with this fingerprint; `None` if its hash is needed. That is one of a hundred
    /// cases for segments of a size that splits leave, and always for tiny ones.
    #[inline]
    pub(crate) fn home(&self, fingerprint: u8) -> Option<usize> {
        const PERIOD: i32 = 1 << FINGERPRINT_BITS;
        let (remainder, count) = units_of(fingerprint);
        // The first run of units with this fingerprint whose last unit is in the bucket.
        let least = self.first - (count - 1);
        let start = least + (remainder - least).rem_euclid(PERIOD);
        if start + PERIOD <= self.last {
            return None;
        }
        let (start, end) = (start.max(0), start + count);
        let lowest = (start * self.homes_new) >> UNIT_BITS;
        let highest = (end * self.homes_new - 1) >> UNIT_BITS;
        (lowest == highest).then_some(lowest as usize)
    }
}

/// Returns the positions of the segment of this position at `depth`.
pub(crate) fn segment_range(position: u64, depth: u32) -> Range<u64> {
    let width = AXIS_END >> depth;
    let start = position & !(width - 1);
    start..start + width
}

/// Returns the positions whose home, in the segment that covers `segment`, is bucket `home` of `homes`.
pub(crate) fn home_range(segment: &Range<u64>, home: usize, homes: u32) -> Range<u64> {
    // `home` is the floor of offset * homes / width, so a home starts at the least offset for which this quotient
    // reaches it: the ceiling of home * width / homes.
    let width = segment.end - segment.start;
    let start = |home: usize| segment.start + (home as u64 * width).div_ceil(u64::from(homes));
    start(home)..start(home + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::Fingerprint;
    use proptest::prelude::*;
    use tierce_harness::effort;

    /// Growing is cheap: in segments as splits leave them hardly any hash is needed.
    #[test]
    fn homes_are_mostly_known_without_the_hash() {
        let homes_of = |buckets: usize| buckets - stash_of(buckets);
        for buckets in sizes().filter(|buckets| *buckets >= 40) {
            let Some(next) = next_size(buckets) else { return };
            let (homes, homes_new) = (homes_of(buckets), homes_of(next));
            let hashes = (0..20_000u64).map(|number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let is_unknown = |hash: &u64| {
                let rehoming = Rehoming::new(home(*hash, 0, homes as u32), homes, homes_new);
                rehoming.home(Fingerprint::of(*hash, 0).byte()).is_none()
            };
            let unknown = hashes.filter(is_unknown).count();
            assert!(unknown < 20_000 / 50, "{unknown} of 20,000 from {buckets} buckets to {next}");
        }
    }

    #[test]
    fn sizes_ascend_without_valleys() {
        for pair in SIZES.windows(2) {
            assert!(pair[0] < pair[1]);
            let growth_is_small = pair[1] * 4 <= pair[0] * 5 || pair[1] - pair[0] == 1;
            assert!(growth_is_small, "from {} to {}", pair[0], pair[1]);
        }
        assert_eq!(next_size(1), Some(2));
        assert_eq!(next_size(9), Some(10));
        assert_eq!(next_size(SEGMENT_BUCKETS_MAX), None);
        assert_eq!(next_size(1000), None);
    }

    #[test]
    fn new_segments_have_room_and_waste_little() {
        assert_eq!(size_for(0), 1);
        for len in 30..=capacity(SEGMENT_BUCKETS_MAX) * 3 / 4 {
            let fill = len as f64 / capacity(size_for(len)) as f64;
            assert!((0.55..=0.82).contains(&fill), "{len} entries fill {fill}");
        }
    }

    #[test]
    fn every_size_keeps_most_buckets_as_homes() {
        for size in sizes() {
            assert!(stash_of(size) * 8 < size, "{size}");
        }
    }

    /// A merged segment may grow by half before it splits again.
    #[test]
    fn merging_leaves_room() {
        let merged_max =
            (0..).take_while(|len| should_merge(*len)).last().expect("zero is mergeable");
        assert!(size_for(merged_max) < SEGMENT_BUCKETS_MAX);
        assert!(merged_max * 3 / 2 < capacity(SEGMENT_BUCKETS_MAX) * 95 / 100);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 20 } else { effort(5000) },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// The home of a hash and the interval of that home agree, at both ends.
        #[test]
        fn homes_are_intervals(hash: u64, depth in 0u32..30, homes in 1u32..=64) {
            let segment = segment_range(position(hash), depth);
            let home_index = home(hash, depth, homes);
            prop_assert!(home_index < homes as usize);
            let range = home_range(&segment, home_index, homes);
            prop_assert!(range.contains(&position(hash)));
            for (edge, inside) in [
                (range.start, true),
                (range.end - 1, true),
                (range.start.wrapping_sub(1), false),
                (range.end, false),
            ] {
                if segment.contains(&edge) {
                    let lowest = edge << BITS_BELOW_POSITION;
                    for hash in [lowest, lowest | 0xFFFF] {
                        prop_assert_eq!(home(hash, depth, homes) == home_index, inside);
                    }
                }
            }
        }

        /// Home and fingerprint give the right new home, or none.
        #[test]
        fn entries_are_rehomed_as_their_hashes_would(
            hash: u64,
            depth in 0u32..35,
            homes in 1usize..=64,
            homes_new in 1usize..=64,
        ) {
            let fingerprint = Fingerprint::of(hash, depth).byte();
            let home = home(hash, depth, homes as u32);
            let told = Rehoming::new(home, homes, homes_new).home(fingerprint);
            let right = super::home(hash, depth, homes_new as u32);
            prop_assert!(told.is_none_or(|told| told == right), "{told:?}, not {right}");
        }

        /// Homes cover the segment without gap or overlap.
        #[test]
        fn homes_tile_their_segment(at in 0..AXIS_END, depth in 0u32..30, homes in 1u32..=64) {
            let segment = segment_range(at, depth);
            let mut reached = segment.start;
            for index in 0..homes as usize {
                let range = home_range(&segment, index, homes);
                prop_assert_eq!(range.start, reached);
                reached = range.end;
            }
            prop_assert_eq!(reached, segment.end);
        }
    }
}
