//! A shard's tail: a mapped file with the end of its log, before it reaches a segment. Byte table in
//! `docs/formats/cask-tail.md`.
//!
//! The log of a shard is one long run of bytes, counted by [`LogOffset`]. Each segment takes a part of it that
//! begins with a block. The tail is a ring of slots, a block each; every byte of the log is at its offset modulo
//! the ring's length. Each slot has a *mark*: the end of the filled part of its block, and its segment.
//!
//! Invariants:
//! * Only the holder of the shard's lock writes, and threads that have reserved a range, there.
//! * A slot is reused only after its block has been written to its segment.
//! * Records are stored before the mark that covers them, in program order or in that of their publication. So after the
//!   death of the process a mark covers whole records, which were acknowledged or about to be.

use crate::bytes::Cursor;
use crate::checksum::{crc32c, crc32c_of_words};
use crate::disk::{DIRECT_ALIGNMENT, Disk, DiskFile, DiskMap, OpenMode, read_exact_at};
use crate::error::{Error, Result};
use crate::location::{ALIGNMENT, SEGMENT_LEN_MAX, SegmentId};
use crate::names;
use std::io::{ErrorKind, IoSlice};
use std::path::Path;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"TIERCETL";
const VERSION: u32 = 1;
/// Number of blocks in a ring: few, since each is written at once, but enough for some to be in flight.
pub(crate) const SLOTS: usize = 8;
/// Length of the trailer after the blocks: header and marks, one sector.
pub(crate) const TRAILER_LEN: usize = 512;
/// Length of the header, at the beginning of the trailer.
const HEADER_LEN: usize = 64;
const CHECKED_LEN: usize = HEADER_LEN - 4;
/// Length of a slot's mark, stored twice, so that a damaged bit cannot hide the content of the slot.
const MARK_LEN: usize = 16;
/// Smallest block: a segment's header and a bit more.
const BLOCK_LEN_MIN: u64 = 128;
const BLOCK_LEN_MAX: u64 = 1 << 20;

const _: () = assert!(HEADER_LEN + SLOTS * MARK_LEN <= TRAILER_LEN);

/// An offset in a shard's log, counted from the opening of the store.
pub type LogOffset = u64;

/// Division of a tail into blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    pub block_len: u64,
}

impl Geometry {
    /// Returns the geometry of a tail of about this many bytes.
    pub fn of_len(tail_bytes: u64) -> Self {
        let block_len = (tail_bytes / SLOTS as u64).clamp(BLOCK_LEN_MIN, BLOCK_LEN_MAX);
        let unit = if block_len >= DIRECT_ALIGNMENT as u64 {
            DIRECT_ALIGNMENT as u64
        } else {
            BLOCK_LEN_MIN
        };
        Geometry { block_len: block_len - block_len % unit }
    }

    pub fn ring_len(self) -> u64 {
        self.block_len * SLOTS as u64
    }

    pub fn file_len(self) -> usize {
        self.ring_len() as usize + TRAILER_LEN
    }

    /// Returns the unit of writes to segments: they begin and end at its multiples, except at the end of a
    /// segment.
    pub fn page_len(self) -> u64 {
        self.block_len.min(DIRECT_ALIGNMENT as u64)
    }

    pub fn floor(self, at: LogOffset) -> LogOffset {
        at - at % self.block_len
    }

    pub fn ceil(self, at: LogOffset) -> LogOffset {
        at.next_multiple_of(self.block_len)
    }

    /// Returns the offset at which bytes from `at` on reach the ring's end.
    pub fn wrap_after(self, at: LogOffset) -> LogOffset {
        at - at % self.ring_len() + self.ring_len()
    }

    /// Returns the block of the byte at `at`.
    pub fn block(self, at: LogOffset) -> OpenBlock {
        OpenBlock { end: self.floor(at) + self.block_len, mark_at: self.mark_at(self.slot(at)) }
    }

    fn slot(self, at: LogOffset) -> usize {
        (at / self.block_len) as usize % SLOTS
    }

    fn mark_at(self, slot: usize) -> usize {
        self.ring_len() as usize + HEADER_LEN + slot * MARK_LEN
    }
}

/// The current block of the log. It is cached between writes, since computing it takes divisions.
#[derive(Clone, Copy, Default, Debug)]
pub struct OpenBlock {
    pub end: LogOffset,
    mark_at: usize,
}

/// Content of a slot: the block of `segment` that contains the byte before `end`, filled up to `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    pub segment: SegmentId,
    pub end: u64,
}

const OFFSET_BITS: u32 = 28;
const CHECK_BITS: u32 = 12;

impl Mark {
    /// Encodes the segment number, the last 8 bytes covered, and a checksum in one word.
    fn encode(self) -> u64 {
        debug_assert!(self.end >= ALIGNMENT && self.end <= SEGMENT_LEN_MAX);
        let fields = u64::from(self.segment.0) << OFFSET_BITS | (self.end / ALIGNMENT - 1);
        fields << CHECK_BITS | check(fields)
    }

    fn decode(word: u64) -> Option<Self> {
        let fields = word >> CHECK_BITS;
        let segment = SegmentId((fields >> OFFSET_BITS) as u32);
        let is_good = word & ((1 << CHECK_BITS) - 1) == check(fields) && segment.0 > 0;
        let end = ((fields & ((1 << OFFSET_BITS) - 1)) + 1) * ALIGNMENT;
        is_good.then_some(Mark { segment, end })
    }
}

fn check(fields: u64) -> u64 {
    u64::from(crc32c_of_words([fields])) & ((1 << CHECK_BITS) - 1)
}

/// The tail of a shard that is being written.
pub struct Tail {
    map: Arc<dyn DiskMap>,
    pub geometry: Geometry,
}

impl Tail {
    /// Maps the shard's tail file. Creates it first unless there is one of this geometry.
    pub fn open(
        disk: &dyn Disk,
        dir: &Path,
        store_id: u128,
        shard: u32,
        geometry: Geometry,
    ) -> Result<Arc<Self>> {
        let path = names::tail(dir, shard);
        let found = find(disk, &path, store_id);
        if !matches!(found, Ok(Some((_, found))) if found == geometry) {
            create(disk, dir, &path, store_id, geometry)?;
        }
        let map = disk.map(&path, geometry.file_len()).map_err(|e| Error::io("map", &path, e))?;
        Ok(Arc::new(Tail { map, geometry }))
    }

    /// Stores bytes of the log. They must not be longer than the ring.
    pub fn write(&self, at: LogOffset, bytes: &[u8]) {
        let ring = self.geometry.ring_len();
        let start = (at % ring) as usize;
        let (head, rest) = bytes.split_at(bytes.len().min(ring as usize - start));
        self.map.write(start, head);
        if !rest.is_empty() {
            self.map.write(0, rest);
        }
    }

    /// Stores parts of the log that follow each other.
    #[inline]
    pub fn write_parts<const N: usize>(&self, mut at: LogOffset, parts: [&[u8]; N]) {
        let ring = self.geometry.ring_len();
        let mut start = (at % ring) as usize;
        if start + parts.iter().map(|part| part.len()).sum::<usize>() <= ring as usize {
            for part in parts.iter().filter(|part| !part.is_empty()) {
                self.map.write(start, part);
                start += part.len();
            }
            return;
        }
        for part in parts {
            self.write(at, part);
            at += part.len() as u64;
        }
    }

    /// Copies bytes of the log to `out`.
    pub fn read(&self, at: LogOffset, out: &mut [u8]) {
        let ring = self.geometry.ring_len();
        let start = (at % ring) as usize;
        let len = out.len().min(ring as usize - start);
        let (head, rest) = out.split_at_mut(len);
        self.map.read(start, head);
        if !rest.is_empty() {
            self.map.read(0, rest);
        }
    }

    /// Writes bytes of the log, which must not wrap around the ring's end, to a file.
    pub fn write_to(
        &self,
        at: LogOffset,
        len: u64,
        file: &dyn DiskFile,
        position: u64,
    ) -> std::io::Result<()> {
        let start = at % self.geometry.ring_len();
        self.map.write_to(start as usize, len as usize, file, position)
    }

    /// Marks the slots from `block`, the beginning of a block, to `to` as filled up to there. Their segment
    /// begins at `base`.
    pub fn mark(&self, segment: SegmentId, base: LogOffset, block: LogOffset, to: LogOffset) {
        debug_assert_eq!(block, self.geometry.floor(block));
        let mut at = block;
        while at < to {
            let block = self.geometry.block(at);
            self.mark_block(block, segment, to.min(block.end) - base);
            at = block.end;
        }
    }

    /// Marks the slot of a block as filled up to `end` of a segment.
    #[inline]
    pub fn mark_block(&self, block: OpenBlock, segment: SegmentId, end: u64) {
        self.map.write_twice(block.mark_at, Mark { segment, end }.encode().to_le_bytes());
    }
}

fn create(
    disk: &dyn Disk,
    dir: &Path,
    path: &Path,
    store_id: u128,
    geometry: Geometry,
) -> Result<()> {
    let temporary = names::temporary(path);
    let written = write_aside(disk, &temporary, path, store_id, geometry);
    if let Err(error) = written {
        // On a full disk the leftover would only take space.
        let _ = disk.remove(&temporary);
        return Err(error);
    }
    disk.sync_dir(dir).map_err(|e| Error::failed("sync", dir, e))
}

fn write_aside(
    disk: &dyn Disk,
    temporary: &Path,
    path: &Path,
    store_id: u128,
    geometry: Geometry,
) -> Result<()> {
    let file =
        disk.open(temporary, OpenMode::Truncate).map_err(|e| Error::io("create", temporary, e))?;
    // Reserve all of its space, since a store into memory cannot report a full disk.
    file.reserve(geometry.file_len() as u64).map_err(|e| Error::io("reserve", temporary, e))?;
    let mut trailer = [0; TRAILER_LEN];
    trailer[..HEADER_LEN].copy_from_slice(&encode_header(store_id, geometry));
    file.write_all_at(&[IoSlice::new(&trailer)], geometry.ring_len())
        .map_err(|e| Error::io("write", temporary, e))?;
    file.sync_data().map_err(|e| Error::io("sync", temporary, e))?;
    disk.rename(temporary, path).map_err(|e| Error::io("rename", temporary, e))
}

fn encode_header(store_id: u128, geometry: Geometry) -> [u8; HEADER_LEN] {
    let mut out = [0; HEADER_LEN];
    out[..8].copy_from_slice(MAGIC);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[12..16].copy_from_slice(&(SLOTS as u32).to_le_bytes());
    out[16..32].copy_from_slice(&store_id.to_le_bytes());
    out[32..40].copy_from_slice(&geometry.block_len.to_le_bytes());
    let crc = crc32c(&out[..CHECKED_LEN]);
    out[CHECKED_LEN..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Decodes store id and geometry. Returns the failed check as the error.
fn decode_header(bytes: &[u8]) -> Result<(u128, Geometry), &'static str> {
    let (checked, crc) = bytes.split_at_checked(CHECKED_LEN).ok_or("tail header is cut off")?;
    if checked[..8] != *MAGIC {
        return Err("tail header has no magic number");
    }
    if crc32c(checked).to_le_bytes() != crc {
        return Err("tail header checksum does not match");
    }
    let mut cursor = Cursor::new(&checked[8..]);
    if cursor.u32() != Some(VERSION) || cursor.u32() != Some(SLOTS as u32) {
        return Err("tail has an unknown format version");
    }
    let (Some(store_id), Some(block_len)) = (cursor.u128(), cursor.u64()) else {
        return Err("tail header is cut off");
    };
    Ok((store_id, Geometry { block_len }))
}

/// Opens a tail file and verifies its header. Returns `None` if it does not exist.
fn find(
    disk: &dyn Disk,
    path: &Path,
    store_id: u128,
) -> Result<Option<(Arc<dyn DiskFile>, Geometry)>> {
    let file = match disk.open(path, OpenMode::ReadOnly) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("open", path, e)),
    };
    let len = file.size().map_err(|e| Error::io("measure", path, e))?;
    let at = len.saturating_sub(TRAILER_LEN as u64);
    let corrupt = |what| Error::corrupt(path, at, what);
    if at == 0 || at > BLOCK_LEN_MAX * SLOTS as u64 {
        return Err(corrupt("tail has an impossible length"));
    }
    let mut header = [0; HEADER_LEN];
    read_exact_at(&*file, &mut header, at).map_err(|e| Error::io("read", path, e))?;
    let (found, geometry) = decode_header(&header).map_err(corrupt)?;
    if found != store_id {
        return Err(Error::Foreign {
            path: path.to_owned(),
            what: "its header names another store",
        });
    }
    let lens = BLOCK_LEN_MIN..=BLOCK_LEN_MAX;
    if !lens.contains(&geometry.block_len) || geometry.ring_len() != at {
        return Err(corrupt("tail has not the length its header says"));
    }
    Ok(Some((file, geometry)))
}

/// A tail as found on disk, read-only.
pub struct TailImage {
    geometry: Geometry,
    bytes: Vec<u8>,
}

/// A block in a tail: its offset in its segment, and the filled part.
pub struct Block<'a> {
    pub start: u64,
    pub bytes: &'a [u8],
}

impl TailImage {
    /// Reads a shard's tail. Returns `None` if it does not exist.
    pub fn load(disk: &dyn Disk, dir: &Path, store_id: u128, shard: u32) -> Result<Option<Self>> {
        let path = names::tail(dir, shard);
        let Some((file, geometry)) = find(disk, &path, store_id)? else { return Ok(None) };
        let mut bytes = vec![0; geometry.file_len()];
        read_exact_at(&*file, &mut bytes, 0).map_err(|e| Error::io("read", &path, e))?;
        Ok(Some(TailImage { geometry, bytes }))
    }

    /// Returns the blocks of a segment that are in this tail, in no order.
    pub fn blocks(&self, segment: SegmentId) -> impl Iterator<Item = Block<'_>> {
        (0..SLOTS).filter_map(move |slot| {
            let mark = self.mark(slot).filter(|mark| mark.segment == segment)?;
            let start = self.geometry.floor(mark.end - 1);
            let from = slot * self.geometry.block_len as usize;
            let len = (mark.end - start) as usize;
            Some(Block { start, bytes: &self.bytes[from..from + len] })
        })
    }

    fn mark(&self, slot: usize) -> Option<Mark> {
        let at = self.geometry.mark_at(slot);
        let words = self.bytes[at..at + MARK_LEN].as_chunks().0;
        // The first copy is stored first, so it is the newer one if they differ.
        words.iter().find_map(|word| Mark::decode(u64::from_le_bytes(*word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimDisk;

    #[test]
    fn marks_come_back_and_every_flipped_bit_is_noticed() {
        for mark in [
            Mark { segment: SegmentId(1), end: 8 },
            Mark { segment: SegmentId(SegmentId::MAX), end: SEGMENT_LEN_MAX },
        ] {
            let word = mark.encode();
            assert_eq!(Mark::decode(word), Some(mark));
            for bit in 0..64 {
                assert_eq!(Mark::decode(word ^ 1 << bit), None, "bit {bit}");
            }
        }
        assert_eq!(Mark::decode(0), None);
    }

    #[test]
    fn what_was_marked_is_found_in_the_file() {
        let (disk, dir) = (SimDisk::new(1), Path::new("/d"));
        let geometry = Geometry::of_len(1024);
        assert_eq!(geometry.block_len, 128);
        assert!(TailImage::load(&disk, dir, 7, 3).unwrap().is_none());
        let tail = Tail::open(&disk, dir, 7, 3, geometry).unwrap();
        let base = 896;
        let bytes: Vec<u8> = (0..200).collect();
        tail.write(base, &bytes);
        tail.mark(SegmentId(9), base, base, base + 200);
        let mut back = vec![0; 200];
        tail.read(base, &mut back);
        assert_eq!(back, bytes);
        let image = TailImage::load(&disk, dir, 7, 3).unwrap().unwrap();
        let found: Vec<_> = image.blocks(SegmentId(9)).map(|b| (b.start, b.bytes)).collect();
        // The ring ends after the first block, so the second one is in its first slot.
        assert_eq!(found, [(128, &bytes[128..]), (0, &bytes[..128])]);
        assert_eq!(image.blocks(SegmentId(8)).count(), 0);
        assert!(matches!(TailImage::load(&disk, dir, 8, 3), Err(Error::Foreign { .. })));
    }

    #[test]
    fn geometry_keeps_to_pages() {
        for len in [0, 1000, 5000, 40_000, 4 << 20, 1 << 30] {
            let geometry = Geometry::of_len(len);
            assert!(geometry.block_len.is_multiple_of(geometry.page_len()));
            assert!(geometry.page_len() == 4096 || geometry.block_len < 4096);
            assert!(len < 1024 || geometry.ring_len() <= len);
        }
    }
}
