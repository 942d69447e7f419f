//! Errors, by cause.
//!
//! Absent keys are not errors. A full disk is not a failed disk, nor is a process out of file descriptors:
//! after [`Error::NoSpace`] or [`Error::TooManyOpenFiles`] nothing acknowledged is lost and the next write may
//! succeed ([`Error::is_transient`]). Any other failed write or sync latches the store ([`Error::ReadOnly`])
//! until it is reopened, because the operating system no longer says which earlier writes it still holds.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything the engine refuses or fails to do.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system failed a call.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        /// What was attempted, as a verb.
        action: &'static str,
        /// The file or directory concerned.
        path: PathBuf,
        /// The operating system's answer.
        source: Arc<io::Error>,
    },
    /// The device is full. Nothing of the refused write was kept; writing may be tried again.
    #[error("no space left on the device of {path}", path = path.display())]
    NoSpace {
        /// The file that could not grow.
        path: PathBuf,
    },
    /// The device is so full that the space which deletes and compaction may need cannot be set aside, so
    /// nothing is put. Nothing of the refused write was kept; writing may be tried again.
    #[error("no space left on the device of {path}, in which {needed} bytes must be set aside for deletes \
             and compaction", path = path.display())]
    NoReserve {
        /// The file that holds the space.
        path: PathBuf,
        /// How much it must hold.
        needed: u64,
    },
    /// The process, or the system, has no file descriptor left. Nothing of the refused write was
    /// kept; writing may be tried again.
    #[error("no file descriptor left to open {path}", path = path.display())]
    TooManyOpenFiles {
        /// The file that could not be opened.
        path: PathBuf,
    },
    /// Bytes on disk are not what was written.
    #[error("{path} is damaged at offset {offset}: {what}", path = path.display())]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// Where the damage was noticed.
        offset: u64,
        /// Which check failed.
        what: &'static str,
    },
    /// A record is what was written, but the reader it was given to refuses it.
    #[error("{path}: the record at offset {offset} makes no sense: {reason}", path = path.display())]
    Rejected {
        /// The file with the record.
        path: PathBuf,
        /// Where the record begins.
        offset: u64,
        /// The reason given by the caller.
        reason: String,
    },
    /// A file was written by a version of this program newer than this one. It is not damaged.
    #[error(
        "{path} has format version {found}; this version reads {oldest} to {newest}",
        path = path.display()
    )]
    TooNew {
        /// The file found.
        path: PathBuf,
        /// The version it says it has.
        found: u32,
        /// The oldest version that is read.
        oldest: u32,
        /// The newest version that is read.
        newest: u32,
    },
    /// A file in the directory has the name of one of ours but does not belong to this store.
    #[error("{path} does not belong to this store: {what}", path = path.display())]
    Foreign {
        /// The file found.
        path: PathBuf,
        /// Why it is not ours.
        what: &'static str,
    },
    /// A file the manifest lists is not there.
    #[error("{path} is missing, though the manifest lists it", path = path.display())]
    Missing {
        /// The file expected.
        path: PathBuf,
    },
    /// The directory holds no store and `create_if_missing` is off.
    #[error("{path} holds no store", path = path.display())]
    NotAStore {
        /// The directory given.
        path: PathBuf,
    },
    /// Another process, or another handle in this one, has the store open.
    #[error("the store in {path} is in use by another process", path = path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// An earlier write or sync failed, so the store takes no writes until it is opened again.
    #[error("the store is read-only since a failure: {cause}")]
    ReadOnly {
        /// The failure that latched it.
        cause: String,
    },
    /// The key exceeds [`KEY_LEN_MAX`](crate::KEY_LEN_MAX).
    #[error("key of {len} bytes exceeds the limit of {max}")]
    KeyTooLong {
        /// Length given.
        len: usize,
        /// Longest allowed.
        max: usize,
    },
    /// The value exceeds [`VALUE_LEN_MAX`](crate::VALUE_LEN_MAX).
    #[error("value of {len} bytes exceeds the limit of {max}")]
    ValueTooLong {
        /// Length given.
        len: usize,
        /// Longest allowed.
        max: usize,
    },
    /// The batch exceeds [`BATCH_LEN_MAX`](crate::BATCH_LEN_MAX).
    #[error("batch of {len} bytes exceeds the limit of {max}")]
    BatchTooLarge {
        /// Encoded length of the batch.
        len: usize,
        /// Longest allowed.
        max: usize,
    },
    /// An option has a value the engine cannot work with.
    #[error("option {option} is out of range: {detail}")]
    InvalidOption {
        /// Name of the option.
        option: &'static str,
        /// What is allowed.
        detail: String,
    },
    /// A record was compressed by a method this build does not contain.
    #[error("this build cannot decompress method {id}")]
    UnsupportedCompression {
        /// The method's number in the record format.
        id: u8,
    },
    /// Ordered reads need the ordered index.
    #[error("ranges need a store opened with the ordered index")]
    Unordered,
    /// All segment numbers the format can express have been used.
    #[error("the store has used all {max} segment numbers")]
    SegmentsExhausted {
        /// How many there are.
        max: u32,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl Error {
    /// Wraps an operating system failure; what may pass by itself gets its own kind: a full device
    /// or quota, and a lack of descriptors.
    pub fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        if is_full(&source) {
            return Error::NoSpace { path: path.to_owned() };
        }
        if lacks_descriptor(&source) {
            return Error::TooManyOpenFiles { path: path.to_owned() };
        }
        Self::failed(action, path, source)
    }

    /// Wraps an operating system failure that leaves open what reached the disk, so that even a
    /// full device is as bad as any other cause.
    pub fn failed(action: &'static str, path: &Path, source: io::Error) -> Self {
        Error::Io { action, path: path.to_owned(), source: Arc::new(source) }
    }

    /// Something is wrong at a place of a file.
    pub fn corrupt(path: &Path, offset: u64, what: &'static str) -> Self {
        Error::Corrupt { path: path.to_owned(), offset, what }
    }

    /// Whether the device, or a quota on it, is full.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::NoSpace { .. } | Error::NoReserve { .. })
    }

    /// Whether the cause may pass by itself: the device or a quota is full (ENOSPC, EDQUOT), or no
    /// descriptor is left (EMFILE, ENFILE). Nothing of what was refused was kept, the store is not
    /// latched, and trying again later can help without opening it anew. Every other failure of a
    /// write leaves the store read-only.
    pub fn is_transient(&self) -> bool {
        self.is_no_space() || matches!(self, Error::TooManyOpenFiles { .. })
    }

    /// True also if it came to light in a sync, so that the store is latched: another store may be begun.
    pub fn may_pass(&self) -> bool {
        match self {
            Error::Io { source, .. } => is_full(source) || lacks_descriptor(source),
            _ => self.is_transient(),
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether a call failed because the process (EMFILE) or the system (ENFILE) has too many files
/// open. The standard library has no stable kind for it.
pub fn lacks_descriptor(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_descriptors_or_space_may_pass_wherever_it_came_to_light() {
        for (code, may_pass) in [(libc::EMFILE, true), (libc::ENOSPC, true), (libc::EIO, false)] {
            let source = || io::Error::from_raw_os_error(code);
            let path = Path::new("/d");
            assert_eq!(Error::io("open", path, source()).is_transient(), may_pass);
            // The directory was to be opened for its sync.
            let of_sync = Error::failed("sync", path, source());
            assert_eq!((of_sync.is_transient(), of_sync.may_pass()), (false, may_pass));
        }
    }
}
