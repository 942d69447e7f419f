//! The location of a record, in 64 bits.
//!
//! | bits | field |
//! |---|---|
//! | 40..64 | segment number, 1 to [`SegmentId::MAX`]; 0 means "no location" |
//! | 12..40 | offset in the segment, in units of [`ALIGNMENT`] bytes |
//! | 0..12 | length class: how many bytes a reader must fetch |
//!
//! The length class is exact up to 16 KiB and at most 1/64 too long above, so one read fetches a whole record
//! although the index stores no exact lengths. Locations exist in memory only, never in files.

/// Records start at multiples of this many bytes.
pub const ALIGNMENT: u64 = 8;

const OFFSET_BITS: u32 = 28;
const CLASS_BITS: u32 = 12;
/// Number of classes that are the length itself, in units.
const EXACT_CLASSES: u64 = 1 << (CLASS_BITS - 1);
const MANTISSA_BITS: u32 = 6;

/// Upper bound of the offset at which a record ends.
pub const SEGMENT_LEN_MAX: u64 = ALIGNMENT << OFFSET_BITS;

/// Highest sequence number: a store never comes near, and sums below it cannot overflow.
pub const SEQ_MAX: u64 = u64::MAX >> 1;

/// Number of a segment, never used twice in the life of a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentId(pub u32);

impl SegmentId {
    /// Highest number that a location can express.
    pub const MAX: u32 = (1 << (64 - OFFSET_BITS - CLASS_BITS)) - 1;
}

/// Hashes segment numbers and locations, which no client can choose: one multiplication
/// spreads them, where the standard library's keyed hash would cost as much as the look-up itself.
#[derive(Clone, Copy, Default, Debug)]
pub struct LocationHasher(u64);

impl std::hash::Hasher for LocationHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        let mixed = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Builds [`LocationHasher`]s.
pub type LocationHash = std::hash::BuildHasherDefault<LocationHasher>;

/// Position and approximate length of a record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Location(u64);

impl Location {
    /// Creates the location of a record of `len` bytes at `offset`.
    ///
    /// # Panics
    /// When the offset is unaligned or out of the format's range: the writer must rotate before.
    pub fn new(segment: SegmentId, offset: u64, len: u64) -> Self {
        assert!(offset.is_multiple_of(ALIGNMENT) && len.is_multiple_of(ALIGNMENT));
        assert!(offset + len <= SEGMENT_LEN_MAX);
        assert!(segment.0 >= 1 && segment.0 <= SegmentId::MAX);
        let units = offset / ALIGNMENT;
        Location(
            u64::from(segment.0) << (OFFSET_BITS + CLASS_BITS)
                | units << CLASS_BITS
                | class_of(len / ALIGNMENT),
        )
    }

    pub fn from_raw(raw: u64) -> Option<Self> {
        (raw != 0).then_some(Location(raw))
    }

    pub fn raw(self) -> u64 {
        self.0
    }

    pub fn segment(self) -> SegmentId {
        SegmentId((self.0 >> (OFFSET_BITS + CLASS_BITS)) as u32)
    }

    pub fn offset(self) -> u64 {
        ((self.0 >> CLASS_BITS) & ((1 << OFFSET_BITS) - 1)) * ALIGNMENT
    }

    /// Returns the number of bytes to read to get the whole record.
    pub fn len_bound(self) -> u64 {
        units_of(self.0 & ((1 << CLASS_BITS) - 1)) * ALIGNMENT
    }
}

/// Returns the smallest class whose length is at least `units`.
fn class_of(units: u64) -> u64 {
    if units < EXACT_CLASSES {
        return units;
    }
    // `units` has at least 12 significant bits; keep the top 7, of which the first is implied.
    let mut shift = u64::BITS - units.leading_zeros() - (MANTISSA_BITS + 1);
    let mut mantissa = units.div_ceil(1 << shift);
    if mantissa == 1 << (MANTISSA_BITS + 1) {
        mantissa >>= 1;
        shift += 1;
    }
    EXACT_CLASSES | u64::from(shift) << MANTISSA_BITS | (mantissa & ((1 << MANTISSA_BITS) - 1))
}

fn units_of(class: u64) -> u64 {
    if class < EXACT_CLASSES {
        return class;
    }
    let shift = (class - EXACT_CLASSES) >> MANTISSA_BITS;
    let mantissa = (class & ((1 << MANTISSA_BITS) - 1)) | 1 << MANTISSA_BITS;
    mantissa << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back() {
        let loc = Location::new(SegmentId(SegmentId::MAX), SEGMENT_LEN_MAX - 64, 64);
        assert_eq!(loc.segment(), SegmentId(SegmentId::MAX));
        assert_eq!(loc.offset(), SEGMENT_LEN_MAX - 64);
        assert_eq!(loc.len_bound(), 64);
    }

    #[test]
    fn length_class_is_exact_when_short_and_tight_when_long() {
        let mut units = 1u64;
        while units < SEGMENT_LEN_MAX / ALIGNMENT {
            for units in [units - 1, units, units + 1] {
                let bound = units_of(class_of(units));
                assert!(bound >= units, "{units}");
                assert!(bound - units <= units / 64, "{units} became {bound}");
                assert!(units >= EXACT_CLASSES || bound == units);
            }
            units += 1 + units / 37;
        }
    }
}
