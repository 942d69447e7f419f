//! Compaction of the log, which keeps it from growing without bound (Redis: AOF rewrite).
//!
//! A compaction pass writes all live keys to the log again, a few at a time and within `compaction-bytes-per-second`.
//! Then it drops the older part of the log. Clients are served meanwhile. A pass begins on request (BGREWRITEAOF), or
//! when the log has outgrown its size after the last pass by `auto-aof-rewrite-percentage`. If the log has grown only
//! because there is more data, nothing can be dropped. So the log must also outgrow the size of the entries in memory.
//!
//! **Bound.** Let L be the bytes of live data, as logged or in memory, whichever is more. With the default of 100
//! percent, a pass begins at 2 L. The pass adds L, and writers add what they write until it ends. When the log reaches
//! [`HURRY_FACTOR`] times its size at the beginning, the pass ignores its budget. So the log stays below about 4 L plus
//! the bytes written during one pass at full speed.
//!
//! **Disk space.** A pass needs free space for everything that it writes, before it can drop anything. When little more
//! than that is free ([`Room`]), a pass begins early and ignores its budget, whatever the settings say, as long as
//! there is something to drop. While it runs, writers wait if the pass needs the rest of the disk.
//!
//! A pass advances in steps that wait for nothing but the disk; `wal_manager.rs` decides when.

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

/// Size of the log during a pass, as a multiple of its size at the beginning, from which the pass ignores its budget.
const HURRY_FACTOR: u64 = 2;

/// Bytes of keys that are logged, about, between two looks at the clock.
const STRETCH_BYTES: usize = 256 * 1024;

/// Bytes that a pass writes between two checks of the free space.
const CHECK_EVERY_BYTES: u64 = 64 * 1024;

/// Upper bound, as a part of the disk, of the space that a pass needs in addition to the live data: for a new segment,
/// the manifest, and writes before the pass begins.
const SLACK_PART: u64 = 16;
const SLACK_BYTES_MAX: u64 = 8 << 20;

/// Interval between attempts to continue a pass while another thread keeps the next shard locked.
const RETRY_SHARD_AFTER: Duration = Duration::from_millis(20);

/// Time after which the operator is told that a pass is blocked.
const REPORT_BLOCK_AFTER: Duration = Duration::from_secs(5);

/// State of compaction, and requests to the WAL manager.
pub(super) struct Compaction {
    pub(super) requests: Mutex<Requests>,
    pub(super) changed: Condvar,
    /// Start time of the running pass.
    running_since: Mutex<Option<Instant>>,
    /// True while not all keys are in the log, because it was created at run time.
    is_incomplete: AtomicBool,
    /// Log position from which writers wait, because the running pass needs the rest of the disk; the largest number
    /// for never.
    room_until: AtomicU64,
    /// Failed passes since the last successful one.
    failures_in_a_row: AtomicU64,
    /// Bytes that a replacement log needs, as of the last attempt to heal.
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

/// Requests to the WAL manager.
#[derive(Default)]
pub(super) struct Requests {
    /// A compaction pass is requested.
    pub(super) pass: bool,
    /// A pass that begins after this request is wanted, even if one is running.
    pub(super) new_pass: bool,
    /// True if there shall be a log.
    pub(super) log: bool,
    /// Id of the last switch.
    pub(super) switch_id: u64,
    /// Id of the last switch that has ended; all earlier ones have ended too.
    pub(super) ended_switch_id: u64,
    /// Reason why that switch failed, if it did.
    pub(super) failure: Option<String>,
    /// The server is shutting down.
    pub(super) ends: bool,
    /// Number of requests and failures so far.
    pub(super) count: u64,
}

/// Figures for INFO.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompactionFigures {
    /// Time since the running pass began, if one is running.
    pub running: Option<Duration>,
    /// True while the log is not authoritative yet, because not all keys are in it.
    pub is_incomplete: bool,
    /// Failed passes since the last successful one.
    pub failures_in_a_row: u64,
    /// Completed passes.
    pub passes: u64,
    /// Duration of the last pass.
    pub last: Option<Duration>,
    /// Bytes of the log after the last pass.
    pub base_bytes: u64,
    /// Bytes written by all passes.
    pub bytes_written: u64,
}

/// Reason why no pass was requested.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotCompacted {
    /// A pass is running.
    Underway,
    /// The log has failed for this reason, and only the operator can start a new one.
    Failed(String),
}

impl DurableLog {
    /// Requests a compaction pass. While there is a write error, requests an immediate attempt to heal it instead.
    ///
    /// # Errors
    /// If a pass is running, or the log has failed for a permanent reason.
    pub fn compact(&self) -> Result<(), NotCompacted> {
        // Check this first: the requested pass may begin at once.
        if self.compaction.running_since.lock().is_some() {
            return Err(NotCompacted::Underway);
        }
        match self.write_error() {
            Some(cause) if !self.may_heal() => return Err(NotCompacted::Failed(cause)),
            _ => self.compaction.ask(|requests| requests.pass = true),
        }
        Ok(())
    }

    /// Requests a pass over everything that is in the log now. If a pass is running, another one follows it.
    pub(crate) fn compact_what_is_there(&self) {
        self.compaction.ask(|requests| requests.new_pass = true);
    }

    /// Returns true if writers must wait because a pass needs the rest of the disk. Nobody waits for a log that has
    /// failed: its pass does not go on, and writers shall learn of the failure.
    #[inline]
    pub fn keeps_room(&self) -> bool {
        self.is_room_taken() && !self.has_write_error()
    }

    /// Returns true if the log is so long that a pass needs the rest of the disk.
    #[inline]
    pub(super) fn is_room_taken(&self) -> bool {
        let until = self.compaction.room_until.load(Relaxed);
        until != u64::MAX && self.appended() >= until
    }

    /// Returns the free bytes that compaction needs. With less the log fails, and then deletes are refused as well.
    pub fn room_for_compaction(&self, keyspace: &Keyspace, space: Space) -> u64 {
        if !self.is_on() {
            return 0;
        }
        let room = Room { space, live: keyspace.memory().logged() };
        room.live + room.slack()
    }

    /// Returns true if compaction is running or about to begin, so that there will soon be more space.
    pub fn makes_room(&self, keyspace: &Keyspace, space: Space) -> bool {
        let compaction = &self.compaction;
        let room = Room { space, live: keyspace.memory().logged() };
        let is_urgent =
            || self.log().is_some_and(|log| compaction.is_urgent(log.wal.bytes(), &room));
        !self.has_write_error()
            && compaction.failures_in_a_row.load(Relaxed) == 0
            && (compaction.running_since.lock().is_some() || is_urgent())
    }

    /// Returns the figures for INFO.
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
    /// Changes the requests and wakes the WAL manager.
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

    /// Makes writers wait from this log position on.
    pub(super) fn set_room_until(&self, position: u64) {
        self.room_until.store(position, Relaxed);
    }

    /// Records how many bytes a replacement log needs, about.
    pub(super) fn set_needed(&self, bytes: u64) {
        self.needed.store(bytes, Relaxed);
    }

    pub(super) fn needed(&self) -> u64 {
        self.needed.load(Relaxed)
    }

    /// Counts a failed pass. Returns true if it is the first one in a row.
    pub(super) fn note_failure(&self) -> bool {
        self.failures_in_a_row.fetch_add(1, Relaxed) == 0
    }

    pub(super) fn note_success(&self, done: &Done) {
        self.failures_in_a_row.store(0, Relaxed);
        self.last_ms.store(done.took.as_millis() as i64, Relaxed);
        self.bytes_written.fetch_add(done.written, Relaxed);
        self.passes.fetch_add(1, Relaxed);
    }

    /// Returns true if a log of this many bytes has enough garbage for a pass. `live` returns about how many bytes the
    /// pass would write; it has to visit all shards to know.
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

    /// Resets the failures, because a new log has become authoritative.
    pub(super) fn note_completed(&self) {
        self.failures_in_a_row.store(0, Relaxed);
    }

    /// Returns true if a pass over the log of this many bytes fits on the disk. A pass that does not fit fails the log
    /// and takes the rest of the disk from writers. Its size is an estimate: the size of the keys in memory is too high
    /// for collections, and the size of the log is too high while most of it is garbage.
    pub(super) fn fits(&self, bytes: u64, room: &Room) -> bool {
        let held = match self.base_bytes.load(Relaxed) {
            0 => bytes,
            base => base.min(bytes),
        };
        room.space.free >= room.live.min(held)
    }

    /// Returns true if a pass over the log of this many bytes must begin because the disk may soon be too full for it.
    /// Returns false if it would free little, because the log is mostly live data.
    pub(super) fn is_urgent(&self, bytes: u64, room: &Room) -> bool {
        room.is_short() && self.is_worth_it(bytes, room)
    }

    /// Returns true if a pass over the log, once it has this many bytes, frees enough space.
    fn is_worth_it(&self, bytes: u64, room: &Room) -> bool {
        // The size of the log at opening does not tell how much of it is live.
        let left = if self.passes.load(Relaxed) > 0 { self.base_bytes.load(Relaxed) } else { 0 };
        let garbage = bytes.saturating_sub(room.live.max(left));
        garbage > (room.live / 4).max(room.slack())
    }

    /// Returns how many bytes the log may still grow before a pass must begin. Returns the largest number if no pass
    /// would free enough.
    pub(super) fn room_before_pass(&self, bytes: u64, room: &Room) -> u64 {
        let left = room.space.free.saturating_sub(room.live + room.slack());
        if self.is_worth_it(bytes.saturating_add(left), room) { left } else { u64::MAX }
    }
}

/// Free space of the disk, and the space that a pass needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) space: Space,
    /// Bytes that a pass writes, about.
    pub(super) live: u64,
}

impl Room {
    /// Adds half of the pass's size for concurrent writers, before and during the pass.
    fn needed(&self) -> u64 {
        self.live.saturating_add(self.live / 2).saturating_add(self.slack())
    }

    fn slack(&self) -> u64 {
        slack(&self.space)
    }

    /// Returns true if a pass should begin at once.
    pub(super) fn is_short(&self) -> bool {
        self.space.free < self.needed()
    }

    /// Returns how many bytes may be written before [`is_short`](Self::is_short) returns true.
    pub(super) fn spare(&self) -> u64 {
        self.space.free.saturating_sub(self.needed())
    }
}

/// Returns true if `bytes` exceed `base` by this percentage.
fn is_beyond(bytes: u64, base: u64, percentage: u64) -> bool {
    bytes - base.min(bytes) >= base / 100 * percentage
}

fn slack(space: &Space) -> u64 {
    (space.total / SLACK_PART).min(SLACK_BYTES_MAX)
}

/// Purpose of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Writes all keys to a new log.
    First,
    /// Makes the log shorter.
    Again,
}

/// A running pass over all keys.
pub(super) struct Pass<'k> {
    pub(super) kind: Kind,
    log: Arc<OpenLog>,
    bytes_at_begin: u64,
    /// Mark in the log; everything before it is dropped at the end.
    mark: Option<WalMark>,
    checkpoint: Checkpoint<'k>,
    /// Time since when other threads keep shards locked that the pass needs.
    blocked_since: Option<Instant>,
    has_reported_block: bool,
    stage: Stage,
    begun: Instant,
    /// Bytes that it will have written at the end, about.
    live: u64,
    written: u64,
    stretch: usize,
    /// Value of `written` at the last check of the free space.
    checked: Option<u64>,
    freed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Keys,
    /// All keys are in the log, but not yet durable.
    Sync,
    /// The older part of the log is dropped.
    Drop,
    Done,
}

/// Result of a completed pass.
pub(super) struct Done {
    pub(super) written: u64,
    pub(super) freed: u64,
    pub(super) took: Duration,
}

/// Result of a step of a pass.
pub(super) enum Step {
    /// The pass goes on after this time.
    Underway(Duration),
    /// The pass has ended.
    Done(Done),
}

impl<'k> Pass<'k> {
    /// Begins a pass. For [`Kind::Again`] it starts a new segment, so that the older ones can be dropped.
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
            blocked_since: None,
            has_reported_block: false,
            stage: Stage::Keys,
            begun: now,
            live: keyspace.memory().logged(),
            written: 0,
            stretch: 0,
            checked: None,
            freed: 0,
        })
    }

    /// Advances the pass by one step. If it fails, the whole pass has failed.
    pub(super) fn step(
        &mut self,
        durable_log: &DurableLog,
        rate: u64,
        now: Instant,
    ) -> Result<Step, Error> {
        match self.stage {
            Stage::Keys => return Ok(Step::Underway(self.log_keys(rate, now))),
            // The keys written again must be durable before the older part is dropped.
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

    /// Returns true if all keys are in the log, so that only the older part remains to be dropped.
    pub(super) fn has_all_keys(&self) -> bool {
        self.stage != Stage::Keys
    }

    /// Returns true if another thread keeps the next shard locked.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked_since.is_some()
    }

    /// Returns true once, after the pass has been blocked for long.
    pub(super) fn must_report_block(&mut self, now: Instant) -> bool {
        let blocked = self.blocked_since.map(|since| now.saturating_duration_since(since));
        let is_long = blocked.is_some_and(|time| time >= REPORT_BLOCK_AFTER);
        is_long && !std::mem::replace(&mut self.has_reported_block, true)
    }

    /// Returns true if the free space must be checked again. While the pass is blocked, only others change it.
    pub(super) fn wants_room_check(&mut self) -> bool {
        let has_written = self.checked.is_none_or(|at| self.written >= at + CHECK_EVERY_BYTES);
        let wants = has_written || self.is_blocked();
        if wants {
            self.checked = Some(self.written);
        }
        wants && !self.has_all_keys()
    }

    /// Returns the free bytes that the rest of the pass does not need.
    pub(super) fn leaves_of(&self, space: &Space) -> u64 {
        let rest = self.live.saturating_sub(self.written);
        space.free.saturating_sub(rest.saturating_add(slack(space)))
    }

    /// Logs some keys. Returns how long to wait afterwards to keep to the budget.
    fn log_keys(&mut self, rate: u64, now: Instant) -> Duration {
        let (bytes, progress) = self.checkpoint.step();
        if progress == Progress::Busy {
            self.blocked_since.get_or_insert(now);
            return RETRY_SHARD_AFTER;
        }
        if !self.checkpoint.is_queueing()
            && let Some(since) = self.blocked_since.take()
        {
            // The budget counts only the time in which the pass could write.
            self.begun += now.saturating_duration_since(since);
        }
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
        // Needed: 16 and 8 MiB for the data, and 8 MiB of slack.
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
