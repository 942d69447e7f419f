//! The location of a value.

use crate::bytes::Cursor;

/// Records start at multiples of this many bytes.
pub(super) const ALIGNMENT: u64 = 8;
/// Bytes before the value in a record: checksum and length.
pub(super) const RECORD_HEADER_LEN: u64 = 8;
/// Length of a segment's header, a block of direct I/O.
pub(super) const SEGMENT_HEADER_LEN: u64 = 4096;

/// Location of a value in a [`ColdStore`](super::ColdStore).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ColdLocation {
    /// Number of the segment, never used twice.
    pub segment: u32,
    /// Offset of the record, in units of 8 bytes.
    pub(super) unit: u32,
    /// Length of the value in bytes.
    pub len: u32,
}

impl ColdLocation {
    /// Length of an encoded location.
    pub const ENCODED_LEN: usize = 12;

    /// No location.
    pub const NONE: Self = Self { segment: 0, unit: 0, len: 0 };

    pub(super) fn new(segment: u32, offset: u64, len: u32) -> Self {
        debug_assert!(offset.is_multiple_of(ALIGNMENT));
        // A segment ends before its offsets exceed 32 bits: see `SEGMENT_LEN_MAX`.
        ColdLocation { segment, unit: (offset / ALIGNMENT) as u32, len }
    }

    /// Encodes the location: segment, offset in units of 8, length, little-endian.
    pub fn encode(self) -> [u8; Self::ENCODED_LEN] {
        let mut bytes = [0; Self::ENCODED_LEN];
        for (bytes, number) in
            bytes.as_chunks_mut::<4>().0.iter_mut().zip([self.segment, self.unit, self.len])
        {
            *bytes = number.to_le_bytes();
        }
        bytes
    }

    /// Does the reverse of [`ColdLocation::encode`]. Any bytes are a location, though perhaps not
    /// of a value.
    pub fn decode(bytes: &[u8; Self::ENCODED_LEN]) -> Self {
        let mut cursor = Cursor::new(bytes);
        let mut next = || cursor.u32().unwrap_or_default();
        ColdLocation { segment: next(), unit: next(), len: next() }
    }

    /// Returns the offset of the record in its file.
    pub(super) fn offset(self) -> u64 {
        u64::from(self.unit) * ALIGNMENT
    }

    /// Returns the length of the record without its padding.
    pub(super) fn record_read_len(self) -> usize {
        RECORD_HEADER_LEN as usize + self.len as usize
    }

    /// Returns a number that grows with the offset in the segment.
    pub fn stored_order(self) -> u32 {
        self.unit
    }

    /// Returns the bytes that the record takes in its file.
    pub fn stored_len(self) -> u64 {
        record_len(self.len)
    }
}

/// Returns the length of the record of a value, with padding.
pub(super) fn record_len(value_len: u32) -> u64 {
    (RECORD_HEADER_LEN + u64::from(value_len)).next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_survives_its_bytes() {
        let location = ColdLocation::new(7, 4096 + 24, 1000);
        assert_eq!(ColdLocation::decode(&location.encode()), location);
        assert_eq!(location.encode(), [7, 0, 0, 0, 3, 2, 0, 0, 0xe8, 3, 0, 0]);
        assert_eq!((location.offset(), location.stored_len()), (4120, 1008));
    }
}
