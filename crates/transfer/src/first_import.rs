//! Imports Redis' files at the start, if the log was never written to.
//!
//! It imports what Redis would load: with `appendonly yes` the append-only files, else the snapshot. It
//! also imports a snapshot beside which Redis would start empty. The files are not changed. They are
//! ignored once there is anything in the log, even if everything was deleted since.
//!
//! This is `tierce import` before the log is opened, so it is complete or did not happen: after a
//! failure, the next start tries again.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::TransferError;
use super::import::{ImportMode, ImportOptions, Imported, import};
use super::progress::{Progress, Stage};
use crate::config::{DirectiveId, Settings};
use crate::log::Log;
use crate::persistence::{Unfit, snapshot_path};

/// A line about the progress appears this often.
const REPORT_EVERY: Duration = Duration::from_secs(2);

/// Data of Redis cannot be taken over.
#[derive(Debug, thiserror::Error)]
#[error(
    "{error}. There is no Tierce data in {dir} yet, and the data of Redis could not be imported; \
     nothing was changed. To try it by hand: tierce import {source} --dir {dir}. To start without them, \
     move them away",
    dir = dir.display(),
    source = found.display()
)]
pub struct FirstImportError {
    dir: PathBuf,
    found: PathBuf,
    error: Box<TransferError>,
}

/// What Redis would load: the append-only directory, the single file of earlier versions, or else the
/// snapshot.
#[must_use]
pub fn find_data_of_redis(settings: &Settings) -> Option<PathBuf> {
    let [aof_dir, old_aof, snapshot] = places_of_redis(settings);
    let mut manifest = OsStr::from_bytes(settings.text(AOF_NAME)).to_owned();
    manifest.push(".manifest");
    let manifest = aof_dir.join(manifest);
    if manifest.is_file() {
        return Some(manifest);
    }
    // Until something is written, Redis has an empty one.
    if fs::metadata(&old_aof).is_ok_and(|file| file.is_file() && file.len() > 0) {
        return Some(old_aof);
    }
    // Files under another name, or without their manifest: the import says what is wrong with them.
    if fs::read_dir(&aof_dir).is_ok_and(|mut entries| entries.next().is_some()) {
        return Some(aof_dir);
    }
    Some(snapshot).filter(|path| path.is_file())
}

const AOF_DIR: DirectiveId = DirectiveId::of("appenddirname");
const AOF_NAME: DirectiveId = DirectiveId::of("appendfilename");

/// Where Redis keeps its data: the append-only directory, the single file of earlier versions, the snapshot.
pub(super) fn places_of_redis(settings: &Settings) -> [PathBuf; 3] {
    let in_dir = |id| settings.dir().join(OsStr::from_bytes(settings.text(id)));
    [in_dir(AOF_DIR), in_dir(AOF_NAME), snapshot_path(settings)]
}

/// Makes the data of Redis those of the data directory, whose log must not be open.
///
/// # Errors
/// When the files are damaged or hold something that this version lacks.
pub fn first_import(found: &Path, settings: &Settings, log: &Log) -> Result<(), FirstImportError> {
    const DATABASES: DirectiveId = DirectiveId::of("databases");
    const TRUNCATED: DirectiveId = DirectiveId::of("aof-load-truncated");
    const SKIP: DirectiveId = DirectiveId::of("skip-unsupported");
    let dir = settings.dir();
    log.notice(format_args!(
        "There is no Tierce data in {} yet: importing {}, which Redis left",
        dir.display(),
        found.display()
    ));
    let options = ImportOptions {
        source: found.to_owned(),
        dir: dir.clone(),
        databases: settings.count(DATABASES) as usize,
        mode: ImportMode::IntoEmpty,
        skip_unknown: false,
        unfit: if settings.is_on(SKIP) { Unfit::LeaveOut } else { Unfit::Refuse },
        accepts_cut_off: settings.is_on(TRUNCATED),
    };
    let begun = Instant::now();
    let mut reported = begun;
    let imported = import(&options, |progress| {
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            tell(progress, log);
        }
    });
    let imported = imported.map_err(|error| FirstImportError {
        dir,
        found: found.to_owned(),
        error: Box::new(error),
    })?;
    tell_result(&imported, found, begun.elapsed(), log);
    // All of it was in memory, and will be loaded once more.
    crate::memory::collect();
    Ok(())
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
        "Imported {} keys in {:.2} s, {} more had expired. {} stays as it is and is not read again",
        imported.keys,
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
