//! Imports Redis' files at the start of a server whose log was never written to.
//!
//! It imports the files that Redis would load: with `appendonly yes` the append-only files, otherwise the snapshot.
//! It also imports a snapshot in a case in which Redis would start empty. The files do not change. They are ignored
//! once the log has any record, even if everything was deleted since.
//!
//! This is `tierce import` before the log is opened, so it is all or nothing: after a failure, the next start tries
//! again.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::TransferError;
use super::import::{ImportMode, ImportOptions, Imported, import, try_import};
use super::progress::{Progress, Stage};
use crate::config::{DirectiveId, Settings};
use crate::durability::RecoveryError;
use crate::log::Log;
use crate::persistence::{Unfit, snapshot_path};

/// Interval between two lines about the progress.
const REPORT_EVERY: Duration = Duration::from_secs(2);

/// Reason why nothing was imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FirstImportError {
    /// There is a log, and it cannot be read.
    #[error(transparent)]
    Log(RecoveryError),
    /// The data of Redis could not be imported.
    #[error(
        "{error}. There is no Tierce data in {dir} yet, and the data of Redis could not be imported; \
         nothing was changed. To try it by hand: tierce import {found} --dir {dir}. To start without \
         them, move them away",
        dir = dir.display(),
        found = found.display()
    )]
    Data {
        /// The data directory.
        dir: PathBuf,
        /// The data of Redis.
        found: PathBuf,
        /// The reason.
        error: Box<TransferError>,
    },
}

impl FirstImportError {
    fn of(error: TransferError, found: &Path, settings: &Settings) -> Self {
        let (dir, found) = (settings.dir(), found.to_owned());
        match error {
            TransferError::Recovery(error) => Self::Log(error),
            error => Self::Data { dir, found, error: Box::new(error) },
        }
    }
}

/// Returns the files that Redis would load: the append-only directory, the single file of earlier versions, or
/// otherwise the snapshot.
#[must_use]
pub fn find_data_of_redis(settings: &Settings) -> Option<PathBuf> {
    let [aof_dir, old_aof, snapshot] = places_of_redis(settings);
    let mut manifest = OsStr::from_bytes(settings.text(AOF_NAME)).to_owned();
    manifest.push(".manifest");
    let manifest = aof_dir.join(manifest);
    if manifest.is_file() {
        return Some(manifest);
    }
    // Redis has an empty one until something is written.
    if fs::metadata(&old_aof).is_ok_and(|file| file.is_file() && file.len() > 0) {
        return Some(old_aof);
    }
    // Files under another name, or without their manifest: the import reports the fault.
    if fs::read_dir(&aof_dir).is_ok_and(|mut entries| entries.next().is_some()) {
        return Some(aof_dir);
    }
    Some(snapshot).filter(|path| path.is_file())
}

const AOF_DIR: DirectiveId = DirectiveId::of("appenddirname");
const AOF_NAME: DirectiveId = DirectiveId::of("appendfilename");

/// Returns the paths of Redis' data: append-only directory, single file of earlier versions, snapshot.
pub(super) fn places_of_redis(settings: &Settings) -> [PathBuf; 3] {
    let in_dir = |id| settings.dir().join(OsStr::from_bytes(settings.text(id)));
    [in_dir(AOF_DIR), in_dir(AOF_NAME), snapshot_path(settings)]
}

/// Imports the data of Redis into the data directory, whose log must not be open.
///
/// # Errors
/// Fails if the files are damaged or contain data that this version does not support.
pub fn first_import(found: &Path, settings: &Settings, log: &Log) -> Result<(), FirstImportError> {
    log.notice(format_args!(
        "There is no Tierce data in {} yet: importing {}, which Redis left",
        settings.dir().display(),
        found.display()
    ));
    let begun = Instant::now();
    let mut reported = begun;
    let imported = import(&options(found, settings), |progress| {
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            tell(progress, log);
        }
    });
    let imported = imported.map_err(|error| FirstImportError::of(error, found, settings))?;
    tell_result(&imported, found, begun.elapsed(), log);
    // The import had all data in memory. Free it, as the server loads it once more.
    crate::memory::collect();
    Ok(())
}

/// Reads the data of Redis as [`first_import`] does, and changes nothing. Returns the number of keys.
///
/// # Errors
/// Those of [`first_import`].
pub fn try_first_import(found: &Path, settings: &Settings) -> Result<u64, FirstImportError> {
    let keys = try_import(&options(found, settings));
    keys.map_err(|error| FirstImportError::of(error, found, settings))
}

fn options(found: &Path, settings: &Settings) -> ImportOptions {
    const DATABASES: DirectiveId = DirectiveId::of("databases");
    const TRUNCATED: DirectiveId = DirectiveId::of("aof-load-truncated");
    const SKIP: DirectiveId = DirectiveId::of("skip-unsupported");
    ImportOptions {
        source: found.to_owned(),
        dir: settings.dir(),
        databases: settings.count(DATABASES) as usize,
        mode: ImportMode::IntoEmpty,
        skip_unknown: false,
        unfit: if settings.is_on(SKIP) { Unfit::LeaveOut } else { Unfit::Refuse },
        accepts_cut_off: settings.is_on(TRUNCATED),
    }
}

fn tell(progress: Progress, log: &Log) {
    let what = match progress.stage {
        Stage::LoadingLog | Stage::Reading => "reading",
        Stage::WritingLog | Stage::Writing => "writing",
    };
    let percent = progress.done as f64 * 100.0 / progress.total.max(1) as f64;
    log.notice(format_args!("Importing: {what}, {percent:.0} %"));
}

fn tell_result(imported: &Imported, found: &Path, took: Duration, log: &Log) {
    log.notice(format_args!(
        "Imported {} in {:.2} s, {} more had expired. {} stays as it is and is not read again",
        tierce_engine::count(imported.keys, "key"),
        took.as_secs_f64(),
        imported.expired,
        found.display()
    ));
    if let Some((path, offset)) = &imported.cut_off {
        log.warning(format_args!(
            "{} ends in the middle of a command or transaction; what follows byte {offset} was left \
             out (aof-load-truncated)",
            path.display()
        ));
    }
    for (what, count) in &imported.unsupported {
        log.warning(format_args!("Left out, not supported by this version: {count} {what}"));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use tierce_harness::TempDir;

    pub(crate) fn settings(dir: &TempDir, more: &str) -> Settings {
        let line = format!("--dir {}{more}", dir.path().display());
        let args = line.split(' ').map(Into::into);
        match crate::config::parse(args, [], &[]).unwrap() {
            crate::config::Invocation::Serve(sources) => {
                sources.load(&mut std::io::empty()).unwrap().settings
            }
            _ => panic!("a server"),
        }
    }

    #[test]
    fn what_redis_would_load_is_found() {
        let dir = TempDir::new();
        let settings_of = |more| settings(&dir, more);
        let plain = settings_of("");
        assert_eq!(find_data_of_redis(&plain), None);
        std::fs::create_dir(dir.path().join("appendonlydir")).unwrap();
        assert_eq!(find_data_of_redis(&plain), None, "it is empty");
        let snapshot = dir.write("dump.rdb", "");
        assert_eq!(find_data_of_redis(&plain), Some(snapshot));
        dir.write("appendonlydir/appendonly.aof.1.base.rdb", "");
        let without_manifest = Some(dir.path().join("appendonlydir"));
        assert_eq!(find_data_of_redis(&plain), without_manifest);
        dir.write("appendonly.aof", "");
        assert_eq!(find_data_of_redis(&plain), without_manifest, "it is empty");
        let single = dir.write("appendonly.aof", "*");
        assert_eq!(find_data_of_redis(&plain), Some(single));
        let manifest = dir.write("appendonlydir/appendonly.aof.manifest", "");
        assert_eq!(find_data_of_redis(&plain), Some(manifest));
        let named = dir.write("dir/other.manifest", "");
        let other = settings_of(" --appenddirname dir --appendfilename other");
        assert_eq!(find_data_of_redis(&other), Some(named));
    }
}
