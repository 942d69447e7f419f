//! Verifies the files of a database or a log, including hint files.

use crate::hint::entry::HintOrder;
use crate::hint::reader::HintReader;
use std::path::Path;
use std::sync::Arc;
use tierce_storage::Progress;
use tierce_storage::Result;
use tierce_storage::disk::{Disk, OsDisk};
use tierce_storage::manifest::Manifest;
use tierce_storage::segment::file::{Segment, SegmentHome};
use tierce_storage::{CheckReport, check_files};

/// Verifies the store in a directory, which must not be open.
///
/// # Errors
/// If checking is not possible: the store is open, or there is none. Problems of the store itself
/// are in the report.
pub fn check(dir: impl AsRef<Path>, progress: impl FnMut(Progress)) -> Result<CheckReport> {
    check_on(Arc::new(OsDisk), dir.as_ref(), progress)
}

/// As [`check`], on another disk than the operating system's.
pub fn check_on(
    disk: Arc<dyn Disk>,
    dir: &Path,
    progress: impl FnMut(Progress),
) -> Result<CheckReport> {
    check_files(disk, dir, has_valid_hint, progress)
}

fn has_valid_hint(home: &SegmentHome, manifest: &Manifest, segment: &Segment) -> bool {
    let order = HintOrder { index: manifest.index, hash_key: manifest.hash_key };
    let (id, len) = (segment.id, segment.len());
    let hint = HintReader::open(&*home.disk, &home.dir, home.store_id, id, len, order);
    hint.is_ok_and(|hint| hint.verify().is_ok() && hint.filter().is_ok())
}
