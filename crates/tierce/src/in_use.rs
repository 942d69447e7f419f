//! Waits for a data directory that is in use: a server that is shutting down takes a moment to release it.
//!
//! Clients learn of a shutdown by the end of their connection, which comes before the log is closed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tierce_engine::durability::log_dir;
use tierce_storage::is_in_use;

/// Maximum wait. A server that has closed its connections only has to sync and close its log.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Wait without a message: a server that is shutting down usually ends within milliseconds.
const SILENT_FOR: Duration = Duration::from_secs(1);

/// Waits until no process uses the data directory, log or store, with a message; at most for [`PATIENCE`].
///
/// It takes no lock: the caller's next step reports a directory that is still in use.
pub fn await_end_of_use(dir: &Path) {
    await_end_or(dir, "");
}

/// Waits as [`await_end_of_use`] does. The message says what to do `instead` if the server keeps running.
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

/// Returns the store that a process using the directory locks: the log in it, or the directory itself.
fn store_of(dir: &Path) -> PathBuf {
    log_dir(dir).ok().filter(|log| log.is_dir()).unwrap_or_else(|| dir.to_owned())
}
