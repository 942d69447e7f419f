//! Decides which file names are refused to users: to a client with BACKUP, CONFIG SET or SAVE, in the
//! configuration, and to the user of a tool.
//!
//! **Invariant**: a file named by a user never replaces one of the server's own files. These are the logs and
//! their marker files, spilled values, the configuration, the server's messages, its process id, and its
//! sockets. Paths are resolved before the decision, and names are compared without regard to case, as some
//! file systems do.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::snapshot_path;
use tierce_config::{Settings, is_own_name};

/// First bytes of a snapshot.
const MAGIC: &[u8; 5] = b"REDIS";

/// Files of a server, and directories that hold more of them.
#[derive(Debug, Default)]
pub struct OwnFiles {
    own_dirs: Vec<PathBuf>,
    files: Vec<(&'static str, PathBuf)>,
}

impl OwnFiles {
    /// Returns the own files of an unused data directory.
    pub fn in_dir(dir: &Path) -> Self {
        Self { own_dirs: vec![resolved_dir(dir)], files: Vec::new() }
    }

    /// Returns the own files of a server. `start_dir` holds its log: `dir` may have been changed since the
    /// start.
    pub fn of(settings: &Settings, start_dir: &Path) -> Self {
        let own_dirs = vec![resolved_dir(start_dir), resolved_dir(&settings.dir())];
        let files = settings.named_files().into_iter();
        Self { own_dirs, files: files.map(|(name, path)| (name, resolved(&path))).collect() }
    }

    /// Adds the snapshot that SAVE writes.
    pub fn with_snapshot(mut self, settings: &Settings) -> Self {
        self.files.push(("dbfilename", resolved(&snapshot_path(settings))));
        self
    }

    /// Returns true if the path is one of these files or is inside one of their directories.
    pub fn has(&self, path: &Path) -> bool {
        let path = resolved(path);
        let in_own_dir = |start_dir: &PathBuf| {
            let first = path.strip_prefix(start_dir).ok().and_then(|inside| inside.iter().next());
            first.is_some_and(|name| is_own_name(name.as_encoded_bytes()))
        };
        self.own_dirs.iter().any(in_own_dir) || self.files.iter().any(|(_, own)| same(own, &path))
    }

    /// Returns true if the path is in a directory that holds own files.
    pub fn surround(&self, path: &Path) -> bool {
        let path = resolved(path);
        self.own_dirs.iter().any(|dir| path.starts_with(dir))
    }

    /// Describes two directives that name one file, or one that names a path of the log or the spilled
    /// values.
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

/// Returns true if a snapshot may replace this path: it does not exist, or is a snapshot or empty. A symbolic
/// link itself is replaced, not its target.
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

/// Resolves a directory, even if it is a link itself.
fn resolved_dir(dir: &Path) -> PathBuf {
    fs::canonicalize(dir).unwrap_or_else(|_| resolved(dir))
}

/// Resolves the symbolic links and dots in the directory of a path, as far as it exists. The last component
/// stays as it is, because a writer replaces it.
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
        // The path ends in two dots, and the missing component before them will be a directory.
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
