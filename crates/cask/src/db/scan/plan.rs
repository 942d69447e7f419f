//! The reads that fill a window, and their execution.
//!
//! Locations are sorted in disk order, and neighbours are fetched by one read: reading over a gap of [`GAP_LEN_MAX`]
//! costs less than another request. A planned read is executed by a thread of the store, or by a range that would
//! otherwise wait.

use super::block::Block;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tierce_storage::disk::span::ReadBuf;
use tierce_storage::location::{Location, SegmentId};
use tierce_storage::segment::file::{Segment, Segments};
use tierce_storage::segment::record::Record;

/// Maximum gap of unwanted bytes that is read to save a request. On a fast disk a request costs about as much as 10
/// KiB, and buffered reads leave the gap in the page cache, where a later window finds it.
const GAP_LEN_MAX: u64 = 16 << 10;
/// Maximum length of a joined read. Disks reach their full speed at a quarter of this.
const READ_LEN_MAX: u64 = 512 << 10;
/// Ranges help only while fewer threads than this are reading: each needs a buffer.
const HELPERS_MAX: usize = 8;
/// The reads of a window and the blocks they fill.
pub(crate) struct Plan {
    pub(crate) blocks: Vec<Mutex<Block>>,
    wanted: Vec<Wanted>,
    reads: Vec<PlannedRead>,
    segments: Vec<Arc<Segment>>,
    /// Highest sequence number that the view may see; the maximum without a view.
    seq_max: u64,
    next: AtomicUsize,
    left: AtomicUsize,
    /// Threads that are executing reads.
    workers: AtomicUsize,
}

/// A record and its destination.
#[derive(Clone, Copy)]
struct Wanted {
    location: Location,
    block: u32,
    at: u32,
}

/// A run of `wanted` that one read fetches.
#[derive(Clone, Copy)]
struct PlannedRead {
    segment: u32,
    first: u32,
    count: u32,
    len: u32,
}

/// Result of executing a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    Done,
    /// The last missing read is done.
    Complete,
    /// All reads are taken, perhaps not done yet.
    NothingLeft,
}

impl Plan {
    /// Plans to load the records of some blocks. Records longer than `record_len_max` are left to the ranges, which
    /// then need not share memory for them.
    pub(crate) fn new(
        segments: &RwLock<Segments>,
        blocks: Vec<Block>,
        seq_max: u64,
        record_len_max: u64,
    ) -> Self {
        let mut wanted = Vec::new();
        for (number, block) in blocks.iter().enumerate() {
            for at in 0..block.len() {
                let location = block.location(at);
                if location.len_bound() <= record_len_max {
                    wanted.push(Wanted { location, block: number as u32, at: at as u32 });
                }
            }
        }
        wanted.sort_unstable_by_key(|wanted| wanted.location);
        let (segments, reads) = divide(segments, &wanted);
        Plan {
            blocks: blocks.into_iter().map(Mutex::new).collect(),
            wanted,
            left: AtomicUsize::new(reads.len()),
            reads,
            segments,
            seq_max,
            next: AtomicUsize::new(0),
            workers: AtomicUsize::new(0),
        }
    }

    pub(crate) fn read_count(&self) -> usize {
        self.reads.len()
    }

    /// Returns true if some reads are not taken yet.
    pub(crate) fn has_work(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.reads.len()
    }

    /// Executes reads until none is left to take.
    pub(crate) fn work(&self, buf: &mut ReadBuf) -> Progress {
        self.workers.fetch_add(1, Ordering::Relaxed);
        loop {
            match self.work_once(buf) {
                Progress::Done => {}
                last => {
                    self.workers.fetch_sub(1, Ordering::Relaxed);
                    return last;
                }
            }
        }
    }

    /// Returns true if one more range should help. It is never refused by all: another thread is then reading.
    pub(crate) fn wants_help(&self) -> bool {
        self.has_work() && self.workers.load(Ordering::Relaxed) < HELPERS_MAX
    }

    /// Takes a read and executes it.
    fn work_once(&self, buf: &mut ReadBuf) -> Progress {
        // Relaxed: the number only distributes work.
        let taken = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(&read) = self.reads.get(taken) else { return Progress::NothingLeft };
        self.do_read(read, buf);
        match self.left.fetch_sub(1, Ordering::AcqRel) {
            1 => Progress::Complete,
            _ => Progress::Done,
        }
    }

    /// Executes a read and fills in its records. Failed records are left to the ranges.
    fn do_read(&self, read: PlannedRead, buf: &mut ReadBuf) {
        let segment = &self.segments[read.segment as usize];
        let wanted = &self.wanted[read.first as usize..][..read.count as usize];
        let start = wanted[0].location.offset();
        if segment.read_into(start, read.len as usize, buf).is_err() {
            return;
        }
        let bytes = buf.as_slice();
        for wanted in wanted {
            let offset = wanted.location.offset();
            let Some(bytes) = bytes.get((offset - start) as usize..) else { return };
            let Ok(record) = Record::decode(bytes, segment.salt, offset) else { continue };
            let mut block = self.blocks[wanted.block as usize].lock();
            if record.header.seq <= self.seq_max && block.key(wanted.at as usize) == record.key {
                block.fill(wanted.at as usize, &record);
            }
        }
    }
}

/// Finds the segments and the reads. Records of retired segments are left out.
fn divide(all: &RwLock<Segments>, wanted: &[Wanted]) -> (Vec<Arc<Segment>>, Vec<PlannedRead>) {
    let mut numbers: HashMap<SegmentId, Option<u32>> = HashMap::new();
    let mut segments = Vec::new();
    let mut reads: Vec<PlannedRead> = Vec::new();
    let mut end = 0;
    let mut last = None;
    for (index, wanted) in wanted.iter().enumerate() {
        let (offset, len) = (wanted.location.offset(), wanted.location.len_bound());
        let id = wanted.location.segment();
        if last == Some(id)
            && let Some(read) = reads.last_mut()
            && offset <= end + GAP_LEN_MAX
            && u64::from(read.len) + (offset + len).saturating_sub(end) <= READ_LEN_MAX
        {
            // Length bounds may overlap the next record, so the end never goes back.
            read.len += (offset + len).saturating_sub(end) as u32;
            read.count += 1;
            end = end.max(offset + len);
            continue;
        }
        let number = *numbers.entry(id).or_insert_with(|| {
            let segment = all.read().get(&id).cloned()?;
            segments.push(segment);
            Some(segments.len() as u32 - 1)
        });
        last = number.map(|_| id);
        if let Some(segment) = number {
            reads.push(PlannedRead { segment, first: index as u32, count: 1, len: len as u32 });
            end = offset + len;
        }
    }
    (segments, reads)
}
