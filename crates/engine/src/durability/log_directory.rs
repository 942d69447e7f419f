//! Location of the log inside the data directory.
//!
//! Usually the log is in `wal`. A log that is created at run time is written to `wal-2`, or the next number, and
//! becomes authoritative with a file `wal-2.complete` next to it. Until then a file `wal-2.incomplete` says that it
//! is not needed. **Exactly one log is authoritative at any moment**, also after a crash: the complete one with the
//! highest number, or `wal` if there is none. A start loads this log.
//! Each step keeps this guarantee, although a crash may keep any subset of the names changed since the last sync of
//! the directory:
//!
//! * `begin` syncs `wal-2.incomplete` before it creates anything of `wal-2`, so a leftover is recognized.
//! * `complete` is called when both logs hold all acknowledged writes. Only the name `wal-2.complete` decides; until
//!   it is synced either log may be authoritative. Later steps only remove. It may be called again after a failure.
//! * Logs that are not authoritative are removed after a sync of the name that makes the other one so. The directory
//!   of each is removed after the file that made it authoritative.
//! * `discard` syncs the removal of `wal-2.complete` before it touches `wal-2`, and that of `wal-2` before it removes
//!   `wal-2.incomplete`.
//!
//! If the authoritative log is missing although a file shows that there was one, the data directory is refused: the
//! user may be able to put the log back. It is also refused if there is a later log without a marker file. A log that
//! has only lost its manifest is still a log: opening it fails, and `tierce repair` saves it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tierce_keyspace::planted::{self, Fault};
use tierce_storage::disk::{Disk, OpenMode, OsDisk, Space};
use tierce_storage::{ColdOptions, Wal, WalOptions};

/// Name of the first log of a data directory, which is complete from its beginning.
const FIRST_NAME: &str = "wal";
/// Prefix of the name of a later log, before its number.
const NAME_PREFIX: &str = "wal-";
/// Extension of the file that makes a log authoritative.
const COMPLETE: &str = "complete";
/// Extension of the file that marks a log as not yet authoritative.
const INCOMPLETE: &str = "incomplete";
/// File that every log directory has.
const MANIFEST: &str = "MANIFEST";
/// Extension of the files with the records.
const SEGMENT: &str = "seg";

/// File sizes and loading options of a log; tests use other values than servers.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// Options of the log itself.
    pub wal: WalOptions,
    /// Options of the values on disk that the log refers to.
    pub cold: ColdOptions,
    /// Number of threads that load the log; one per core by default.
    pub loaders: Option<std::num::NonZeroUsize>,
}

/// The logs of one data directory.
#[derive(Clone)]
pub struct LogDirectory {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) options: LogOptions,
    /// True if values may be spilled.
    pub(super) spills: Arc<AtomicBool>,
}

/// Returns true if this is the name of a log directory, complete or not.
fn is_log_name(name: &[u8]) -> bool {
    let number = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    name == FIRST_NAME.as_bytes() || name.strip_prefix(NAME_PREFIX.as_bytes()).is_some_and(number)
}

/// Returns the directory of the authoritative log. It does not exist if there is no log yet.
///
/// # Errors
/// When the data directory cannot be read, or the authoritative log is missing. It is also missing if there are spilled
/// values: an empty log would make them garbage.
pub fn log_dir(dir: &Path) -> io::Result<PathBuf> {
    let log_directory = LogDirectory::new(Arc::new(OsDisk), dir, LogOptions::default());
    let current = log_directory.current()?;
    log_directory.check_values(&current)?;
    Ok(current)
}

/// Returns the directory of the authoritative log, if there is one.
///
/// # Errors
/// As [`log_dir`].
pub fn existing_log(dir: &Path) -> io::Result<Option<PathBuf>> {
    LogDirectory::new(Arc::new(OsDisk), dir, LogOptions::default()).existing()
}

/// Returns the directory of the spilled values that the log refers to.
pub fn cold_dir(dir: &Path) -> PathBuf {
    dir.join("cold")
}

impl LogDirectory {
    /// Creates the interface to the logs of this data directory.
    pub fn new(disk: Arc<dyn Disk>, dir: &Path, options: LogOptions) -> Self {
        Self { disk, dir: dir.to_owned(), options, spills: Arc::default() }
    }

    /// Returns the directory of the authoritative log. It does not exist if there is no log yet.
    pub(super) fn current(&self) -> io::Result<PathBuf> {
        let names = self.list()?;
        let newest =
            names.iter().filter(|path| is(path, COMPLETE)).filter_map(|p| number_of(p)).max();
        let current = self.log(newest);
        let is_log = self.is_log(&current)?;
        if !is_log && newest.is_some() {
            return Err(self.missing(&current, &current.with_extension(COMPLETE)));
        }
        for path in &names {
            // Lower ones were replaced by the current one.
            let is_newer = is_numbered(path) && number_of(path) > newest;
            let is_leftover = names_contain(&names, &path.with_extension(INCOMPLETE));
            if is_newer && !is_leftover && self.is_log(path)? {
                return Err(match is_log {
                    true => self.unmarked(&current, path),
                    false => self.missing(&current, path),
                });
            }
        }
        Ok(current)
    }

    /// Returns the directory of the authoritative log, if there is one.
    pub(super) fn existing(&self) -> io::Result<Option<PathBuf>> {
        let current = self.current()?;
        Ok(self.is_log(&current)?.then_some(current))
    }

    /// Refuses to begin without a log if there are spilled values of a missing log.
    pub(super) fn check_values(&self, current: &Path) -> io::Result<()> {
        let cold = cold_dir(&self.dir);
        let values = self.disk_list(&cold)?;
        let is_value = |path: &&PathBuf| path.extension().is_some_and(|kind| kind == "cold");
        match values.iter().find(is_value) {
            Some(value) if !self.is_log(current)? => Err(self.missing(current, value)),
            _ => Ok(()),
        }
    }

    fn missing(&self, log: &Path, witness: &Path) -> io::Error {
        io::Error::other(format!(
            "there is no log in {}, though {} is there: put the log back, or, if the other one is not \
             needed, move it away",
            log.display(),
            name(witness),
        ))
    }

    /// Every leftover has a marker file, so this is another log whose marker file was lost or moved away.
    fn unmarked(&self, log: &Path, other: &Path) -> io::Error {
        let [log, other] = [log, other].map(name);
        io::Error::other(format!(
            "there are two logs in {}, {log} and {other}, and {other} may be incomplete, since {other}.{COMPLETE} is \
             missing: move {other} away to load {log}, or, only if that empty file was there before, put it back to \
             load {other}",
            self.dir.display(),
        ))
    }

    /// Prepares the directory of a log that will replace the authoritative one.
    pub(super) fn begin(&self) -> io::Result<PathBuf> {
        let current = self.current()?;
        self.clear_others(&current)?;
        let next = number_of(&current).map_or(2, |number| number + 1);
        let path = self.log(Some(next));
        // The data directory may not exist if the server has never had a log.
        self.disk.create_dir_all(&self.dir)?;
        self.disk.open(&path.with_extension(INCOMPLETE), OpenMode::Truncate)?;
        self.disk.sync_dir(&self.dir)?;
        // A disk that lists only files does not show an empty leftover.
        self.clear(&path)?;
        Ok(path)
    }

    /// Removes the authoritative log, which is no longer needed. The directory has no log afterwards.
    pub(super) fn give_up(&self) -> io::Result<()> {
        let Some(current) = self.existing()? else { return Ok(()) };
        let mark = current.with_extension(INCOMPLETE);
        // After a crash, the rest is recognized as a leftover. A full disk may not take the file: then a start refuses
        // the rest.
        if is_numbered(&current) && self.disk.open(&mark, OpenMode::Truncate).is_ok() {
            self.disk.sync_dir(&self.dir)?;
        }
        self.discard(&current)
    }

    /// Returns the message that there is no room for a log of `needed` bytes, with the remedy.
    pub(super) fn lack_of_room(&self, needed: u64, space: &Space) -> String {
        let give_up = match self.may_have_values() {
            true => "stop the server and start it with an empty directory",
            false => "use CONFIG SET appendonly no, FLUSHALL and CONFIG SET appendonly yes",
        };
        format!(
            "another one needs about {} MB more, while {} MB are free in {}: make room there, or, to give all data up, \
             {give_up}",
            needed.div_ceil(1_000_000),
            space.free / 1_000_000,
            self.dir.display()
        )
    }

    /// Returns the remedy for a log that has failed for good.
    pub(super) fn way_to_another(&self) -> &'static str {
        match self.may_have_values() {
            true => "restart the server",
            false => "CONFIG SET appendonly no and then yes begins another one",
        }
    }

    /// Returns true if there are or may be files of spilled values, so that `appendonly` cannot be switched at run time.
    fn may_have_values(&self) -> bool {
        let is_value = |file: &PathBuf| file.extension().is_some_and(|kind| kind == "cold");
        let files = self.disk_list(&cold_dir(&self.dir));
        self.spills.load(Relaxed) || files.is_ok_and(|files| files.iter().any(is_value))
    }

    /// Makes a log authoritative that is completely durable. Must be called again if it fails.
    pub(super) fn complete(&self, path: &Path) -> io::Result<()> {
        let mode = match planted::is(Fault::CompletionIsNotRepeated) {
            true => OpenMode::CreateNew,
            false => OpenMode::Truncate,
        };
        self.disk.open(&path.with_extension(COMPLETE), mode)?;
        self.disk.sync_dir(&self.dir)
    }

    /// Removes a log that shall not become authoritative. If this fails, the log is either intact and authoritative,
    /// or is removed later.
    pub(super) fn discard(&self, path: &Path) -> io::Result<()> {
        self.remove(&path.with_extension(COMPLETE))?;
        self.disk.sync_dir(&self.dir)?;
        self.clear(path)?;
        self.disk.sync_dir(&self.dir)?;
        self.remove(&path.with_extension(INCOMPLETE))
    }

    /// Removes the leftovers of logs that are not authoritative.
    pub(super) fn clear_others(&self, current: &Path) -> io::Result<()> {
        let names = self.list()?;
        let is_other = |path: &Path| {
            let log = if is(path, COMPLETE) || is(path, INCOMPLETE) {
                path.with_extension("")
            } else {
                path.to_owned()
            };
            (log != current && is_numbered(&log)).then_some(log)
        };
        let mut others: Vec<PathBuf> = names.iter().filter_map(|path| is_other(path)).collect();
        others.sort_unstable();
        others.dedup();
        let first = self.log(None);
        if first != current && !self.disk_list(&first)?.is_empty() {
            others.push(first);
        }
        let marks = current.with_extension(INCOMPLETE);
        if others.is_empty() && !names_contain(&names, &marks) {
            return Ok(());
        }
        // This syncs the name that makes the current log authoritative.
        self.disk.sync_dir(&self.dir)?;
        others.iter().try_for_each(|other| self.discard(other))?;
        self.remove(&marks)
    }

    /// Removes the directory of a log.
    fn clear(&self, path: &Path) -> io::Result<()> {
        self.disk_list(path)?.iter().try_for_each(|file| self.disk.remove(file))?;
        match self.disk.remove_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match self.disk.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn list(&self) -> io::Result<Vec<PathBuf>> {
        match self.disk.list(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            listed => listed,
        }
    }

    /// Lists a directory. Returns nothing if it does not exist or is not a directory.
    fn disk_list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        match self.disk.list(dir) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(Vec::new())
            }
            listed => listed,
        }
    }

    /// Returns the bytes of the authoritative log that a start must load, without its last records. Returns zero if
    /// there is no log or it cannot be read.
    pub(crate) fn bytes(&self) -> u64 {
        let current = self.current();
        current.and_then(|dir| Wal::bytes_in(&*self.disk, &dir)).unwrap_or(0)
    }

    /// Returns true if this is the directory of the first log, not of one that was created at run time.
    pub(super) fn is_first(&self, path: &Path) -> bool {
        path == self.log(None)
    }

    /// Returns true if there is a log in this directory, including one that has lost its manifest: opening it fails
    /// with the remedy.
    pub(super) fn is_log(&self, path: &Path) -> io::Result<bool> {
        let is_segment = |file: &PathBuf| file.extension().is_some_and(|kind| kind == SEGMENT);
        let files = self.disk_list(path)?;
        Ok(names_contain(&files, &path.join(MANIFEST)) || files.iter().any(is_segment))
    }

    fn log(&self, number: Option<u64>) -> PathBuf {
        self.dir.join(number.map_or(FIRST_NAME.to_owned(), |n| format!("{NAME_PREFIX}{n}")))
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn names_contain(names: &[PathBuf], path: &Path) -> bool {
    names.iter().any(|name| name == path)
}

fn is(path: &Path, kind: &str) -> bool {
    path.extension().is_some_and(|extension| extension == kind) && number_of(path).is_some()
}

/// Returns true if this is the directory of a log that was created at run time.
fn is_numbered(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    is_log_name(name.as_encoded_bytes()) && number_of(path).is_some()
}

/// Returns the number in the name of a log or of its marker file.
fn number_of(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.strip_prefix(NAME_PREFIX)?.parse().ok()
}
#[cfg(test)]
mod tests {
    use super::super::recovery;
    use super::*;
    use tierce_harness::TempDir;
    use tierce_storage::disk::SimDisk;

    fn log_directory(dir: &TempDir) -> LogDirectory {
        LogDirectory::new(Arc::new(OsDisk), dir.path(), LogOptions::default())
    }

    fn names(dir: &TempDir) -> Vec<String> {
        let entries = std::fs::read_dir(dir.path()).unwrap().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_log_counts_when_it_is_complete_and_the_others_go() {
        let dir = TempDir::new();
        let at = |name: &str| dir.path().join(name);
        let log_directory = log_directory(&dir);
        assert_eq!(log_directory.current().unwrap(), at("wal"));
        dir.write("wal/MANIFEST", "old");
        dir.write("wal.importing/1.seg", "not ours");
        dir.write("walrus", "not ours");
        dir.write("wal-5/MANIFEST", "never completed");
        dir.write("wal-5.incomplete", "");

        let second = log_directory.begin().unwrap();
        assert_eq!(second, at("wal-2"));
        assert!(!at("wal-5").exists());
        dir.write("wal-2/MANIFEST", "new");
        assert_eq!(log_directory.current().unwrap(), at("wal"), "it does not count yet");
        // The next attempt removes all of it.
        assert_eq!(log_directory.begin().unwrap(), second);
        assert!(!second.exists() && at("wal").exists());

        dir.write("wal-2/MANIFEST", "new");
        log_directory.complete(&second).unwrap();
        assert_eq!(log_directory.current().unwrap(), second);
        log_directory.complete(&second).unwrap();
        log_directory.clear_others(&second).unwrap();
        assert!(!at("wal").exists() && !at("wal-2.incomplete").exists());
        let third = log_directory.begin().unwrap();
        assert_eq!(third, at("wal-3"));
        dir.write("wal-3/MANIFEST", "newer");
        log_directory.complete(&third).unwrap();
        log_directory.clear_others(&third).unwrap();
        assert_eq!(log_dir(dir.path()).unwrap(), third);
        assert_eq!(names(&dir), ["wal-3", "wal-3.complete", "wal.importing", "walrus"]);
    }

    #[test]
    fn a_log_that_is_discarded_leaves_nothing_that_makes_it_count() {
        let dir = TempDir::new();
        let log_directory = log_directory(&dir);
        dir.write("wal/MANIFEST", "old");
        let second = log_directory.begin().unwrap();
        dir.write("wal-2/MANIFEST", "new");
        // The marker was created, and the steps after it failed.
        log_directory.complete(&second).unwrap();
        log_directory.discard(&second).unwrap();
        assert_eq!(names(&dir), ["wal"]);
        assert_eq!(log_directory.current().unwrap(), dir.path().join("wal"));
    }

    /// Files in the directory, with the log that the start reports as missing and the file that proves it.
    #[test]
    fn a_missing_log_is_refused() {
        for (files, missing, witness) in [
            (&["wal/MANIFEST", "wal-9.complete"][..], "wal-9", "wal-9.complete"),
            (&["wal/MANIFEST", "wal-9/some", "wal-9.complete"], "wal-9", "wal-9.complete"),
            (&["wal-2/MANIFEST"], "wal", "wal-2"),
            (&["wal-2/MANIFEST", "wal-3/MANIFEST", "wal-3.incomplete"], "wal", "wal-2"),
            (&["wal-2/00000001.seg"], "wal", "wal-2"),
            (&["cold/00000001.cold"], "wal", "00000001.cold"),
        ] {
            let dir = TempDir::new();
            let log_directory = log_directory(&dir);
            files.iter().for_each(|file| drop(dir.write(file, "something")));
            let before = names(&dir);
            let found =
                log_directory.current().and_then(|current| log_directory.check_values(&current));
            let error = found.expect_err(&format!("{files:?}")).to_string();
            let (there, log) = (format!("though {witness} is"), format!("{missing}, "));
            assert!(error.contains(&there) && error.contains(&log), "{files:?}: {error}");
            assert_eq!(names(&dir), before);
        }
    }

    #[test]
    fn what_was_never_completed_is_no_reason_to_refuse() {
        for files in [
            &["wal-2/MANIFEST", "wal-2.incomplete"][..],
            &["wal-2.incomplete"],
            &["wal/MANIFEST", "wal-2/MANIFEST", "wal-2.incomplete", "cold/00000001.cold"],
            &["wal/MANIFEST", "wal-2/1.seg", "wal-2.incomplete"],
            &["wal/MANIFEST", "wal-2/LOCK"],
        ] {
            let dir = TempDir::new();
            let log_directory = log_directory(&dir);
            files.iter().for_each(|file| drop(dir.write(file, "something")));
            let current = log_directory.current().expect("a log, or none");
            log_directory.check_values(&current).expect("a log, or no values");
            assert_eq!(current, dir.path().join("wal"), "{files:?}");
            log_directory.clear_others(&current).unwrap();
            let left: Vec<_> = files.iter().filter(|file| dir.path().join(file).exists()).collect();
            assert!(left.iter().all(|file| !file.starts_with("wal-")), "{left:?}");
        }
    }

    /// The manifest of a log is lost: it stays the log that is loaded, and nothing removes its segments.
    #[test]
    fn a_log_without_its_manifest_stays_the_log() {
        for (files, current) in [
            (&["wal/00000001.seg"][..], "wal"),
            (&["wal/MANIFEST", "wal-2/00000001.seg", "wal-2.complete"], "wal-2"),
        ] {
            let dir = TempDir::new();
            let log_directory = log_directory(&dir);
            files.iter().for_each(|file| drop(dir.write(file, "something")));
            assert_eq!(log_directory.existing().unwrap(), Some(dir.path().join(current)));
            assert!(recovery::was_ever_written(&log_directory).unwrap(), "no import replaces it");
        }
    }

    #[test]
    fn a_later_log_without_a_marker_is_refused_and_stays() {
        for files in [
            &["wal/MANIFEST", "wal-2/00000001.seg"][..],
            &["wal/00000001.seg", "wal-2/MANIFEST"],
            &["wal-2/MANIFEST", "wal-2.complete", "wal-3/00000001.seg"],
        ] {
            let dir = TempDir::new();
            let log_directory = log_directory(&dir);
            files.iter().for_each(|file| drop(dir.write(file, "something")));
            let error = log_directory.current().expect_err(&format!("{files:?}")).to_string();
            assert!(error.contains("there are two logs in") && !error.contains('\n'), "{error}");
            assert!(log_directory.begin().is_err() && log_directory.give_up().is_err());
            assert!(files.iter().all(|file| dir.path().join(file).exists()), "{files:?}");
        }
    }

    /// Every crash while the log is given up leaves it intact, or leaves what the next start removes.
    #[test]
    fn a_log_that_is_given_up_is_recognized_after_a_crash() {
        let (disk, root) = (SimDisk::new(1), Path::new("/data"));
        for file in ["wal-2/MANIFEST", "wal-2/00000001.seg", "wal-2.complete"] {
            disk.set_content(&root.join(file), b"something".to_vec());
        }
        disk.record_history();
        let shared = Arc::new(disk.clone());
        LogDirectory::new(shared, root, LogOptions::default()).give_up().unwrap();
        for moment in disk.take_history() {
            for image in (0..20).map(|seed| moment.after_power_cut(seed)) {
                // Only a real disk lists directories.
                let dir = TempDir::new();
                for path in image.paths() {
                    let name = path.strip_prefix(root).unwrap().to_str().unwrap();
                    dir.write(name, "something");
                }
                let log_directory = log_directory(&dir);
                let found = names(&dir);
                let current = log_directory.current().unwrap_or_else(|e| panic!("{e}: {found:?}"));
                log_directory.clear_others(&current).unwrap();
            }
        }
    }

    /// With spilled values, `appendonly` cannot be switched at run time.
    #[test]
    fn the_remedy_for_a_full_disk_can_be_followed() {
        let dir = TempDir::new();
        let log_directory = log_directory(&dir);
        let space = Space { total: 9, free: 0 };
        let remedies =
            || [log_directory.lack_of_room(1, &space), log_directory.way_to_another().to_owned()];
        let is_switched = || remedies().map(|text| text.contains("CONFIG SET appendonly no"));
        assert_eq!(is_switched(), [true; 2]);
        log_directory.spills.store(true, Relaxed);
        assert_eq!(is_switched(), [false; 2], "values may be spilled");
        log_directory.spills.store(false, Relaxed);
        dir.write("cold/00000001.cold", "");
        assert_eq!(is_switched(), [false; 2], "there are some");
        assert!(remedies().iter().all(|text| text.contains("start") && !text.contains("CONFIG")));
    }

    #[test]
    fn names_of_logs() {
        for (name, is_one) in [("wal", true), ("wal-2", true), ("wal-", false), ("wal-2x", false)] {
            assert_eq!(is_log_name(name.as_bytes()), is_one, "{name}");
            assert!(!is_one || tierce_config::is_own_name(name.as_bytes()), "{name}");
        }
    }
}
