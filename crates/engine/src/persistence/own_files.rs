//! Which names are refused for files that users name: a client with BACKUP, CONFIG
//! SET or SAVE, the configuration, the user of a tool.
//!
//! **Invariant**: a file named from outside never replaces one of the server's own files: the logs and the
//! files that say which of them counts, spilled values, the configuration, the server's messages, its
//! process id, its sockets. Paths are resolved before that is decided, and names are compared without
//! regard to case, as some file systems do.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::snapshot_path;
use tierce_config::{Settings, is_own_name};

/// What a snapshot begins with.
const MAGIC: &[u8; 5] = b"REDIS";

/// The files of a server, and the directories in which it has more.
#[derive(Debug, Default)]
pub struct OwnFiles {
    own_dirs: Vec<PathBuf>,
    files: Vec<(&'static str, PathBuf)>,
}

impl OwnFiles {
    /// Those of a data directory that no server uses.
    pub fn in_dir(dir: &Path) -> Self {
        Self { own_dirs: vec![resolved_dir(dir)], files: Vec::new() }
    }

    /// Those of a server. `start_dir` is where its log is: `dir` may have been changed since it was started.
    pub fn of(settings: &Settings, start_dir: &Path) -> Self {
        let own_dirs = vec![resolved_dir(start_dir), resolved_dir(&settings.dir())];
        let files = settings.named_files().into_iter();
        Self { own_dirs, files: files.map(|(name, path)| (name, resolved(&path))).collect() }
    }

    /// The same, with the snapshot that SAVE writes.
    pub fn with_snapshot(mut self, settings: &Settings) -> Self {
        self.files.push(("dbfilename", resolved(&snapshot_path(settings))));
        self
    }

    /// Whether this is, or is inside of, something of the server.
    pub fn has(&self, path: &Path) -> bool {
        let path = resolved(path);
        let in_own_dir = |start_dir: &PathBuf| {
            let first = path.strip_prefix(start_dir).ok().and_then(|inside| inside.iter().next());
            first.is_some_and(|name| is_own_name(name.as_encoded_bytes()))
        };
        self.own_dirs.iter().any(in_own_dir) || self.files.iter().any(|(_, own)| same(own, &path))
    }

    /// True if this is in a directory of theirs.
    pub fn surround(&self, path: &Path) -> bool {
        let path = resolved(path);
        self.own_dirs.iter().any(|dir| path.starts_with(dir))
    }

    /// Two directives that name one file, or one that names a place of the log or the spilled values.
    pub fn conflict(&self) -> Option<String> {
        for (at, (name, path)) in self.files.iter().enumerate() {
            let is_device = path.starts_with("/dev");
            if let Some((other, _)) =
                self.files[..at].iter().find(|(_, other)| !is_device && same(other, path))
            {
                return Some(format!("{other} and {name} are the same file: {}", path.display()));
            }
            let own_dirs = Self { own_dirs: self.own_dirs.clone(), files: Vec::new() };
            if own_dirs.has(path) {
                return Some(format!("{name} is a place of the server's data: {}", path.display()));
            }
        }
        None
    }
}

/// Whether a file may be replaced by a snapshot: there is none, or it is a snapshot or empty. A symbolic link
/// is itself replaced, and not what it points to.
pub(crate) fn is_replaceable(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
        Ok(found) if found.is_symlink() => return Ok(true),
        Ok(found) if !found.is_file() => return Ok(false),
        Ok(_) => {}
    }
    let mut begin = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut begin)?;
    Ok(begin.is_empty() || begin == MAGIC)
}

/// A directory without links, also if it is one itself.
fn resolved_dir(dir: &Path) -> PathBuf {
    fs::canonicalize(dir).unwrap_or_else(|_| resolved(dir))
}

/// The path without symbolic links and dots in its directory, as far as that is there. Its last part stays as
/// it is: a writer replaces it.
fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match (path.parent(), path.file_name()) {
        (Some(dir), Some(name)) => match fs::canonicalize(dir) {
            Ok(dir) => dir.join(name),
            Err(_) => {
                let dir = resolved(dir);
                fs::canonicalize(&dir).unwrap_or(dir).join(name)
            }
        },
        // It ends in two dots, and what is missing before them will be a directory.
        (Some(dir), None) => fs::canonicalize(&path).unwrap_or_else(|_| {
            let mut above = resolved(dir);
            above.pop();
            above
        }),
        _ => fs::canonicalize(&path).unwrap_or(path),
    }
}

fn same(a: &Path, b: &Path) -> bool {
    let lower = |path: &Path| path.as_os_str().as_encoded_bytes().to_ascii_lowercase();
    lower(a) == lower(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierce_harness::TempDir;

    #[test]
    fn paths_are_resolved_before_they_are_judged() {
        let dir = TempDir::new();
        dir.write("wal/1.seg", "log");
        dir.write("sub/x", "");
        std::os::unix::fs::symlink(dir.path().join("wal"), dir.path().join("link")).unwrap();
        let own = OwnFiles::in_dir(dir.path());
        for name in ["wal/a.rdb", "sub/../wal/a.rdb", "link/a.rdb", "Cold/a.rdb", "wal-9.complete"]
        {
            assert!(own.has(&dir.path().join(name)), "{name}");
        }
        for name in ["a.rdb", "sub/a.rdb", "sub/wal/a.rdb"] {
            assert!(!own.has(&dir.path().join(name)), "{name}");
        }
    }

    #[test]
    fn snapshots_are_replaced_and_nothing_else() {
        let dir = TempDir::new();
        let is = |name: &str, text: &str| is_replaceable(&dir.write(name, text)).unwrap();
        assert!(is("old.rdb", "REDIS0010") && is("empty.rdb", ""));
        assert!(!is("t.conf", "port 1") && !is("short", "REDI"));
        assert!(is_replaceable(&dir.path().join("absent")).unwrap());
    }
}
