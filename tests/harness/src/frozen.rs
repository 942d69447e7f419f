//! Directories as test fixtures, without the zeros of preallocated files.
//!
//! A frozen directory has the same folders as the original. Each file becomes pieces `name@offset`, which hold its
//! blocks that are not all zero. The list `lengths` has every file with its length.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Size of the blocks that are checked for zeros.
const BLOCK_LEN: usize = 4096;

const LENGTHS: &str = "lengths";

/// Writes the contents of `dir` to `to`, and replaces what was frozen there before.
///
/// # Panics
/// If a file cannot be read or written.
pub fn freeze(dir: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    let mut lengths = String::new();
    for path in files_below(dir) {
        let name = path.strip_prefix(dir).expect("a path below").to_str().expect("a plain name");
        let bytes = fs::read(&path).expect("a file");
        lengths += &format!("{} {name}\n", bytes.len());
        for (offset, piece) in pieces(&bytes) {
            write(&to.join(format!("{name}@{offset}")), piece);
        }
    }
    write(&to.join(LENGTHS), lengths.as_bytes());
}

/// Restores `frozen` to `to`.
///
/// # Panics
/// If a file cannot be read or written.
pub fn thaw(frozen: &Path, to: &Path) {
    let lengths = fs::read_to_string(frozen.join(LENGTHS)).expect("a frozen directory");
    for line in lengths.lines() {
        let (len, name) = line.split_once(' ').expect("a length and a name");
        write(&to.join(name), b"");
        let file = File::options().write(true).open(to.join(name)).expect("just written");
        file.set_len(len.parse().expect("a length")).expect("space");
    }
    for piece in files_below(frozen) {
        let path =
            piece.strip_prefix(frozen).expect("a path below").to_str().expect("a plain name");
        let Some((name, offset)) = path.rsplit_once('@') else { continue };
        let mut file = File::options().write(true).open(to.join(name)).expect("a listed file");
        file.seek(SeekFrom::Start(offset.parse().expect("an offset"))).expect("a file");
        file.write_all(&fs::read(&piece).expect("a file")).expect("space");
    }
}

/// Returns runs of blocks that are not zero, with their offsets.
fn pieces(bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let mut pieces: Vec<(usize, &[u8])> = Vec::new();
    for (number, block) in bytes.chunks(BLOCK_LEN).enumerate() {
        if block.iter().all(|byte| *byte == 0) {
            continue;
        }
        let (start, end) = (number * BLOCK_LEN, number * BLOCK_LEN + block.len());
        match pieces.last_mut() {
            Some((first, piece)) if *first + piece.len() == start => *piece = &bytes[*first..end],
            _ => pieces.push((start, block)),
        }
    }
    pieces
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
        let path = entry.expect("an entry").path();
        if path.is_dir() { paths.extend(files_below(&path)) } else { paths.push(path) }
    }
    paths.sort();
    paths
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("space");
    fs::write(path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TempDir;

    #[test]
    fn what_was_frozen_thaws_as_it_was() {
        let (original, frozen, thawed) = (TempDir::new(), TempDir::new(), TempDir::new());
        let mut sparse = vec![0; 10 * BLOCK_LEN + 7];
        sparse[3 * BLOCK_LEN + 5] = 1;
        sparse[4 * BLOCK_LEN] = 2;
        sparse[10 * BLOCK_LEN + 6] = 3;
        write(&original.path().join("deep/sparse"), &sparse);
        write(&original.path().join("empty"), b"");
        freeze(original.path(), frozen.path());
        assert_eq!(files_below(frozen.path()).len(), 3, "two pieces and the list");
        thaw(frozen.path(), thawed.path());
        assert_eq!(fs::read(thawed.path().join("deep/sparse")).expect("thawed"), sparse);
        assert_eq!(fs::read(thawed.path().join("empty")).expect("thawed"), b"");
    }
}
