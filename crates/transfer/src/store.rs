//! Loads the data of a directory that no server uses into memory, and writes it back.
//!
//! A new log is written next to the present one, and one system call exchanges the two. The present log stays
//! locked from before it is read until after the exchange. Its files are read through an overlay disk, which keeps
//! changes in memory, such as the truncation of a torn tail by recovery.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use tierce_keyspace::log::{Checkpoint, LogSink, Pass, RecordKind};
use tierce_keyspace::{
    CodeEditor, CodeKind, Entry, Keyspace, Options, Removal, VALUE_LEN_MAX, try_scan,
};
use tierce_storage::disk::{Disk, DiskLock, OsDisk, OverlayDisk};
use tierce_storage::{Wal, WalOptions};

use super::error::TransferError;
use super::progress::{Progress, Stage};
use crate::clock::STOPPED_MS;
use crate::durability::{self, Losses, RecoveryError};
use crate::persistence::unfinished_import;

/// Bytes of a log between two reports of progress.
const TELL_EVERY_BYTES: u64 = 1 << 20;

/// Number of keys taken from another keyspace at once.
const KEYS_AT_ONCE: usize = 1000;

/// Log that receives changes while the new log is written.
#[derive(Default)]
struct NewLog {
    wal: OnceLock<Wal>,
    failed: Mutex<Option<tierce_storage::Error>>,
}

impl LogSink for NewLog {
    fn append(&self, record: &[u8], _: RecordKind) {
        let Some(wal) = self.wal.get() else { return };
        if let Err(error) = wal.append(record) {
            self.failed.lock().get_or_insert(error);
        }
    }
}

impl NewLog {
    fn check(&self) -> Result<(), tierce_storage::Error> {
        self.failed.lock().take().map_or(Ok(()), Err)
    }
}

/// Files and directories that an import creates. They are removed if the import fails.
pub(super) struct Made {
    /// The directory of the log, if it did not exist.
    log_dir: Option<PathBuf>,
    /// Missing directories above it, the innermost first.
    parents: Vec<PathBuf>,
}

impl Made {
    /// Finds out which directories are missing for a log in this data directory.
    pub(super) fn before(dir: &Path) -> Result<Self, TransferError> {
        let log_dir = log_dir(dir)?;
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let parents = dir.ancestors().take_while(is_missing).map(Path::to_owned).collect();
        Ok(Self { log_dir: Some(log_dir).filter(|path| !path.exists()), parents })
    }

    /// Keeps everything.
    pub(super) fn stays(mut self) {
        self.log_dir = None;
        self.parents.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // A leftover that cannot be removed is an empty log, which does no harm. A directory in which another
        // process has put files meanwhile is not empty and stays.
        if let Some(log_dir) = &self.log_dir {
            let _ = fs::remove_dir_all(log_dir);
        }
        for parent in &self.parents {
            let _ = fs::remove_dir(parent);
        }
    }
}

/// All keys of a data directory, which is locked.
pub(super) struct Store {
    dir: PathBuf,
    log_dir: PathBuf,
    pub(super) keyspace: Arc<Keyspace>,
    new_log: Arc<NewLog>,
    _lock: Box<dyn DiskLock>,
}

impl Store {
    /// Loads the data of the directory without changing them; creates a log if there is none.
    pub(super) fn open(
        dir: &Path,
        databases: usize,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, TransferError> {
        let log_dir = log_dir(dir)?;
        let new_log = Arc::<NewLog>::default();
        let log = Some(Arc::clone(&new_log) as Arc<dyn LogSink>);
        // The data stay unchanged until they are replaced. If there is no log, one is created to be locked.
        let disk: Arc<dyn Disk> = match has_log(&log_dir) {
            true => Arc::new(OverlayDisk::new()),
            false => Arc::new(OsDisk),
        };
        let keyspace = load(&log_dir, databases, disk, log, progress)?;
        let lock = tierce_storage::lock_store(&log_dir)
            .map_err(|error| TransferError::Recovery(RecoveryError::of(&log_dir, error)))?;
        Ok(Self { dir: dir.to_owned(), log_dir, keyspace, new_log, _lock: lock })
    }

    /// Returns the number of keys.
    pub(super) fn keys(&self) -> u64 {
        self.keyspace.total_len()
    }

    /// Returns an empty keyspace with as many databases.
    pub(super) fn another(&self) -> Arc<Keyspace> {
        let databases = self.keyspace.db_indices().count();
        let (seed, value_len_max) = (crate::random::word(), VALUE_LEN_MAX);
        let options = Options { databases, seed, value_len_max, ..Options::default() };
        Arc::new(Keyspace::new(options).expect("options like those of the other one"))
    }

    /// Moves all keys and code of another keyspace into this one. They replace those of the same name.
    pub(super) fn merge(&self, other: &Keyspace) -> Result<(), tierce_keyspace::Error> {
        let (mut from, mut to) = (other.locks(), self.keyspace.locks());
        for db in other.db_indices() {
            let mut cursor = 0;
            loop {
                let mut names = Vec::new();
                let name = |entry: &Entry| names.push(entry.key().to_vec());
                cursor =
                    try_scan(&mut from, db, cursor, KEYS_AT_ONCE, STOPPED_MS, name).expect("alone");
                for name in names {
                    let key = other.key(&name);
                    let entry = from.db(db, key.hash(), STOPPED_MS).take(key, Removal::Moved);
                    let key = self.keyspace.key(&name);
                    let mut db = to.db(db, key.hash(), STOPPED_MS);
                    entry.map_or(Ok(()), |entry| db.put(key, entry))?;
                }
                if cursor == 0 {
                    break;
                }
            }
        }
        for kind in CodeKind::ALL {
            for (name, source) in other.code().all().of(kind) {
                CodeEditor::lock(&mut to).put(kind, name, Arc::clone(source));
            }
        }
        Ok(())
    }

    /// Replaces the content of the directory by the data in memory. `bytes` is an estimate of their size.
    pub(super) fn replace(
        self,
        bytes: u64,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), TransferError> {
        let new_dir = unfinished_import(&self.dir);
        remove_dir(&new_dir)?;
        let written = self.write_log(&new_dir, bytes, progress);
        if let Err(error) = written {
            let _ = fs::remove_dir_all(&new_dir);
            return Err(error);
        }
        let exchanged = renameat_with(CWD, &new_dir, CWD, &self.log_dir, RenameFlags::EXCHANGE);
        exchanged.map_err(|errno| {
            let _ = fs::remove_dir_all(&new_dir);
            TransferError::io("put a new log into", &self.log_dir)(errno.into())
        })?;
        let synced = File::open(&self.dir).and_then(|dir| dir.sync_all());
        synced.map_err(TransferError::io("sync", &self.dir))?;
        // That directory now has the old log.
        remove_dir(&new_dir)
    }

    fn write_log(
        &self,
        dir: &Path,
        bytes: u64,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), TransferError> {
        let (wal, _) = Wal::open_on(Arc::new(OsDisk), dir, WalOptions::default(), |_| Ok(()))?;
        let wal = self.new_log.wal.get_or_init(|| wal);
        self.keyspace.begin_logging();
        let mut checkpoint = Checkpoint::begin(&self.keyspace);
        let (mut done, mut told) = (0, 0);
        loop {
            let (written, pass) = checkpoint.step();
            done += written as u64;
            if pass == Pass::Complete {
                break;
            }
            if done - told >= TELL_EVERY_BYTES {
                told = done;
                self.new_log.check()?;
                progress(Progress { stage: Stage::WritingLog, done, total: bytes.max(done) });
            }
        }
        self.new_log.check()?;
        Ok(wal.close()?)
    }
}

/// Loads a log into a keyspace, which reports later changes to `log`.
pub(super) fn load(
    log_dir: &Path,
    databases: usize,
    disk: Arc<dyn Disk>,
    log: Option<Arc<dyn LogSink>>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Arc<Keyspace>, TransferError> {
    let options = Options {
        databases,
        log,
        seed: crate::random::word(),
        value_len_max: VALUE_LEN_MAX,
        ..Options::default()
    };
    let keyspace = Arc::new(Keyspace::new(options).map_err(|error| {
        let (path, offset, what) = (log_dir.to_owned(), 0, error.to_string());
        TransferError::Unsupported { path, offset, what }
    })?);
    let total = bytes_in(log_dir);
    let mut told = 0;
    let (wal, _) = durability::replay(&keyspace, disk, log_dir, Losses::Refuse, |done| {
        if done - told >= TELL_EVERY_BYTES {
            told = done;
            progress(Progress { stage: Stage::LoadingLog, done: done.min(total), total });
        }
    })?;
    // Close the log: it writes to files by name, and the names will belong to the new log.
    wal.close()?;
    Ok(keyspace)
}

/// Returns the directory of the log in a data directory.
pub(super) fn log_dir(dir: &Path) -> Result<PathBuf, TransferError> {
    durability::log_dir(dir).map_err(TransferError::io("read", dir))
}

/// Returns true if there is a log in its directory.
pub(super) fn has_log(log_dir: &Path) -> bool {
    log_dir.join("MANIFEST").is_file()
}

fn remove_dir(path: &Path) -> Result<(), TransferError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(TransferError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Returns the total size of all files in a directory, as far as it can be read.
fn bytes_in(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}
