//! Compaction: copying what is live out of segments that are mostly garbage.
//!
//! Live records keep their sequence numbers, so it does not matter to recovery which copy it
//! meets. In order:
//!
//! 1. The output segment is listed as doomed and filled with the live records of the input.
//! 2. The output and its hint file are made durable, and so is everything else that was written:
//!    a record may be left out because a newer one exists, and that one must not be lost later.
//! 3. One replacement of the manifest makes the output sealed and the input doomed.
//! 4. The index is switched, record by record, unless a writer was faster.
//! 5. The input is taken out of use, at once or after the last snapshot that may read it.
//!
//! A crash before 3 leaves the input, one after 3 the output. A tombstone is left out when no
//! other segment can hold an older record of its key: because all its records are newer, or
//! because its filter says so. Segments being written are never input.

use super::store::{Index, Store};
use crate::error::{Error, Result};
use crate::hint::entry::Place;
use crate::hint::filter::Filter;
use crate::hint::reader::HintReader;
use crate::hint::writer::{HintBuilder, HintSummary};
use crate::location::{Location, SegmentId};
use crate::manifest::State;
use crate::segment::file::Segment;
use crate::segment::header::{Origin, SEGMENT_HEADER_LEN};
use crate::segment::record::{Fields, Kind, Membership, Record, encode, stamp};
use crate::segment::scan::{Scanner, Step};
use std::collections::{BTreeMap, HashMap};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes collected before they are written to the output.
const WRITE_LEN: usize = 1 << 20;
/// Log segments below this part of the usual size are merged when there are many.
const SMALL_FRACTION: u64 = 8;
/// How many small segments are many.
const SMALL_COUNT_MAX: usize = 16;

/// Keeps background compaction within its byte budget.
pub(crate) struct Pace {
    bytes_per_second: u64,
    next: Instant,
}

impl Pace {
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        Pace { bytes_per_second, next: Instant::now() }
    }

    pub(crate) fn unlimited() -> Self {
        Self::new(0)
    }

    /// Accounts for bytes moved, sleeping when they came too fast.
    fn spend(&mut self, store: &Store, bytes: u64) -> Result<()> {
        if self.bytes_per_second == 0 {
            return Ok(());
        }
        let cost = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let now = Instant::now();
        self.next = self.next.max(now) + cost;
        if self.next > now + Duration::from_millis(10) && !store.wakeup.sleep_until(self.next) {
            return Err(Error::Closed);
        }
        Ok(())
    }
}

/// What a compaction did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct CompactionReport {
    /// Segments that were rewritten.
    pub segments: usize,
    /// Bytes those had.
    pub bytes_before: u64,
    /// Bytes of what replaces them.
    pub bytes_after: u64,
}

/// A segment being filled by compaction.
struct Output {
    segment: Arc<Segment>,
    hint: HintBuilder,
    buf: Vec<u8>,
    summary: HintSummary,
}

/// A live record's old and new place.
struct Move {
    hash: u64,
    key_start: usize,
    key_len: usize,
    from: Location,
    to: Location,
}

/// One run of compaction.
struct Job<'a> {
    store: &'a Store,
    inputs: Vec<Arc<Segment>>,
    outputs: Vec<Output>,
    keys: Vec<u8>,
    moves: Vec<Move>,
    filters: HashMap<SegmentId, Option<Filter>>,
}

impl Store {
    /// Rewrites segments until none has too much garbage.
    pub(crate) fn compact(&self, pace: &mut Pace) -> Result<CompactionReport> {
        let _one_at_a_time = self.compacting.lock();
        let mut total = CompactionReport::default();
        let mut first_error = None;
        // Every segment is input at most once, so this ends whatever is written meanwhile.
        let newest = SegmentId(self.manifest.lock().next_segment);
        loop {
            self.check_writable()?;
            let inputs = self.choose_inputs(newest);
            if inputs.is_empty() {
                return first_error.map_or(Ok(total), Err);
            }
            let mut job = Job::new(self, inputs);
            match job.run(pace) {
                Ok(report) => {
                    total.segments += report.segments;
                    total.bytes_before += report.bytes_before;
                    total.bytes_after += report.bytes_after;
                }
                // A damaged segment must not keep the others from being compacted.
                Err(error @ Error::Corrupt { .. }) if job.damaged_input().is_some() => {
                    job.give_up();
                    first_error.get_or_insert(error);
                }
                Err(error) => {
                    job.give_up();
                    return Err(error);
                }
            }
        }
    }

    /// Sealed segments worth rewriting together: their live records fit into one segment.
    fn choose_inputs(&self, newest: SegmentId) -> Vec<Arc<Segment>> {
        let sealed: Vec<SegmentId> = {
            let manifest = self.manifest.lock();
            let sealed = |(id, entry): (&SegmentId, &crate::manifest::Entry)| {
                matches!(entry.state, State::Sealed { .. }).then_some(*id)
            };
            manifest.segments.iter().filter_map(sealed).filter(|&id| id < newest).collect()
        };
        let mut worthwhile: BTreeMap<SegmentId, Arc<Segment>> = BTreeMap::new();
        let mut small = Vec::new();
        let filters = &mut HashMap::new();
        for segment in sealed.into_iter().filter_map(|id| self.segment(id)) {
            if segment.is_damaged() {
                continue;
            }
            let body = segment.len() - SEGMENT_HEADER_LEN;
            let wanted = (body as f64 * self.options.compaction.garbage_ratio) as u64;
            let garbage = body.saturating_sub(segment.live() + segment.tombstones());
            // Tombstones may turn out to be garbage; that takes a look at other segments' filters.
            if garbage >= wanted.max(1)
                || (garbage + segment.tombstones() >= wanted.max(1)
                    && garbage + self.idle_tombstones(&segment, filters) >= wanted.max(1))
            {
                worthwhile.insert(segment.id, segment);
            } else if body < self.options.segment_size_bytes / SMALL_FRACTION {
                small.push(segment);
            }
        }
        if small.len() > SMALL_COUNT_MAX {
            worthwhile.extend(small.into_iter().map(|segment| (segment.id, segment)));
        }
        let mut room = self.options.segment_size_bytes;
        let mut chosen = Vec::new();
        for segment in worthwhile.into_values() {
            let rest = segment.live() + segment.tombstones();
            if chosen.is_empty() || rest <= room {
                room = room.saturating_sub(rest);
                chosen.push(segment);
            }
        }
        chosen
    }

    /// Bytes of a sealed segment's tombstones that nothing needs any more.
    fn idle_tombstones(
        &self,
        segment: &Arc<Segment>,
        filters: &mut HashMap<SegmentId, Option<Filter>>,
    ) -> u64 {
        let Some(reader) = self.hint_reader(segment) else { return 0 };
        let mut cursor = reader.cursor(0..crate::hint::entry::RANGES);
        let mut entry = crate::hint::entry::Entry::default();
        let mut idle = 0;
        while cursor.next(&mut entry) == Ok(true) {
            let place = entry.place;
            if place.is_tombstone
                && !self.tombstone_is_needed(entry.hash, place.seq, &[segment.id], filters)
            {
                idle += place.len;
            }
        }
        idle
    }

    fn hint_reader(&self, segment: &Segment) -> Option<HintReader> {
        let home = &self.home;
        let (id, len) = (segment.id, segment.len());
        HintReader::open(&*home.disk, &home.dir, home.store_id, id, len, self.order).ok()
    }

    /// Whether a segment other than the given ones may hold a record of the key older than `seq`.
    fn tombstone_is_needed(
        &self,
        hash: u64,
        seq: u64,
        besides: &[SegmentId],
        filters: &mut HashMap<SegmentId, Option<Filter>>,
    ) -> bool {
        let others: Vec<Arc<Segment>> = {
            let segments = self.segments.read();
            // What an empty segment will get is newer than any tombstone there is: of one key, all
            // writes pass through one lane, one after the other.
            let other = |segment: &&Arc<Segment>| {
                segment.seq_min() < seq
                    && segment.len() > SEGMENT_HEADER_LEN
                    && !besides.contains(&segment.id)
            };
            segments.values().filter(other).cloned().collect()
        };
        others.iter().any(|segment| {
            let filter = filters
                .entry(segment.id)
                .or_insert_with(|| self.hint_reader(segment).and_then(|hint| hint.filter().ok()));
            // Without a hint file, as while a segment is written, anything is possible.
            filter.as_ref().is_none_or(|filter| filter.may_contain(hash))
        })
    }
}

impl<'a> Job<'a> {
    fn new(store: &'a Store, inputs: Vec<Arc<Segment>>) -> Self {
        Job {
            store,
            inputs,
            outputs: Vec::new(),
            keys: Vec::new(),
            moves: Vec::new(),
            filters: HashMap::new(),
        }
    }

    fn run(&mut self, pace: &mut Pace) -> Result<CompactionReport> {
        for input in self.inputs.clone() {
            self.copy_live(&input, pace)?;
        }
        self.finish_outputs()?;
        self.store.flush()?;
        self.switch_manifest()?;
        self.switch_index();
        let report = CompactionReport {
            segments: self.inputs.len(),
            bytes_before: self.inputs.iter().map(|segment| segment.len()).sum(),
            bytes_after: self.outputs.iter().map(|output| output.segment.len()).sum(),
        };
        let counters = &self.store.counters;
        counters.compactions.fetch_add(report.segments as u64, Ordering::Relaxed);
        counters.bytes_compacted.fetch_add(report.bytes_after, Ordering::Relaxed);
        let gone: Vec<SegmentId> = self.inputs.drain(..).map(|segment| segment.id).collect();
        self.store.retire(gone);
        Ok(report)
    }

    fn damaged_input(&self) -> Option<&Arc<Segment>> {
        self.inputs.iter().find(|input| input.is_damaged())
    }

    fn copy_live(&mut self, input: &Arc<Segment>, pace: &mut Pace) -> Result<()> {
        let file = input.sequential()?;
        let len = input.len();
        let mut scanner = Scanner::new(file, &input.path, input.salt, input.origin, len);
        loop {
            let before = scanner.position();
            match scanner.next()? {
                Step::Record(offset, record) => {
                    let from = Location::new(input.id, offset, record.header.record_len());
                    if self.is_needed(&record, from) {
                        self.copy(&record, from)?;
                    }
                }
                Step::End => return Ok(()),
                Step::Damaged(offset, damage) => {
                    input.mark_damaged();
                    return Err(Error::corrupt(&input.path, offset, damage.0));
                }
            }
            pace.spend(self.store, scanner.position() - before)?;
        }
    }

    fn is_needed(&mut self, record: &Record<'_>, at: Location) -> bool {
        let hash = self.store.order.hash_key.hash(record.key);
        if record.header.kind == Kind::Delete {
            let besides: Vec<SegmentId> = self
                .inputs
                .iter()
                .map(|input| input.id)
                .chain(self.outputs.iter().map(|output| output.segment.id))
                .collect();
            let seq = record.header.seq;
            return self.store.tombstone_is_needed(hash, seq, &besides, &mut self.filters);
        }
        match &self.store.index {
            Index::Hash(index) => index.points_to(hash, at),
            Index::Ordered(index) => index.get(record.key) == Some(at),
        }
    }

    fn copy(&mut self, record: &Record<'_>, from: Location) -> Result<()> {
        let header = &record.header;
        let output = self.output(header.record_len())?;
        let offset = output.segment.len() + output.buf.len() as u64;
        let start = output.buf.len();
        let fields = Fields {
            kind: header.kind,
            membership: Membership::Alone,
            compression: header.compression,
            expiry: header.expiry,
            version: header.version,
            key: record.key,
            value: record.value,
        };
        encode(&mut output.buf, &fields);
        stamp(&mut output.buf[start..], header.seq, 0, output.segment.salt, offset);
        let len = (output.buf.len() - start) as u64;
        let is_tombstone = header.kind == Kind::Delete;
        output.hint.add(record.key, Place { seq: header.seq, offset, len, is_tombstone });
        let to = Location::new(output.segment.id, offset, len);
        if output.buf.len() >= WRITE_LEN {
            write_out(output).map_err(|e| self.store.latch(e))?;
        }
        if !is_tombstone {
            let hash = self.store.order.hash_key.hash(record.key);
            let (key_start, key_len) = (self.keys.len(), record.key.len());
            self.moves.push(Move { hash, key_start, key_len, from, to });
            // The hash index finds its entry by hash and place.
            if matches!(self.store.index, Index::Ordered(_)) {
                self.keys.extend_from_slice(record.key);
            }
        }
        Ok(())
    }

    /// The output to put a record of this length into.
    fn output(&mut self, len: u64) -> Result<&mut Output> {
        let size = self.store.options.segment_size_bytes;
        let fits = self
            .outputs
            .last()
            .is_some_and(|output| output.segment.len() + output.buf.len() as u64 + len <= size);
        if !fits {
            let segment = self.store.create_segment(Origin::Compaction)?;
            self.outputs.push(Output {
                segment,
                hint: HintBuilder::new(self.store.order),
                buf: Vec::new(),
                summary: HintSummary::default(),
            });
        }
        Ok(self.outputs.last_mut().expect("pushed if there was none"))
    }

    fn finish_outputs(&mut self) -> Result<()> {
        let home = &self.store.home;
        for output in &mut self.outputs {
            write_out(output).map_err(|e| self.store.latch(e))?;
            output.segment.sync(output.segment.len()).map_err(|e| self.store.latch(e))?;
            let hint = std::mem::replace(&mut output.hint, HintBuilder::new(self.store.order));
            let (id, len) = (output.segment.id, output.segment.len());
            output.summary = hint
                .write(&*home.disk, &home.dir, home.store_id, id, len)
                .map_err(|e| self.store.latch(e))?;
            output.segment.set_seq_min(output.summary.seq_min);
            output.segment.add_tombstone(output.summary.tombstones);
            output.segment.finish();
        }
        Ok(())
    }

    fn switch_manifest(&self) -> Result<()> {
        self.store.update_manifest(|manifest| {
            for output in &self.outputs {
                if let Some(entry) = manifest.segments.get_mut(&output.segment.id) {
                    entry.state = State::Sealed { len: output.segment.len() };
                    entry.seq_min = output.summary.seq_min;
                }
            }
            for input in &self.inputs {
                if let Some(entry) = manifest.segments.get_mut(&input.id) {
                    entry.state = State::Doomed;
                }
            }
        })
    }

    fn switch_index(&self) {
        for step in &self.moves {
            let Some(segment) = self.store.segment(step.to.segment()) else { continue };
            // Counted first: a writer may supersede the record as soon as the index names it.
            segment.add_live(step.to.len_bound());
            let switched = match &self.store.index {
                Index::Hash(index) => index.replace(step.hash, step.from, step.to),
                Index::Ordered(index) => {
                    let key = &self.keys[step.key_start..step.key_start + step.key_len];
                    index.replace(key, step.from, step.to)
                }
            };
            if !switched {
                segment.subtract_live(step.to.len_bound());
            }
        }
    }

    /// Removes what was written; the input is as it was. After a failure that latched the store
    /// the manifest on disk may already list the output, so it stays for the next opening to sort
    /// out.
    fn give_up(&mut self) {
        if self.store.is_latched() {
            return;
        }
        let gone: Vec<SegmentId> = self.outputs.drain(..).map(|output| output.segment.id).collect();
        self.store.retire(gone);
    }
}

fn write_out(output: &mut Output) -> Result<()> {
    if output.buf.is_empty() {
        return Ok(());
    }
    let segment = &output.segment;
    let start = segment.len();
    segment
        .writable()?
        .write_all_at(&[IoSlice::new(&output.buf)], start)
        .map_err(|e| Error::io("write", &segment.path, e))?;
    segment.set_len(start + output.buf.len() as u64);
    output.buf.clear();
    Ok(())
}
