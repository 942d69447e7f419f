//! Saves the readable records of a damaged store into a new directory.
//!
//! Every valid record is copied, with its sequence number, into a segment of the new store. As always, opening
//! determines the newest record of each key. The damaged store is not touched.
//!
//! * Losing a damaged record may resurface an older record of its key. A repair is a deliberate act, and the
//!   report says how much was skipped.
//! * Members of a batch in an unfinished segment are saved only if all exist.
//! * The records of a log are renumbered, without gaps, in their old order. Records after a lost one are kept:
//!   the owner who repairs a log has decided that this is better than nothing.
//! * A segment with one wrong byte in its header is read: the checksum tells the byte. With more wrong bytes, all of
//!   it is lost.
//! * If the manifest is lost too, all segments found are used, including those that compaction had replaced but
//!   not yet removed.

use super::check::home;
use crate::directory::{self, IfMissing};
use crate::disk::{Disk, DiskFile, OsDisk};
use crate::error::{Error, Result};
use crate::location::SegmentId;
use crate::log::salvage::{Patched, find_end, load_tails};
use crate::manifest::{Entry, IndexKind, Manifest, Purpose, SHARDS_DEFAULT, SegmentState};
use crate::names::{self, FileKind};
use crate::progress::Progress;
use crate::segment::file::{Segment, SegmentHome, read_damaged_header};
use crate::segment::header::{Origin, SEGMENT_HEADER_LEN, SegmentHeader};
use crate::segment::record::{Kind, Membership, Record, encode, stamp};
use crate::segment::scan::Scanner;
use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Number of bytes collected before they are written.
const WRITE_LEN: usize = 1 << 20;

/// Result of a repair.
#[derive(Clone, Default, Debug)]
#[non_exhaustive]
pub struct RepairReport {
    /// Number of segments from which records were saved.
    pub segments: usize,
    /// Number of records saved.
    pub records: u64,
    /// Number of bytes skipped because they are not records.
    pub bytes_skipped: u64,
    /// Number of records skipped because their batch is incomplete.
    pub members_skipped: u64,
    /// Segments that could not be read at all.
    pub problems: Vec<Error>,
}

/// Saves the readable part of the store in `from` into the directory `to`, which must hold no store. The new
/// store is opened like any other.
///
/// # Errors
/// When one of the stores is open, there are no segments in `from`, there is a store in `to`, or writing fails;
/// the new store is then useless.
pub fn repair(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    progress: impl FnMut(Progress),
) -> Result<RepairReport> {
    repair_on(Arc::new(OsDisk), from.as_ref(), to.as_ref(), progress)
}

/// Repairs as [`repair`] does, on a given disk.
pub fn repair_on(
    disk: Arc<dyn Disk>,
    from: &Path,
    to: &Path,
    mut progress: impl FnMut(Progress),
) -> Result<RepairReport> {
    let _old_lock = super::check::lock_for_reading(&*disk, from)?;
    disk.create_dir_all(to).map_err(|e| Error::io("create", to, e))?;
    let if_missing = IfMissing::Make { index: IndexKind::default(), shards: SHARDS_DEFAULT };
    let _new_lock = directory::lock(&*disk, to, &if_missing)?;
    refuse_existing(&*disk, to)?;
    let old = match Manifest::load(&*disk, from) {
        // The manifest is not damaged, and its content would be lost.
        Err(error @ Error::TooNew { .. }) => return Err(error),
        old => old.ok().flatten(),
    };
    let sources = find_segments(&*disk, from, old.as_ref())?;
    let mut manifest = match &old {
        Some(old) => Manifest::new(&*disk, old.purpose, old.index, old.shards),
        None if is_log(&disk, &sources) => Manifest::new(&*disk, Purpose::Log, IndexKind::Hash, 1),
        None => Manifest::new(&*disk, Purpose::Database, IndexKind::default(), SHARDS_DEFAULT),
    };
    let mut sources: Vec<(SegmentId, Source)> = sources.into_iter().collect();
    let mut numbering = match manifest.purpose {
        Purpose::Database => Numbering::Kept,
        Purpose::Log => {
            // Sort them by their records, which is not always the order of their names.
            sources.sort_by_cached_key(|(id, source)| {
                (first_record(&disk, *id, source).map(|(seq, _)| seq), *id)
            });
            Numbering::Consecutive { next: manifest.first_seq }
        }
    };
    let new_home = home(disk.clone(), to, manifest.store_id);
    let mut report = RepairReport::default();
    let total = sources.iter().map(|(_, source)| source.len).sum();
    let mut done = 0;
    for (id, source) in sources {
        match save_segment(&disk, &new_home, id, &source, &mut numbering, &mut report)? {
            Saved::Segment(entry, seq_max) => {
                manifest.segments.insert(id, entry);
                manifest.next_seq = manifest.next_seq.max(seq_max + 1);
                report.segments += 1;
            }
            Saved::Nothing => {}
        }
        manifest.next_segment = manifest.next_segment.max(id.0 + 1);
        done += source.len;
        progress(Progress { done, total });
    }
    if let Some(old) = old.filter(|old| old.purpose == Purpose::Database) {
        manifest.next_seq = manifest.next_seq.max(old.next_seq);
    }
    // The manifest comes last: before it, there is no store that could be opened.
    manifest.store(&*disk, to)?;
    Ok(report)
}

struct Source {
    path: PathBuf,
    len: u64,
    /// True if its batches are known to have been committed.
    is_sealed: bool,
}

/// Sequence numbers of the saved records.
enum Numbering {
    /// The old numbers.
    Kept,
    /// New numbers for a log, which has no gaps: after lost records, later ones move up.
    Consecutive {
        /// The next number.
        next: u64,
    },
}

impl Numbering {
    fn number(&mut self, seq: u64) -> u64 {
        match self {
            Numbering::Kept => seq,
            Numbering::Consecutive { next } => {
                *next += 1;
                *next - 1
            }
        }
    }
}

enum Saved {
    Nothing,
    Segment(Entry, u64),
}

fn refuse_existing(disk: &dyn Disk, dir: &Path) -> Result<()> {
    for path in disk.list(dir).map_err(|e| Error::io("list", dir, e))? {
        if !matches!(names::kind_of(&path), FileKind::Lock | FileKind::Other) {
            return Err(Error::Foreign {
                path,
                what: "a repair needs a directory without a store",
            });
        }
    }
    Ok(())
}

fn find_segments(
    disk: &dyn Disk,
    dir: &Path,
    manifest: Option<&Manifest>,
) -> Result<BTreeMap<SegmentId, Source>> {
    let mut found = BTreeMap::new();
    for path in disk.list(dir).map_err(|e| Error::io("list", dir, e))? {
        let FileKind::Segment(id) = names::kind_of(&path) else { continue };
        let state = manifest.and_then(|manifest| manifest.segments.get(&id)).map(|e| e.state);
        if state == Some(SegmentState::Obsolete) {
            continue;
        }
        let file = disk
            .open(&path, crate::disk::OpenMode::ReadOnly)
            .map_err(|e| Error::io("open", &path, e))?;
        let len = file.size().map_err(|e| Error::io("measure", &path, e))?;
        let is_sealed = matches!(state, Some(SegmentState::Sealed { .. }));
        found.insert(id, Source { path, len, is_sealed });
    }
    if found.is_empty() {
        return Err(Error::NotAStore { path: dir.to_owned() });
    }
    Ok(found)
}

/// Returns the first good record of a segment, including its part of the tails: its sequence number, and true if
/// it has no key.
fn first_record(disk: &Arc<dyn Disk>, id: SegmentId, source: &Source) -> Option<(u64, bool)> {
    let file = disk.open(&source.path, crate::disk::OpenMode::ReadOnly).ok()?;
    let header = read_damaged_header(&*file, &source.path, id).ok()?;
    // Problems are reported when the segment is saved.
    let (file, len) = match source.is_sealed {
        true => (file, source.len),
        false => with_tail(disk, &source.path, file, &header, &mut RepairReport::default()).ok()?,
    };
    let mut scanner = Scanner::new(file, &source.path, header.salt, Origin::Compaction, len);
    let (at, _) = scanner.find_record(SEGMENT_HEADER_LEN).ok()??;
    let record = scanner.record_at(at).ok()?;
    Some((record.header.seq, record.key.is_empty()))
}

/// Guesses without a manifest if this is a log: the records of a log have no keys, and a database has hardly
/// more than one record without a key.
fn is_log(disk: &Arc<dyn Disk>, sources: &BTreeMap<SegmentId, Source>) -> bool {
    let firsts = sources.iter().filter_map(|(id, source)| first_record(disk, *id, source));
    let mut keyless = firsts.map(|(_, is_keyless)| is_keyless);
    keyless.next() == Some(true) && keyless.all(|is_keyless| is_keyless)
}

/// Copies the good records of one segment.
fn save_segment(
    disk: &Arc<dyn Disk>,
    home: &Arc<SegmentHome>,
    id: SegmentId,
    source: &Source,
    numbering: &mut Numbering,
    report: &mut RepairReport,
) -> Result<Saved> {
    let file = disk
        .open(&source.path, crate::disk::OpenMode::ReadOnly)
        .map_err(|e| Error::io("open", &source.path, e))?;
    let header = match read_damaged_header(&*file, &source.path, id) {
        Ok(header) => header,
        Err(error) => {
            // Without the salt records cannot be told from garbage.
            report.problems.push(error);
            report.bytes_skipped += source.len;
            return Ok(Saved::Nothing);
        }
    };
    let (file, len) = match source.is_sealed {
        true => (file, source.len),
        false => with_tail(disk, &source.path, file, &header, report)?,
    };
    // Order does not matter here, so the segment is read like an output of compaction.
    let origin = Origin::Compaction;
    let mut scanner = Scanner::new(file, &source.path, header.salt, origin, len);
    let mut output: Option<Output> = None;
    let mut position = SEGMENT_HEADER_LEN;
    let mut batch_end = 0;
    while let Some((at, header)) = scanner.find_record(position)? {
        report.bytes_skipped += at - position;
        position = at + header.record_len();
        if header.kind == Kind::Batch {
            if let Ok(end) = scanner.batch_end(at)? {
                batch_end = end;
            }
            continue;
        }
        let is_member = header.membership == Membership::BatchMember;
        if is_member && !source.is_sealed && at >= batch_end {
            report.members_skipped += 1;
            continue;
        }
        let output = match &mut output {
            Some(output) => output,
            None => output.insert(Output::create(home, id)?),
        };
        let record = scanner.record_at(at);
        let record = record.map_err(|damage| Error::corrupt(&source.path, at, damage.0))?;
        output.save(&record, numbering.number(record.header.seq))?;
        report.records += 1;
    }
    report.bytes_skipped += len.saturating_sub(position);
    output.map_or(Ok(Saved::Nothing), Output::finish)
}

/// Returns an unfinished segment together with its part of the tails.
fn with_tail(
    disk: &Arc<dyn Disk>,
    path: &Path,
    file: Arc<dyn DiskFile>,
    header: &SegmentHeader,
    report: &mut RepairReport,
) -> Result<(Arc<dyn DiskFile>, u64)> {
    let len = file.size().map_err(|e| Error::io("measure", path, e))?;
    let dir = path.parent().unwrap_or(Path::new(""));
    let store_id = header.store_id;
    let found = load_tails(&**disk, dir, store_id, &BTreeSet::new()).and_then(|tails| {
        let segment = Segment::new(&home(disk.clone(), dir, store_id), header, 0, len);
        find_end(&segment, &tails, |_| {})
    });
    match found {
        Ok(ending) => {
            let patched = Arc::new(Patched::new(file, len, ending.patches));
            let len = patched.len;
            Ok((patched, len))
        }
        Err(error) => {
            report.problems.push(error);
            Ok((file, len))
        }
    }
}

/// A segment of the new store.
struct Output {
    segment: Arc<Segment>,
    buf: Vec<u8>,
    seq_min: u64,
    seq_max: u64,
}

impl Output {
    fn create(home: &Arc<SegmentHome>, id: SegmentId) -> Result<Self> {
        let segment = Segment::create(home, id, Origin::Compaction, 0)?;
        Ok(Output { segment, buf: Vec::new(), seq_min: u64::MAX, seq_max: 0 })
    }

    fn save(&mut self, record: &Record<'_>, seq: u64) -> Result<()> {
        let offset = self.segment.len() + self.buf.len() as u64;
        let start = self.buf.len();
        encode(&mut self.buf, &record.fields());
        stamp(&mut self.buf[start..], seq, 0, self.segment.salt, offset);
        self.seq_min = self.seq_min.min(seq);
        self.seq_max = self.seq_max.max(seq);
        if self.buf.len() >= WRITE_LEN { self.write_out() } else { Ok(()) }
    }

    fn write_out(&mut self) -> Result<()> {
        let start = self.segment.len();
        self.segment
            .writable()?
            .write_all_at(&[IoSlice::new(&self.buf)], start)
            .map_err(|e| Error::io("write", &self.segment.path, e))?;
        self.segment.set_len(start + self.buf.len() as u64);
        self.buf.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<Saved> {
        self.write_out()?;
        self.segment.sync(self.segment.len())?;
        let state = SegmentState::Sealed { len: self.segment.len() };
        let entry = Entry { state, origin: Origin::Compaction, seq_min: self.seq_min };
        Ok(Saved::Segment(entry, self.seq_max))
    }
}
