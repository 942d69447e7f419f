//! Empties the page cache before a phase.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::Advice;
use serde::Serialize;

use super::cli::DropCaches;
use super::error::RaceError;

const SWITCH: &str = "/proc/sys/vm/drop_caches";

/// Part of the page cache that was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Dropped {
    System,
    Files,
    Nothing,
}

impl Dropped {
    pub(super) fn about(self) -> &'static str {
        match self {
            Self::System => "dropped before each phase, for the whole system",
            Self::Files => "dropped before each phase, for the store's files (posix_fadvise)",
            Self::Nothing => "NOT dropped, so that no phase is cold",
        }
    }
}

/// Drops the cached pages of a directory's files, or of the whole system.
pub(super) fn empty(how: DropCaches, dir: &Path) -> Result<Dropped, RaceError> {
    match how {
        DropCaches::No => Ok(Dropped::Nothing),
        DropCaches::Files => empty_files(dir),
        DropCaches::System => empty_system(dir).map_err(RaceError::io("write", Path::new(SWITCH))),
        DropCaches::Auto => empty_system(dir).or_else(|_| empty_files(dir)),
    }
}

/// Drops all pages. Dirty pages cannot be dropped, so they are written first.
fn empty_system(dir: &Path) -> std::io::Result<Dropped> {
    rustix::fs::syncfs(File::open(dir)?)?;
    fs::write(SWITCH, "1")?;
    Ok(Dropped::System)
}

fn empty_files(dir: &Path) -> Result<Dropped, RaceError> {
    for path in files(dir)? {
        let file = File::open(&path).map_err(RaceError::io("open", &path))?;
        file.sync_data().map_err(RaceError::io("sync", &path))?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)
            .map_err(RaceError::io("drop the cache of", &path))?;
    }
    Ok(Dropped::Files)
}

/// Reads the files in a directory once, so that the cache has as much of them as fits in memory.
pub(super) fn fill(dir: &Path) -> Result<(), RaceError> {
    for path in files(dir)? {
        let mut file = File::open(&path).map_err(RaceError::io("open", &path))?;
        std::io::copy(&mut file, &mut std::io::sink()).map_err(RaceError::io("read", &path))?;
    }
    Ok(())
}

fn files(dir: &Path) -> Result<Vec<std::path::PathBuf>, RaceError> {
    let entries = fs::read_dir(dir).map_err(RaceError::io("list", dir))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(RaceError::io("list", dir))?.path();
        if path.is_file() {
            paths.push(path);
        }
    }
    Ok(paths)
}
