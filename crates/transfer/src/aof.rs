//! Finds the files of an append-only log that is to be imported.

use std::fs;
use std::path::{Path, PathBuf};

use tierce_rdb::aof::Manifest;

use super::error::TransferError;

/// Returns the files to read, in order: a single file, or the files of an append-only directory or of a manifest.
/// Refuses an empty file, which a failed copy leaves behind, unless Redis itself creates such files.
pub(super) fn files(source: &Path) -> Result<Vec<PathBuf>, TransferError> {
    let metadata = fs::metadata(source).map_err(TransferError::io("read", source))?;
    let (path, source) = match source.parent() {
        _ if metadata.is_dir() => (manifest(source)?, source),
        Some(dir) if is_manifest(source) => (source.to_owned(), dir),
        _ => {
            let file = source.to_owned();
            return if metadata.len() == 0 {
                Err(TransferError::Empty { file })
            } else {
                Ok(vec![file])
            };
        }
    };
    let text = fs::read(&path).map_err(TransferError::io("read", &path))?;
    let manifest =
        Manifest::parse(&text).map_err(|error| TransferError::Manifest { path, source: error })?;
    let files: Vec<_> = manifest.files().map(|file| source.join(&file.name)).collect();
    // A base of commands is empty if there were no keys, and an increment if nothing was written to it.
    let is_snapshot =
        |file: &&PathBuf| file.extension().is_some_and(|extension| extension == "rdb");
    let is_empty = |file: &&PathBuf| fs::metadata(file).is_ok_and(|metadata| metadata.len() == 0);
    match files.iter().filter(is_snapshot).find(is_empty) {
        Some(file) => Err(TransferError::Empty { file: file.clone() }),
        None => Ok(files),
    }
}

fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "manifest")
}

fn manifest(dir: &Path) -> Result<PathBuf, TransferError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(TransferError::io("list", dir))? {
        let path = entry.map_err(TransferError::io("list", dir))?.path();
        if is_manifest(&path) {
            found.push(path);
        }
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        _ => Err(TransferError::NoManifest { dir: dir.to_owned() }),
    }
}
