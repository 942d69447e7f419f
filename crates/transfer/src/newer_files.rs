//! Detects Redis files that are newer than the log that Tierce loads. They are not read, so a warning is due.
//!
//! A user may go back to Redis for a while, write there, and return. The log then has the earlier data. Tierce's
//! own snapshots name its version (`tierce-ver`), so a snapshot that this server wrote causes no warning.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tierce_rdb::{Event, Reader};

use super::first_import::places_of_redis;
use crate::config::Settings;
use crate::persistence::values::VERSION_REMARK;

/// Returns the first Redis file that was written later than the log in this directory, in the order in which Redis
/// looks for its files. Call it before the log is opened, because opening changes its files.
#[must_use]
pub fn newer_than_log(settings: &Settings, log_dir: &Path) -> Option<PathBuf> {
    let since = files(log_dir).iter().filter_map(|file| changed_at(file)).max()?;
    let is_later = |file: &PathBuf| changed_at(file).is_some_and(|at| at > since);
    let is_of_redis = |place: &PathBuf| {
        files(place)
            .into_iter()
            .filter(is_later)
            .any(|file| !is_empty(&file) && !is_by_tierce(&file))
    };
    places_of_redis(settings).into_iter().find(is_of_redis)
}

/// Returns the files in a directory, or the file itself. Leaves out unreadable entries: no warning needs them.
fn files(path: &Path) -> Vec<PathBuf> {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => vec![path.to_owned()],
    }
}

fn changed_at(file: &Path) -> Option<SystemTime> {
    let metadata = fs::metadata(file).ok().filter(fs::Metadata::is_file)?;
    metadata.modified().ok()
}

/// Returns true for a file without data. A manifest has none: it only names files.
fn is_empty(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "manifest")
        || fs::metadata(file).is_ok_and(|metadata| metadata.len() == 0)
}

/// Returns true if the auxiliary fields at the beginning of a snapshot name Tierce.
fn is_by_tierce(file: &Path) -> bool {
    let Some(mut reader) =
        File::open(file).ok().map(BufReader::new).map(Reader::new).and_then(Result::ok)
    else {
        return false;
    };
    while let Ok(Some(Event::Aux { name, .. })) = reader.next_event() {
        if name == VERSION_REMARK {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tierce_harness::TempDir;
    use tierce_rdb::{Writer, WriterOptions};

    use super::*;
    use crate::first_import::tests::settings;

    fn snapshot(remark: &[u8]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), WriterOptions::default()).unwrap();
        writer.aux(b"redis-ver", b"7.0.15").unwrap();
        writer.aux(remark, b"1").unwrap();
        writer.finish().unwrap()
    }

    /// Writes a file with a change time so many seconds after the log's.
    fn write(dir: &TempDir, name: &str, bytes: &[u8], seconds: i32) -> PathBuf {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        let log = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let away = Duration::from_secs(u64::from(seconds.unsigned_abs()));
        let at = if seconds < 0 { log - away } else { log + away };
        File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
        path
    }

    #[test]
    fn what_redis_wrote_later_is_found() {
        let dir = TempDir::new();
        let (settings, log_dir) = (settings(&dir, ""), dir.path().join("wal"));
        let found = || newer_than_log(&settings, &log_dir);
        let redis = snapshot(b"redis-bits");
        write(&dir, "dump.rdb", &redis, 1);
        assert_eq!(found(), None, "there is no log");
        write(&dir, "wal/00000001.seg", b"", -5);
        write(&dir, "wal/00000002.seg", b"", 0);
        let later = write(&dir, "dump.rdb", &redis, 1);
        assert_eq!(found(), Some(later));
        write(&dir, "dump.rdb", &redis, -1);
        assert_eq!(found(), None, "the log took it over");
        write(&dir, "dump.rdb", &snapshot(b"tierce-ver"), 1);
        assert_eq!(found(), None, "a save point of this server");

        write(&dir, "appendonlydir/a.base.rdb", &snapshot(b"tierce-ver"), 1);
        write(&dir, "appendonlydir/a.incr.aof", b"", 1);
        write(&dir, "appendonlydir/a.manifest", b"file a.base.rdb", 1);
        assert_eq!(found(), None, "an export of Tierce");
        write(&dir, "appendonlydir/a.incr.aof", b"*1\r\n", 1);
        assert_eq!(found(), Some(dir.path().join("appendonlydir")));
    }
}
