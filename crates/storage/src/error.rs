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

/// Refusals and failures of the engine.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system failed a call.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        /// The attempted action, as a verb.
        action: &'static str,
        /// The file or directory concerned.
        path: PathBuf,
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// The device is full. Nothing of the refused write is kept; writing may be tried again.
    #[error("no space left on the device of {path}", path = path.display())]
    NoSpace {
        /// The file that could not grow.
        path: PathBuf,
    },
    /// The device is so full that the space for deletes and compaction cannot be reserved, so puts are
    /// refused. Nothing of the refused write is kept; writing may be tried again.
    #[error("no space left on the device of {path}, in which {needed} bytes must be set aside for deletes \
             and compaction", path = path.display())]
    NoReserve {
        /// The file that holds the space.
        path: PathBuf,
        /// Number of bytes that it must hold.
        needed: u64,
    },
    /// The process, or the system, has no file descriptor left. Nothing of the refused write is kept; writing
    /// may be tried again.
    #[error("no file descriptor left to open {path}", path = path.display())]
    TooManyOpenFiles {
        /// The file that could not be opened.
        path: PathBuf,
    },
    /// Bytes on disk differ from the written ones.
    #[error("{path} is damaged at offset {offset}: {what}", path = path.display())]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// Offset at which the damage was noticed.
        offset: u64,
        /// The failed check.
        what: &'static str,
    },
    /// A record is intact, but the reader of the records refuses it.
    #[error("{path}: the record at offset {offset} makes no sense: {reason}", path = path.display())]
    Rejected {
        /// The file with the record.
        path: PathBuf,
        /// Offset of the record.
        offset: u64,
        /// The reason given by the caller.
        reason: String,
    },
    /// A file was written by a newer version of this program. It is not damaged.
    #[error(
        "{path} has format version {found}; this version reads {oldest} to {newest}",
        path = path.display()
    )]
    TooNew {
        /// The file found.
        path: PathBuf,
        /// The version in the file.
        found: u32,
        /// The oldest supported version.
        oldest: u32,
        /// The newest supported version.
        newest: u32,
    },
    /// A file in the directory has a name of this store's files but does not belong to the store.
    #[error("{path} does not belong to this store: {what}", path = path.display())]
    Foreign {
        /// The file found.
        path: PathBuf,
        /// The reason.
        what: &'static str,
    },
    /// The manifest, or a file that it or the owner of the store refers to, does not exist.
    #[error("{path} is missing, though the store needs it", path = path.display())]
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
        /// Given length.
        len: usize,
        /// Maximum length.
        max: usize,
    },
    /// The value exceeds [`VALUE_LEN_MAX`](crate::VALUE_LEN_MAX).
    #[error("value of {len} bytes exceeds the limit of {max}")]
    ValueTooLong {
        /// Given length.
        len: usize,
        /// Maximum length.
        max: usize,
    },
    /// The batch exceeds [`BATCH_LEN_MAX`](crate::BATCH_LEN_MAX).
    #[error("batch of {len} bytes exceeds the limit of {max}")]
    BatchTooLarge {
        /// Encoded length of the batch.
        len: usize,
        /// Maximum length.
        max: usize,
    },
    /// An option has an unsupported value.
    #[error("option {option} is out of range: {detail}")]
    InvalidOption {
        /// Name of the option.
        option: &'static str,
        /// The allowed values.
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
        /// Number of segment numbers.
        max: u32,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl Error {
    /// Wraps an operating system error. Transient causes get their own kind: a full device or quota, and a
    /// lack of descriptors.
    pub fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        if is_full(&source) {
            return Error::NoSpace { path: path.to_owned() };
        }
        if lacks_descriptor(&source) {
            return Error::TooManyOpenFiles { path: path.to_owned() };
        }
        Self::failed(action, path, source)
    }

    /// Wraps an error of taking the lock `path`.
    pub(crate) fn lock(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::WouldBlock => Error::Locked { path: path.to_owned() },
            _ => Self::io("lock", path, source),
        }
    }

    /// Wraps an operating system error that leaves the content of the disk unknown, so that even a full device
    /// counts as a failure.
    pub fn failed(action: &'static str, path: &Path, source: io::Error) -> Self {
        Error::Io { action, path: path.to_owned(), source: Arc::new(source) }
    }

    /// Returns the error for damage at an offset of a file.
    pub fn corrupt(path: &Path, offset: u64, what: &'static str) -> Self {
        Error::Corrupt { path: path.to_owned(), offset, what }
    }

    /// Returns true if the device, or a quota on it, is full.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::NoSpace { .. } | Error::NoReserve { .. })
    }

    /// Returns true if the cause is transient: the device or a quota is full (ENOSPC, EDQUOT), or no
    /// descriptor is left (EMFILE, ENFILE). Nothing of the refused write is kept, the store is not latched,
    /// and trying again later can help without reopening it. Every other failure of a write leaves the store
    /// read-only.
    pub fn is_transient(&self) -> bool {
        self.is_no_space() || matches!(self, Error::TooManyOpenFiles { .. })
    }

    /// Returns true for a transient cause, even in a failed sync, which latches the store: a new store may be
    /// created.
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

/// Returns true if a call failed because the process (EMFILE) or the system (ENFILE) has too many files open.
/// The standard library has no stable kind for it.
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
            // This is a failure to open the directory for its sync.
            let of_sync = Error::failed("sync", path, source());
            assert_eq!((of_sync.is_transient(), of_sync.may_pass()), (false, may_pass));
        }
    }
}
