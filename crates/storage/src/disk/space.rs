//! Reserving disk space without taking all there is.

use super::{Disk, DiskFile};
use std::io::{self, ErrorKind};
use std::path::Path;

/// The space of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Bytes of the device.
    pub total: u64,
    /// Bytes that can be written.
    pub free: u64,
}

/// At most this part of what is free is set aside at once, beyond what is needed. So a device that is
/// nearly full is divided among all who write, in ever smaller pieces.
const FREE_PART: u64 = 8;

/// Sets the space of a file in `dir` aside, of which it has `reserved`: up to `wanted`, or as much of
/// that as is decent, but up to `needed` in any case. Returns up to where.
///
/// # Errors
/// When there is no space for what is needed.
pub fn reserve(
    disk: &dyn Disk,
    dir: &Path,
    file: &dyn DiskFile,
    reserved: u64,
    needed: u64,
    wanted: u64,
) -> io::Result<u64> {
    let generous = decent(disk, dir, reserved, needed, wanted);
    match file.reserve(generous) {
        // What is free may be less by now, or less for this user.
        Err(e) if is_full(&e) && generous > needed => {
            file.reserve(needed)?;
            Ok(needed)
        }
        result => result.map(|()| generous),
    }
}

/// Up to where it is decent to set space aside for a file that has `reserved`, wants `wanted` and
/// needs `needed`.
pub fn decent(disk: &dyn Disk, dir: &Path, reserved: u64, needed: u64, wanted: u64) -> u64 {
    let free = disk.space(dir).map_or(u64::MAX, |space| space.free);
    wanted.min(reserved.saturating_add(free / FREE_PART)).max(needed)
}

/// Whether a device, or a quota on it, is full.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}
