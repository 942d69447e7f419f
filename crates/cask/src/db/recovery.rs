//! Builds the index from the files of a directory.
//!
//! Every segment without a valid hint file gets one; then all hint files are merged into the index. A segment that was
//! being written ends where its records end, in the file or in a shard's tail. Bytes after that are a torn tail,
//! unless a later record proves that they were durable. Any other mismatch is an error, never skipped.

use super::store::Index;
use crate::hint::entry::{HintOrder, RANGES};
use crate::hint::merge::{Standing, merge};
use crate::hint::reader::HintReader;
use crate::hint::writer::{HintBuilder, Written};
use crate::index::hash::HashIndex;
use crate::index::ordered::{LeafBuilder, OrderedIndex};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tierce_storage::disk::{Disk, OverlayDisk};
use tierce_storage::location::{Location, SegmentId};
use tierce_storage::log::salvage::{TornTail, complete_segment, load_tails};
use tierce_storage::manifest::{Entry, IndexKind, SegmentState};
use tierce_storage::names;
use tierce_storage::segment::file::{Segment, SegmentHome};
use tierce_storage::tail::TailImage;
use tierce_storage::{Error, Result};

/// Report of opening: the state found, and repairs.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Segments in use.
    pub segments: usize,
    /// Keys with a value.
    pub keys: u64,
    /// Segments read from end to end because they had no valid hint file.
    pub segments_scanned: usize,
    /// Truncated tails. Nothing in them was acknowledged as durable.
    pub torn_tails: Vec<TornTail>,
}

/// A segment that is ready to be merged; `hint` is missing when it has no records.
pub(crate) struct Recovered {
    pub(crate) segment: Arc<Segment>,
    pub(crate) hint: Option<HintReader>,
    torn: Option<TornTail>,
    scanned: bool,
}

/// Prepares every listed segment for building the index.
pub(crate) fn recover_segments(
    home: &Arc<SegmentHome>,
    order: HintOrder,
    listed: &[(SegmentId, Entry)],
    tails: &BTreeSet<u32>,
    threads: usize,
) -> Result<Vec<Recovered>> {
    // A store that was closed needs no tails.
    let is_open = |(_, entry): &(SegmentId, Entry)| entry.state == SegmentState::Open;
    let tails = match listed.iter().any(is_open) {
        true => load_tails(&*home.disk, &home.dir, home.store_id, tails)?,
        false => Vec::new(),
    };
    let results: Mutex<Vec<Result<Recovered>>> = Mutex::new(Vec::new());
    in_parallel(threads, listed.len(), |at| {
        let (id, entry) = listed[at];
        let recovered = recover_segment(home, order, id, entry, &tails);
        let is_ok = recovered.is_ok();
        results.lock().push(recovered);
        is_ok
    });
    let mut recovered = results.into_inner().into_iter().collect::<Result<Vec<_>>>()?;
    recovered.sort_by_key(|recovered| recovered.segment.id);
    Ok(recovered)
}

impl RecoveryReport {
    pub(crate) fn note(&mut self, recovered: &mut Recovered) {
        self.segments_scanned += usize::from(recovered.scanned);
        self.torn_tails.extend(recovered.torn.take());
    }
}

fn recover_segment(
    home: &Arc<SegmentHome>,
    order: HintOrder,
    id: SegmentId,
    entry: Entry,
    tails: &[TailImage],
) -> Result<Recovered> {
    let segment = Segment::open(home, id, entry.seq_min)?;
    let (hint, torn, scanned) = match entry.state {
        SegmentState::Sealed { len } => {
            segment.check_len(len)?;
            match open_hint(home, order, &segment) {
                Some(hint) => (Some(hint), None, false),
                None => (make_hint(home, order, &segment)?, None, true),
            }
        }
        _ => {
            let torn = complete_segment(&segment, tails)?;
            (make_hint(home, order, &segment)?, torn, true)
        }
    };
    if let Some(hint) = &hint {
        segment.set_seq_min(hint.summary.seq_min);
        segment.add_tombstone(hint.summary.tombstones);
    }
    Ok(Recovered { segment, hint, torn, scanned })
}

fn open_hint(home: &SegmentHome, order: HintOrder, segment: &Segment) -> Option<HintReader> {
    open_hint_on(&*home.disk, home, order, segment)
}

fn open_hint_on(
    disk: &dyn Disk,
    home: &SegmentHome,
    order: HintOrder,
    segment: &Segment,
) -> Option<HintReader> {
    let (id, len) = (segment.id, segment.len());
    let hint = HintReader::open(disk, &home.dir, home.store_id, id, len, order).ok()?;
    hint.verify().is_ok().then_some(hint)
}

/// Reads a whole segment and writes its hint file, to memory if the disk is full; `None` if the segment has no record.
fn make_hint(
    home: &SegmentHome,
    order: HintOrder,
    segment: &Arc<Segment>,
) -> Result<Option<HintReader>> {
    let (mut builder, damage) = HintBuilder::read(order, segment)?;
    damage.map_or(Ok(()), Err)?;
    if builder.is_empty() {
        return Ok(None);
    }
    let (_, written) = builder.write_if_there_is_space(home, segment)?;
    let hint = match written {
        Written::Yes => open_hint(home, order, segment),
        Written::NoSpace => {
            segment.set_lacks_hint(true);
            let memory = OverlayDisk::new();
            builder.write(&memory, &home.dir, home.store_id, segment.id, segment.len())?;
            open_hint_on(&memory, home, order, segment)
        }
    };
    match hint {
        Some(hint) => Ok(Some(hint)),
        None => {
            let path = names::hint(&home.dir, segment.id);
            Err(Error::corrupt(&path, 0, "hint file is not what was just written"))
        }
    }
}

/// Merges hint files into an index, and adds up the live bytes of each segment.
pub(crate) fn load_index(
    order: HintOrder,
    recovered: &[Recovered],
    home: &SegmentHome,
    threads: usize,
) -> Result<Index> {
    let segments: HashMap<SegmentId, &Segment> =
        recovered.iter().map(|recovered| (recovered.segment.id, &*recovered.segment)).collect();
    let hash = HashIndex::new();
    let leaves = Mutex::new(Vec::new());
    let failure = Mutex::new(None);
    in_parallel(threads, RANGES, |range| {
        let cursors = recovered
            .iter()
            .filter_map(|recovered| recovered.hint.as_ref())
            .map(|hint| hint.cursor(range..range + 1))
            .collect();
        let mut partition = Vec::new();
        let mut builder = LeafBuilder::default();
        let merged = merge(cursors, order, |entry, id, standing| {
            if standing == Standing::Superseded || entry.meta.is_tombstone {
                return;
            }
            let location = Location::new(id, entry.meta.offset, entry.meta.len);
            if let Some(segment) = segments.get(&id) {
                segment.add_live(location.len_bound());
            }
            match order.index {
                IndexKind::Hash => load_hashed(&hash, &mut partition, entry.hash, location),
                IndexKind::Ordered => builder.push(&entry.key, location),
            }
        });
        if let Err((id, _)) = merged {
            *failure.lock() = Some(id);
        }
        finish_partition(&hash, &mut partition);
        leaves.lock().push((range, builder.finish()));
        merged.is_ok()
    });
    if let Some(id) = failure.into_inner() {
        let path = names::hint(&home.dir, id);
        return Err(Error::corrupt(&path, 0, "hint file changed while it was read"));
    }
    if order.index == IndexKind::Hash {
        return Ok(Index::Hash(hash));
    }
    let mut leaves = leaves.into_inner();
    leaves.sort_by_key(|(range, _)| *range);
    let leaves = leaves.into_iter().flat_map(|(_, leaves)| leaves).collect();
    Ok(Index::Ordered(OrderedIndex::from_leaves(leaves)))
}

/// Collects entries of one partition; those of the next one complete it.
fn load_hashed(
    index: &HashIndex,
    partition: &mut Vec<(u64, Location)>,
    hash: u64,
    location: Location,
) {
    let differs =
        |first: &(u64, Location)| HashIndex::partition_of(first.0) != HashIndex::partition_of(hash);
    if partition.first().is_some_and(differs) {
        finish_partition(index, partition);
    }
    partition.push((hash, location));
}

fn finish_partition(index: &HashIndex, partition: &mut Vec<(u64, Location)>) {
    if let Some(first) = partition.first() {
        index.load_partition(HashIndex::partition_of(first.0), partition);
        partition.clear();
    }
}

/// Runs `pieces` pieces of work on some threads, until one of them returns `false`. With one thread, all of them run
/// on this one, in order.
fn in_parallel(threads: usize, pieces: usize, work: impl Fn(usize) -> bool + Sync) {
    let next = AtomicUsize::new(0);
    let run = || {
        loop {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= pieces {
                return;
            }
            if !work(piece) {
                next.store(pieces, Ordering::Relaxed);
            }
        }
    };
    if threads <= 1 || pieces <= 1 {
        return run();
    }
    std::thread::scope(|scope| {
        for _ in 0..threads.min(pieces) {
            scope.spawn(run);
        }
    });
}
