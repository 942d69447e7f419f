//! The file names of a store.
//!
//! | name | content |
//! |---|---|
//! | `MANIFEST` | the list of segments, and settings that must not change between openings |
//! | `LOCK` | nothing; locked while the store is open |
//! | `00000042.seg` | segment 42 |
//! | `00000042.hint` | hint file of segment 42 |
//! | `0003.tail` | the end of shard 3's log that is not in a segment yet |
//! | `RESERVE` | nothing: reserved space for deletes and compaction on a full disk |
//! | `*.tmp` | a file being written, worthless after a crash |
//!
//! Names are relative to the directory and no file contains a path, so a store can be moved.

use crate::location::SegmentId;
use std::path::{Path, PathBuf};

const SEGMENT: &str = "seg";
const HINT: &str = "hint";
const TAIL: &str = "tail";

/// Kind of a file, by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    Manifest,
    Lock,
    Reserve,
    Segment(SegmentId),
    Hint(SegmentId),
    /// Tail of the shard with this number.
    Tail(u32),
    Temporary,
    /// A file that is not ours and is never touched.
    Other,
}

pub fn manifest(dir: &Path) -> PathBuf {
    dir.join("MANIFEST")
}

pub fn lock(dir: &Path) -> PathBuf {
    dir.join("LOCK")
}

pub fn reserve(dir: &Path) -> PathBuf {
    dir.join("RESERVE")
}

pub fn segment(dir: &Path, id: SegmentId) -> PathBuf {
    dir.join(format!("{:08}.{SEGMENT}", id.0))
}

pub fn hint(dir: &Path, id: SegmentId) -> PathBuf {
    dir.join(format!("{:08}.{HINT}", id.0))
}

pub fn tail(dir: &Path, shard: u32) -> PathBuf {
    dir.join(format!("{shard:04}.{TAIL}"))
}

/// Returns the name under which `path` is written before it is renamed.
pub fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

pub fn kind_of(path: &Path) -> FileKind {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return FileKind::Other;
    };
    match name {
        "MANIFEST" => return FileKind::Manifest,
        "LOCK" => return FileKind::Lock,
        "RESERVE" => return FileKind::Reserve,
        "MANIFEST.tmp" => return FileKind::Temporary,
        _ => {}
    }
    let Some((digits, kind)) = name.split_once('.') else { return FileKind::Other };
    let shard = digits.parse::<u32>().ok().filter(|shard| format!("{shard:04}") == digits);
    match (shard, kind) {
        (Some(shard), TAIL) => return FileKind::Tail(shard),
        (Some(_), "tail.tmp") => return FileKind::Temporary,
        _ => {}
    }
    let id = match digits.parse::<u32>() {
        Ok(id) if (1..=SegmentId::MAX).contains(&id) && format!("{id:08}") == digits => {
            SegmentId(id)
        }
        _ => return FileKind::Other,
    };
    match kind {
        SEGMENT => FileKind::Segment(id),
        HINT => FileKind::Hint(id),
        "hint.tmp" | "seg.tmp" => FileKind::Temporary,
        _ => FileKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        let dir = Path::new("/d");
        let id = SegmentId(42);
        assert_eq!(kind_of(&segment(dir, id)), FileKind::Segment(id));
        assert_eq!(kind_of(&hint(dir, id)), FileKind::Hint(id));
        assert_eq!(kind_of(&temporary(&hint(dir, id))), FileKind::Temporary);
        assert_eq!(kind_of(&tail(dir, 3)), FileKind::Tail(3));
        assert_eq!(kind_of(&temporary(&tail(dir, 3))), FileKind::Temporary);
        assert_eq!(kind_of(&temporary(&manifest(dir))), FileKind::Temporary);
        assert_eq!(kind_of(&manifest(dir)), FileKind::Manifest);
        assert_eq!(kind_of(&lock(dir)), FileKind::Lock);
        assert_eq!(kind_of(&reserve(dir)), FileKind::Reserve);
        for other in [
            "notes.txt",
            "42.seg",
            "00000000.seg",
            "00000042.data",
            "x.tmp",
            "99999999.seg",
            "3.tail",
        ] {
            assert_eq!(kind_of(&dir.join(other)), FileKind::Other, "{other}");
        }
    }
}
