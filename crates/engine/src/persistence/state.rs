//! State of saves: the running one, the last one, and the waiting clients.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tierce_keyspace::{
    Keyspace, SHARD_PATIENCE, ShardLocks, Snapshot, SnapshotError, StreamPosition,
};

use super::backup::Backup;
use super::error::SaveError;
use super::load::LoadReport;
use super::points::{self, Situation};
use super::save::{CopySink, Saved, Target};
use tierce_config::{DirectiveId, SavePoint, Settings};

/// Delay before another attempt of a scheduled save that could not begin.
const PUT_OFF_FOR: Duration = Duration::from_secs(1);

/// Maximum number of doublings of [`Persistence::patience`]: up to three seconds.
const DOUBLINGS_MAX: u32 = 5;

/// Id of a save, for clients that wait for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SaveId(u64);

/// Cause of a save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// SAVE: a client waits for it.
    Foreground,
    /// BGSAVE, or a save point.
    Background,
    /// BACKUP: a copy for other purposes, which does not change the state of saves.
    Backup,
    /// A full copy for replicas, which does not change the state of saves either.
    Copy,
    /// Shutdown of the server.
    Shutdown,
}

/// A save that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// Its id.
    pub save_id: SaveId,
    /// Time for which its begin locked all shards.
    pub pause: Duration,
}

/// Outcome of a save. An error is text, because several receivers need it.
pub type Outcome = Result<(), String>;

/// A save that has begun and waits for the saver.
pub(super) struct Job {
    pub(super) save_id: SaveId,
    pub(super) cause: Cause,
    pub(super) snapshot: Snapshot,
    /// Its destination.
    pub(super) target: Target,
}

/// The running save.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time since it began.
    pub elapsed: Duration,
    /// True if INFO calls it a background save.
    pub is_background: bool,
    /// Number of keys to save.
    pub keys_total: u64,
    /// Number of keys saved so far.
    pub keys: u64,
}

/// Figures for INFO.
#[derive(Clone, Debug)]
pub struct Report {
    /// The running save.
    pub running: Option<Progress>,
    /// True if another save begins after the running one.
    pub is_scheduled: bool,
    /// Value of [`Stats::changes`](tierce_keyspace::Stats::changes) when the last snapshot began.
    pub saved_changes: u64,
    /// Unix seconds of the last successful save, or of the start of the server.
    pub last_save_unix_seconds: i64,
    /// True if the last background save succeeded.
    pub is_last_ok: bool,
    /// Its duration.
    pub last_seconds: Option<u64>,
    /// Peak of the extra memory that it took.
    pub last_extra_bytes: u64,
    /// Time for which its begin locked all shards.
    pub last_pause: Duration,
    /// Number of successful saves.
    pub saves: u64,
    /// Result of the load at the start.
    pub loaded: LoadReport,
}

/// State of saves. Shared by all workers, the saver and the main thread.
pub struct Persistence {
    state: Mutex<SaveState>,
    /// Signals a job, or the end of the saver.
    work: Condvar,
    /// Signals the end of a save.
    ended: Condvar,
    keys: AtomicU64,
    /// See [`Persistence::refuses_writes`].
    refuses_writes: AtomicBool,
    /// Failed attempts to begin a save because shards were busy, since the last save began.
    busy_in_turn: AtomicU32,
    is_given_up: AtomicBool,
    /// See [`Persistence::start_dir`].
    start_dir: OnceLock<PathBuf>,
    /// See [`Persistence::set_last_position`].
    last_position: Mutex<Option<StreamPosition>>,
}

struct SaveState {
    next_save_id: u64,
    job: Option<Job>,
    running: Option<Running>,
    is_scheduled: bool,
    saver_ends: bool,
    /// Outcome of the last ended save, with its id.
    last: Option<(SaveId, Outcome)>,
    last_failure: Option<Instant>,
    report: Report,
}

struct Running {
    since: Instant,
    cause: Cause,
    keys: u64,
    changes: u64,
    pause: Duration,
}

impl Persistence {
    /// Creates the state of a server that has saved and loaded nothing.
    pub fn new(started_unix_seconds: i64) -> Self {
        let report = Report {
            running: None,
            is_scheduled: false,
            saved_changes: 0,
            last_save_unix_seconds: started_unix_seconds,
            is_last_ok: true,
            last_seconds: None,
            last_extra_bytes: 0,
            last_pause: Duration::ZERO,
            saves: 0,
            loaded: LoadReport::default(),
        };
        let state = SaveState {
            next_save_id: 0,
            job: None,
            running: None,
            is_scheduled: false,
            saver_ends: false,
            last: None,
            last_failure: None,
            report,
        };
        Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            ended: Condvar::new(),
            keys: AtomicU64::new(0),
            refuses_writes: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
            busy_in_turn: AtomicU32::new(0),
            start_dir: OnceLock::new(),
            last_position: Mutex::default(),
        }
    }

    /// Sets the replication offset of the final data, which does not change any more. The last snapshot records it.
    pub fn set_last_position(&self, position: Option<StreamPosition>) {
        *self.last_position.lock() = position;
    }

    pub(super) fn last_position(&self) -> Option<StreamPosition> {
        *self.last_position.lock()
    }

    /// Sets the directory of the log and the spilled values.
    pub fn set_start_dir(&self, dir: PathBuf) {
        _ = self.start_dir.set(dir);
    }

    /// Returns the data directory of the start. `dir` may have been changed since.
    pub fn start_dir(&self) -> &Path {
        self.start_dir.get().map_or(Path::new("."), PathBuf::as_path)
    }

    /// Returns true if writes are refused because the last background save failed.
    #[inline]
    pub fn refuses_writes(&self) -> bool {
        self.refuses_writes.load(Relaxed)
    }

    /// Returns how long a background save waits for busy shards. It is short, because a program may lock a shard
    /// forever, and long commands queue behind the save. It doubles with each failed attempt: otherwise overlapping
    /// long commands could delay the save forever.
    pub fn patience(&self) -> Duration {
        SHARD_PATIENCE * (1 << self.busy_in_turn.load(Relaxed).min(DOUBLINGS_MAX))
    }

    /// Begins a save of the data that `locks` sees now. The saver executes it.
    ///
    /// # Errors
    /// [`SaveError::InProgress`], if a save is running.
    pub fn begin(
        &self,
        keyspace: &Arc<Keyspace>,
        locks: &mut ShardLocks<'_>,
        now_ms: i64,
        cause: Cause,
        backup: Option<Backup>,
    ) -> Result<Begun, SaveError> {
        let target = backup.map_or(Target::File, Target::Backup);
        self.begin_for(keyspace, locks, now_ms, (cause, target), || {})
    }

    /// Begins a full copy for replicas of the data that `locks` sees now. `moment` is called while all shards are
    /// locked; see [`Snapshot::begin_at`].
    ///
    /// # Errors
    /// [`SaveError::InProgress`], if a save is running. The sink is unused then, but `moment` may have been called.
    pub fn begin_copy(
        &self,
        keyspace: &Arc<Keyspace>,
        locks: &mut ShardLocks<'_>,
        now_ms: i64,
        sink: Box<dyn CopySink>,
        moment: impl FnOnce(),
    ) -> Result<Begun, SaveError> {
        self.begin_for(keyspace, locks, now_ms, (Cause::Copy, Target::Copy(sink)), moment)
    }

    fn begin_for(
        &self,
        keyspace: &Arc<Keyspace>,
        locks: &mut ShardLocks<'_>,
        now_ms: i64,
        (cause, target): (Cause, Target),
        moment: impl FnOnce(),
    ) -> Result<Begun, SaveError> {
        // The lock of the state is not taken here: a thread that waits for it may hold a shard.
        let snapshot = match Snapshot::begin_at(keyspace, locks, now_ms, moment) {
            Err(SnapshotError::InProgress) => return Err(SaveError::InProgress),
            Err(SnapshotError::Busy(busy)) => {
                self.busy_in_turn.fetch_add(1, Relaxed);
                return Err(SnapshotError::Busy(busy).into());
            }
            begun => begun?,
        };
        self.busy_in_turn.store(0, Relaxed);
        let pause = snapshot.pause();
        let mut state = self.state.lock();
        if state.running.is_some() {
            // Another save is just being recorded. Dropping a snapshot locks shards, so release the state first.
            drop(state);
            drop(snapshot);
            return Err(SaveError::InProgress);
        }
        state.running = Some(Running {
            since: Instant::now(),
            cause,
            keys: snapshot.dbs().iter().map(|db| db.keys).sum(),
            changes: snapshot.changes(),
            pause,
        });
        let save_id = SaveId(state.next_save_id);
        state.next_save_id += 1;
        self.keys.store(0, Relaxed);
        self.is_given_up.store(false, Relaxed);
        state.job = Some(Job { save_id, cause, snapshot, target });
        drop(state);
        self.work.notify_one();
        Ok(Begun { save_id, pause })
    }

    /// Schedules a background save, which begins as soon as none is running.
    pub fn schedule(&self) {
        self.state.lock().is_scheduled = true;
        self.work.notify_one();
    }

    /// Postpones the scheduled save and waits, unless there is other work.
    pub(super) fn put_off(&self) {
        let mut state = self.state.lock();
        state.is_scheduled = true;
        if !state.saver_ends && state.job.is_none() {
            self.work.wait_for(&mut state, PUT_OFF_FOR);
        }
    }

    /// Returns the save point that is due now.
    pub fn due(
        &self,
        settings: &Settings,
        changes: u64,
        now_unix_seconds: i64,
    ) -> Option<SavePoint> {
        let state = self.state.lock();
        if state.running.is_some() {
            return None;
        }
        let age = now_unix_seconds - state.report.last_save_unix_seconds;
        let situation = Situation {
            age_seconds: age.max(0) as u64,
            changes: changes.saturating_sub(state.report.saved_changes),
            failed_seconds_ago: state.last_failure.map(|at| at.elapsed().as_secs()),
        };
        points::due(settings.save_points(), situation)
    }

    /// Waits for the end of a save. Workers must not call it.
    ///
    /// # Errors
    /// The reason of the failure, if the save failed.
    pub fn wait(&self, save_id: SaveId) -> Outcome {
        let mut state = self.state.lock();
        loop {
            match &state.last {
                Some((last, outcome)) if *last == save_id => return outcome.clone(),
                Some((last, _)) if *last > save_id => return Ok(()),
                _ => self.ended.wait(&mut state),
            }
        }
    }

    /// Returns the figures for INFO.
    pub fn report(&self) -> Report {
        let state = self.state.lock();
        let progress = |running: &Running| Progress {
            elapsed: running.since.elapsed(),
            is_background: running.cause == Cause::Background,
            keys_total: running.keys,
            keys: self.keys.load(Relaxed),
        };
        Report {
            running: state.running.as_ref().map(progress),
            is_scheduled: state.is_scheduled,
            ..state.report.clone()
        }
    }

    /// Records a load. The data equals the file, so nothing counts as changed since.
    pub fn note_loaded(&self, loaded: LoadReport, changes: u64) {
        let mut state = self.state.lock();
        state.report.loaded = loaded;
        state.report.saved_changes = changes;
    }

    /// Decides again if writes are refused. Must be called when a save has ended, and when `save` or
    /// `stop-writes-on-bgsave-error` changes.
    pub fn decide_on_writes(&self, settings: &Settings) {
        const STOP: DirectiveId = DirectiveId::of("stop-writes-on-bgsave-error");
        let is_last_ok = self.state.lock().report.is_last_ok;
        let wanted = settings.is_on(STOP) && !settings.save_points().is_empty();
        self.refuses_writes.store(wanted && !is_last_ok, Relaxed);
    }

    /// Aborts the running save, if there is one, and waits for its end. Workers must not call it.
    pub fn give_up(&self) {
        let mut state = self.state.lock();
        while state.running.is_some() {
            self.is_given_up.store(true, Relaxed);
            self.ended.wait(&mut state);
        }
    }

    /// Returns the value of [`Stats::changes`](tierce_keyspace::Stats::changes) when the last snapshot on disk began.
    pub fn saved_changes(&self) -> u64 {
        self.state.lock().report.saved_changes
    }

    /// Makes [`run_saver`](super::run_saver) return after the running save.
    pub fn end_saver(&self) {
        self.state.lock().saver_ends = true;
        self.work.notify_one();
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Relaxed)
    }

    pub(super) fn note_progress(&self, keys: u64) {
        self.keys.store(keys, Relaxed);
    }

    /// Waits for the next task of the saver and returns it.
    pub(super) fn next_task(&self) -> Task {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.job.take() {
                return Task::Save(Box::new(job));
            }
            if state.saver_ends {
                return Task::End;
            }
            if state.running.is_none() && std::mem::take(&mut state.is_scheduled) {
                return Task::BeginScheduled;
            }
            self.work.wait(&mut state);
        }
    }

    /// Records the end of a save.
    pub(super) fn finish(
        &self,
        (save_id, cause): (SaveId, Cause),
        outcome: &Result<Saved, SaveError>,
        extra_bytes: u64,
    ) {
        let mut state = self.state.lock();
        let Some(running) = state.running.take() else { return };
        let report = &mut state.report;
        report.last_pause = running.pause;
        report.last_extra_bytes = extra_bytes;
        if !matches!(cause, Cause::Foreground | Cause::Backup | Cause::Copy) {
            report.last_seconds = Some(running.since.elapsed().as_secs());
        }
        let outcome = match outcome {
            _ if matches!(cause, Cause::Backup | Cause::Copy) => {
                outcome.as_ref().map(drop).map_err(|error| error.to_string())
            }
            Ok(_) => {
                report.is_last_ok = true;
                report.saves += 1;
                report.saved_changes = running.changes;
                report.last_save_unix_seconds = crate::clock::unix_ms() / 1000;
                state.last_failure = None;
                Ok(())
            }
            Err(error) => {
                // As in Redis, a failed SAVE is reported to its client only, and does not stop the writes of others.
                if cause == Cause::Background {
                    report.is_last_ok = false;
                }
                state.last_failure = Some(Instant::now());
                Err(error.to_string())
            }
        };
        state.last = Some((save_id, outcome));
        drop(state);
        self.ended.notify_all();
    }
}

/// Next task of the saver.
pub(super) enum Task {
    Save(Box<Job>),
    BeginScheduled,
    End,
}
