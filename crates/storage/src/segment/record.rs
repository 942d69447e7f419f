//! The record, the unit of a segment. Byte table in `docs/formats/cask-segment.md`.
//!
//! Two checksums guard a record. The header's makes the lengths trustworthy before any of the body is read, and
//! binds the record to its offset; the body's covers key, value and padding. Compaction writes a new header and
//! keeps the body's checksum.
//!
//! A batch is a record of kind [`Kind::Batch`] whose value counts the members, followed by the members; it
//! exists only if complete.

use crate::checksum::{Salt, crc32c, crc32c_append, crc32c_of_location, crc32c_of_words};
use crate::location::{ALIGNMENT, SEQ_MAX};
use crate::{KEY_LEN_MAX, WAL_RECORD_LEN_MAX};

/// Length of a header without the optional fields.
pub const HEADER_LEN: usize = 32;
/// Length of a header with all optional fields.
pub const HEADER_LEN_MAX: usize = HEADER_LEN + 16;
/// Length of a batch head's value: member count and length of all members.
const BATCH_VALUE_LEN: usize = 16;
/// Length of a whole batch head.
pub const BATCH_HEAD_LEN: usize = HEADER_LEN + BATCH_VALUE_LEN;

const FLAG_EXPIRY: u16 = 1;
const FLAG_VERSION: u16 = 2;
const FLAG_BATCH_MEMBER: u16 = 4;

/// Meaning of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The key has this value.
    Put = 1,
    /// The key is deleted: a tombstone.
    Delete = 2,
    /// The records after this one are members of a batch.
    Batch = 3,
}

/// Relation of a record to a batch: alone, or valid only with its batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Membership {
    Alone,
    BatchMember,
}

/// The check that a record failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damage(pub &'static str);

/// Fields of a header whose checksum was verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub seq: u64,
    pub kind: Kind,
    pub membership: Membership,
    pub compression: u8,
    pub expiry: Option<u64>,
    pub version: Option<u64>,
    pub key_len: usize,
    pub value_len: usize,
    /// Offset in the segment up to which everything was durable when the record was written.
    pub synced: u64,
    body_crc: u32,
}

/// Fields of a record that the writer chooses; [`stamp`] adds offset and sequence number.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    pub kind: Kind,
    pub membership: Membership,
    pub compression: u8,
    pub expiry: Option<u64>,
    pub version: Option<u64>,
    pub key: &'a [u8],
    /// The stored form, after compression.
    pub value: &'a [u8],
}

impl Fields<'_> {
    /// Returns the number of bytes before the key.
    pub fn header_len(&self) -> usize {
        header_len(self.expiry.is_some(), self.version.is_some())
    }
}

/// Fields of a put without a key, expiry and version, as in a log, and the checksum of its body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain {
    pub compression: u8,
    pub value_len: usize,
    pub body_crc: u32,
}

impl Plain {
    /// Returns the header as [`encode`] and [`stamp`] make it.
    #[inline]
    pub fn header(self, seq: u64, synced: u64, salt: Salt, offset: u64) -> [u8; HEADER_LEN] {
        debug_assert!(offset.is_multiple_of(ALIGNMENT) && self.value_len <= WAL_RECORD_LEN_MAX);
        let (lens, body_crc) = (self.value_len as u64, u64::from(self.body_crc));
        let kind = Kind::Put as u64 | u64::from(self.compression) << 8;
        let rest = kind | (synced / ALIGNMENT) << 32;
        let location = u64::from(salt.0) | offset << 32;
        let crc = crc32c_of_words([location, offset >> 32 | body_crc << 32, seq, lens, rest]);
        let mut out = [0; HEADER_LEN];
        let words = [u64::from(crc) | body_crc << 32, seq, lens, rest];
        for (bytes, word) in out.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        out
    }
}

/// A whole record in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub header: Header,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

impl<'a> Record<'a> {
    /// Returns the fields of a copy, which belongs to no batch.
    pub fn fields(&self) -> Fields<'a> {
        let Header { kind, compression, expiry, version, .. } = self.header;
        let (key, value, membership) = (self.key, self.value, Membership::Alone);
        Fields { kind, membership, compression, expiry, version, key, value }
    }
}

impl Header {
    /// Returns the number of bytes before the key.
    #[expect(clippy::len_without_is_empty, reason = "a header has bytes")]
    pub fn len(&self) -> usize {
        header_len(self.expiry.is_some(), self.version.is_some())
    }

    /// Returns the length of the whole record with padding.
    pub fn record_len(&self) -> u64 {
        padded((self.len() + self.key_len + self.value_len) as u64)
    }

    /// Decodes a header at `offset` of the segment with this salt. `bytes` begins there and holds
    /// [`HEADER_LEN_MAX`] bytes unless the segment ends before.
    pub fn decode(bytes: &[u8], salt: Salt, offset: u64) -> Result<Header, Damage> {
        let fixed = bytes.first_chunk::<HEADER_LEN>().ok_or(Damage("record header is cut off"))?;
        let flags = u16_at(fixed, 26);
        let (has_expiry, has_version) = (flags & FLAG_EXPIRY != 0, flags & FLAG_VERSION != 0);
        let len = header_len(has_expiry, has_version);
        let header = bytes.get(..len).ok_or(Damage("record header is cut off"))?;
        if crc32c_append(crc32c_of_location(salt, offset), &header[4..]) != u32_at(fixed, 0) {
            return Err(Damage("record header checksum does not match"));
        }
        let mut optional = header[HEADER_LEN..].as_chunks::<8>().0.iter();
        let mut next = |present: bool| {
            if present { optional.next().map(|b| u64::from_le_bytes(*b)) } else { None }
        };
        let header = Header {
            seq: u64_at(fixed, 8),
            kind: match fixed[24] {
                1 => Kind::Put,
                2 => Kind::Delete,
                3 => Kind::Batch,
                _ => return Err(Damage("record kind is unknown")),
            },
            membership: match flags & FLAG_BATCH_MEMBER {
                0 => Membership::Alone,
                _ => Membership::BatchMember,
            },
            compression: fixed[25],
            expiry: next(has_expiry),
            version: next(has_version),
            key_len: u32_at(fixed, 20) as usize,
            value_len: u32_at(fixed, 16) as usize,
            synced: u64::from(u32_at(fixed, 28)) * ALIGNMENT,
            body_crc: u32_at(fixed, 4),
        };
        if header.key_len > KEY_LEN_MAX || header.value_len > WAL_RECORD_LEN_MAX {
            return Err(Damage("record length exceeds the limit"));
        }
        if header.seq > SEQ_MAX {
            return Err(Damage("sequence number exceeds the limit"));
        }
        Ok(header)
    }

    /// Returns true if a header may start here: a cheap test that avoids most checksums in a search.
    pub fn is_plausible(bytes: &[u8]) -> bool {
        bytes.get(24).is_some_and(|kind| (1..=3).contains(kind))
            && bytes.get(26..28).is_some_and(|flags| flags[0] < 8 && flags[1] == 0)
    }

    /// Splits a body of exactly `record_len - len` bytes into key and value, verifying it.
    pub fn split_body<'a>(&self, body: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), Damage> {
        if crc32c(body) != self.body_crc {
            return Err(Damage("record body checksum does not match"));
        }
        let (key, rest) =
            body.split_at_checked(self.key_len).ok_or(Damage("record body is cut off"))?;
        let value = rest.get(..self.value_len).ok_or(Damage("record body is cut off"))?;
        Ok((key, value))
    }
}

impl<'a> Record<'a> {
    /// Decodes and verifies the record at the start of `bytes`, which may hold more.
    pub fn decode(bytes: &'a [u8], salt: Salt, offset: u64) -> Result<Self, Damage> {
        let header = Header::decode(bytes, salt, offset)?;
        let body = bytes
            .get(header.len()..header.record_len() as usize)
            .ok_or(Damage("record body is cut off"))?;
        let (key, value) = header.split_body(body)?;
        Ok(Record { header, key, value })
    }

    /// Returns the record at the start of `bytes`, whose header and body were already verified.
    pub fn verified(header: Header, bytes: &'a [u8]) -> Self {
        let (key, rest) = bytes[header.len()..].split_at(header.key_len);
        Record { header, key, value: &rest[..header.value_len] }
    }

    /// Returns the members and their total length, from a batch head.
    pub fn batch(&self) -> Result<(u32, u64), Damage> {
        let value: &[u8; BATCH_VALUE_LEN] =
            self.value.try_into().map_err(|_| Damage("batch head has the wrong length"))?;
        Ok((u32_at(value, 0), u64_at(value, 8)))
    }
}

/// Appends a record that still needs [`stamp`].
pub fn encode(out: &mut Vec<u8>, fields: &Fields<'_>) {
    assert!(fields.key.len() <= KEY_LEN_MAX && fields.value.len() <= WAL_RECORD_LEN_MAX);
    let start = out.len();
    let mut flags = 0;
    if fields.expiry.is_some() {
        flags |= FLAG_EXPIRY;
    }
    if fields.version.is_some() {
        flags |= FLAG_VERSION;
    }
    if fields.membership == Membership::BatchMember {
        flags |= FLAG_BATCH_MEMBER;
    }
    let header_len = fields.header_len();
    let len = header_len + fields.key.len() + fields.value.len();
    out.reserve(len + ALIGNMENT as usize);
    let mut header = [0; HEADER_LEN];
    header[16..20].copy_from_slice(&(fields.value.len() as u32).to_le_bytes());
    header[20..24].copy_from_slice(&(fields.key.len() as u32).to_le_bytes());
    header[24..26].copy_from_slice(&[fields.kind as u8, fields.compression]);
    header[26..28].copy_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&header);
    if let Some(expiry) = fields.expiry {
        out.extend_from_slice(&expiry.to_le_bytes());
    }
    if let Some(version) = fields.version {
        out.extend_from_slice(&version.to_le_bytes());
    }
    if !fields.key.is_empty() {
        out.extend_from_slice(fields.key);
    }
    out.extend_from_slice(fields.value);
    out.resize(start + padded(len as u64) as usize, 0);
    let body_crc = crc32c(&out[start + header_len..]);
    out[start + 4..start + 8].copy_from_slice(&body_crc.to_le_bytes());
}

/// Appends a batch head that still needs [`stamp`].
pub fn encode_batch_head(out: &mut Vec<u8>, members: u32, members_len: u64) {
    let mut value = [0; BATCH_VALUE_LEN];
    value[..4].copy_from_slice(&members.to_le_bytes());
    value[8..].copy_from_slice(&members_len.to_le_bytes());
    encode(
        out,
        &Fields {
            kind: Kind::Batch,
            membership: Membership::Alone,
            compression: 0,
            expiry: None,
            version: None,
            key: b"",
            value: &value,
        },
    );
}

/// Sets the sequence number and offset of the record at the start of `record`.
pub fn stamp(record: &mut [u8], seq: u64, synced: u64, salt: Salt, offset: u64) {
    debug_assert!(offset.is_multiple_of(ALIGNMENT));
    let (fixed, optional) = record.split_first_chunk_mut::<HEADER_LEN>().expect("a whole header");
    let synced = (synced / ALIGNMENT) as u32;
    fixed[8..16].copy_from_slice(&seq.to_le_bytes());
    fixed[28..].copy_from_slice(&synced.to_le_bytes());
    let (flags, body_crc, rest) = (u16_at(fixed, 26), u32_at(fixed, 4), u32_at(fixed, 24));
    // Salt, offset, and the header after its checksum, without building them in memory.
    let mut crc = crc32c_of_words([
        u64::from(salt.0) | offset << 32,
        offset >> 32 | u64::from(body_crc) << 32,
        seq,
        u64_at(fixed, 16),
        u64::from(rest) | u64::from(synced) << 32,
    ]);
    if flags & (FLAG_EXPIRY | FLAG_VERSION) != 0 {
        let len = header_len(flags & FLAG_EXPIRY != 0, flags & FLAG_VERSION != 0);
        crc = crc32c_append(crc, &optional[..len - HEADER_LEN]);
    }
    fixed[..4].copy_from_slice(&crc.to_le_bytes());
}

fn header_len(has_expiry: bool, has_version: bool) -> usize {
    HEADER_LEN + 8 * (usize::from(has_expiry) + usize::from(has_version))
}

fn padded(len: u64) -> u64 {
    len.next_multiple_of(ALIGNMENT)
}

// The callers below pass fixed-size headers, so the indexes are always in range.
#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: Salt = Salt(0xdead_beef);

    fn example() -> Vec<u8> {
        let mut out = Vec::new();
        let fields = Fields {
            kind: Kind::Put,
            membership: Membership::Alone,
            compression: 0,
            expiry: Some(1_700_000_000_000),
            version: Some(9),
            key: b"cask",
            value: b"wine",
        };
        encode(&mut out, &fields);
        stamp(&mut out, 5, 64, SALT, 64);
        out
    }

    #[test]
    fn fields_come_back() {
        let bytes = example();
        assert_eq!(bytes.len(), HEADER_LEN_MAX + 8);
        let record = Record::decode(&bytes, SALT, 64).unwrap();
        assert_eq!((record.key, record.value), (&b"cask"[..], &b"wine"[..]));
        assert_eq!(record.header.seq, 5);
        assert_eq!(record.header.synced, 64);
        assert_eq!(record.header.expiry, Some(1_700_000_000_000));
        assert_eq!(record.header.version, Some(9));
        assert_eq!(record.header.record_len(), bytes.len() as u64);
    }

    #[test]
    fn plain_headers_are_those_of_encoded_records() {
        for (value, seq, synced, offset) in
            [(&b""[..], 1, 0, 64), (b"wine", u64::from(u32::MAX) + 7, 1 << 30, (1 << 33) + 8)]
        {
            let mut out = Vec::new();
            let (membership, compression) = (Membership::Alone, 2);
            let (expiry, version, key) = (None, None, &b""[..]);
            let kind = Kind::Put;
            let fields = Fields { kind, membership, compression, expiry, version, key, value };
            encode(&mut out, &fields);
            stamp(&mut out, seq, synced, SALT, offset);
            let body_crc = crc32c(&out[HEADER_LEN..]);
            let plain = Plain { compression, value_len: value.len(), body_crc };
            assert_eq!(plain.header(seq, synced, SALT, offset), out[..HEADER_LEN]);
        }
    }

    #[test]
    fn format_page_shows_these_bytes() {
        let page = include_str!("../../../../docs/formats/cask-segment.md");
        let hex = |line: &[u8]| {
            line.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
        };
        for line in example().chunks(16).map(hex) {
            assert!(page.contains(&line), "the page lacks {line}");
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = example();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::decode(&changed, SALT, 64).is_err(), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(Record::decode(&bytes[..cut], SALT, 64).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn record_in_another_place_is_not_a_record() {
        let bytes = example();
        assert!(Record::decode(&bytes, SALT, 72).is_err());
        assert!(Record::decode(&bytes, Salt(1), 64).is_err());
    }

    #[test]
    fn batch_head_tells_count_and_length() {
        let mut out = Vec::new();
        encode_batch_head(&mut out, 3, 1 << 33);
        assert_eq!(out.len(), BATCH_HEAD_LEN);
        stamp(&mut out, 1, 0, SALT, 64);
        assert_eq!(Record::decode(&out, SALT, 64).unwrap().batch().unwrap(), (3, 1 << 33));
    }
}
