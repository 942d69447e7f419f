//! What is known about saves: the running one, the last one, and the clients that wait.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tierce_keyspace::{Keyspace, SHARD_PATIENCE, ShardLocks, Snapshot, SnapshotError, StreamPlace};

use super::backup::Backup;
use super::error::SaveError;
use super::load::LoadReport;
use super::points::{self, Situation};
use super::save::{CopySink, Saved, Target};
use tierce_config::{DirectiveId, SavePoint, Settings};

/// A scheduled save that could not begin is tried again after so long.
const PUT_OFF_FOR: Duration = Duration::from_secs(1);

/// So often [`Persistence::patience`] doubles: up to three seconds.
const DOUBLINGS_MAX: u32 = 5;

/// Names a save, for clients that wait for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SaveId(u64);

/// Why there is a save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// SAVE: a client waits for it.
    Foreground,
    /// BGSAVE, or a save point.
    Background,
    /// BACKUP: a copy for other purposes. The state of saves does not change.
    Backup,
    /// A full copy for replicas. The same.
    Copy,
    /// The server ends.
    Shutdown,
}

/// A save that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// Its name.
    pub save_id: SaveId,
    /// For how long its beginning locked all shards.
    pub pause: Duration,
}

/// How a save ended; an error as text, for it goes to several places.
pub type Outcome = Result<(), String>;

/// A save that has begun and that the saver has to carry out.
pub(super) struct Job {
    pub(super) save_id: SaveId,
    pub(super) cause: Cause,
    pub(super) snapshot: Snapshot,
    /// Where it goes.
    pub(super) target: Target,
}

/// The running save.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// How long it has been running.
    pub elapsed: Duration,
    /// Whether it is one that INFO calls a background save.
    pub is_background: bool,
    /// Keys there are to save.
    pub keys_total: u64,
    /// Keys saved.
    pub keys: u64,
}

/// What INFO shows.
#[derive(Clone, Debug)]
pub struct Report {
    /// The running save.
    pub running: Option<Progress>,
    /// Another one begins when it is over.
    pub is_scheduled: bool,
    /// What [`Stats::changes`](tierce_keyspace::Stats::changes) was when the last snapshot began.
    pub saved_changes: u64,
    /// When the last save succeeded, or the server started, in Unix seconds.
    pub last_save_unix_seconds: i64,
    /// Whether the last background save succeeded.
    pub is_last_ok: bool,
    /// How long it took.
    pub last_seconds: Option<u64>,
    /// Extra memory that it took at most.
    pub last_extra_bytes: u64,
    /// For how long it locked all shards in its beginning.
    pub last_pause: Duration,
    /// Saves that succeeded.
    pub saves: u64,
    /// What was loaded at the start.
    pub loaded: LoadReport,
}

/// Saves, now and so far. Shared by all workers, the saver and the main thread.
pub struct Persistence {
    state: Mutex<SaveState>,
    /// There is a job, or the saver has to end.
    work: Condvar,
    /// A save has ended.
    ended: Condvar,
    keys: AtomicU64,
    /// See [`Persistence::refuses_writes`].
    refuses_writes: AtomicBool,
    /// Saves that could not begin since one did, because shards were busy.
    busy_in_turn: AtomicU32,
    is_given_up: AtomicBool,
    /// See [`Persistence::start_dir`].
    start_dir: OnceLock<PathBuf>,
    /// See [`Persistence::set_last_place`].
    last_place: Mutex<Option<StreamPlace>>,
}

struct SaveState {
    next_save_id: u64,
    job: Option<Job>,
    running: Option<Running>,
    is_scheduled: bool,
    saver_ends: bool,
    /// How the save with this id ended, the last one that did.
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
    /// Nothing was saved or loaded so far.
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
            last_place: Mutex::default(),
        }
    }

    /// The data do not change any more, and are those of this place in a stream: the last snapshot says so.
    pub fn set_last_place(&self, place: Option<StreamPlace>) {
        *self.last_place.lock() = place;
    }

    pub(super) fn last_place(&self) -> Option<StreamPlace> {
        *self.last_place.lock()
    }

    /// Says where the log and the spilled values are.
    pub fn set_start_dir(&self, dir: PathBuf) {
        _ = self.start_dir.set(dir);
    }

    /// The data directory of the start. `dir` may be another one since.
    pub fn start_dir(&self) -> &Path {
        self.start_dir.get().map_or(Path::new("."), PathBuf::as_path)
    }

    /// Whether writes are refused because the last background save failed.
    #[inline]
    pub fn refuses_writes(&self) -> bool {
        self.refuses_writes.load(Relaxed)
    }

    /// The time for which a background save waits for busy shards. It is short, as a program may hold a shard without end
    /// and long commands queue behind the save. It doubles with each vain try, or overlapping long commands would keep
    /// the save from ever beginning.
    pub fn patience(&self) -> Duration {
        SHARD_PATIENCE * (1 << self.busy_in_turn.load(Relaxed).min(DOUBLINGS_MAX))
    }

    /// Begins a save of what `locks` sees now. The saver carries it out.
    ///
    /// # Errors
    /// [`SaveError::InProgress`], if there is one.
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

    /// Begins a full copy of what `locks` sees now, for replicas. `moment` is called when all shards are locked; see
    /// [`Snapshot::begin_at`].
    ///
    /// # Errors
    /// [`SaveError::InProgress`], if there is a save; then nothing is done with the sink, and `moment` may have been
    /// called in vain.
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
        // Not under the lock of the state: a thread that waits for that may hold a shard.
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
            // The last one is just being booked. Ending the snapshot locks shards.
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

    /// Begins a background save as soon as there is none running.
    pub fn schedule(&self) {
        self.state.lock().is_scheduled = true;
        self.work.notify_one();
    }

    /// Has the save that is scheduled begin later, and waits, unless there is something else to do.
    pub(super) fn put_off(&self) {
        let mut state = self.state.lock();
        state.is_scheduled = true;
        if !state.saver_ends && state.job.is_none() {
            self.work.wait_for(&mut state, PUT_OFF_FOR);
        }
    }

    /// The save point that asks for a save now.
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

    /// Waits for the end of a save. Not for workers.
    ///
    /// # Errors
    /// When it failed, the reason.
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

    /// All that INFO shows.
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

    /// Notes what was loaded; the data are what the file has, so nothing has changed since.
    pub fn note_loaded(&self, loaded: LoadReport, changes: u64) {
        let mut state = self.state.lock();
        state.report.loaded = loaded;
        state.report.saved_changes = changes;
    }

    /// Decides again whether writes are refused: to be called when a save has ended, and when
    /// `save` or `stop-writes-on-bgsave-error` changes.
    pub fn decide_on_writes(&self, settings: &Settings) {
        const STOP: DirectiveId = DirectiveId::of("stop-writes-on-bgsave-error");
        let is_last_ok = self.state.lock().report.is_last_ok;
        let wanted = settings.is_on(STOP) && !settings.save_points().is_empty();
        self.refuses_writes.store(wanted && !is_last_ok, Relaxed);
    }

    /// Ends the running save without a file, if there is one, and returns when it has ended. Not for
    /// workers.
    pub fn give_up(&self) {
        let mut state = self.state.lock();
        while state.running.is_some() {
            self.is_given_up.store(true, Relaxed);
            self.ended.wait(&mut state);
        }
    }

    /// What [`Stats::changes`](tierce_keyspace::Stats::changes) was when the last snapshot began that
    /// is on disk.
    pub fn saved_changes(&self) -> u64 {
        self.state.lock().report.saved_changes
    }

    /// Has [`run_saver`](super::run_saver) return, after the running save.
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

    /// What the saver does next; waits until there is something.
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

    /// Books the end of a save.
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
                // As in Redis, a SAVE that fails tells its client and is not held against anybody
                // else.
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

/// What the saver does next.
pub(super) enum Task {
    Save(Box<Job>),
    BeginScheduled,
    End,
}
