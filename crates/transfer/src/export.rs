//! Writes a data directory as files that Redis loads, or as lines of JSON.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use tierce_keyspace::{Snapshot, SnapshotPiece};
use tierce_rdb::aof::{BASE_REMARK, Manifest};
use tierce_rdb::{Writer, WriterOptions};

use super::error::TransferError;
use super::jsonl;
use super::progress::{Progress, Stage};
use super::store::Store;
use crate::durability;
use crate::persistence::{Encoder, Install, NewFile, OwnFiles, SaveError, Syncing, values};

/// Name of an append-only file; the default of Redis' directive `appendfilename`.
const AOF_NAME: &str = "appendonly.aof";

/// Size of one write of lines to the file.
const WRITE_BYTES: usize = 256 * 1024;

/// Format of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExportFormat {
    /// An RDB file.
    Rdb,
    /// An append-only directory: a snapshot and an empty file for later commands.
    Aof,
    /// A file of lines of JSON.
    Jsonl,
}

/// Source and target of an export.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// The data directory.
    pub dir: PathBuf,
    /// The file or directory to make.
    pub target: PathBuf,
    /// Format of the target.
    pub format: ExportFormat,
    /// The server's directive `databases`.
    pub databases: usize,
}

/// Result of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Exported {
    /// Number of exported keys.
    pub keys: u64,
    /// Bytes of the snapshot or of the lines.
    pub bytes: u64,
}

/// Exports all keys that have not expired.
///
/// # Errors
/// Fails if a server uses the directory, if it has no data, or if the target exists.
pub fn export(
    options: &ExportOptions,
    mut progress: impl FnMut(Progress),
) -> Result<Exported, TransferError> {
    let ExportOptions { dir, target, format, databases } = options;
    // Remove the trailing slash that the completion of a shell adds.
    let target = &target.components().collect::<PathBuf>();
    let log_dir = durability::existing_log(dir).map_err(TransferError::io("read", dir))?;
    if log_dir.is_none() {
        return Err(TransferError::NoData { dir: dir.clone() });
    }
    if fs::symlink_metadata(target).is_ok() {
        return Err(TransferError::Exists { path: target.clone() });
    }
    if OwnFiles::in_dir(dir).surround(target) {
        return Err(TransferError::InDataDir { path: target.clone() });
    }
    let store = Store::open(dir, *databases, &mut progress)?;
    match format {
        ExportFormat::Rdb => write_snapshot(&store, target, b"0", &mut progress),
        ExportFormat::Aof => write_directory(&store, target, &mut progress),
        ExportFormat::Jsonl => write_lines(&store, target, &mut progress),
    }
}

fn write_lines(
    store: &Store,
    target: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Exported, TransferError> {
    let (total, now_ms) = (store.keys(), crate::clock::unix_ms());
    let mut snapshot = Snapshot::begin(&store.keyspace, &mut store.keyspace.locks(), now_ms)
        .map_err(SaveError::from)?;
    let file = NewFile::create(target, Syncing::Incremental)?;
    let path = file.path().to_owned();
    let out = BufWriter::with_capacity(WRITE_BYTES, file);
    let (out, keys, bytes) = jsonl::write(out, &path, &mut snapshot, now_ms, |keys| {
        progress(Progress { stage: Stage::Writing, done: keys.min(total), total });
    })?;
    let file = out.into_inner().map_err(|error| TransferError::io("write", &path)(error.into()))?;
    file.install(target, Install::New)?;
    Ok(Exported { keys, bytes })
}

fn write_snapshot(
    store: &Store,
    target: &Path,
    aof_base: &[u8],
    progress: &mut dyn FnMut(Progress),
) -> Result<Exported, TransferError> {
    let total = store.keys();
    let mut snapshot =
        Snapshot::begin(&store.keyspace, &mut store.keyspace.locks(), crate::clock::unix_ms())
            .map_err(SaveError::from)?;
    let file = NewFile::create(target, Syncing::Incremental)?;
    let path = file.path().to_owned();
    let explain = |source| SaveError::Write { path: path.clone(), source };
    let version = values::version_for(snapshot.dbs());
    let options = WriterOptions { version, ..WriterOptions::default() };
    let writer = Writer::new(file, options).map_err(explain)?;
    let mut encoder = Encoder::new(writer, snapshot.dbs());
    let used = store.keyspace.memory().total();
    encoder.remarks(used, aof_base).map_err(explain)?;
    encoder.code(snapshot.code()).map_err(explain)?;
    let mut keys = 0;
    while let Some(piece) = snapshot.next().map_err(SaveError::from)? {
        match piece {
            SnapshotPiece::Batch(batch) => {
                for entry in &batch {
                    encoder.entry(&entry).map_err(explain)?;
                }
                keys += batch.len() as u64;
            }
            SnapshotPiece::Large(large) => {
                encoder.large(large, explain, |_| Ok(()))?;
                keys += 1;
            }
        }
        progress(Progress { stage: Stage::Writing, done: keys.min(total), total });
    }
    let (file, bytes) = encoder.finish().map_err(explain)?;
    file.install(target, Install::New)?;
    Ok(Exported { keys, bytes })
}

/// Writes a directory under a temporary name first: a directory with the final name is complete.
fn write_directory(
    store: &Store,
    target: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Exported, TransferError> {
    let mut unfinished = target.as_os_str().to_owned();
    unfinished.push(format!(".unfinished-{}", std::process::id()));
    let unfinished = PathBuf::from(unfinished);
    fs::create_dir_all(&unfinished).map_err(TransferError::io("create", &unfinished))?;
    let written = fill_directory(store, &unfinished, progress).and_then(|exported| {
        // Fails if the target is by now a directory that is not empty.
        fs::rename(&unfinished, target)
            .map_err(TransferError::io("rename a directory to", target))?;
        Ok(exported)
    });
    if written.is_err() {
        let _ = fs::remove_dir_all(&unfinished);
    }
    written
}

fn fill_directory(
    store: &Store,
    dir: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Exported, TransferError> {
    let manifest = Manifest::fresh(AOF_NAME);
    let mut exported = Exported { keys: 0, bytes: 0 };
    if let Some(file) = &manifest.base {
        exported = write_snapshot(store, &dir.join(&file.name), BASE_REMARK.1, progress)?;
    }
    for file in &manifest.increments {
        write_file(&dir.join(&file.name), b"")?;
    }
    // Last: without it, there is no append-only directory.
    write_file(&dir.join(Manifest::file_name(AOF_NAME)), manifest.to_text().as_bytes())?;
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(TransferError::io("sync", dir))?;
    Ok(exported)
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), TransferError> {
    let written = File::create(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(TransferError::io("write", path))
}
