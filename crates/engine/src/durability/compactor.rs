//! What keeps the log from growing without bound.
//!
//! Once the log is so much larger than what a pass over all keys left behind (directive
//! `auto-aof-rewrite-percentage`), or on request (BGREWRITEAOF), it writes all live keys to
//! the log again, a few at a time and within `compaction-bytes-per-second`, and then drops the part
//! of the log from before. Nothing stops meanwhile. A log that has grown because there is more data now has
//! nothing to drop; so what the entries take in memory counts like what the last pass left, if it is more.
//!
//! **Bound.** With live data of L bytes, as logged or in memory, whichever is more, and the default of 100
//! percent, a pass begins at 2 L. It adds L itself, and writers add what they write until it ends. When the log gets to
//! [`HURRY_FACTOR`] times the size at the beginning, the pass no longer keeps to its budget. So the
//! log stays below about 4 L plus what is written in one pass at full speed.
//!
//! **Room.** A pass needs as much space beside the log as it writes, before anything is dropped. So one begins early
//! and does not keep to its budget when the disk has little more to spare than that ([`Room`]), whatever the
//! settings say, as long as there is something to drop. While it is underway, writers wait when the rest of the disk
//! is needed for the rest of the pass.
//!
//! A pass goes in steps, none of which waits for anything but the disk; `wal_manager.rs` says when.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tierce_keyspace::Keyspace;
use tierce_keyspace::log::{Checkpoint, Pass as Progress};
use tierce_storage::disk::Space;
use tierce_storage::{Error, WalMark};

use super::durable_log::{DurableLog, OpenLog};
use super::host::CompactionSettings;

/// A pass that lets the log grow to this many times its size at the beginning stops sparing others.
const HURRY_FACTOR: u64 = 2;

/// Keys are logged in stretches of about this many bytes between two looks at the clock.
const STRETCH_BYTES: usize = 256 * 1024;

/// The space of the disk is looked at each time that a pass has written so much.
const CHECK_EVERY_BYTES: u64 = 64 * 1024;

/// What a pass needs beside the live data is this part of the disk at most: a segment that has been begun, the
/// manifest, and what is written before it begins.
const SLACK_PART: u64 = 16;
const SLACK_BYTES_MAX: u64 = 8 << 20;

/// The state of compaction, and requests for it.
pub(super) struct Compaction {
    pub(super) requests: Mutex<Requests>,
    pub(super) changed: Condvar,
    /// When the pass that is underway began.
    running_since: Mutex<Option<Instant>>,
    /// Not all keys are in the log yet: it was begun while the server ran.
    is_incomplete: AtomicBool,
    /// Writers wait when the log is that long, a position: a pass needs what is left of the disk then. The largest
    /// number for never.
    room_until: AtomicU64,
    /// Passes that have failed since the last one that did not.
    failures_in_a_row: AtomicU64,
    /// Bytes that another log needs, as of the last attempt to heal.
    needed: AtomicU64,
    passes: AtomicU64,
    last_ms: AtomicI64,
    /// Bytes of the log after the last pass, or when it was opened.
    base_bytes: AtomicU64,
    bytes_written: AtomicU64,
}

impl Default for Compaction {
    fn default() -> Self {
        Self {
            requests: Mutex::default(),
            changed: Condvar::new(),
            running_since: Mutex::default(),
            is_incomplete: AtomicBool::new(false),
            room_until: AtomicU64::new(u64::MAX),
            failures_in_a_row: AtomicU64::new(0),
            needed: AtomicU64::new(0),
            passes: AtomicU64::new(0),
            last_ms: AtomicI64::new(0),
            base_bytes: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
        }
    }
}

/// What the WAL manager is asked for.
#[derive(Default)]
pub(super) struct Requests {
    /// A pass.
    pub(super) pass: bool,
    /// One that begins from now on, also behind one that is underway.
    pub(super) new_pass: bool,
    /// That there is a log, or none.
    pub(super) log: bool,
    /// The number of the last switch.
    pub(super) switch_id: u64,
    /// The last switch that has come to an end, and all before it.
    pub(super) ended_switch_id: u64,
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
    /// Passes that have failed since the last one that did not.
    pub failures_in_a_row: u64,
    /// Passes completed.
    pub passes: u64,
    /// Duration of the last one.
    pub last: Option<Duration>,
    /// Bytes of the log after the last pass.
    pub base_bytes: u64,
    /// Bytes written by all passes.
    pub bytes_written: u64,
}

/// Why no pass was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotCompacted {
    /// One is underway.
    Underway,
    /// The log has failed for this reason, and only the operator can have another one begun.
    Failed(String),
}

impl DurableLog {
    /// Asks for a pass. While there is a write error, for an attempt to heal it, without waiting for the time of
    /// the next one.
    ///
    /// # Errors
    /// If a pass is underway, or the log has failed for a reason that does not pass.
    pub fn compact(&self) -> Result<(), NotCompacted> {
        // Looked at first: the pass that is asked for may begin at once.
        if self.compaction.running_since.lock().is_some() {
            return Err(NotCompacted::Underway);
        }
        match self.write_error() {
            Some(cause) if !self.may_heal() => return Err(NotCompacted::Failed(cause)),
            _ => self.compaction.ask(|requests| requests.pass = true),
        }
        Ok(())
    }

    /// Asks for a pass over all that is in the log now: behind one that is underway, another one.
    pub(crate) fn compact_what_is_there(&self) {
        self.compaction.ask(|requests| requests.new_pass = true);
    }

    /// Whether writers have to wait because a pass needs what is left of the disk. For a log that has failed
    /// no thread waits: no pass goes on there, and writers are to hear of the failure.
    #[inline]
    pub fn keeps_room(&self) -> bool {
        self.is_room_taken() && !self.has_write_error()
    }

    /// Whether the log is so long that a pass needs what is left of the disk.
    #[inline]
    pub(super) fn is_room_taken(&self) -> bool {
        let until = self.compaction.room_until.load(Relaxed);
        until != u64::MAX && self.appended() >= until
    }

    /// Bytes that compaction needs of a disk. Where they are not there the log fails, which then refuses deletes as well.
    pub fn room_for_compaction(&self, keyspace: &Keyspace, space: Space) -> u64 {
        if !self.is_on() {
            return 0;
        }
        let room = Room { space, live: keyspace.memory().logged() };
        room.live + room.slack()
    }

    /// True if there will soon be more space, because compaction is underway or about to begin.
    pub fn makes_room(&self, keyspace: &Keyspace, space: Space) -> bool {
        let compaction = &self.compaction;
        let room = Room { space, live: keyspace.memory().logged() };
        let is_urgent =
            || self.log().is_some_and(|log| compaction.is_urgent(log.wal.bytes(), &room));
        !self.has_write_error()
            && compaction.failures_in_a_row.load(Relaxed) == 0
            && (compaction.running_since.lock().is_some() || is_urgent())
    }

    /// Figures for INFO.
    pub fn compaction_figures(&self) -> CompactionFigures {
        let compaction = &self.compaction;
        let passes = compaction.passes.load(Relaxed);
        CompactionFigures {
            running: compaction.running_since.lock().map(|since| since.elapsed()),
            is_incomplete: compaction.is_incomplete(),
            failures_in_a_row: compaction.failures_in_a_row.load(Relaxed),
            passes,
            last: (passes > 0)
                .then(|| Duration::from_millis(compaction.last_ms.load(Relaxed).max(0) as u64)),
            base_bytes: compaction.base_bytes.load(Relaxed),
            bytes_written: compaction.bytes_written.load(Relaxed),
        }
    }
}

impl Compaction {
    /// Changes what is asked for, and wakes the WAL manager.
    pub(super) fn ask<T>(&self, change: impl FnOnce(&mut Requests) -> T) -> T {
        let mut requests = self.requests.lock();
        requests.count += 1;
        self.changed.notify_all();
        change(&mut requests)
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

    /// Has writers wait from this position of the log on.
    pub(super) fn set_room_until(&self, position: u64) {
        self.room_until.store(position, Relaxed);
    }

    /// Another log needs about so many bytes.
    pub(super) fn set_needed(&self, bytes: u64) {
        self.needed.store(bytes, Relaxed);
    }

    pub(super) fn needed(&self) -> u64 {
        self.needed.load(Relaxed)
    }

    /// Whether the one before had not failed.
    pub(super) fn note_failure(&self) -> bool {
        self.failures_in_a_row.fetch_add(1, Relaxed) == 0
    }

    pub(super) fn note_success(&self, done: &Done) {
        self.failures_in_a_row.store(0, Relaxed);
        self.last_ms.store(done.took.as_millis() as i64, Relaxed);
        self.bytes_written.fetch_add(done.written, Relaxed);
        self.passes.fetch_add(1, Relaxed);
    }

    /// Whether a log of this many bytes has so much in it that no longer counts that a pass is due. `live`
    /// says about what a pass would write; it takes a walk through the shards to know.
    pub(super) fn is_due(
        &self,
        bytes: u64,
        settings: &CompactionSettings,
        live: impl FnOnce() -> u64,
    ) -> bool {
        let percentage = settings.growth_percentage;
        percentage > 0
            && bytes > settings.bytes_min
            && is_beyond(bytes, self.base_bytes.load(Relaxed), percentage)
            && is_beyond(bytes, live(), percentage)
    }

    /// A new log counts: what failed on the way is over.
    pub(super) fn note_completed(&self) {
        self.failures_in_a_row.store(0, Relaxed);
    }

    /// Whether a pass over the log, of this many bytes, fits into what is left of the disk. One that does not fails
    /// the log, and costs writers the rest of the disk. How much it writes is not known exactly: the keys in memory
    /// are too large a guess for collections, and what the log holds is one while most of it no longer counts.
    pub(super) fn fits(&self, bytes: u64, room: &Room) -> bool {
        let held = match self.base_bytes.load(Relaxed) {
            0 => bytes,
            base => base.min(bytes),
        };
        room.space.free >= room.live.min(held)
    }

    /// Whether a pass over the log, of this many bytes, has to begin because there may soon be no room for it.
    /// One that would free little is not worth it: the log is full of data then.
    pub(super) fn is_urgent(&self, bytes: u64, room: &Room) -> bool {
        room.is_short() && self.is_worth_it(bytes, room)
    }

    /// Whether a pass over the log, once it has this many bytes, makes room.
    fn is_worth_it(&self, bytes: u64, room: &Room) -> bool {
        // What a log held when it was opened says nothing of how much of it is live.
        let left = if self.passes.load(Relaxed) > 0 { self.base_bytes.load(Relaxed) } else { 0 };
        let garbage = bytes.saturating_sub(room.live.max(left));
        garbage > (room.live / 4).max(room.slack())
    }

    /// How much more than its `bytes` the log may get before a pass has to begin; the largest number if none
    /// would make room.
    pub(super) fn room_before_pass(&self, bytes: u64, room: &Room) -> u64 {
        let left = room.space.free.saturating_sub(room.live + room.slack());
        if self.is_worth_it(bytes.saturating_add(left), room) { left } else { u64::MAX }
    }
}

/// What the disk has to spare, and what a pass needs of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) space: Space,
    /// About what a pass writes.
    pub(super) live: u64,
}

impl Room {
    /// Half as much as a pass writes is for those who write before it begins, and while it is underway.
    fn needed(&self) -> u64 {
        self.live.saturating_add(self.live / 2).saturating_add(self.slack())
    }

    fn slack(&self) -> u64 {
        slack(&self.space)
    }

    /// Whether a pass should not wait any longer.
    pub(super) fn is_short(&self) -> bool {
        self.space.free < self.needed()
    }

    /// What may be written until it is.
    pub(super) fn spare(&self) -> u64 {
        self.space.free.saturating_sub(self.needed())
    }
}

/// Whether this many bytes are more than others by this percentage.
fn is_beyond(bytes: u64, base: u64, percentage: u64) -> bool {
    bytes - base.min(bytes) >= base / 100 * percentage
}

fn slack(space: &Space) -> u64 {
    (space.total / SLACK_PART).min(SLACK_BYTES_MAX)
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
    /// About what it will have written at the end.
    live: u64,
    written: u64,
    stretch: usize,
    /// What it had written when the space of the disk was looked at.
    checked: Option<u64>,
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

/// How a pass continues after a step.
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
            live: keyspace.memory().logged(),
            written: 0,
            stretch: 0,
            checked: None,
            freed: 0,
        })
    }

    /// Goes one step further. If it fails the pass has come to nothing.
    pub(super) fn step(
        &mut self,
        durable_log: &DurableLog,
        rate: u64,
        now: Instant,
    ) -> Result<Step, Error> {
        match self.stage {
            Stage::Keys => return Ok(Step::Underway(self.log_keys(rate, now))),
            // What takes the place of the old part has to be on the device before that goes.
            Stage::Sync => {
                durable_log.sync()?;
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
        durable_log.compaction.set_base(self.log.wal.bytes());
        let took = now.saturating_duration_since(self.begun);
        Ok(Step::Done(Done { written: self.written, freed: self.freed, took }))
    }

    /// Whether all keys are in the log, so that only what is older has to go.
    pub(super) fn has_all_keys(&self) -> bool {
        self.stage != Stage::Keys
    }

    /// Whether it is time to look at the space of the disk again.
    pub(super) fn wants_room_check(&mut self) -> bool {
        let wants = self.checked.is_none_or(|at| self.written >= at + CHECK_EVERY_BYTES);
        if wants {
            self.checked = Some(self.written);
        }
        wants && !self.has_all_keys()
    }

    /// What the pass leaves to others of what is left of the disk.
    pub(super) fn leaves_of(&self, space: &Space) -> u64 {
        let rest = self.live.saturating_sub(self.written);
        space.free.saturating_sub(rest.saturating_add(slack(space)))
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

    #[test]
    fn a_pass_fits_where_there_is_room_for_what_is_live() {
        let compaction = Compaction::default();
        let room = |free| Room { space: Space { total: 80, free }, live: 16 };
        assert!(!compaction.fits(19, &room(15)) && compaction.fits(19, &room(16)));
        assert!(compaction.fits(12, &room(12)), "the log holds no more than that");
        compaction.set_base(5);
        assert!(!compaction.fits(19, &room(4)) && compaction.fits(19, &room(5)));
    }

    #[test]
    fn a_pass_is_urgent_when_room_is_short_and_there_is_much_to_drop() {
        const MIB: u64 = 1 << 20;
        let compaction = Compaction::default();
        compaction.set_base(100 * MIB);
        let room = |free| Room { space: Space { total: 150 * MIB, free }, live: 16 * MIB };
        // 16 and 8 MiB for the data, and 8 MiB of slack.
        assert!(compaction.is_urgent(110 * MIB, &room(31 * MIB)));
        assert!(!compaction.is_urgent(110 * MIB, &room(32 * MIB)));
        assert!(!compaction.is_urgent(24 * MIB, &room(MIB)), "it would free 8 MiB");
        let done = Done { written: 0, freed: 0, took: Duration::ZERO };
        compaction.note_success(&done);
        assert!(!compaction.is_urgent(108 * MIB, &room(31 * MIB)), "100 MiB were left by a pass");
        let tiny = |free| Room { space: Space { total: 16 * MIB, free }, live: 0 };
        assert!(tiny(MIB - 1).is_short() && !tiny(MIB).is_short());
        assert_eq!((tiny(MIB - 1).spare(), tiny(3 * MIB).spare()), (0, 2 * MIB));
    }
}
