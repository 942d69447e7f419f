//! Creates a log from keys that were loaded from elsewhere.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use tierce_keyspace::Keyspace;
use tierce_keyspace::log::{Checkpoint, Pass};
use tierce_storage::Wal;

use super::durable_log::DurableLog;
use super::log_directory::LogDirectory;
use super::recovery::RecoveryError;

/// Minimum number of keys per thread; with fewer, a thread costs more than it saves.
const KEYS_PER_THREAD_MIN: u64 = 50_000;

/// Writes all of `keyspace` to a new log in a data directory that has none, and logs changes there from now on. A crash
/// before this returns leaves the directory without a log.
///
/// # Errors
/// When the directory cannot be written to, or holds spilled values of a missing log.
pub(super) fn begin_with(
    durable_log: &DurableLog,
    keyspace: &Keyspace,
    log_directory: &LogDirectory,
) -> Result<(), RecoveryError> {
    log_directory.check_values(&log_directory.current()?)?;
    // The log becomes authoritative only once it is complete.
    let path = log_directory.begin()?;
    let failed = |error| RecoveryError::of(&path, error);
    let (disk, options) = (Arc::clone(&log_directory.disk), log_directory.options.wal.clone());
    let (wal, _) = Wal::open_on(disk, &path, options, |_| Ok(())).map_err(failed)?;
    durable_log.open(wal);
    keyspace.begin_logging();
    log_all(keyspace);
    durable_log.sync().map_err(failed)?;
    log_directory.complete(&path)?;
    durable_log.note_filled();
    durable_log.note_wanted();
    log_directory.clear_others(&path)?;
    Ok(())
}

/// Logs all keys, with a thread per core if there are many. No client is served yet.
fn log_all(keyspace: &Keyspace) {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = (keyspace.total_len() / KEYS_PER_THREAD_MIN).clamp(1, cores as u64) as usize;
    let passes = Mutex::new(Checkpoint::divided(keyspace, threads));
    let next = || passes.lock().pop();
    let log = || {
        while let Some(mut pass) = next() {
            while pass.step().1 != Pass::Complete {}
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // If the system cannot start a thread, this one does all the work.
            let _ = thread::Builder::new().name("log".into()).spawn_scoped(scope, log);
        }
        log();
    });
}
