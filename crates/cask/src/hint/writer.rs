//! Writes a hint file. Byte table in `docs/formats/cask-hint.md`.

use super::entry::{HintOrder, RANGES, encode};
use super::filter::Filter;
use std::io::IoSlice;
use std::path::Path;
use tierce_storage::checksum::crc32c;
use tierce_storage::disk::{Disk, DiskFile, OpenMode};
use tierce_storage::location::SegmentId;
use tierce_storage::names;
use tierce_storage::segment::contents::{Contents, RecordMeta};
use tierce_storage::segment::file::{Segment, SegmentHome};
use tierce_storage::segment::record::Kind;
use tierce_storage::segment::scan::{Scanner, Step};
use tierce_storage::{Error, Result};

pub(crate) const MAGIC: &[u8; 8] = b"TIERCEHT";
pub(crate) const VERSION: u32 = 1;
/// Bytes before the first block: fields, range table, checksum.
pub(crate) const HINT_HEADER_LEN: usize = FIELDS_LEN + (RANGES + 1) * 8 + 4;
pub(crate) const FIELDS_LEN: usize = 88;
/// A block is written when its entries have reached this length.
const BLOCK_LEN: usize = 16 << 10;
/// Bytes before a block's entries: length and checksum.
pub(crate) const BLOCK_HEADER_LEN: usize = 8;
/// Bytes that are buffered before a write.
const WRITE_LEN: usize = 1 << 20;

/// Collector of the hints of a segment's records.
pub(crate) struct HintBuilder {
    order: HintOrder,
    contents: Contents,
}

/// Outcome of writing a hint file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Written {
    Yes,
    NoSpace,
}

/// Totals from collecting, for the segment's accounting.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct HintSummary {
    pub(crate) entries: u64,
    pub(crate) seq_min: u64,
    pub(crate) seq_max: u64,
    /// Bytes of tombstones that no later record of the segment supersedes.
    pub(crate) tombstones: u64,
}

impl HintBuilder {
    pub(crate) fn new(order: HintOrder) -> Self {
        Self::of(order, Contents::default())
    }

    pub(crate) fn of(order: HintOrder, contents: Contents) -> Self {
        HintBuilder { order, contents }
    }

    /// Reads a segment to its end, or to the first damage, which is the second result.
    pub(crate) fn read(order: HintOrder, segment: &Segment) -> Result<(Self, Option<Error>)> {
        let (mut builder, mut scanner) = (Self::new(order), Scanner::of(segment)?);
        loop {
            match scanner.step()? {
                Step::Record(offset, record) => {
                    let (seq, len) = (record.header.seq, record.header.record_len());
                    let is_tombstone = record.header.kind == Kind::Delete;
                    builder.add(record.key, RecordMeta { seq, offset, len, is_tombstone });
                }
                Step::End => return Ok((builder, None)),
                Step::Damaged(offset, damage) => {
                    let damage = Error::corrupt(&segment.path, offset, damage.0);
                    return Ok((builder, Some(damage)));
                }
            }
        }
    }

    pub(crate) fn add(&mut self, key: &[u8], meta: RecordMeta) {
        self.contents.add(self.order.hash_key.hash(key), key, meta);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.contents.records.is_empty()
    }

    /// Writes the hint file of a segment of length `segment_len`, durable when this returns.
    pub(crate) fn write(
        &mut self,
        disk: &dyn Disk,
        dir: &Path,
        store_id: u128,
        segment: SegmentId,
        segment_len: u64,
    ) -> Result<HintSummary> {
        self.sort();
        let path = names::hint(dir, segment);
        let temporary = names::temporary(&path);
        let file = disk
            .open(&temporary, OpenMode::Truncate)
            .map_err(|e| Error::io("create", &temporary, e))?;
        let written = self.write_body(&*file).and_then(|body| {
            let header = self.encode_header(store_id, segment, segment_len, &body);
            file.write_all_at(&[IoSlice::new(&header)], 0)?;
            file.sync_data()
        });
        if let Err(e) = written {
            // On a full disk the leftover file would take space.
            let _ = disk.remove(&temporary);
            return Err(Error::io("write", &temporary, e));
        }
        disk.rename(&temporary, &path).map_err(|e| Error::io("rename", &temporary, e))?;
        disk.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
        Ok(self.summary())
    }

    /// Ends collecting without a file.
    pub(crate) fn finish(&mut self) -> HintSummary {
        self.sort();
        self.summary()
    }

    /// As [`Self::write`], but writes no file if there is no space. A hint file only saves reading
    /// its segment, so its absence is no reason to refuse anything.
    pub(crate) fn write_if_there_is_space(
        &mut self,
        home: &SegmentHome,
        segment: &Segment,
    ) -> Result<(HintSummary, Written)> {
        match self.write(&*home.disk, &home.dir, home.store_id, segment.id, segment.len()) {
            Ok(summary) => Ok((summary, Written::Yes)),
            Err(Error::NoSpace { .. }) => Ok((self.summary(), Written::NoSpace)),
            Err(error) => Err(error),
        }
    }

    /// Sorts the newest record of every key to the front and drops the others.
    fn sort(&mut self) {
        let Contents { keys, records } = &mut self.contents;
        records.sort_unstable_by(|a, b| {
            self.order
                .compare((a.hash, a.key(keys)), (b.hash, b.key(keys)))
                .then_with(|| b.meta.seq.cmp(&a.meta.seq))
        });
        records.dedup_by(|b, a| a.hash == b.hash && a.key(keys) == b.key(keys));
    }

    fn summary(&self) -> HintSummary {
        let records = &self.contents.records;
        let seqs = || records.iter().map(|noted| noted.meta.seq);
        let tombstones = records.iter().filter(|noted| noted.meta.is_tombstone);
        HintSummary {
            entries: records.len() as u64,
            seq_min: seqs().min().unwrap_or(u64::MAX),
            seq_max: seqs().max().unwrap_or(0),
            tombstones: tombstones.map(|noted| noted.meta.len).sum(),
        }
    }

    fn write_body(&self, file: &dyn DiskFile) -> std::io::Result<Body> {
        let mut out = Appender::new(file, HINT_HEADER_LEN as u64);
        let mut ranges = [0; RANGES + 1];
        let mut next_range = 0;
        let mut block = Vec::with_capacity(BLOCK_LEN + 64);
        let Contents { keys, records } = &self.contents;
        let mut filter = Filter::with_capacity(records.len());
        for noted in records {
            let key = noted.key(keys);
            let range = self.order.range_of(noted.hash, key);
            // A range begins with a block of its own.
            if range >= next_range {
                out.block(&mut block)?;
                ranges[next_range..=range].fill(out.position());
                next_range = range + 1;
            }
            encode(&mut block, key, noted.meta);
            filter.insert(noted.hash);
            if block.len() >= BLOCK_LEN {
                out.block(&mut block)?;
            }
        }
        out.block(&mut block)?;
        ranges[next_range..].fill(out.position());
        out.append(filter.as_bytes())?;
        out.flush()?;
        Ok(Body { ranges, filter })
    }

    fn encode_header(
        &self,
        store_id: u128,
        segment: SegmentId,
        segment_len: u64,
        body: &Body,
    ) -> Vec<u8> {
        let summary = self.summary();
        let mut out = Vec::with_capacity(HINT_HEADER_LEN);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&segment.0.to_le_bytes());
        out.extend_from_slice(&store_id.to_le_bytes());
        out.extend_from_slice(&[self.order.index as u8, 0, 0, 0]);
        out.extend_from_slice(&crc32c(body.filter.as_bytes()).to_le_bytes());
        for field in [
            segment_len,
            summary.entries,
            summary.seq_min,
            summary.seq_max,
            summary.tombstones,
            body.filter.as_bytes().len() as u64,
        ] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        debug_assert_eq!(out.len(), FIELDS_LEN);
        for offset in body.ranges {
            out.extend_from_slice(&offset.to_le_bytes());
        }
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }
}

struct Body {
    ranges: [u64; RANGES + 1],
    filter: Filter,
}

// The offsets given in `docs/formats/cask-hint.md`.
const _: () = assert!(FIELDS_LEN == 88 && HINT_HEADER_LEN == 612);

/// Writes a file front to back in large pieces.
struct Appender<'a> {
    file: &'a dyn DiskFile,
    start: u64,
    buf: Vec<u8>,
}

impl<'a> Appender<'a> {
    fn new(file: &'a dyn DiskFile, start: u64) -> Self {
        Appender { file, start, buf: Vec::new() }
    }

    fn position(&self) -> u64 {
        self.start + self.buf.len() as u64
    }

    /// Writes a block, if there is anything in it, and empties it.
    fn block(&mut self, entries: &mut Vec<u8>) -> std::io::Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        self.append(&(entries.len() as u32).to_le_bytes())?;
        self.append(&crc32c(entries).to_le_bytes())?;
        self.append(entries)?;
        entries.clear();
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.buf.extend_from_slice(bytes);
        if self.buf.len() >= WRITE_LEN { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if self.buf.is_empty() {
            return Ok(());
        }
        self.file.write_all_at(&[IoSlice::new(&self.buf)], self.start)?;
        self.start += self.buf.len() as u64;
        self.buf.clear();
        Ok(())
    }
}
