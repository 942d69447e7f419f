//! Verifies the manifest and every record of every segment. The caller verifies hint files.
//!
//! Nothing is changed, and the check continues after a problem. Opening verifies less: it trusts a
//! sealed segment with a valid hint file until a record is read.

use crate::directory::{self, IfMissing};
use crate::disk::{Disk, DiskLock, OsDisk};
use crate::error::{Error, Result};
use crate::location::SegmentId;
use crate::log::salvage::{find_end, load_tails};
use crate::manifest::{Entry, Manifest, Purpose, SegmentState};
use crate::names::{self, FileKind};
use crate::progress::Progress;
use crate::segment::file::{Segment, SegmentHome};
use crate::segment::scan::{Scanner, Step};
use crate::tail::TailImage;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

/// Result of a check.
#[derive(Clone, Default, Debug)]
#[non_exhaustive]
pub struct CheckReport {
    /// Number of segments read.
    pub segments: usize,
    /// Number of valid records.
    pub records: u64,
    /// Number of bytes read.
    pub bytes: u64,
    /// Number of segments without a valid hint file. This is no problem, but opening takes longer.
    pub hints_missing: usize,
    /// Bytes of torn tails that opening would truncate. This is no problem: nothing in them was durable.
    pub torn_bytes: u64,
    /// The problems; empty for an intact store.
    pub problems: Vec<Error>,
}

/// Verifies the files of the store in a directory, which must not be open.
///
/// `has_hint` returns true if a finished segment of a database has a valid hint file.
///
/// # Errors
/// When checking is not possible: the store is open, or does not exist. Problems of the store are in the
/// report.
pub fn check_files(
    disk: Arc<dyn Disk>,
    dir: &Path,
    has_hint: impl Fn(&SegmentHome, &Manifest, &Segment) -> bool,
    mut progress: impl FnMut(Progress),
) -> Result<CheckReport> {
    let _lock = lock_for_reading(&*disk, dir)?;
    let mut report = CheckReport::default();
    let manifest = match Manifest::load(&*disk, dir) {
        Ok(Some(manifest)) => manifest,
        Ok(None) => return Err(Error::NotAStore { path: dir.to_owned() }),
        Err(error @ Error::Corrupt { .. }) => {
            report.problems.push(error);
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    find_foreign(&*disk, dir, &manifest, &mut report)?;
    let home = home(disk, dir, manifest.store_id);
    let listed: Vec<(SegmentId, Entry)> = manifest
        .segments
        .iter()
        .filter(|(_, entry)| entry.state != SegmentState::Obsolete)
        .map(|(id, entry)| (*id, *entry))
        .collect();
    let mut opened = Vec::new();
    for (id, entry) in listed {
        match Segment::open(&home, id, entry.seq_min) {
            Ok(segment) => opened.push((segment, entry)),
            Err(error) => report.problems.push(error),
        }
    }
    // A store that was closed needs none.
    let is_open = |(_, entry): &(_, Entry)| entry.state == SegmentState::Open;
    let none = BTreeSet::new();
    let needed = if opened.iter().any(is_open) { &manifest.tails } else { &none };
    let tails = match load_tails(&*home.disk, dir, manifest.store_id, needed) {
        Ok(tails) => tails,
        Err(error) => {
            report.problems.push(error);
            Vec::new()
        }
    };
    let total = opened.iter().map(|(segment, _)| segment.len()).sum();
    for (segment, entry) in opened {
        let before = report.bytes;
        let mut tell = |read: u64| progress(Progress { done: before + read, total });
        if let Err(error) = check_segment(&segment, entry, &tails, &mut report, &mut tell) {
            report.problems.push(error);
        }
        let is_whole = entry.state == SegmentState::Sealed { len: segment.len() };
        if is_whole && manifest.purpose == Purpose::Database {
            report.hints_missing += usize::from(!has_hint(&home, &manifest, &segment));
        }
        report.segments += 1;
        report.bytes = before + segment.len();
        progress(Progress { done: report.bytes, total });
    }
    Ok(report)
}

/// Prevents other processes from opening the store in a directory until the result is dropped.
///
/// # Errors
/// [`Error::Locked`] when another process has it open, [`Error::NotAStore`] if there is none.
pub fn lock_store(dir: impl AsRef<Path>) -> Result<Box<dyn DiskLock>> {
    require_store(&OsDisk, dir.as_ref())?;
    directory::lock(&OsDisk, dir.as_ref(), &IfMissing::Refuse)
}

/// Returns true if another process has the store in a directory open. Creates no file.
pub fn is_in_use(dir: impl AsRef<Path>) -> bool {
    matches!(lock_for_reading(&OsDisk, dir.as_ref()), Err(Error::Locked { .. }))
}

/// Locks the store in a directory if its lock file exists. This creates no file: one of another user, such as root,
/// would prevent the server from starting. Only a store that was never opened, or was copied, has none.
pub(crate) fn lock_for_reading(disk: &dyn Disk, dir: &Path) -> Result<Option<Box<dyn DiskLock>>> {
    require_store(disk, dir)?;
    let path = names::lock(dir);
    disk.lock_existing(&path).map_err(|error| Error::lock(&path, error))
}

fn require_store(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let not_a_store = || Error::NotAStore { path: dir.to_owned() };
    let paths = disk.list(dir).map_err(|e| match e.kind() {
        ErrorKind::NotFound => not_a_store(),
        _ => Error::io("list", dir, e),
    })?;
    let is_of_store =
        |path| matches!(names::kind_of(path), FileKind::Manifest | FileKind::Segment(_));
    if paths.iter().any(|path| is_of_store(path)) { Ok(()) } else { Err(not_a_store()) }
}

pub(crate) fn home(disk: Arc<dyn Disk>, dir: &Path, store_id: u128) -> Arc<SegmentHome> {
    SegmentHome::new(disk, dir, store_id, false, 1)
}

fn find_foreign(
    disk: &dyn Disk,
    dir: &Path,
    manifest: &Manifest,
    report: &mut CheckReport,
) -> Result<()> {
    for path in disk.list(dir).map_err(|e| Error::io("list", dir, e))? {
        if let FileKind::Segment(id) = names::kind_of(&path)
            && !manifest.segments.contains_key(&id)
        {
            report.problems.push(Error::Foreign { path, what: "the manifest does not list it" });
        }
    }
    Ok(())
}

fn check_segment(
    segment: &Arc<Segment>,
    entry: Entry,
    tails: &[TailImage],
    report: &mut CheckReport,
    tell: &mut impl FnMut(u64),
) -> Result<()> {
    if let SegmentState::Sealed { len } = entry.state {
        segment.check_len(len)?;
    }
    let mut count = |offset| {
        report.records += 1;
        if report.records.is_multiple_of(1024) {
            tell(offset);
        }
    };
    if entry.state == SegmentState::Open {
        let ending = find_end(segment, tails, count)?;
        report.torn_bytes += ending.torn.map_or(0, |(bytes, _)| bytes);
        return Ok(());
    }
    let mut scanner = Scanner::of(segment)?;
    let (offset, damage) = loop {
        match scanner.step()? {
            Step::Record(offset, _) => count(offset),
            Step::End => return Ok(()),
            Step::Damaged(offset, damage) => break (offset, damage),
        }
    };
    Err(Error::corrupt(&segment.path, offset, damage.0))
}
