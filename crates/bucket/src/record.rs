//! Objects of the log, byte by byte: `docs/formats/bucket.md`.
//!
//! A record is a header of [`HEADER_LEN`] bytes and a payload. The checksum detects accidental damage, the hash of the
//! object before ties each record to all earlier ones, and cluster id and number detect a record under a wrong name.

use bytes::Bytes;
use ring::digest::{SHA256, digest};

use crate::error::{Error, Result};
use crate::fields::{Reader, Writer};

/// Version of all formats in a bucket. A newer one is refused.
pub const VERSION: u16 = 1;

/// Upper bound of record numbers and epochs. Higher values are damage, so sums of numbers never overflow.
pub(crate) const NUMBER_MAX: u64 = 1 << 60;

/// The length of a header.
pub const HEADER_LEN: usize = 160;

const MAGIC: [u8; 8] = *b"TIERCEBL";

/// 16 random bytes: of a log group, a node, or one object.
pub type Id = [u8; 16];

/// SHA-256 of a whole object.
pub type Hash = [u8; 32];

/// Returns the hash of an object's bytes.
pub fn hash(bytes: &[u8]) -> Hash {
    digest(&SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Type of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A process begins: the payload is a [`crate::ClaimInfo`].
    Claim = 1,
    /// The owner has stopped in an orderly way; the next process may claim at once.
    Release = 2,
    /// The owner is alive and had nothing to write.
    Renew = 3,
    /// A snapshot is valid from here on: the payload is a [`crate::SnapshotInfo`].
    Snapshot = 4,
    /// Batches of logical operations.
    Batch = 5,
    /// Slots that this group serves. Reserved for clusters.
    Slots = 6,
    /// First record of a branch: location of its parent.
    Branch = 7,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        [
            Self::Claim,
            Self::Release,
            Self::Renew,
            Self::Snapshot,
            Self::Batch,
            Self::Slots,
            Self::Branch,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

/// Storage form of the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Encoding {
    /// Uncompressed.
    Plain = 0,
    /// One frame of Zstandard.
    Zstd = 1,
    /// A list of pieces in `blob/`.
    Pieces = 2,
}

/// The header of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Type of the record.
    pub kind: Kind,
    pub(crate) encoding: Encoding,
    /// Random id of the group, which detects a record of another group.
    pub cluster: Id,
    /// The number in the object's name. The first is 1.
    pub number: u64,
    /// Number of CLAIMs up to this record.
    pub epoch: u64,
    /// The process that wrote it.
    pub node: Id,
    /// Random, so that two processes never write the same bytes.
    pub nonce: Id,
    /// Milliseconds since 1970, never less than in the record before.
    pub wall: u64,
    /// Number of the CLAIM in force; in a CLAIM, that of the CLAIM before. 0: none.
    pub claim: u64,
    /// The number of the newest SNAPSHOT record before this one. 0: none.
    pub snapshot: u64,
    /// SHA-256 of the object before; zeros in the first.
    pub before: Hash,
    /// Bytes of the payload before compression.
    pub len: u64,
}

/// A record whose header and stored bytes have been checked.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub header: Header,
    /// The hash of the whole object.
    pub hash: Hash,
    /// The payload as it is stored.
    pub stored: Bytes,
}

impl Header {
    /// Returns the bytes of an object with this header and stored payload.
    pub(crate) fn encode(&self, stored: &[u8]) -> Bytes {
        let mut out = Writer::with_capacity(HEADER_LEN + stored.len());
        out.bytes(&MAGIC);
        out.u16(VERSION);
        out.u8(self.kind as u8);
        out.u8(self.encoding as u8);
        out.u32(0);
        out.bytes(&self.cluster);
        out.u64(self.number);
        out.u64(self.epoch);
        out.bytes(&self.node);
        out.bytes(&self.nonce);
        out.u64(self.wall);
        out.u64(self.claim);
        out.u64(self.snapshot);
        out.bytes(&self.before);
        out.u64(self.len);
        out.u64(stored.len() as u64);
        out.u64(0);
        out.bytes(stored);
        let mut bytes = out.finish();
        let checksum = checksum(&bytes);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes.into()
    }
}

/// Returns the CRC-32C of everything but the checksum's own four bytes.
fn checksum(object: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&object[..12]), &object[16..])
}

impl Record {
    /// Returns a copy of the object with another nonce.
    #[cfg(test)]
    pub(crate) fn with_nonce(object: &[u8], nonce: Id) -> Bytes {
        let mut bytes = object.to_vec();
        if bytes[11] == Encoding::Pieces as u8 {
            // The names of its pieces contain the nonce.
            return bytes.into();
        }
        bytes[64..80].copy_from_slice(&nonce);
        Self::sealed(bytes)
    }

    /// Returns the object with the checksum of its bytes filled in.
    #[cfg(test)]
    pub(crate) fn sealed(mut bytes: Vec<u8>) -> Bytes {
        let sum = checksum(&bytes);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        bytes.into()
    }

    /// Checks and decodes the object `log/<number>` of the group `cluster`, or of any group if that is not known yet.
    pub(crate) fn decode(object: &Bytes, number: u64, cluster: Option<Id>) -> Result<Self> {
        let name = log_name(number);
        let damaged = |reason: &str| Error::damaged(&name, reason);
        if object.len() < HEADER_LEN {
            return Err(damaged(&format!("{} bytes are too few", object.len())));
        }
        let mut fields = Reader::new(object);
        if fields.array::<8>() != Some(MAGIC) {
            return Err(damaged("it is no object of a log"));
        }
        let version = fields.u16().unwrap_or_default();
        if version > VERSION {
            return Err(Error::Newer { object: name, version, known: VERSION });
        }
        let parsed = parse(fields).ok_or_else(|| damaged("its header makes no sense"))?;
        let (header, sum, stored_len) = parsed;
        if stored_len != (object.len() - HEADER_LEN) as u64 {
            let found = object.len() - HEADER_LEN;
            return Err(damaged(&format!("{found} bytes of payload instead of {stored_len}")));
        }
        if checksum(object) != sum {
            return Err(damaged("the checksum does not match"));
        }
        if header.number != number {
            return Err(damaged(&format!("it says it is number {}", header.number)));
        }
        if cluster.is_some_and(|cluster| cluster != header.cluster) {
            return Err(damaged("it belongs to another log"));
        }
        Ok(Self { header, hash: hash(object), stored: object.slice(HEADER_LEN..) })
    }
}

/// Parses the fields after the version: the header, the checksum, and the length of the stored payload.
fn parse(mut fields: Reader<'_>) -> Option<(Header, u32, u64)> {
    let kind = Kind::from_byte(fields.u8()?)?;
    let encoding = match fields.u8()? {
        0 => Encoding::Plain,
        1 => Encoding::Zstd,
        2 => Encoding::Pieces,
        _ => return None,
    };
    let sum = fields.u32()?;
    let header = Header {
        kind,
        encoding,
        cluster: fields.array()?,
        number: fields.u64()?,
        epoch: fields.u64()?,
        node: fields.array()?,
        nonce: fields.array()?,
        wall: fields.u64()?,
        claim: fields.u64()?,
        snapshot: fields.u64()?,
        before: fields.array()?,
        len: fields.u64()?,
    };
    let stored_len = fields.u64()?;
    let follows = header.claim < header.number && header.snapshot < header.number;
    let is_possible = follows && header.number <= NUMBER_MAX && header.epoch <= NUMBER_MAX;
    is_possible.then_some((header, sum, stored_len))
}

/// Folder of the records, which begins their names.
pub(crate) const LOG_FOLDER: &str = "log/";

/// Returns `log/<20 digits>`: names sort like their numbers.
pub fn log_name(number: u64) -> String {
    format!("{LOG_FOLDER}{number:020}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::ClaimInfo;

    #[test]
    fn the_example_of_the_page_is_what_is_written() {
        let info = ClaimInfo {
            number: 1,
            epoch: 1,
            node: [0x22; 16],
            nonce: [0x33; 16],
            address: "10.0.0.1:6379".into(),
            takeover: false,
            lease_ms: 10_000,
            margin_ms: 2_000,
            fence_ms: 12_000,
            wall: 1_700_000_000_000,
        };
        let payload = info.encode();
        let header = Header {
            kind: Kind::Claim,
            encoding: Encoding::Plain,
            cluster: [0x11; 16],
            number: 1,
            epoch: 1,
            node: info.node,
            nonce: info.nonce,
            wall: info.wall,
            claim: 0,
            snapshot: 0,
            before: [0; 32],
            len: payload.len() as u64,
        };
        let object = header.encode(&payload);
        let lines: Vec<String> = object
            .chunks(16)
            .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "))
            .collect();
        let page = include_str!("../../../docs/formats/bucket.md");
        assert!(page.contains(&lines.join("\n")), "{}", lines.join("\n"));
        let read = Record::decode(&object, 1, Some([0x11; 16])).expect("a record");
        assert_eq!(read.header, header);
        assert_eq!(ClaimInfo::decode(&read.header, &read.stored).expect("a CLAIM"), info);
    }
}
