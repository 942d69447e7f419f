//! Where a hash belongs, and how large segments are.
//!
//! The upper 48 bits of a hash are its *position*, a point on an axis from 0 to 2^48. All placement
//! is a monotone function of the position: the leading `depth` bits choose the segment, what
//! follows is scaled to the number of home buckets. So a home bucket is an interval of the axis,
//! whatever the sizes of segments and of the directory; this is what scan cursors and snapshots
//! rest on.
//!
//! The low 16 bits of a hash are not looked at. So a caller that has spent up to 16 leading bits on
//! choosing among tables can shift them out, and what is left serves as well as a whole hash.
//!
//! The figures behind the constants are in `docs/decisions/0001-index-geometry.md`.

use core::ops::Range;

/// Entries of a bucket: what remains of a 16-byte header after 2 bytes of marks.
pub(crate) const SLOTS: usize = 14;

/// Bits of a position.
pub(crate) const POSITION_BITS: u32 = 48;

/// The end of the axis, one past the last position.
pub(crate) const AXIS_END: u64 = 1 << POSITION_BITS;

const BITS_BELOW_POSITION: u32 = u64::BITS - POSITION_BITS;

/// The sizes of segments in buckets, stash included. Times 128 bytes they are sizes that common
/// allocators (jemalloc, mimalloc) have classes for, four to each doubling, so that nothing is lost
/// to rounding and a segment that has just grown is still three quarters full.
const SIZES: [usize; 20] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64];

/// Buckets of a segment that has reached its full size and splits next. A rebuild of 64 x 14
/// entries takes some ten microseconds, and a directory slot for 64 buckets costs 0.02 bytes an
/// entry: larger segments would lengthen the former and could no longer save on the latter. Under
/// Miri, segments split early, so that splits and merges are reached in the time there is.
pub(crate) const SEGMENT_BUCKETS_MAX: usize = if cfg!(miri) { 10 } else { 64 };

/// Segments are sized so that they are filled to at most this share, in percent, when they are
/// made by a split, a merge or by shrinking: then a seventh can be added before they grow.
const FILL_PERCENT_NEW: usize = 82;

/// Two sibling segments become one when together they would fill at most this share, in percent,
/// of a full-size segment, which splits at some 95 %: the distance keeps a table that breathes
/// around the boundary from splitting and merging in turn.
const FILL_PERCENT_MERGE: usize = 60;

/// A segment that refuses an entry while filled to less than this share, in percent, suffers from
/// skewed hashes; more home buckets would not help, so only its stash is extended. Evenly
/// distributed hashes fill a segment to 80 % at the very least before it refuses.
const FILL_PERCENT_SKEWED: usize = 60;

#[inline(always)]
pub(crate) fn position(hash: u64) -> u64 {
    hash >> BITS_BELOW_POSITION
}

/// Entries that this many buckets can hold.
#[inline(always)]
pub(crate) fn capacity(buckets: usize) -> usize {
    buckets * SLOTS
}

/// How many of a new segment's `buckets` serve as stash: none in small segments, where displacing
/// reaches everywhere, then one for each 32, for 95 % load when the segment refuses an entry.
pub(crate) fn stash_of(buckets: usize) -> usize {
    if buckets < 10 { 0 } else { buckets.div_ceil(32) }
}

/// The size for a new segment of `len` entries.
pub(crate) fn size_for(len: usize) -> usize {
    let roomy = |size: &usize| len * 100 <= capacity(*size) * FILL_PERCENT_NEW;
    sizes().find(roomy).unwrap_or(SEGMENT_BUCKETS_MAX)
}

/// The size after `buckets`; `None` when a segment of so many buckets has to split.
pub(crate) fn next_size(buckets: usize) -> Option<usize> {
    sizes().find(|size| *size > buckets)
}

fn sizes() -> impl Iterator<Item = usize> {
    SIZES.into_iter().take_while(|size| *size <= SEGMENT_BUCKETS_MAX)
}

/// Whether siblings with `len` entries together should be one segment.
pub(crate) fn should_merge(len: usize) -> bool {
    len * 100 <= capacity(SEGMENT_BUCKETS_MAX) * FILL_PERCENT_MERGE
}

/// Whether a segment that refuses an entry at this fill owes that to skewed hashes.
pub(crate) fn is_skewed(len: usize, buckets: usize) -> bool {
    len * 100 < capacity(buckets) * FILL_PERCENT_SKEWED
}

/// The home bucket of a hash in a segment of `homes` home buckets at `depth`.
#[inline(always)]
pub(crate) fn home(hash: u64, depth: u32, homes: u32) -> usize {
    // The bits below the position are cut off, so that they cannot decide between two homes; then the
    // position's bits after the first `depth` are a fraction of 2^64, scaled by `homes`.
    let fraction = (hash >> BITS_BELOW_POSITION << BITS_BELOW_POSITION) << depth;
    ((u128::from(fraction) * u128::from(homes)) >> 64) as usize
}

/// Bits of a position behind the first `depth` that a fingerprint reaches to. It is the last eight of
/// them, a *unit*'s number without its upper bits, so that home and fingerprint together tell where in
/// the segment an entry is at home, to one in 8192, without a look at the entry: a home bucket of a
/// segment that has been split off is at most 256 units long. A segment of the largest size has some
/// 130 units to a bucket, and that is how many fingerprints are told apart there.
const UNIT_BITS: u32 = 13;

/// Bits of a fingerprint.
const FINGERPRINT_BITS: u32 = 8;

/// The number of the unit of a hash, in a segment at `depth`, without its upper bits.
#[inline(always)]
pub(crate) fn unit_fingerprint(hash: u64, depth: u32) -> u8 {
    ((position(hash) << depth) >> (POSITION_BITS - UNIT_BITS)) as u8
}

/// How many neighbouring units' fingerprints stand for the same: 0 is no fingerprint, so that the
/// units of 0 have that of 1.
fn units_of(fingerprint: u8) -> (i32, i32) {
    if fingerprint == 1 { (0, 2) } else { (i32::from(fingerprint), 1) }
}

/// Where the entries of one home bucket are at home when their segment gets another number of homes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rehoming {
    /// The first and the last unit that overlaps the bucket.
    first: i32,
    last: i32,
    homes_new: i32,
}

impl Rehoming {
    /// For the entries that are at home in bucket `home` of `homes`, of which there will be
    /// `homes_new`.
    pub(crate) fn new(home: usize, homes: usize, homes_new: usize) -> Self {
        let units = 1 << UNIT_BITS;
        Self {
            first: (home * units / homes) as i32,
            last: (((home + 1) * units - 1) / homes) as i32,
            homes_new: homes_new as i32,
        }
    }

    /// The new home of an entry with this fingerprint; `None` if that cannot be told without its hash:
    /// in one of a hundred cases for segments of a size that splits leave, always for tiny ones.
    #[inline]
    pub(crate) fn home(&self, fingerprint: u8) -> Option<usize> {
        const PERIOD: i32 = 1 << FINGERPRINT_BITS;
        let (remainder, count) = units_of(fingerprint);
        // The first run of units with this fingerprint of which at least the last one is in the bucket.
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

/// The positions that belong to the segment of this position at `depth`.
pub(crate) fn segment_range(position: u64, depth: u32) -> Range<u64> {
    let width = AXIS_END >> depth;
    let start = position & !(width - 1);
    start..start + width
}

/// The positions whose home, in the segment that covers `segment`, is bucket `home` of `homes`.
pub(crate) fn home_range(segment: &Range<u64>, home: usize, homes: u32) -> Range<u64> {
    // `home` is the floor of offset * homes / width, so that a home starts at the least offset for
    // which this quotient reaches it: the ceiling of home * width / homes.
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

    /// What makes growing cheap: in segments as splits leave them hardly any hash is needed.
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

        /// The home of a hash and the interval of that home say the same, at both ends.
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

        /// Home and fingerprint tell the new home, or nothing, and nothing wrong.
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
