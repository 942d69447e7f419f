//! What keeps the log from growing without bound.
//!
//! Once the log is so much larger than what a pass over all keys left behind (directive
//! `auto-aof-rewrite-percentage`), or when somebody asks (BGREWRITEAOF), it writes all live keys to
//! the log again, a few at a time and within `compaction-bytes-per-second`, and then drops the part
//! of the log from before. Nothing stops meanwhile. A log that has grown because there is more data now has
//! nothing to drop; so what the entries take in memory counts like what the last pass left, if it is more.
//!
//! **Bound.** With live data of L bytes, as logged or in memory, whichever is more, and the default of 100
//! percent, a pass begins at 2 L. It adds L itself, and writers add what they write until it ends. When the log gets to
//! [`HURRY_FACTOR`] times the size at the beginning, the pass no longer keeps to its budget. So the
//! log stays below about 4 L plus what is written in one pass at full speed.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tierce_keyspace::log::{Checkpoint, Pass};

use super::journal::{Journal, OpenLog};
use crate::server::Server;

/// A pass that lets the log grow to this many times its size at the beginning stops sparing others.
const HURRY_FACTOR: u64 = 2;

/// Keys are logged in stretches of about this many bytes between two looks at the clock.
const STRETCH_BYTES: usize = 256 * 1024;

/// What is known about compaction, and asked of it.
#[derive(Default)]
pub(super) struct Compaction {
    pub(super) wishes: Mutex<Wishes>,
    pub(super) changed: Condvar,
    /// When the pass that is underway began.
    running_since: Mutex<Option<Instant>>,
    /// Not all keys are in the log yet: it was begun while the server ran.
    is_incomplete: AtomicBool,
    last_failed: AtomicBool,
    passes: AtomicU64,
    last_ms: AtomicI64,
    /// Bytes of the log after the last pass, or when it was opened.
    base_bytes: AtomicU64,
    bytes_written: AtomicU64,
}

/// What the keeper is asked for.
#[derive(Default)]
pub(super) struct Wishes {
    /// A pass.
    pub(super) pass: bool,
    /// That there is a log, or none.
    pub(super) log: bool,
    /// The server ends.
    pub(super) ends: bool,
}

/// Figures for INFO.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompactionFigures {
    /// How long a pass has been underway, if one is.
    pub running: Option<Duration>,
    /// The log does not count yet, because not all keys are in it.
    pub is_incomplete: bool,
    /// The last pass failed.
    pub last_failed: bool,
    /// Passes completed.
    pub passes: u64,
    /// Duration of the last one.
    pub last: Option<Duration>,
    /// Bytes of the log after the last pass.
    pub base_bytes: u64,
    /// Bytes written by all passes.
    pub bytes_written: u64,
}

impl Journal {
    /// Asks for a pass. `false` if one is underway.
    pub fn compact(&self) -> bool {
        self.compaction.wishes.lock().pass = true;
        self.compaction.changed.notify_all();
        self.compaction.running_since.lock().is_none()
    }

    /// Figures for INFO.
    #[must_use]
    pub fn compaction_figures(&self) -> CompactionFigures {
        let compaction = &self.compaction;
        let passes = compaction.passes.load(Relaxed);
        CompactionFigures {
            running: compaction.running_since.lock().map(|since| since.elapsed()),
            is_incomplete: compaction.is_incomplete.load(Relaxed),
            last_failed: compaction.last_failed.load(Relaxed),
            passes,
            last: (passes > 0)
                .then(|| Duration::from_millis(compaction.last_ms.load(Relaxed).max(0) as u64)),
            base_bytes: compaction.base_bytes.load(Relaxed),
            bytes_written: compaction.bytes_written.load(Relaxed),
        }
    }
}

impl Compaction {
    pub(super) fn set_base(&self, bytes: u64) {
        self.base_bytes.store(bytes, Relaxed);
    }

    pub(super) fn set_incomplete(&self, is_incomplete: bool) {
        self.is_incomplete.store(is_incomplete, Relaxed);
    }

    pub(super) fn note_failure(&self) {
        self.last_failed.store(true, Relaxed);
    }

    /// Waits, unless somebody wants the pass given up. Whether that is so.
    fn rest(&self, time: Duration, kind: Kind) -> bool {
        let mut wishes = self.wishes.lock();
        if !wishes.ends && wishes.log {
            self.changed.wait_for(&mut wishes, time);
        }
        // A first pass is finished before the server ends: without it nothing would be kept.
        !wishes.log || wishes.ends && kind == Kind::Again
    }
}

/// What a pass is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// To have all keys in a new log.
    First,
    /// To make a log shorter.
    Again,
}

/// Whether the log has so much in it that no longer counts that a pass is due.
pub(super) fn is_due(journal: &Journal, server: &Server) -> bool {
    journal.log().is_some_and(|log| is_grown(journal, &log, server))
}

fn is_grown(journal: &Journal, log: &OpenLog, server: &Server) -> bool {
    let live = server.config.live();
    let (percentage, min_bytes) = (live.log_growth_percentage(), live.log_bytes_min());
    let bytes = log.wal.bytes();
    let is_beyond = |base| is_beyond(bytes, base, percentage);
    percentage > 0
        && bytes > min_bytes
        && is_beyond(journal.compaction.base_bytes.load(Relaxed))
        // About what a pass would write. It takes a walk through the shards to know.
        && is_beyond(server.keyspace.memory().entries)
}

/// Whether so many bytes are more than others by this percentage.
fn is_beyond(bytes: u64, base: u64, percentage: u64) -> bool {
    bytes - base.min(bytes) >= base / 100 * percentage
}

/// What a pass came to.
struct Done {
    written: u64,
    freed: u64,
    took: Duration,
}

/// Why a pass did not complete.
enum Undone {
    /// The server ends, or the log is switched off.
    Ended,
    Failed(String),
}

/// Writes all keys again and drops what is older. Whether that succeeded, which is reported.
pub(super) fn pass(journal: &Journal, server: &Server, kind: Kind) -> bool {
    *journal.compaction.running_since.lock() = Some(Instant::now());
    let result = match journal.log() {
        Some(log) => compact(journal, &log, server, kind),
        None => Err(Undone::Ended),
    };
    *journal.compaction.running_since.lock() = None;
    report(journal, server, result)
}

fn compact(journal: &Journal, log: &OpenLog, server: &Server, kind: Kind) -> Result<Done, Undone> {
    let failed = |error: tierce_cask::Error| Undone::Failed(error.to_string());
    let begun = Instant::now();
    let wal = &log.wal;
    let bytes_at_begin = wal.bytes();
    let mark = wal.rotate().map_err(failed)?;
    let mut checkpoint = Checkpoint::begin(&server.keyspace);
    let (mut written, mut stretch) = (0, 0);
    loop {
        let (bytes, pass) = checkpoint.step();
        written += bytes as u64;
        stretch += bytes;
        if pass == Pass::Complete {
            break;
        }
        if stretch >= STRETCH_BYTES {
            stretch = 0;
            let hurries = wal.bytes() > bytes_at_begin * HURRY_FACTOR;
            let ahead = ahead_of_budget(written, begun, server);
            if journal.compaction.rest(if hurries { Duration::ZERO } else { ahead }, kind) {
                return Err(Undone::Ended);
            }
            if let Some(cause) = journal.wound() {
                return Err(Undone::Failed(cause));
            }
        }
    }
    // What takes the place of the old part has to be on the device before that goes.
    journal.sync().map_err(failed)?;
    if let Some(cause) = journal.wound() {
        return Err(Undone::Failed(cause));
    }
    let freed = wal.drop_before(&mark).map_err(failed)?;
    journal.compaction.set_base(wal.bytes());
    Ok(Done { written, freed, took: begun.elapsed() })
}

/// How long to wait so that `written` bytes since `begun` are within the budget.
fn ahead_of_budget(written: u64, begun: Instant, server: &Server) -> Duration {
    match server.config.live().compaction_bytes_per_second() {
        0 => Duration::ZERO,
        rate => {
            let time = Duration::from_secs_f64(written as f64 / rate as f64);
            time.saturating_sub(begun.elapsed())
        }
    }
}

fn report(journal: &Journal, server: &Server, result: Result<Done, Undone>) -> bool {
    let compaction = &journal.compaction;
    let succeeded = result.is_ok();
    match result {
        Ok(Done { written, freed, took }) => {
            compaction.last_failed.store(false, Relaxed);
            compaction.last_ms.store(took.as_millis() as i64, Relaxed);
            compaction.bytes_written.fetch_add(written, Relaxed);
            compaction.passes.fetch_add(1, Relaxed);
            server.log.verbose(format_args!(
                "Compacted the log in {:.1} s: {written} bytes written, {freed} bytes freed",
                took.as_secs_f64()
            ));
        }
        Err(Undone::Ended) => {}
        Err(Undone::Failed(cause)) => {
            if !compaction.last_failed.swap(true, Relaxed) {
                server.log.warning(format_args!("The log could not be compacted: {cause}"));
            }
        }
    }
    succeeded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_by_a_percentage() {
        assert!(is_beyond(2_000, 1_000, 100) && !is_beyond(1_999, 1_000, 100));
        assert!(is_beyond(1_500, 1_000, 50) && !is_beyond(1_499, 1_000, 50));
        assert!(is_beyond(0, 0, 100) && !is_beyond(500, 1_000, 1));
    }
}
