//! Reserves disk space without taking all of it.

use super::{Disk, DiskFile};
use std::io::{self, ErrorKind};
use std::path::Path;

/// The space of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Size of the device in bytes.
    pub total: u64,
    /// Number of bytes that can still be written.
    pub free: u64,
}

/// Divisor of the free space: at most this part is reserved at once beyond the needed bytes. So a
/// nearly full device is divided among all writers, in ever smaller pieces.
const FREE_PART: u64 = 8;

/// Reserves space for a file in `dir`, which already has `reserved`: up to `wanted`, or as much of it
/// as [`decent`] allows, but at least up to `needed`. Returns the new end of the reserved space.
///
/// # Errors
/// When there is no space for `needed`.
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
        // The free space may be smaller by now, or smaller for this user.
        Err(e) if is_full(&e) && generous > needed => {
            file.reserve(needed)?;
            Ok(needed)
        }
        result => result.map(|()| generous),
    }
}

/// Returns the end up to which space may be reserved for a file that has `reserved`, wants `wanted`
/// and needs `needed`.
pub fn decent(disk: &dyn Disk, dir: &Path, reserved: u64, needed: u64, wanted: u64) -> u64 {
    let free = disk.space(dir).map_or(u64::MAX, |space| space.free);
    wanted.min(reserved.saturating_add(free / FREE_PART)).max(needed)
}

/// Returns true if a device, or a quota on it, is full.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}
