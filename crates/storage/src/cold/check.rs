//! Verifies the files of a closed store.
//!
//! Only the owner knows which values are live, so this reports all it finds, good or damaged. Bytes outside
//! values are not damage: a power cut leaves such bytes at the end of the file being written.

use super::location::{ColdLocation, RECORD_HEADER_LEN, SEGMENT_HEADER_LEN, record_len};
use super::segment::ColdSegment;
use super::store::list;
use crate::disk::span::{ReadBuf, read_span};
use crate::disk::{DIRECT_ALIGNMENT, Disk, DiskFile, OpenMode, OsDisk};
use crate::error::{Error, Result};
use crate::progress::Progress;
use std::path::Path;
use std::sync::Arc;

/// Result of [`check_cold`].
#[derive(Default, Debug)]
pub struct ColdCheckReport {
    /// Number of segments read.
    pub segments: usize,
    /// Number of valid values.
    pub values: u64,
    /// Number of bytes read.
    pub bytes: u64,
    /// Damage found; one entry per damaged range.
    pub problems: Vec<Error>,
}

/// Verifies the cold store in a directory, which must not be open.
///
/// # Errors
/// When checking is not possible: the store is open, or cannot be read.
pub fn check_cold(
    dir: impl AsRef<Path>,
    progress: impl FnMut(Progress),
) -> Result<ColdCheckReport> {
    check_cold_on(Arc::new(OsDisk), dir.as_ref(), progress)
}

/// Checks as [`check_cold`] does, on a given disk.
pub fn check_cold_on(
    disk: Arc<dyn Disk>,
    dir: &Path,
    mut progress: impl FnMut(Progress),
) -> Result<ColdCheckReport> {
    let path = crate::names::lock(dir);
    let _lock = disk.lock_existing(&path).map_err(|error| Error::lock(&path, error))?;
    let mut report = ColdCheckReport::default();
    let mut paths = list(&*disk, dir)?;
    paths.sort_unstable();
    let segments: Vec<_> =
        paths.into_iter().map(|(id, path)| ColdSegment::open(&disk, path, id)).collect();
    let total = segments.iter().map(ColdSegment::len).sum();
    for segment in segments {
        report.segments += 1;
        let before = report.bytes;
        match segment.check() {
            Ok(()) => {
                let file = disk
                    .open(&segment.path, OpenMode::ReadOnly)
                    .map_err(|e| Error::io("open", &segment.path, e))?;
                walk(&segment, &*file, &mut report, |done| {
                    progress(Progress { done: before + done, total });
                })?;
            }
            Err(error @ Error::Io { .. }) => return Err(error),
            Err(error) => report.problems.push(error),
        }
        report.bytes = before + segment.len();
        progress(Progress { done: report.bytes, total });
    }
    Ok(report)
}

/// Goes from record to record. After damage it continues at the next page, where a record may begin.
fn walk(
    segment: &ColdSegment,
    file: &dyn DiskFile,
    report: &mut ColdCheckReport,
    mut tell: impl FnMut(u64),
) -> Result<()> {
    const PAGE: u64 = DIRECT_ALIGNMENT as u64;
    let mut buf = ReadBuf::default();
    let (mut at, mut is_damaged) = (SEGMENT_HEADER_LEN, false);
    while at + RECORD_HEADER_LEN <= segment.len() {
        let mut read = |len| {
            read_span(file, at, len, &mut buf).map_err(|e| segment.failed(e))?;
            Ok::<_, Error>(buf.as_slice().first_chunk::<{ RECORD_HEADER_LEN as usize }>().copied())
        };
        let head = read(RECORD_HEADER_LEN as usize)?.unwrap_or_default();
        let [_, _, _, _, len @ ..] = head;
        let len = u32::from_le_bytes(len);
        // After the last record of a page, or of a batch, there may be a gap.
        let is_gap = head == [0; RECORD_HEADER_LEN as usize] && !at.is_multiple_of(PAGE);
        let is_inside = at + RECORD_HEADER_LEN + u64::from(len) <= segment.len();
        if is_inside && !is_gap {
            read(RECORD_HEADER_LEN as usize + len as usize)?;
        }
        let location = ColdLocation::new(segment.id, at, len);
        at = match segment.value(location, &buf) {
            _ if is_gap => at.next_multiple_of(PAGE),
            Ok(_) => {
                report.values += 1;
                is_damaged = false;
                at + record_len(len)
            }
            Err(error) => {
                if !std::mem::replace(&mut is_damaged, true) {
                    report.problems.push(error);
                }
                (at + 1).next_multiple_of(PAGE)
            }
        };
        tell(at);
    }
    Ok(())
}
