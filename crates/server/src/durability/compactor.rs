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
//!
//! A pass goes in steps, none of which waits for anything but the disk; `keeper.rs` says when.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tierce_cask::{Error, WalMark};
use tierce_keyspace::Keyspace;
use tierce_keyspace::log::{Checkpoint, Pass as Progress};

use super::host::KeeperSettings;
use super::journal::{Journal, OpenLog};

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
    /// The number of the last switch.
    pub(super) ticket: u64,
    /// The last switch that has come to an end, and all before it.
    pub(super) settled: u64,
    /// Why that came to nothing, if it did.
    pub(super) failure: Option<String>,
    /// The server ends.
    pub(super) ends: bool,
    /// How often something was asked for or has failed.
    pub(super) count: u64,
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
        // Looked at first: the pass that is asked for may begin at once.
        let is_idle = self.compaction.running_since.lock().is_none();
        self.compaction.ask(|wishes| wishes.pass = true);
        is_idle
    }

    /// Figures for INFO.
    #[must_use]
    pub fn compaction_figures(&self) -> CompactionFigures {
        let compaction = &self.compaction;
        let passes = compaction.passes.load(Relaxed);
        CompactionFigures {
            running: compaction.running_since.lock().map(|since| since.elapsed()),
            is_incomplete: compaction.is_incomplete(),
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
    /// Changes what is asked for, and wakes the keeper.
    pub(super) fn ask<T>(&self, change: impl FnOnce(&mut Wishes) -> T) -> T {
        let mut wishes = self.wishes.lock();
        wishes.count += 1;
        self.changed.notify_all();
        change(&mut wishes)
    }

    pub(super) fn set_base(&self, bytes: u64) {
        self.base_bytes.store(bytes, Relaxed);
    }

    pub(super) fn is_incomplete(&self) -> bool {
        self.is_incomplete.load(Relaxed)
    }

    pub(super) fn set_incomplete(&self, is_incomplete: bool) {
        self.is_incomplete.store(is_incomplete, Relaxed);
    }

    pub(super) fn set_running(&self, since: Option<Instant>) {
        *self.running_since.lock() = since;
    }

    /// Whether the one before had not failed.
    pub(super) fn note_failure(&self) -> bool {
        !self.last_failed.swap(true, Relaxed)
    }

    pub(super) fn note_success(&self, done: &Done) {
        self.last_failed.store(false, Relaxed);
        self.last_ms.store(done.took.as_millis() as i64, Relaxed);
        self.bytes_written.fetch_add(done.written, Relaxed);
        self.passes.fetch_add(1, Relaxed);
    }

    /// Whether a log of so many bytes has so much in it that no longer counts that a pass is due. `live`
    /// says about what a pass would write; it takes a walk through the shards to know.
    pub(super) fn is_due(
        &self,
        bytes: u64,
        settings: &KeeperSettings,
        live: impl FnOnce() -> u64,
    ) -> bool {
        let percentage = settings.growth_percentage;
        percentage > 0
            && bytes > settings.bytes_min
            && is_beyond(bytes, self.base_bytes.load(Relaxed), percentage)
            && is_beyond(bytes, live(), percentage)
    }
}

/// Whether so many bytes are more than others by this percentage.
fn is_beyond(bytes: u64, base: u64, percentage: u64) -> bool {
    bytes - base.min(bytes) >= base / 100 * percentage
}

/// What a pass is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// To have all keys in a new log.
    First,
    /// To make a log shorter.
    Again,
}

/// A pass over all keys, underway.
pub(super) struct Pass<'k> {
    pub(super) kind: Kind,
    log: Arc<OpenLog>,
    bytes_at_begin: u64,
    /// What is before this goes at the end.
    mark: Option<WalMark>,
    checkpoint: Checkpoint<'k>,
    stage: Stage,
    begun: Instant,
    written: u64,
    stretch: usize,
    freed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Keys,
    /// All keys are in the log, but not on the device.
    Sync,
    /// What is older goes.
    Drop,
    Done,
}

/// What a pass came to.
pub(super) struct Done {
    pub(super) written: u64,
    pub(super) freed: u64,
    pub(super) took: Duration,
}

/// How a pass goes on after a step.
pub(super) enum Step {
    /// Not before this time.
    Underway(Duration),
    /// It is through.
    Done(Done),
}

impl<'k> Pass<'k> {
    /// Begins one. For [`Kind::Again`] in a new segment, so that the part from before can go.
    pub(super) fn begin(
        kind: Kind,
        log: Arc<OpenLog>,
        keyspace: &'k Keyspace,
        now: Instant,
    ) -> Result<Self, Error> {
        let bytes_at_begin = log.wal.bytes();
        let mark = (kind == Kind::Again).then(|| log.wal.rotate()).transpose()?;
        Ok(Self {
            kind,
            log,
            bytes_at_begin,
            mark,
            checkpoint: Checkpoint::begin(keyspace),
            stage: Stage::Keys,
            begun: now,
            written: 0,
            stretch: 0,
            freed: 0,
        })
    }

    /// Goes one step further. If it fails the pass has come to nothing.
    pub(super) fn step(
        &mut self,
        journal: &Journal,
        rate: u64,
        now: Instant,
    ) -> Result<Step, Error> {
        match self.stage {
            Stage::Keys => return Ok(Step::Underway(self.log_keys(rate, now))),
            // What takes the place of the old part has to be on the device before that goes.
            Stage::Sync => {
                journal.sync()?;
                self.stage = if self.mark.is_some() { Stage::Drop } else { Stage::Done };
            }
            Stage::Drop => {
                if let Some(mark) = &self.mark {
                    self.freed = self.log.wal.drop_before(mark)?;
                }
                self.stage = Stage::Done;
            }
            Stage::Done => {}
        }
        if self.stage != Stage::Done {
            return Ok(Step::Underway(Duration::ZERO));
        }
        journal.compaction.set_base(self.log.wal.bytes());
        let took = now.saturating_duration_since(self.begun);
        Ok(Step::Done(Done { written: self.written, freed: self.freed, took }))
    }

    /// Whether all keys are in the log, so that only what is older has to go.
    pub(super) fn has_all_keys(&self) -> bool {
        self.stage != Stage::Keys
    }

    /// Logs some keys. How long to wait afterwards so as to keep to the budget.
    fn log_keys(&mut self, rate: u64, now: Instant) -> Duration {
        let (bytes, progress) = self.checkpoint.step();
        self.written += bytes as u64;
        self.stretch += bytes;
        if progress == Progress::Complete {
            self.stage = Stage::Sync;
        }
        if rate == 0 || self.stretch < STRETCH_BYTES || progress == Progress::Complete {
            return Duration::ZERO;
        }
        self.stretch = 0;
        let hurries =
            self.kind == Kind::Again && self.log.wal.bytes() > self.bytes_at_begin * HURRY_FACTOR;
        let time = Duration::from_secs_f64(self.written as f64 / rate as f64);
        let ahead = time.saturating_sub(now.saturating_duration_since(self.begun));
        if hurries { Duration::ZERO } else { ahead }
    }
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
