//! Compaction: copies live records out of segments that are mostly garbage.
//!
//! Live records keep their sequence numbers, so recovery may meet either copy. The steps:
//!
//! 1. List the output segment as obsolete and fill it with the live records of the input.
//! 2. Make the output, its hint file and all other pending writes durable: a record may be left out because a newer
//!    one exists, and the newer one must not be lost later.
//! 3. Replace the manifest once: the output becomes sealed, the input obsolete.
//! 4. Switch the index, record by record, unless a writer was faster.
//! 5. Retire the input, at once or after the last snapshot that may read it.
//!
//! A crash before 3 leaves the input, after 3 the output. A tombstone is dropped when no other segment can hold an
//! older record of its key: all records of that segment are newer, or its filter excludes the key. Segments being
//! written are never input.
//!
//! Segments that return the most space per byte copied come first. A segment whose hint file shows no live record is
//! not read at all.

use super::reserve::{restore_reserve, room_for_output, set_output_aside};
use super::store::{Index, Store};
use crate::hint::entry::{Entry, RANGES};
use crate::hint::filter::Filter;
use crate::hint::reader::HintReader;
use crate::hint::writer::{HintBuilder, HintSummary};
use std::cell::OnceCell;
use std::collections::HashSet;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tierce_storage::location::{Location, SegmentId};
use tierce_storage::manifest::SegmentState;
use tierce_storage::segment::contents::RecordMeta;
use tierce_storage::segment::file::Segment;
use tierce_storage::segment::header::{Origin, SEGMENT_HEADER_LEN};
use tierce_storage::segment::record::{Kind, Record, encode, stamp};
use tierce_storage::segment::scan::{Scanner, Step};
use tierce_storage::{Error, Result};

/// Bytes that are buffered before a write to the output.
const WRITE_LEN: usize = 1 << 20;
/// Log segments smaller than this fraction of the usual size are merged when there are many.
const SMALL_FRACTION: u64 = 8;
/// Upper bound of the input of one job, in segments of the usual size: until a job completes, its copies are useless
/// and its input is not freed.
const JOB_SEGMENTS_MAX: u64 = 4;
/// While the reserve is not whole, a segment is rewritten if this fraction of it is garbage. All such segments
/// together then free more than the reserve's part for tombstones.
const LEAN_FRACTION: u64 = 128;
/// Number of small segments from which they count as many.
const SMALL_COUNT_MAX: usize = 16;

/// Rate limiter that keeps background compaction within its byte budget.
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

    /// Accounts for bytes moved, and sleeps if they came too fast.
    fn spend(&mut self, store: &Store, bytes: u64) -> Result<()> {
        if self.bytes_per_second == 0 {
            return Ok(());
        }
        let cost = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let now = Instant::now();
        self.next = self.next.max(now) + cost;
        if self.next > now + Duration::from_millis(10) && !store.files.wakeup.sleep_until(self.next)
        {
            return Err(Error::Closed);
        }
        Ok(())
    }
}

/// Goal at which compaction stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Until {
    /// No segment has too much garbage.
    NoGarbage,
    /// The reserve is whole again.
    Whole,
}

/// Result of a compaction.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct CompactionReport {
    /// Number of rewritten segments.
    pub segments: usize,
    /// Bytes of these segments before.
    pub bytes_before: u64,
    /// Bytes of the segments that replace them.
    pub bytes_after: u64,
}

/// A segment being filled by compaction.
struct Output {
    segment: Arc<Segment>,
    hint: HintBuilder,
    buf: Vec<u8>,
    summary: HintSummary,
}

/// Old and new location of a live record.
struct Move {
    hash: u64,
    key_start: usize,
    key_len: usize,
    from: Location,
    to: Location,
}

/// Segments that may hold records hidden by tombstones. The list is made once and used for many tombstones: segments
/// written or sealed later only have higher sequence numbers than the tombstones at hand.
struct OlderSegments(Vec<OlderSegment>);

struct OlderSegment {
    seq_min: u64,
    segment: Arc<Segment>,
    /// Read on first use.
    filter: OnceCell<Option<Filter>>,
}

/// One run of compaction.
struct Job<'a> {
    store: &'a Store,
    /// Length of the output if its space is reserved first with help of the reserve; there is then only one output.
    set_aside: Option<u64>,
    inputs: Vec<Arc<Segment>>,
    outputs: Vec<Output>,
    keys: Vec<u8>,
    moves: Vec<Move>,
    /// All segments that are not input. Outputs are added later.
    older: OlderSegments,
}

impl Store {
    /// Rewrites segments until none has too much garbage.
    pub(crate) fn compact(&self, pace: &mut Pace) -> Result<CompactionReport> {
        let _one_at_a_time = self.compacting.lock();
        self.compact_until(pace, Until::NoGarbage)
    }

    /// Compacts for deletes that met the full disk of `refusal`, unless another thread has made room since the caller
    /// read the counter `room_made` as `seen`.
    ///
    /// # Errors
    /// The refusal, if no space can be freed.
    pub(crate) fn make_room(&self, seen: u64, refusal: Error) -> Result<()> {
        let _one_at_a_time = self.compacting.lock();
        if self.reserve.room_made.load(Ordering::Acquire) != seen {
            return Ok(());
        }
        let segments = self.files.segments.read().len();
        let report = match self.compact_until(&mut Pace::unlimited(), Until::Whole) {
            Err(error) if error.is_no_space() => return Err(refusal),
            report => report?,
        };
        if report.bytes_after >= report.bytes_before && self.files.segments.read().len() >= segments
        {
            return Err(refusal);
        }
        self.reserve.room_made.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn compact_until(&self, pace: &mut Pace, until: Until) -> Result<CompactionReport> {
        let mut total = CompactionReport::default();
        let mut first_error = None;
        if self.reserve.is_short() {
            self.finish_segments_with_garbage()?;
        }
        // Every segment is input at most once, so this ends even if writes continue.
        let newest = SegmentId(self.files.manifest.lock().next_segment);
        loop {
            self.files.check_writable()?;
            let is_short = self.reserve.is_short();
            // Also if it is whole: a smaller store needs less.
            let is_whole = restore_reserve(self)?;
            if is_whole {
                self.write_missing_hints()?;
            }
            if is_whole && until == Until::Whole && total.segments > 0 {
                return Ok(total);
            }
            let inputs = match self.choose_inputs(newest, is_whole) {
                // The space already freed may be enough for a caller that waits for it.
                Err(error) if error.is_no_space() && total.segments > 0 => Vec::new(),
                inputs => inputs?,
            };
            if inputs.is_empty() {
                return first_error.map_or(Ok(total), Err);
            }
            let mut job = Job::new(self, inputs, is_short);
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
                // Retry, with the space reserved for this case.
                Err(error) if error.is_no_space() && !is_short => {
                    job.give_up();
                    self.reserve.set_short();
                }
                Err(error) => {
                    job.give_up();
                    if !self.files.is_latched() {
                        restore_reserve(self)?;
                    }
                    return Err(error);
                }
            }
        }
    }

    /// On a full disk, the segments being written are needed as input, too.
    fn finish_segments_with_garbage(&self) -> Result<()> {
        let is_whole = restore_reserve(self)?;
        let is_wanted = |segment: &Segment| {
            let body = segment.len() - SEGMENT_HEADER_LEN;
            body.saturating_sub(segment.live()) >= self.garbage_wanted(body, is_whole)
        };
        let mut is_any = false;
        for appender in &self.files.appenders {
            is_any |= appender.close_run_if(self, is_wanted);
        }
        if is_any { self.files.seal_immutable(self) } else { Ok(()) }
    }

    /// Returns the garbage that makes it worthwhile to rewrite this many bytes of records.
    fn garbage_wanted(&self, body: u64, is_whole: bool) -> u64 {
        let wanted = match is_whole {
            true => (body as f64 * self.options.compaction.garbage_ratio) as u64,
            false => body / LEAN_FRACTION,
        };
        wanted.max(1)
    }

    /// Returns sealed segments worth rewriting together: their live records fit into one segment.
    fn choose_inputs(&self, newest: SegmentId, is_whole: bool) -> Result<Vec<Arc<Segment>>> {
        let sealed: Vec<SegmentId> = {
            let manifest = self.files.manifest.lock();
            let sealed = |(id, entry): (&SegmentId, &tierce_storage::manifest::Entry)| {
                matches!(entry.state, SegmentState::Sealed { .. }).then_some(*id)
            };
            manifest.segments.iter().filter_map(sealed).filter(|&id| id < newest).collect()
        };
        let mut worthwhile = Vec::new();
        let mut small = Vec::new();
        let older = self.older_segments(&[]);
        for segment in sealed.into_iter().filter_map(|id| self.files.segment(id)) {
            if segment.is_damaged() {
                continue;
            }
            let body = segment.len() - SEGMENT_HEADER_LEN;
            let wanted = self.garbage_wanted(body, is_whole);
            let garbage = body.saturating_sub(segment.live() + segment.tombstones());
            // Tombstones may turn out to be garbage; checking them reads the filters of other segments.
            if garbage >= wanted
                || (garbage + segment.tombstones() >= wanted
                    && garbage + self.idle_tombstones(&segment, &older) >= wanted)
            {
                worthwhile.push(segment);
            } else if body < self.files.options.segment_size_bytes / SMALL_FRACTION {
                small.push(segment);
            }
        }
        if small.len() > SMALL_COUNT_MAX {
            worthwhile.append(&mut small);
        }
        let is_any = !worthwhile.is_empty();
        let chosen = self.fill_job(worthwhile);
        if is_any && chosen.is_empty() {
            return Err(Error::NoSpace { path: self.files.home.dir.clone() });
        }
        Ok(chosen)
    }

    /// Returns the segments that free the most per byte copied, as many as fit in one job.
    fn fill_job(&self, mut segments: Vec<Arc<Segment>>) -> Vec<Arc<Segment>> {
        let rest = |segment: &Segment| segment.live() + segment.tombstones();
        let size = self.files.options.segment_size_bytes;
        // Sorted by bytes to copy, in millionths of the segment. Writers change these meanwhile.
        segments.sort_by_cached_key(|segment| rest(segment) * 1_000_000 / segment.len());
        // An empty segment costs nothing and is freed at once, before any copying.
        let empty = segments.iter().take_while(|segment| rest(segment) == 0).count();
        if empty > 0 {
            segments.truncate(empty);
            return segments;
        }
        if self.reserve.is_short() {
            return self.fill_output(segments);
        }
        let (mut room, mut reads) = (size, size.saturating_mul(JOB_SEGMENTS_MAX));
        let mut chosen: Vec<Arc<Segment>> = Vec::new();
        for segment in segments {
            let (copied, read) = (rest(&segment), segment.len());
            if chosen.is_empty() || (copied <= room && read <= reads) {
                room = room.saturating_sub(copied);
                reads = reads.saturating_sub(read);
                chosen.push(segment);
            }
        }
        chosen
    }

    /// Returns those of the segments, cheapest first, whose records all fit into the output for which space can be
    /// reserved.
    fn fill_output(&self, mut segments: Vec<Arc<Segment>>) -> Vec<Arc<Segment>> {
        let longest = segments.iter().map(|segment| segment.len()).max().unwrap_or(0);
        let mut room =
            room_for_output(self).min(longest.max(self.files.options.segment_size_bytes));
        segments.retain(|segment| {
            let fits = segment.len() <= room;
            room -= if fits { segment.len() } else { 0 };
            fits
        });
        segments
    }

    /// Returns the bytes of a sealed segment's tombstones that are no longer needed.
    fn idle_tombstones(&self, segment: &Arc<Segment>, older: &OlderSegments) -> u64 {
        let Some(reader) = self.hint_reader(segment) else { return 0 };
        let mut cursor = reader.cursor(0..RANGES);
        let mut entry = Entry::default();
        let mut idle = 0;
        while cursor.next(&mut entry) == Ok(true) {
            let meta = entry.meta;
            if meta.is_tombstone
                && !older.need_tombstone(self, entry.hash, meta.seq, Some(segment.id))
            {
                idle += meta.len;
            }
        }
        idle
    }

    /// Returns all non-empty segments except these.
    fn older_segments(&self, excluded: &[Arc<Segment>]) -> OlderSegments {
        let excluded: HashSet<SegmentId> = excluded.iter().map(|segment| segment.id).collect();
        let segments = self.files.segments.read();
        // Records written later to an empty segment are newer than any existing tombstone: all writes of a key pass
        // through one shard, one after the other.
        let counts = |segment: &&Arc<Segment>| {
            segment.len() > SEGMENT_HEADER_LEN && !excluded.contains(&segment.id)
        };
        let describe = |segment: &Arc<Segment>| OlderSegment {
            seq_min: segment.seq_min(),
            segment: segment.clone(),
            filter: OnceCell::new(),
        };
        OlderSegments(segments.values().filter(counts).map(describe).collect())
    }

    fn hint_reader(&self, segment: &Segment) -> Option<HintReader> {
        if segment.lacks_hint() {
            return self.hint_in_memory(segment);
        }
        let home = &self.files.home;
        let (id, len) = (segment.id, segment.len());
        HintReader::open(&*home.disk, &home.dir, home.store_id, id, len, self.order).ok()
    }
}

impl OlderSegments {
    /// Returns true if a segment, other than `excluded`, may hold a record of the key older than `seq`.
    fn need_tombstone(
        &self,
        store: &Store,
        hash: u64,
        seq: u64,
        excluded: Option<SegmentId>,
    ) -> bool {
        let may_hold = |segment: &OlderSegment| {
            let load = || store.hint_reader(&segment.segment).and_then(|hint| hint.filter().ok());
            // Without a hint file, as while a segment is written, any key is possible.
            segment.filter.get_or_init(load).as_ref().is_none_or(|filter| filter.may_contain(hash))
        };
        self.0
            .iter()
            .filter(|older| older.seq_min < seq && Some(older.segment.id) != excluded)
            .any(may_hold)
    }
}

impl<'a> Job<'a> {
    fn new(store: &'a Store, inputs: Vec<Arc<Segment>>, is_short: bool) -> Self {
        let older = store.older_segments(&inputs);
        let set_aside = is_short.then(|| inputs.iter().map(|segment| segment.len()).sum());
        let (outputs, keys, moves) = (Vec::new(), Vec::new(), Vec::new());
        Job { store, set_aside, inputs, outputs, keys, moves, older }
    }

    fn run(&mut self, pace: &mut Pace) -> Result<CompactionReport> {
        for input in self.inputs.clone() {
            self.copy_live(&input, pace)?;
        }
        self.finish_outputs()?;
        self.store.files.sync(self.store)?;
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
        if !self.holds_something(input) {
            return Ok(());
        }
        let mut scanner = Scanner::of(input)?;
        loop {
            let (before, mut written) = (scanner.position(), 0);
            match scanner.step()? {
                Step::Record(offset, record) => {
                    let from = Location::new(input.id, offset, record.header.record_len());
                    let is_tombstone = record.header.kind == Kind::Delete;
                    let hash = self.store.order.hash_key.hash(record.key);
                    if self.is_needed(record.key, hash, is_tombstone, record.header.seq, from) {
                        self.copy(&record, from)?;
                        written = record.header.record_len();
                    }
                }
                Step::End => return Ok(()),
                Step::Damaged(offset, damage) => {
                    input.mark_damaged();
                    return Err(Error::corrupt(&input.path, offset, damage.0));
                }
            }
            pace.spend(self.store, scanner.position() - before + written)?;
        }
    }

    /// Returns true if the hint file shows that any record of a segment is needed. In a store that is overwritten
    /// evenly, many segments are empty when their turn comes; those need not be read.
    fn holds_something(&self, input: &Segment) -> bool {
        let Some(reader) = self.store.hint_reader(input) else { return true };
        let mut cursor = reader.cursor(0..RANGES);
        let mut entry = Entry::default();
        loop {
            match cursor.next(&mut entry) {
                Ok(false) => return false,
                Err(_) => return true,
                Ok(true) => {}
            }
            let RecordMeta { seq, offset, len, is_tombstone } = entry.meta;
            let at = Location::new(input.id, offset, len);
            if self.is_needed(&entry.key, entry.hash, is_tombstone, seq, at) {
                return true;
            }
        }
    }

    fn is_needed(&self, key: &[u8], hash: u64, is_tombstone: bool, seq: u64, at: Location) -> bool {
        if is_tombstone {
            return self.older.need_tombstone(self.store, hash, seq, None);
        }
        match &self.store.index {
            Index::Hash(index) => index.points_to(hash, at),
            Index::Ordered(index) => index.get(key) == Some(at),
        }
    }

    fn copy(&mut self, record: &Record<'_>, from: Location) -> Result<()> {
        let header = &record.header;
        let output = self.output(header.record_len())?;
        let offset = output.segment.len() + output.buf.len() as u64;
        let start = output.buf.len();
        encode(&mut output.buf, &record.fields());
        stamp(&mut output.buf[start..], header.seq, 0, output.segment.salt, offset);
        let len = (output.buf.len() - start) as u64;
        let is_tombstone = header.kind == Kind::Delete;
        output.hint.add(record.key, RecordMeta { seq: header.seq, offset, len, is_tombstone });
        let to = Location::new(output.segment.id, offset, len);
        if output.buf.len() >= WRITE_LEN {
            write_out(output).map_err(|e| self.store.files.latch(e))?;
        }
        if !is_tombstone {
            let hash = self.store.order.hash_key.hash(record.key);
            let (key_start, key_len) = (self.keys.len(), record.key.len());
            self.moves.push(Move { hash, key_start, key_len, from, to });
            // The hash index finds its entry by hash and location.
            if matches!(self.store.index, Index::Ordered(_)) {
                self.keys.extend_from_slice(record.key);
            }
        }
        Ok(())
    }

    /// Returns the output for a record of this length.
    fn output(&mut self, len: u64) -> Result<&mut Output> {
        let size = self.set_aside.unwrap_or(self.store.files.options.segment_size_bytes);
        let fits = self
            .outputs
            .last()
            .is_some_and(|output| output.segment.len() + output.buf.len() as u64 + len <= size);
        if !fits {
            let segment = self.store.files.create_segment(self.store, Origin::Compaction)?;
            self.store.files.use_segment(&segment);
            self.outputs.push(Output {
                segment: segment.clone(),
                hint: HintBuilder::new(self.store.order),
                buf: Vec::new(),
                summary: HintSummary::default(),
            });
            if let Some(len) = self.set_aside {
                set_output_aside(self.store, &segment, len)
                    .map_err(|e| self.store.files.latch(e))?;
            }
        }
        Ok(self.outputs.last_mut().expect("pushed if there was none"))
    }

    fn finish_outputs(&mut self) -> Result<()> {
        for output in &mut self.outputs {
            write_out(output).map_err(|e| self.store.files.latch(e))?;
            match self.set_aside {
                Some(_) => output.segment.complete(),
                None => output.segment.sync(output.segment.len()),
            }
            .map_err(|e| self.store.files.latch(e))?;
            let mut hint = std::mem::replace(&mut output.hint, HintBuilder::new(self.store.order));
            output.summary = self.store.write_hint(&mut hint, &output.segment)?;
            output.segment.set_seq_min(output.summary.seq_min);
            output.segment.add_tombstone(output.summary.tombstones);
            output.segment.finish();
        }
        Ok(())
    }

    fn switch_manifest(&self) -> Result<()> {
        self.store.files.update_manifest(self.store, |manifest| {
            for output in &self.outputs {
                if let Some(entry) = manifest.segments.get_mut(&output.segment.id) {
                    entry.state = SegmentState::Sealed { len: output.segment.len() };
                    entry.seq_min = output.summary.seq_min;
                }
            }
            for input in &self.inputs {
                if let Some(entry) = manifest.segments.get_mut(&input.id) {
                    entry.state = SegmentState::Obsolete;
                }
            }
        })
    }

    fn switch_index(&self) {
        for step in &self.moves {
            let Some(segment) = self.store.files.segment(step.to.segment()) else { continue };
            // Counted first: a writer may supersede the record as soon as the index has it.
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

    /// Removes the output; the input is unchanged. After a failure that latched the store, the manifest on disk may
    /// already list the output, so it stays until the next opening cleans it up.
    fn give_up(&mut self) {
        if self.store.files.is_latched() {
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
