//! A moment of patience with a data directory that is in use: a server that was told to end takes a moment to leave it.
//!
//! Clients learn of a shutdown by the end of their connection, which comes before the log is closed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tierce_engine::durability::log_dir;
use tierce_storage::{Error, lock_store};

/// For how long at most. A server that has closed its connections has only its log left to sync and to close.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// What takes less deserves no message: a server that was just told to end leaves within milliseconds.
const SILENT_FOR: Duration = Duration::from_secs(1);

/// Waits until no process uses the data directory, log or store, and says so; at most for [`PATIENCE`].
///
/// It keeps no lock: what comes next reports a directory that is still in use.
pub fn await_end_of_use(dir: &Path) {
    await_end_or(dir, "");
}

/// Waits likewise, and says at once what to do `instead` if that is a server which goes on.
pub fn await_end_or(dir: &Path, instead: &str) {
    let store = store_of(dir);
    let began = Instant::now();
    let mut is_told = false;
    while is_in_use(&store) && began.elapsed() < PATIENCE {
        if !is_told && (began.elapsed() >= SILENT_FOR || !instead.is_empty()) {
            is_told = true;
            eprintln!(
                "tierce: {} is in use by another process; {instead}waiting up to {} s for its end",
                dir.display(),
                PATIENCE.as_secs()
            );
        }
        std::thread::sleep(PAUSE);
    }
}

/// The store that a process locks which uses the directory: the log in it, or itself.
fn store_of(dir: &Path) -> PathBuf {
    log_dir(dir).ok().filter(|log| log.is_dir()).unwrap_or_else(|| dir.to_owned())
}

fn is_in_use(store: &Path) -> bool {
    matches!(lock_store(store), Err(Error::Locked { .. }))
}
