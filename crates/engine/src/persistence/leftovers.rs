//! Removes files that a process killed while writing has left in the data directory.
//!
//! A file is removed only if no other program can have put it there. Its name is one that no client and no
//! directive can give (`own_files.rs`), it looks like the beginning of a snapshot, its process is gone, and no
//! process has locked it. The lock matters because a process of another container is not visible, and may have
//! the id of this one. Leftovers in other directories, into which a backup was written, stay.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::file::{process_of, remove_abandoned};
use super::own_files::is_replaceable;
use crate::log::Log;

/// Directory in which an import writes a new log before it replaces the present one.
const IMPORTING: &str = "wal.importing";

/// Returns the directory that a killed import leaves in a data directory. The log in it is not authoritative,
/// be it the new one or the old one.
pub fn unfinished_import(dir: &Path) -> PathBuf {
    dir.join(IMPORTING)
}

/// Exclusive or shared use of the directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holding {
    /// This process holds the lock of the log in the directory.
    Locked,
    /// Another process may use the directory too.
    Shared,
}

/// Removes the leftovers before anything is saved there. A failed removal is logged and does not prevent the
/// start.
pub fn remove_leftovers(dir: &Path, holding: Holding, log: &Log) {
    let told = |path: &Path, removed: io::Result<()>| match removed {
        Ok(()) => log.notice(format_args!("Removed {}, left by a killed process", path.display())),
        Err(error) => {
            log.warning(format_args!("{} could not be removed: {error}", path.display()));
        }
    };
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_leftover = process_of(&entry.file_name()).is_some_and(is_gone)
            && entry.file_type().is_ok_and(|kind| kind.is_file())
            && is_replaceable(&path).unwrap_or(false);
        if is_leftover {
            match remove_abandoned(&path) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                removed => told(&path, removed),
            }
        }
    }
    let import = unfinished_import(dir);
    if holding == Holding::Locked && import.is_dir() {
        told(&import, fs::remove_dir_all(&import));
    }
}

/// Returns true if no process with this id is saving. The own id counts as gone: this process has not begun to
/// save.
fn is_gone(process: u32) -> bool {
    let number = i32::try_from(process).ok();
    process == std::process::id()
        || number
            .and_then(Pid::from_raw)
            .is_none_or(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::persistence::file::{Install, NewFile, Syncing};
    use tierce_config::LogLevel;
    use tierce_harness::TempDir;

    fn names(dir: &TempDir) -> Vec<String> {
        let names = fs::read_dir(dir.path()).unwrap();
        let mut names: Vec<_> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    /// Returns the id of a process that has just ended.
    fn ended() -> u32 {
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        child.wait().expect("its end");
        child.id()
    }

    #[test]
    fn only_files_of_processes_that_are_gone_go() {
        let dir = TempDir::new();
        let log = Log::open(None, LogLevel::Nothing).unwrap();
        let (gone, parent) = (ended(), std::os::unix::process::parent_id());
        let mut kept = vec![
            format!("temp-{parent}.rdb"),
            format!("temp-0{gone}.rdb"),
            format!("temp-{gone}.rdb.bak"),
            "temp-x.rdb".to_owned(),
            "temp-.rdb".to_owned(),
            "dump.rdb".to_owned(),
        ];
        kept.iter().for_each(|name| drop(dir.write(name, "REDIS0010")));
        dir.write(&format!("temp-{}.rdb", std::process::id()), "REDIS0010");
        let other = dir.write(&format!("temp-{gone}.rdb"), "text of a user");
        remove_leftovers(dir.path(), Holding::Shared, &log);
        kept.push(format!("temp-{gone}.rdb"));
        kept.sort_unstable();
        assert_eq!(names(&dir), kept);
        fs::write(other, "REDIS").unwrap();
        remove_leftovers(dir.path(), Holding::Shared, &log);
        kept.retain(|name| *name != format!("temp-{gone}.rdb"));
        assert_eq!(names(&dir), kept);
    }

    #[test]
    fn a_file_that_another_process_of_this_number_writes_stays() {
        let dir = TempDir::new();
        let log = Log::open(None, LogLevel::Nothing).unwrap();
        let target = dir.path().join("dump.rdb");
        let mut file = NewFile::create(&target, Syncing::AtTheEnd).unwrap();
        file.write_all(b"REDIS0010").unwrap();
        remove_leftovers(dir.path(), Holding::Shared, &log);
        file.install(&target, Install::Replace).unwrap();
        assert_eq!(names(&dir), ["dump.rdb"]);
    }

    #[test]
    fn an_import_that_was_killed_goes_if_nobody_else_can_be_importing() {
        let dir = TempDir::new();
        let log = Log::open(None, LogLevel::Nothing).unwrap();
        dir.write("wal.importing/MANIFEST", "");
        remove_leftovers(dir.path(), Holding::Shared, &log);
        assert_eq!(names(&dir), ["wal.importing"]);
        remove_leftovers(dir.path(), Holding::Locked, &log);
        assert!(names(&dir).is_empty());
    }
}
