//! The manifest: the list of the store's segments. Byte table in `docs/formats/cask-manifest.md`.
//!
//! The file is small and replaced as a whole: written to a temporary file, synced, renamed, directory synced.
//! So it is never torn, and a manifest that fails verification is damaged.
//!
//! Invariants:
//! * A segment is listed before its file is created and until its removal is durable; an unlisted file with a
//!   segment's name is foreign.
//! * [`SegmentState::Open`] and [`SegmentState::Sealed`] segments hold data and must exist.
//! * [`SegmentState::Obsolete`] ones hold nothing that the store needs, and may or may not exist. Compaction
//!   output begins as obsolete and becomes sealed in the same replacement that makes its input obsolete.
//! * A shard's tail is listed before anything in it is acknowledged, until the store is closed and all of it is
//!   in segments; a listed tail must exist.
//! * `next_segment` and `next_seq` are above everything used before the last replacement.

use crate::bytes::Cursor;
use crate::checksum::crc32c;
use crate::disk::{Disk, OpenMode};
use crate::error::{Error, Result};
use crate::hash::HashKey;
use crate::location::{SEQ_MAX, SegmentId};
use crate::names;
use crate::segment::header::Origin;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, IoSlice};
use std::path::Path;

const MAGIC: &[u8; 8] = b"TIERCEMF";
/// Supported versions. Version 1 does not list tails. The newest is always written.
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=2;
const VERSION: u32 = *VERSIONS.end();
const HASH_SIPHASH_1_3: u8 = 1;
/// Maximum number of logs; more only cost memory and file handles.
pub const SHARDS_MAX: u32 = 1024;
/// Default number of logs of a database.
pub const SHARDS_DEFAULT: u32 = 8;
pub const HEAD_LEN: usize = 80;
pub const ENTRY_LEN: usize = 32;
const TAIL_LEN: usize = 4;
// The offsets in `docs/formats/cask-manifest.md`.
const _: () = assert!(HEAD_LEN == 8 + 4 + 4 + 16 + 16 + 4 + 4 + 4 + 4 + 8 + 8);

/// State of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentState {
    /// Being written, or was when the process ended: its tail may be torn.
    Open,
    /// Complete and durable.
    Sealed {
        /// Length of the file.
        len: u64,
    },
    /// To be removed.
    Obsolete,
}

/// Purpose of a directory's segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Keys and values, found by an index.
    Database = 0,
    /// Records in their order, for a [`Wal`](crate::Wal).
    Log = 1,
}

impl Purpose {
    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Purpose::Database),
            1 => Some(Purpose::Log),
            _ => None,
        }
    }
}

/// Kind of the index.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum IndexKind {
    /// At most 16 bytes of memory per key of any length: the index holds a fingerprint and a location, the key
    /// is verified on disk. No ranges.
    #[default]
    Hash = 0,
    /// Keys are in memory, in order: supports ranges and prefixes, and overwriting reads nothing.
    Ordered = 1,
}

impl IndexKind {
    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(IndexKind::Hash),
            1 => Some(IndexKind::Ordered),
            _ => None,
        }
    }
}

/// A segment in the manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub state: SegmentState,
    pub origin: Origin,
    /// Lower bound of the sequence numbers of its records.
    pub seq_min: u64,
}

/// Content of the manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    pub store_id: u128,
    pub hash_key: HashKey,
    pub purpose: Purpose,
    pub index: IndexKind,
    pub shards: u32,
    pub next_segment: u32,
    pub next_seq: u64,
    /// For a log: the number of the first record that is kept. If the log begins with a higher number, records
    /// are missing.
    pub first_seq: u64,
    pub segments: BTreeMap<SegmentId, Entry>,
    /// Shards whose tails may hold data that is not in a segment.
    pub tails: BTreeSet<u32>,
}

/// Reason why bytes are not a manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Undecodable {
    /// A check failed.
    Damaged(&'static str),
    /// They are a manifest of a newer format version.
    TooNew(u32),
}

impl Manifest {
    pub fn new(disk: &dyn Disk, purpose: Purpose, index: IndexKind, shards: u32) -> Self {
        Manifest {
            store_id: u128::from(disk.entropy()) << 64 | u128::from(disk.entropy()),
            hash_key: HashKey([disk.entropy(), disk.entropy()]),
            purpose,
            index,
            shards,
            next_segment: 1,
            next_seq: 1,
            first_seq: 1,
            segments: BTreeMap::new(),
            tails: BTreeSet::new(),
        }
    }

    /// Reads the manifest of a directory. Returns `None` if there is none.
    pub fn load(disk: &dyn Disk, dir: &Path) -> Result<Option<Self>> {
        let path = names::manifest(dir);
        let file = match disk.open(&path, OpenMode::ReadOnly) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("open", &path, e)),
        };
        let len = file.size().map_err(|e| Error::io("measure", &path, e))?;
        // The limit is far above any real store, and far below a size that could exhaust memory.
        if len > 1 << 30 {
            return Err(Error::corrupt(&path, 0, "manifest is impossibly long"));
        }
        let mut bytes = vec![0; len as usize];
        let read = file.read_at(&mut bytes, 0).map_err(|e| Error::io("read", &path, e))?;
        Self::decode(&bytes[..read]).map(Some).map_err(|problem| match problem {
            Undecodable::Damaged(what) => Error::corrupt(&path, 0, what),
            Undecodable::TooNew(found) => {
                let (oldest, newest) = (*VERSIONS.start(), *VERSIONS.end());
                Error::TooNew { path, found, oldest, newest }
            }
        })
    }

    /// Replaces the manifest of a directory; durable when this returns.
    pub fn store(&self, disk: &dyn Disk, dir: &Path) -> Result<()> {
        replace_file(disk, dir, &names::manifest(dir), &self.encode())
    }

    /// Returns the space that a replacement takes, on a disk that counts it in pages.
    pub fn space(&self, page_len: u64) -> u64 {
        let lists_len = self.segments.len() * ENTRY_LEN + self.tails.len() * TAIL_LEN;
        ((HEAD_LEN + lists_len + 4) as u64).next_multiple_of(page_len)
    }

    pub fn encode(&self) -> Vec<u8> {
        let lists_len = self.segments.len() * ENTRY_LEN + self.tails.len() * TAIL_LEN;
        let mut out = Vec::with_capacity(HEAD_LEN + lists_len + 4);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(self.segments.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.store_id.to_le_bytes());
        out.extend_from_slice(&self.hash_key.0[0].to_le_bytes());
        out.extend_from_slice(&self.hash_key.0[1].to_le_bytes());
        out.extend_from_slice(&[HASH_SIPHASH_1_3, self.index as u8, self.purpose as u8, 0]);
        out.extend_from_slice(&self.shards.to_le_bytes());
        out.extend_from_slice(&self.next_segment.to_le_bytes());
        out.extend_from_slice(&(self.tails.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.next_seq.to_le_bytes());
        out.extend_from_slice(&self.first_seq.to_le_bytes());
        debug_assert_eq!(out.len(), HEAD_LEN);
        for (id, entry) in &self.segments {
            let (state, len) = match entry.state {
                SegmentState::Open => (1, 0),
                SegmentState::Sealed { len } => (2, len),
                SegmentState::Obsolete => (3, 0),
            };
            out.extend_from_slice(&id.0.to_le_bytes());
            out.extend_from_slice(&[state, entry.origin as u8, 0, 0]);
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(&entry.seq_min.to_le_bytes());
            out.extend_from_slice(&[0; 8]);
        }
        for shard in &self.tails {
            out.extend_from_slice(&shard.to_le_bytes());
        }
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes a manifest. In all future versions the magic number, the version after it and the checksum of
    /// everything at the end stay at these offsets.
    pub fn decode(bytes: &[u8]) -> Result<Self, Undecodable> {
        use Undecodable::{Damaged, TooNew};
        if bytes.get(..8) != Some(MAGIC) {
            return Err(Damaged("manifest has no magic number"));
        }
        let (checked, crc) = bytes.split_last_chunk::<4>().ok_or(Damaged("manifest is cut off"))?;
        if crc32c(checked) != u32::from_le_bytes(*crc) {
            return Err(Damaged("manifest checksum does not match"));
        }
        let mut cursor = Cursor::new(checked.get(8..).unwrap_or_default());
        match cursor.u32() {
            Some(version) if VERSIONS.contains(&version) => {}
            Some(version) if version > VERSION => return Err(TooNew(version)),
            _ => return Err(Damaged("manifest has an unknown format version")),
        }
        Self::decode_fields(&mut cursor)
            .filter(|_| cursor.is_empty())
            .ok_or(Damaged("manifest has impossible fields"))
    }

    fn decode_fields(cursor: &mut Cursor<'_>) -> Option<Self> {
        let count = cursor.u32()?;
        let store_id = cursor.u128()?;
        let hash_key = HashKey([cursor.u64()?, cursor.u64()?]);
        (cursor.u8()? == HASH_SIPHASH_1_3).then_some(())?;
        let index = IndexKind::from_byte(cursor.u8()?)?;
        let purpose = Purpose::from_byte(cursor.u8()?)?;
        cursor.u8()?;
        let shards = cursor.u32()?;
        let next_segment = cursor.u32()?;
        let tail_count = cursor.u32()?;
        let next_seq = cursor.u64()?;
        let first_seq = cursor.u64()?;
        let is_possible = (1..=SHARDS_MAX).contains(&shards)
            && (1..=SegmentId::MAX + 1).contains(&next_segment)
            && next_seq <= SEQ_MAX + 1;
        is_possible.then_some(())?;
        let mut segments = BTreeMap::new();
        for _ in 0..count {
            let (id, entry) = decode_entry(cursor)?;
            let is_used = id.0 >= 1 && id.0 < next_segment;
            (is_used && segments.insert(id, entry).is_none()).then_some(())?;
        }
        let mut tails = BTreeSet::new();
        for _ in 0..tail_count {
            let shard = cursor.u32()?;
            (shard < SHARDS_MAX && tails.insert(shard)).then_some(())?;
        }
        Some(Manifest {
            store_id,
            hash_key,
            purpose,
            index,
            shards,
            next_segment,
            next_seq,
            first_seq,
            segments,
            tails,
        })
    }
}

fn decode_entry(cursor: &mut Cursor<'_>) -> Option<(SegmentId, Entry)> {
    let id = SegmentId(cursor.u32()?);
    let state = cursor.u8()?;
    let origin = Origin::from_byte(cursor.u8()?)?;
    cursor.u16()?;
    let len = cursor.u64()?;
    let seq_min = cursor.u64()?;
    cursor.u64()?;
    let state = match state {
        1 => SegmentState::Open,
        2 => SegmentState::Sealed { len },
        3 => SegmentState::Obsolete,
        _ => return None,
    };
    Some((id, Entry { state, origin, seq_min }))
}

/// Replaces a file atomically: after a crash either the old or the new one is there, whole.
pub fn replace_file(disk: &dyn Disk, dir: &Path, path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = names::temporary(path);
    if let Err(error) = write_aside(disk, &temporary, path, bytes) {
        // On a full disk the leftover would only take space.
        let _ = disk.remove(&temporary);
        return Err(error);
    }
    disk.sync_dir(dir).map_err(|e| Error::failed("sync", dir, e))
}

fn write_aside(disk: &dyn Disk, temporary: &Path, path: &Path, bytes: &[u8]) -> Result<()> {
    let file =
        disk.open(temporary, OpenMode::Truncate).map_err(|e| Error::io("create", temporary, e))?;
    file.write_all_at(&[IoSlice::new(bytes)], 0).map_err(|e| Error::io("write", temporary, e))?;
    file.sync_data().map_err(|e| Error::io("sync", temporary, e))?;
    disk.rename(temporary, path).map_err(|e| Error::io("rename", temporary, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimDisk;

    fn example() -> Manifest {
        let mut manifest = Manifest::new(&SimDisk::new(1), Purpose::Database, IndexKind::Hash, 8);
        manifest.next_segment = 10;
        for (id, state) in [
            (3, SegmentState::Open),
            (4, SegmentState::Sealed { len: 4096 }),
            (9, SegmentState::Obsolete),
        ] {
            let entry = Entry { state, origin: Origin::Log, seq_min: 17 };
            manifest.segments.insert(SegmentId(id), entry);
        }
        manifest.tails = BTreeSet::from([0, 7]);
        manifest
    }

    fn with_version(version: u32) -> Vec<u8> {
        let mut bytes = Manifest { tails: BTreeSet::new(), ..example() }.encode();
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        let end = bytes.len() - 4;
        let crc = crc32c(&bytes[..end]).to_le_bytes();
        bytes[end..].copy_from_slice(&crc);
        bytes
    }

    #[test]
    fn version_1_is_read_and_a_newer_one_is_told_from_damage() {
        let without_tails = Manifest { tails: BTreeSet::new(), ..example() };
        assert_eq!(Manifest::decode(&with_version(1)), Ok(without_tails));
        let disk = SimDisk::new(1);
        let dir = Path::new("/d");
        disk.set_content(&names::manifest(dir), with_version(3));
        let error = Manifest::load(&disk, dir).unwrap_err();
        let line = "/d/MANIFEST has format version 3; this version reads 1 to 2";
        assert_eq!(error.to_string(), line);
        for version in [0, u32::MAX] {
            assert!(Manifest::decode(&with_version(version)).is_err());
        }
    }

    #[test]
    fn manifest_comes_back() {
        let disk = SimDisk::new(1);
        let dir = Path::new("/d");
        assert_eq!(Manifest::load(&disk, dir).unwrap(), None);
        example().store(&disk, dir).unwrap();
        assert_eq!(Manifest::load(&disk, dir).unwrap(), Some(example()));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = example().encode();
        assert_eq!(bytes.len(), HEAD_LEN + 3 * ENTRY_LEN + 2 * TAIL_LEN + 4);
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::decode(&changed).is_err(), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn replacement_is_atomic_at_every_crash() {
        let disk = SimDisk::new(1);
        let dir = Path::new("/d");
        let old = example();
        old.store(&disk, dir).unwrap();
        disk.record_history();
        let new = Manifest { next_seq: 99, ..old.clone() };
        new.store(&disk, dir).unwrap();
        for moment in disk.take_history() {
            for seed in 0..50 {
                for image in [moment.after_kill(seed), moment.after_power_cut(seed)] {
                    let found = Manifest::load(&image, dir).unwrap().unwrap();
                    assert!(found == old || found == new);
                }
            }
        }
        let durable = disk.now().after_power_cut(1);
        assert_eq!(Manifest::load(&durable, dir).unwrap(), Some(new));
    }

    #[test]
    fn protocol_of_replacement() {
        let disk = SimDisk::new(1);
        disk.record_trace();
        example().store(&disk, Path::new("/d")).unwrap();
        let golden = [
            "create MANIFEST.tmp",
            "write MANIFEST.tmp 0+188",
            "sync MANIFEST.tmp",
            "rename MANIFEST.tmp to MANIFEST",
            "sync directory",
        ];
        assert_eq!(disk.take_trace(), golden);
    }
}
