//! Checks where a backup may be written.
//!
//! BACKUP lets a client choose the name of a file that the server writes, so the name is restricted. Every
//! client that may call BACKUP may write in the data directory and below it. Elsewhere, only a client that
//! may also change where the server writes (`enable-protected-configs`). The name ends in `.rdb` and is not
//! one of the server's own files (`own_files.rs`). Nothing is overwritten without REPLACE, and with it only
//! snapshots.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::file::Install;
use super::own_files::{OwnFiles, is_replaceable};
use tierce_config::{DirectiveId, Peer, Settings};

/// File for a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Backup {
    /// Its path; the directory exists, and the path has no symbolic link.
    pub(super) path: PathBuf,
    pub(super) install: Install,
}

/// Reason why a backup is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The path names no file.
    #[error("the path of a backup has to name a file")]
    NoName,
    /// The directory cannot be used.
    #[error("the directory of the backup, {}: {source}", dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The path is outside of the data directory.
    #[error(
        "a backup outside of the data directory is not allowed. If the enable-protected-configs \
         option is set to \"local\", you can ask for one from a local connection, otherwise you need \
         to set this option in the configuration file, and then restart the server."
    )]
    Outside,
    /// The name does not end in `.rdb`, so it could be that of any file.
    #[error("the name of a backup has to end in .rdb")]
    NotRdb,
    /// The path is one of the server's own files, or is inside one of their directories.
    #[error("a backup cannot have the place of the server's own files")]
    Own,
    /// The path is an existing file that is not a snapshot.
    #[error("{} is no snapshot, and REPLACE replaces nothing else", path.display())]
    NotASnapshot {
        /// The file.
        path: PathBuf,
    },
    /// The path exists already.
    #[error("{} exists already{}", path.display(), if *is_file { "; REPLACE overwrites it" } else { "" })]
    Exists {
        /// The path.
        path: PathBuf,
        /// True if it is a file.
        is_file: bool,
    },
}

impl Backup {
    /// Checks that a client may write a backup there. A relative path is relative to the data directory.
    ///
    /// # Errors
    /// When it may not, or the file could not be written.
    pub fn check(
        path: &[u8],
        install: Install,
        settings: &Settings,
        start_dir: &Path,
        peer: Peer,
    ) -> Result<Self, BackupError> {
        const PROTECTED: DirectiveId = DirectiveId::of("enable-protected-configs");
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        if path.as_os_str().as_bytes().ends_with(b"/") || path.as_os_str().as_bytes().contains(&0) {
            return Err(BackupError::NoName);
        }
        let path = settings.dir().join(path);
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(BackupError::NoName);
        };
        let real = |dir: &Path| {
            let failed = |source| BackupError::Directory { dir: dir.to_owned(), source };
            fs::canonicalize(dir).map_err(failed)
        };
        let data_dir = settings.dir();
        let (dir, data_dir) = (real(dir)?, real(&data_dir)?);
        let path = dir.join(name);
        if OwnFiles::of(settings, start_dir).with_snapshot(settings).has(&path) {
            return Err(BackupError::Own);
        }
        if !name.as_bytes().ends_with(b".rdb") {
            return Err(BackupError::NotRdb);
        }
        if !dir.starts_with(&data_dir) && !settings.allows(PROTECTED, peer) {
            return Err(BackupError::Outside);
        }
        match fs::symlink_metadata(&path) {
            Ok(found) if install == Install::New || !found.is_file() => {
                Err(BackupError::Exists { path, is_file: found.is_file() })
            }
            Ok(_) if !is_replaceable(&path).unwrap_or(false) => {
                Err(BackupError::NotASnapshot { path })
            }
            _ => Ok(Self { path, install }),
        }
    }
}
