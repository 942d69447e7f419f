//! Snapshots of the data on their way into the log, and the pruning that follows them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use tierce_bucket::{Deletion, Env, Error, Outcome, Retention, System, UploadedSnapshot};
use tierce_engine::feed::Reader;
use tierce_keyspace::SnapshotError;
use tokio::task::JoinHandle;

use super::super::claimed::new_mark;
use super::super::spool::{self, Content, Spooled};
use super::watch::{TICK, Watch, now_ms};
use super::{BUSY_FOR, LOCKS_MAX, RETRY_AFTER, Stop, Uploader};
use crate::clock::BEFORE_ALL_MS;
use crate::config::{DirectiveId, Settings};
use crate::persistence::{NewFile, SaveError};
use crate::server::Server;

const SNAPSHOT_INTERVAL: DirectiveId = DirectiveId::of("bucket-snapshot-interval");
const SNAPSHOT_PERCENTAGE: DirectiveId = DirectiveId::of("bucket-snapshot-percentage");
const RETENTION: DirectiveId = DirectiveId::of("bucket-retention");

/// Minimum growth of the log that causes a snapshot.
const SNAPSHOT_LOG_BYTES_MIN: u64 = 64 << 20;

/// Number of objects behind a snapshot that cause another one: a restore reads each of them.
const SNAPSHOT_OBJECTS_MAX: u64 = 100_000;

/// Snapshot in progress.
pub(super) enum Snapshot {
    None,
    /// It is being written to a file. Its position in the log is known when its mark was reached.
    Writing {
        mark: u64,
        spooled: Receiver<Spooled>,
        position: Option<u64>,
    },
    Uploading {
        task: JoinHandle<Result<UploadedSnapshot, Error>>,
        sent: Arc<AtomicU64>,
        /// Number of failed requests before it, until a failure of its own was reported.
        failures: Option<u64>,
    },
}

impl Uploader {
    pub(super) fn meet_mark(&mut self, id: u64) {
        self.note_cut(id);
        if let Snapshot::Writing { mark, position, .. } = &mut self.snapshot
            && *mark == id
        {
            *position = Some(self.owner.group().end().number);
            self.covered_bytes = self.log_bytes;
        }
    }

    /// Begins a snapshot when due, and continues one.
    pub(super) fn drive_snapshot(&mut self, settings: &Settings) -> Result<(), Stop> {
        match &mut self.snapshot {
            Snapshot::None => {
                if self.is_snapshot_due(settings) {
                    self.begin_snapshot();
                }
            }
            Snapshot::Writing { spooled, position, .. } => match (spooled.try_recv(), *position) {
                (Err(TryRecvError::Empty), _) => {}
                (Ok(Ok(file)), Some(position)) => self.begin_upload(file, position),
                (Ok(Ok(_)), None) => self.give_up_snapshot("its place in the log is not known"),
                (Ok(Err(error)), _) => self.give_up_snapshot(&error),
                (Err(TryRecvError::Disconnected), _) => self.give_up_snapshot("it was given up"),
            },
            Snapshot::Uploading { task, sent, failures } => {
                tell_failure(&self.server, &self.watch, failures);
                let sent = sent.load(Ordering::Relaxed);
                self.server.bucket.update(|figures| figures.uploading_bytes = Some(sent));
                if task.is_finished() {
                    self.end_upload()?;
                }
            }
        }
        Ok(())
    }

    fn is_snapshot_due(&self, settings: &Settings) -> bool {
        if Instant::now() < self.snapshot_after {
            return false;
        }
        let percentage = settings.count(SNAPSHOT_PERCENTAGE);
        let growth = (self.snapshot_bytes / 100).saturating_mul(percentage);
        let interval = Duration::from_secs(settings.count(SNAPSHOT_INTERVAL));
        let age_ms = now_ms().saturating_sub(self.last_snapshot_ms);
        self.needs_base
            || self.log_bytes > growth.max(SNAPSHOT_LOG_BYTES_MIN)
            || self.log_bytes > 0 && Duration::from_millis(age_ms) >= interval
            || self.log_bytes > 0 && self.objects_since_snapshot() > SNAPSHOT_OBJECTS_MAX
    }

    fn objects_since_snapshot(&self) -> u64 {
        let end = self.owner.group().end();
        end.number - end.snapshot.as_ref().map_or(0, |snapshot| snapshot.position)
    }

    fn begin_snapshot(&mut self) {
        if self.needs_base
            && let Err(error) = self.forget_cut()
        {
            return self.give_up_snapshot(&format!("bucket.state: {error}"));
        }
        let mark = new_mark();
        let (server, dir) = (&self.server, self.server.config.settings().dir());
        let begun = spool::begin(&server.engine, &dir).and_then(|(sink, spooled)| {
            let mut locks = server.keyspace.impatient_long_locks(LOCKS_MAX);
            let moment = || server.feed.mark(Reader::Bucket, mark);
            // An expiry is a record, and until that comes the log has the key: long after its deadline while this
            // server is a replica, whose primary decides.
            server.engine.begin_copy(&mut locks, BEFORE_ALL_MS, sink, moment)?;
            Ok(spooled)
        });
        match begun {
            Ok(spooled) => self.snapshot = Snapshot::Writing { mark, spooled, position: None },
            // A copy of another kind is in progress.
            Err(SaveError::InProgress) => self.snapshot_after = Instant::now() + TICK,
            Err(SaveError::Snapshot(SnapshotError::Busy(_))) => {
                self.snapshot_after = Instant::now() + BUSY_FOR;
            }
            Err(error) => self.give_up_snapshot(&error.to_string()),
        }
    }

    fn begin_upload(&mut self, file: NewFile, position: u64) {
        let (group, sent) = (self.owner.group().clone(), Arc::<AtomicU64>::default());
        let sent_by_task = Arc::clone(&sent);
        let content = if self.needs_base { Content::Base } else { Content::OfLog };
        let task = self.runtime.spawn(async move {
            let upload = group.begin_snapshot(position).await?;
            spool::upload(upload, file, content, sent_by_task).await
        });
        let failures = Some(self.watch.store.counters().usage().failures);
        self.snapshot = Snapshot::Uploading { task, sent, failures };
    }

    fn end_upload(&mut self) -> Result<(), Stop> {
        let Snapshot::Uploading { task, .. } =
            std::mem::replace(&mut self.snapshot, Snapshot::None)
        else {
            return Ok(());
        };
        self.server.bucket.update(|figures| figures.uploading_bytes = None);
        let finished = self.runtime.block_on(task).map_err(|error| error.to_string());
        let uploaded = finished.and_then(|uploaded| uploaded.map_err(|error| error.to_string()));
        let uploaded = match uploaded {
            Ok(uploaded) => uploaded,
            Err(error) => {
                self.give_up_snapshot(&error);
                return Ok(());
            }
        };
        // This is repeated while the store is unreachable. Meanwhile the feed grows, and shutdown may be requested.
        let held_bytes = self.held_bytes();
        let proof = self.server.bucket.lease.note_begun();
        let snapshot = self.owner.snapshot(uploaded);
        match self.runtime.block_on(self.watch.watched(snapshot, &self.ending, held_bytes)) {
            Some(Ok(Outcome::Committed(_))) => {
                self.note_proven(proof);
                self.snapshot_counts();
            }
            Some(Ok(Outcome::Deposed { object, .. }) | Err(Error::Deposed { object, .. })) => {
                return Err(Stop::Deposed(object));
            }
            Some(Err(error)) => self.give_up_snapshot(&error.to_string()),
            None => return Err(Stop::OutOfTime),
        }
        Ok(())
    }

    fn snapshot_counts(&mut self) {
        let end = self.owner.group().end();
        let Some(snapshot) = &end.snapshot else { return };
        self.snapshot_bytes = snapshot.len;
        self.log_bytes -= std::mem::take(&mut self.covered_bytes);
        self.last_snapshot_ms = now_ms();
        self.server.bucket.update(|figures| {
            figures.number = end.number;
            (figures.snapshot, figures.snapshot_ms) = (snapshot.position, snapshot.wall);
            figures.snapshot_bytes = snapshot.stored;
        });
        self.server.log.notice(format_args!(
            "The bucket has a snapshot: {} MB, of object {} of its log",
            snapshot.stored / 1_000_000,
            snapshot.position
        ));
        if std::mem::take(&mut self.needs_base) {
            self.watch.committed(self.skipped);
            self.watch.needs_base(false);
            self.note_base_cut();
        }
        self.prune();
    }

    fn give_up_snapshot(&mut self, error: &str) {
        self.snapshot = Snapshot::None;
        self.covered_bytes = 0;
        self.snapshot_after = Instant::now() + RETRY_AFTER;
        self.watch.failed(&format!("no snapshot: {error}"));
        self.server
            .log
            .warning(format_args!("No snapshot in the bucket: {error}; it is tried again"));
    }

    /// Finds out what to delete, in parallel to the appends.
    fn prune(&mut self) {
        if self.pruning.is_some() {
            // The next snapshot will find everything that this one would.
            return;
        }
        let days = self.server.config.settings().count(RETENTION);
        let keep = Duration::from_secs(days * 24 * 3600);
        let mut group = self.owner.group().clone();
        self.pruning =
            Some(self.runtime.spawn(async move { group.prune(Retention { keep }).await }));
    }

    /// Takes the result of pruning. It does not replace a waiting deletion: snapshots may come faster than the
    /// deletion's time.
    fn end_pruning(&mut self) {
        let Some(pruning) = self.pruning.take_if(|pruning| pruning.is_finished()) else { return };
        match self.runtime.block_on(pruning) {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(found))) => {
                self.owner.note_floor(found.floor);
                if self.deletion.is_some() {
                    self.later_deletion = Some(found);
                } else {
                    self.deletion = Some(found);
                }
            }
            Ok(Err(error)) => self.watch.failed(&format!("pruning: {error}")),
            Err(error) => self.watch.failed(&format!("pruning: {error}")),
        }
    }

    /// Deletes the pruned objects, when their time has come, in parallel to the appends.
    pub(super) fn delete_pruned(&mut self) {
        self.end_pruning();
        if let Some(deleting) = self.deleting.take_if(|deleting| deleting.is_finished()) {
            match self.runtime.block_on(deleting) {
                Ok(Ok((0, _))) => {}
                Ok(Ok((count, floor))) => self.server.log.notice(format_args!(
                    "The bucket: deleted {} older than bucket-retention; it goes back to object {floor}",
                    tierce_engine::count(count, "object")
                )),
                Ok(Err(error)) => self.watch.failed(&format!("pruning: {error}")),
                Err(error) => self.watch.failed(&format!("pruning: {error}")),
            }
        }
        let is_due = |deletion: &mut Deletion| System.boottime() >= deletion.not_before;
        if self.deleting.is_none()
            && let Some(deletion) = self.deletion.take_if(is_due)
        {
            self.deletion = self.later_deletion.take();
            let group = self.owner.group().clone();
            let delete = async move { Ok((group.delete(&deletion).await?, deletion.floor)) };
            self.deleting = Some(self.runtime.spawn(delete));
        }
    }
}

/// Reports a failed request of a snapshot at once: requests are repeated for a minute before it is given up.
fn tell_failure(server: &Server, watch: &Watch, failures_before: &mut Option<u64>) {
    let counters = watch.store.counters();
    if failures_before.take_if(|before| counters.usage().failures > *before).is_some()
        && let Some(error) = counters.last_failure()
    {
        watch.failed(&format!("no snapshot yet: {error}"));
        server.log.warning(format_args!(
            "No snapshot in the bucket yet: {error}. The request is repeated"
        ));
    }
}
