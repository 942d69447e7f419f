//! Finds the files of an append-only log that is to be imported.

use std::fs;
use std::path::{Path, PathBuf};

use tierce_rdb::aof::Manifest;

use super::error::TransferError;

/// The files to read, in order: one, or those of an append-only directory or of its manifest.
pub(super) fn files(source: &Path) -> Result<Vec<PathBuf>, TransferError> {
    let metadata = fs::metadata(source).map_err(TransferError::io("read", source))?;
    let (path, source) = match source.parent() {
        _ if metadata.is_dir() => (manifest(source)?, source),
        Some(dir) if is_manifest(source) => (source.to_owned(), dir),
        _ => return Ok(vec![source.to_owned()]),
    };
    let text = fs::read(&path).map_err(TransferError::io("read", &path))?;
    let manifest =
        Manifest::parse(&text).map_err(|error| TransferError::Manifest { path, source: error })?;
    Ok(manifest.files().map(|file| source.join(&file.name)).collect())
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
