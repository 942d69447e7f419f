//! The first bytes of a segment. Byte table in `docs/formats/cask-segment.md`.

use crate::bytes::Cursor;
use crate::checksum::{Salt, crc32c};
use crate::location::SegmentId;

/// Bytes before the first record.
pub const SEGMENT_HEADER_LEN: u64 = 64;
const MAGIC: &[u8; 8] = b"TIERCESG";
const VERSION: u32 = 1;
const CHECKED_LEN: usize = SEGMENT_HEADER_LEN as usize - 4;

/// Writer of a segment's records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A shard's log: sequence numbers ascend.
    Log = 0,
    /// Compaction: complete when listed, records in no order.
    Compaction = 1,
}

impl Origin {
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Origin::Log),
            1 => Some(Origin::Compaction),
            _ => None,
        }
    }
}

/// Identity of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    pub salt: Salt,
    pub store_id: u128,
    pub id: SegmentId,
    pub origin: Origin,
}

impl SegmentHeader {
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_LEN as usize] {
        let mut out = [0; SEGMENT_HEADER_LEN as usize];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.salt.0.to_le_bytes());
        out[16..32].copy_from_slice(&self.store_id.to_le_bytes());
        out[32..36].copy_from_slice(&self.id.0.to_le_bytes());
        out[36] = self.origin as u8;
        let crc = crc32c(&out[..CHECKED_LEN]);
        out[CHECKED_LEN..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes a header. Returns the failed check as the error.
    pub fn decode(bytes: &[u8; SEGMENT_HEADER_LEN as usize]) -> Result<Self, &'static str> {
        let (checked, crc) = bytes.split_at(CHECKED_LEN);
        if bytes[..8] != *MAGIC {
            return Err("segment header has no magic number");
        }
        if crc32c(checked).to_le_bytes() != crc {
            return Err("segment header checksum does not match");
        }
        let mut cursor = Cursor::new(&checked[8..]);
        let header = decode_fields(&mut cursor).ok_or("segment header has impossible fields")?;
        header.ok_or("segment has an unknown format version")
    }

    /// Decodes a header of which one byte is wrong, by finding the byte: the checksum fits only one such change. With
    /// more wrong bytes, the result may be a wrong header, rarely; with a wrong salt, no record passes its own checks.
    pub fn decode_corrected(bytes: &[u8; SEGMENT_HEADER_LEN as usize]) -> Option<Self> {
        let mut candidate = *bytes;
        for (at, &wrong) in bytes.iter().enumerate() {
            for byte in 0..=u8::MAX {
                candidate[at] = byte;
                if let Ok(header) = Self::decode(&candidate) {
                    return Some(header);
                }
            }
            candidate[at] = wrong;
        }
        None
    }
}

/// Decodes the fields. Returns `None` for impossible ones, `Some(None)` for a newer version.
fn decode_fields(cursor: &mut Cursor<'_>) -> Option<Option<SegmentHeader>> {
    if cursor.u32()? != VERSION {
        return Some(None);
    }
    Some(Some(SegmentHeader {
        salt: Salt(cursor.u32()?),
        store_id: cursor.u128()?,
        id: SegmentId(cursor.u32()?),
        origin: Origin::from_byte(cursor.u8()?)?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const EXAMPLE: SegmentHeader = SegmentHeader {
        salt: Salt(7),
        store_id: 1 << 100,
        id: SegmentId(12),
        origin: Origin::Compaction,
    };

    /// A checksum is linear: if each change of a byte changes it in its own way, only one change explains it.
    #[test]
    fn one_wrong_byte_can_be_corrected_in_only_one_way() {
        let bytes = EXAMPLE.encode();
        let crc = |bytes: &[u8]| crc32c(&bytes[..CHECKED_LEN]) ^ stored(bytes);
        let mut effects = HashSet::from([0]);
        for at in 0..bytes.len() {
            for change in 1..=u8::MAX {
                let mut changed = bytes;
                changed[at] ^= change;
                assert!(effects.insert(crc(&changed)), "byte {at} ^ {change}");
                if change == 0x80 || change == u8::MAX {
                    assert_eq!(SegmentHeader::decode_corrected(&changed), Some(EXAMPLE));
                }
            }
        }
        assert_eq!(SegmentHeader::decode_corrected(&[0; 64]), None);
    }

    fn stored(bytes: &[u8]) -> u32 {
        u32::from_le_bytes(bytes[CHECKED_LEN..].try_into().expect("4 bytes"))
    }

    #[test]
    fn header_comes_back_and_every_flipped_bit_is_noticed() {
        let bytes = EXAMPLE.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(EXAMPLE));
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&changed).is_err(), "bit {bit}");
        }
    }
}
