//! The kernel's data on this machine, in `/proc` and `/sys`.
//!
//! A missing file is not a finding: containers and other kernels lack some of them.

use std::fs;
use std::path::{Path, PathBuf};

/// The machine, or a directory of a test that looks like one.
#[derive(Debug)]
pub struct Machine {
    root: PathBuf,
}

impl Machine {
    /// Returns the machine with this root directory.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the text of a file below the root, trimmed.
    pub fn text(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path.trim_start_matches('/'))).ok()?;
        Some(text.trim().to_owned())
    }

    /// Returns the number in a file.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Returns a number of `/proc/meminfo`, in bytes.
    pub fn memory(&self, name: &str) -> Option<u64> {
        let text = self.text("proc/meminfo")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(kilobytes.saturating_mul(1024))
    }

    /// Returns the hard limit of a resource in `/proc/self/limits`; `u64::MAX` for none.
    pub fn hard_limit(&self, name: &str) -> Option<u64> {
        let text = self.text("proc/self/limits")?;
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        match rest.split_whitespace().nth(1)? {
            "unlimited" => Some(u64::MAX),
            number => number.parse().ok(),
        }
    }

    /// Returns the lowest memory limit of the control groups of this process, in bytes.
    pub fn memory_limit(&self) -> Option<u64> {
        let groups = self.text("proc/self/cgroup")?;
        groups.lines().filter_map(|line| self.limit_of_group(line)).min()
    }

    /// Returns the limit of the group in a line `number:controllers:path`, or of a group above it.
    fn limit_of_group(&self, line: &str) -> Option<u64> {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let (folder, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let of = |group: &Path| {
            let group = group.to_string_lossy();
            self.number(&format!("{folder}/{}/{file}", group.trim_start_matches('/')))
        };
        // In the first version, a very large number means no limit.
        Path::new(path).ancestors().filter_map(of).filter(|limit| *limit < 1 << 60).min()
    }

    /// Returns the type of the file system of an absolute directory, from `/proc/self/mountinfo`.
    pub fn file_system(&self, dir: &Path) -> Option<String> {
        let text = self.text("proc/self/mountinfo")?;
        let mounts = text.lines().filter_map(|line| {
            let (mount, rest) = line.split_once(" - ")?;
            let point = mount.split(' ').nth(4)?.replace("\\040", " ");
            Some((PathBuf::from(point), rest.split(' ').next()?.to_owned()))
        });
        // Of two mounts on one point, the later one hides the other.
        let above = mounts.filter(|(point, _)| dir.starts_with(point));
        above.max_by_key(|(point, _)| point.components().count()).map(|(_, kind)| kind)
    }

    /// Returns true if a process holds a lock on the file with this inode number.
    pub fn is_locked(&self, inode: u64) -> bool {
        let Some(text) = self.text("proc/locks") else { return false };
        let inode = inode.to_string();
        // `1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF`
        text.lines().any(|line| {
            let file = line.split_whitespace().nth(5).unwrap_or_default();
            file.rsplit(':').next() == Some(&*inode)
        })
    }
}
