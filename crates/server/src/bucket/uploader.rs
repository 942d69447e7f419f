//! The thread that writes the log: it follows the change feed, appends pending changes, and takes snapshots.
//!
//! One append is in flight. New changes wait in the feed meanwhile and go into the next append: each `bucket-interval`,
//! or at once when a client waits for it.
//!
//! **A base.** If the local data may have more than the log (after a crash, or when data get a bucket for the first
//! time), the log continues behind a snapshot of them. Nothing is appended before that snapshot is valid, so no restore
//! ever has changes without the data that they changed.
//!
//! **The lease** (`bucket-takeover yes`) is renewed by any append, or by a RENEW, before a third of it is over. It is
//! not renewed while this thread waits for a sync of the local log: a server whose disk has failed gives way to another
//! one, and checks if that has claimed the log.

mod cuts;
mod gathering;
mod pace;
mod renewal;
mod snapshots;
mod watch;

pub(super) use watch::note_failure;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tierce_bucket::{Deletion, Error, Outcome, Owner, Runtime};
use tierce_commands::bucket::State;
use tierce_engine::feed::{Fed, FedBatch, Follower, Reader};
use tokio::task::JoinHandle;

use super::claimed::Claimed;
use super::ending::Ending;
use super::lease;
use super::position_file::{Known, PositionFile};
use super::settings::{INTERVAL, bytes_max};
use cuts::Cuts;
use gathering::{Gathering, LOOK_EVERY};
use pace::Pace;
use snapshots::Snapshot;
use watch::{TICK, Watch, now_ms};

use crate::message::Notice;
use crate::server::Server;

/// Maximum time that a cut or a snapshot waits for locks. A script may lock the data for much longer than a lease,
/// which must be renewed in time,
const LOCKS_MAX: Duration = Duration::from_millis(100);

/// and the delay before it is tried again.
const BUSY_FOR: Duration = Duration::from_secs(1);

/// Delay before a failed snapshot or append is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Number of times that a shutdown takes pending changes: keys may still expire while the first append is in flight.
const LAST_TAKES: usize = 3;

/// Reason why nothing more is written.
#[derive(Debug)]
enum Stop {
    /// Another server has claimed the log.
    Deposed(String),
    /// The shutdown's time is over, and the store has not answered.
    OutOfTime,
}

/// State of the thread.
struct Uploader {
    server: Arc<Server>,
    runtime: Runtime,
    owner: Owner,
    position_file: PositionFile,
    follower: Follower,
    ending: Arc<Ending>,
    watch: Watch,
    /// Changes taken from the feed and not committed, in order.
    held: Vec<FedBatch>,
    /// True if some of `held` goes into the log. Of marks and replica commands only the positions count.
    has_changes: bool,
    /// Position in the feed up to which the base has everything.
    skipped: u64,
    /// True if the log continues behind a snapshot that is not valid yet.
    needs_base: bool,
    snapshot: Snapshot,
    /// Loaded records that the log lacks; sent before anything else.
    tail: Vec<Vec<u8>>,
    /// Records sent behind `tail`.
    gaps: Vec<Vec<u8>>,
    cuts: Cuts,
    /// Earliest time of the next snapshot.
    snapshot_after: Instant,
    /// Time when the last snapshot became valid, in milliseconds since 1970; may be of an earlier owner.
    last_snapshot_ms: u64,
    /// Bytes of changes since the last snapshot, and of that snapshot.
    log_bytes: u64,
    /// Bytes of these that the snapshot in progress covers.
    covered_bytes: u64,
    snapshot_bytes: u64,
    /// Begin of the last append.
    appended: Option<Instant>,
    gathering: Gathering,
    pace: Pace,
    /// Task that finds out what to delete.
    pruning: Option<JoinHandle<Result<Option<Deletion>, Error>>>,
    /// Deletion that waits for its time, and the one found since.
    deletion: Option<Deletion>,
    later_deletion: Option<Deletion>,
    /// Task that deletes objects, and returns their number and the floor. It may take longer than a lease.
    deleting: Option<JoinHandle<Result<(u64, u64), Error>>>,
}

impl Claimed {
    /// Writes the log until shutdown is requested.
    pub(super) fn run(self, server: Arc<Server>, ending: Arc<Ending>) {
        let state = if self.needs_base { State::Base } else { State::Following };
        server.bucket.update(|figures| figures.state = state);
        Uploader::new(server, self, ending).run();
    }
}

impl Uploader {
    fn new(server: Arc<Server>, claimed: Claimed, ending: Arc<Ending>) -> Self {
        let Claimed {
            runtime,
            store,
            owner,
            position_file,
            needs_base,
            tail,
            gaps,
            follower,
            mark,
            ..
        } = claimed;
        let follower = follower.expect("it was followed when the keys were loaded");
        let owner = owner.take(&runtime);
        let progress = Arc::clone(owner.progress());
        let watch = Watch::new(Arc::clone(&server), store, progress, needs_base);
        let snapshot_bytes = owner.group().end().snapshot.as_ref().map_or(0, |found| found.len);
        let last_snapshot_ms =
            owner.group().end().snapshot.as_ref().map_or_else(now_ms, |s| s.wall);
        let now = Instant::now();
        let pace = Pace::new(owner.group().end().claim.as_ref());
        Self {
            server,
            runtime,
            owner,
            position_file,
            follower,
            ending,
            watch,
            held: Vec::new(),
            has_changes: false,
            skipped: 0,
            needs_base,
            snapshot: Snapshot::None,
            tail,
            gaps,
            cuts: Cuts::after(mark),
            snapshot_after: now,
            last_snapshot_ms,
            log_bytes: 0,
            covered_bytes: 0,
            snapshot_bytes,
            appended: None,
            gathering: Gathering::default(),
            pace,
            pruning: None,
            deletion: None,
            later_deletion: None,
            deleting: None,
        }
    }

    pub(super) fn run(mut self) {
        let (server, url) = (Arc::clone(&self.server), self.watch.store.url().to_owned());
        let outcome = self.serve().and_then(|()| self.finish());
        // Before writers continue: their changes would not be in the log any more.
        if let Err(stop) = outcome {
            stopped(&server, &url, &stop);
        }
        // No writer waits for a thread that is gone.
        server.durability.hold_for_outside(false);
        server.tell_all(&Notice::Resume);
    }

    /// Writes until shutdown is requested.
    fn serve(&mut self) -> Result<(), Stop> {
        self.send_tail()?;
        while !self.watch.is_ending(&self.ending) {
            self.turn()?;
        }
        Ok(())
    }

    /// Takes pending changes, and appends them when due.
    fn turn(&mut self) -> Result<(), Stop> {
        let settings = self.server.config.settings();
        self.take(TICK);
        self.renew_if_due()?;
        if self.needs_base {
            self.drive_snapshot(&settings)?;
            self.watch.look(self.held_bytes());
            return Ok(());
        }
        if !self.held.is_empty() {
            self.gather();
            self.cut_if_due();
            self.send()?;
        }
        self.drive_snapshot(&settings)?;
        self.delete_pruned();
        self.watch.look(self.held_bytes());
        Ok(())
    }

    /// Takes the changes from the feed.
    fn take(&mut self, at_most: Duration) {
        let Ok(batch) = self.follower.wait(at_most) else { return self.begin_anew() };
        if batch.is_empty() {
            return;
        }
        self.watch.note_waiting();
        if self.needs_base && self.find_base(&batch) {
            // The base has these changes already.
            self.held.clear();
        }
        self.has_changes |= batch.iter().any(|(_, fed)| matches!(fed, Fed::Record(_)));
        self.held.push(batch);
    }

    /// Searches for the mark of the base. Returns true if it is found.
    fn find_base(&mut self, batch: &FedBatch) -> bool {
        let number = self.owner.group().end().number;
        let Snapshot::Writing { mark, position, .. } = &mut self.snapshot else { return false };
        let is_mark = |fed: &Fed<'_>| matches!(fed, Fed::Mark(Reader::Bucket, id) if id == mark);
        let Some((at, _)) = batch.iter().find(|(_, fed)| is_mark(fed)) else { return false };
        (*position, self.skipped) = (Some(number), at);
        self.cuts.note_base(*mark, number);
        true
    }

    /// Begins a new base, because more changes were pending than allowed.
    fn begin_anew(&mut self) {
        self.server.log.warning(
            "The bucket: changes came faster than the log took them, and it goes on behind a new snapshot",
        );
        self.follower.begin_anew(bytes_max(&self.server.config.settings()));
        self.held.clear();
        self.has_changes = false;
        self.cuts = Cuts::default();
        self.needs_base = true;
        self.snapshot = Snapshot::None;
        self.covered_bytes = 0;
        self.watch.needs_base(true);
    }

    fn held_bytes(&self) -> u64 {
        self.held.iter().map(|batch| batch.bytes() as u64).sum()
    }

    /// Collects more changes until an object is due.
    fn gather(&mut self) {
        self.watch.look(self.held_bytes());
        while !self.watch.is_ending(&self.ending)
            && !self.server.bucket.is_hastened()
            && let Some(rest) = self.until_due()
        {
            let (began, slice) = (Instant::now(), rest.min(TICK));
            self.follower.rest(slice);
            self.watch.look(self.held_bytes());
            if began.elapsed() < slice {
                // A call woke it.
                break;
            }
        }
        if self.server.bucket.take_haste() {
            while self.gathering.waits(self.server.feed.position(), Instant::now()) {
                thread::sleep(LOOK_EVERY);
            }
        }
        self.take(Duration::ZERO);
    }

    /// Returns how long more changes may come, by the current interval. `None` if an object is due or full, or writers
    /// wait.
    fn until_due(&self) -> Option<Duration> {
        let interval = Duration::from_millis(self.server.config.settings().count(INTERVAL));
        let waiting_bytes = self.server.feed.waiting_bytes_of(Reader::Bucket) as u64;
        if self.watch.holds()
            || self.held_bytes() + waiting_bytes >= self.pace.object_bytes() as u64
        {
            return None;
        }
        let rest = (self.appended? + interval).checked_duration_since(Instant::now())?;
        // The append renews the lease as well.
        let rest = rest.min(lease::renew_in(&self.owner).unwrap_or(rest));
        (!rest.is_zero()).then_some(rest)
    }

    /// Appends all taken changes.
    fn send(&mut self) -> Result<(), Stop> {
        let began_ms = now_ms();
        let held = std::mem::take(&mut self.held);
        let has_changes = std::mem::take(&mut self.has_changes);
        let (mut records, mut bytes, mut position) = (Vec::new(), 0, 0);
        for (at, fed) in held.iter().flat_map(FedBatch::iter) {
            match fed {
                _ if at <= self.skipped => {}
                Fed::Record(record) => {
                    bytes += record.len();
                    records.push(record);
                }
                Fed::Mark(Reader::Bucket, id) => {
                    self.append(&mut records, &mut bytes)?;
                    self.meet_mark(id);
                }
                Fed::Command(_) | Fed::Mark(..) => {}
            }
            position = at;
            if bytes >= self.pace.object_bytes() {
                self.append(&mut records, &mut bytes)?;
                self.watch.committed(position);
            }
        }
        self.append(&mut records, &mut bytes)?;
        if has_changes {
            self.note_gathered(position);
        }
        self.watch.committed(position);
        self.watch.note_sent(self.server.feed.waiting_bytes_of(Reader::Bucket) > 0, began_ms);
        held.into_iter().for_each(|batch| self.follower.recycle(batch));
        Ok(())
    }

    /// Notes that everything up to this position is committed; its waiting clients are told next.
    fn note_gathered(&mut self, position: u64) {
        let Some(began) = self.appended else { return };
        let now = Instant::now();
        let items = position.saturating_sub(self.server.bucket.committed());
        self.gathering.committed(items, self.server.feed.position(), now - began, now);
    }

    /// Appends an object, without a time limit.
    fn append(&mut self, records: &mut Vec<&[u8]>, bytes: &mut usize) -> Result<(), Stop> {
        if records.is_empty() {
            return Ok(());
        }
        let in_flight = *bytes as u64;
        self.sync_here(in_flight)?;
        let began = Instant::now();
        self.appended = Some(began);
        let number = self.commit(in_flight, async |owner| owner.append(records).await)?;
        self.pace.note(*bytes, began.elapsed());
        let len = std::mem::take(bytes) as u64;
        self.log_bytes += len;
        self.cuts.note_appended(len);
        self.server.bucket.update(|figures| {
            figures.number = number;
            figures.appends += 1;
            figures.append_bytes += len;
        });
        records.clear();
        Ok(())
    }

    /// Commits a record, without a time limit, and returns its number. `in_flight` bytes wait for it.
    fn commit(
        &mut self,
        in_flight: u64,
        put: impl AsyncFn(&mut Owner) -> Result<Outcome, Error>,
    ) -> Result<u64, Stop> {
        // Proof of the record's first attempt, once it has begun. Later attempts send these bytes again, and another
        // server may have claimed the log behind the first one: they prove nothing about commands executed since.
        let mut proof = None;
        loop {
            let (server, owner) = (&self.server, &mut self.owner);
            let put = async {
                // After a failure this record may still be in flight, and a second put would store it twice. A record
                // in flight before this one has begun is another one.
                match owner.settle().await? {
                    Some(outcome)
                        if proof.is_some() || matches!(outcome, Outcome::Deposed { .. }) =>
                    {
                        return Ok(outcome);
                    }
                    _ => proof = Some(server.bucket.lease.note_begun()),
                }
                put(owner).await
            };
            let watched = self.watch.watched(put, &self.ending, in_flight);
            let outcome = self.runtime.block_on(watched);
            if let Some(number) = self.check(outcome, in_flight)? {
                proof.inspect(|proof| self.note_proven(*proof));
                return Ok(number);
            }
        }
    }

    /// Returns the number of a committed record; `None` if it must be tried again.
    fn check(
        &mut self,
        outcome: Option<Result<Outcome, Error>>,
        in_flight: u64,
    ) -> Result<Option<u64>, Stop> {
        match outcome {
            Some(Ok(Outcome::Committed(number))) => Ok(Some(number)),
            Some(Ok(Outcome::Deposed { object, .. })) => Err(Stop::Deposed(object)),
            Some(Err(Error::Deposed { object, .. })) => Err(Stop::Deposed(object)),
            Some(Err(error)) => {
                self.watch.failed(&error.to_string());
                self.rest(in_flight)?;
                Ok(None)
            }
            None => Err(Stop::OutOfTime),
        }
    }

    /// Waits a while after a failure.
    fn rest(&mut self, in_flight: u64) -> Result<(), Stop> {
        let until = Instant::now() + self.retry_after();
        while Instant::now() < until {
            if self.watch.is_out_of_time(&self.ending) {
                return Err(Stop::OutOfTime);
            }
            self.watch.look(in_flight);
            thread::sleep(TICK);
        }
        Ok(())
    }

    /// Syncs the next append's data to the local device: after a power loss, this directory is never behind the bucket.
    fn sync_here(&mut self, in_flight: u64) -> Result<(), Stop> {
        loop {
            let Some(durable_log) = self.server.durability.durable_log() else { return Ok(()) };
            // While the log has failed, the feed gives nothing new, but some changes may have been taken before.
            if !durable_log.has_write_error() && durable_log.sync().is_ok() {
                return Ok(());
            }
            self.watch.failed("the local log has failed, and the bucket waits for it");
            self.rest(in_flight)?;
            self.look_for_successor(in_flight)?;
        }
    }

    /// Ends if another server has claimed the log while nothing is appended. If the store does not answer, it is asked
    /// again later.
    fn look_for_successor(&mut self, in_flight: u64) -> Result<(), Stop> {
        let looked = self.watch.watched(self.owner.look(), &self.ending, in_flight);
        match self.runtime.block_on(looked) {
            Some(
                Ok(Some(Outcome::Deposed { object, .. })) | Err(Error::Deposed { object, .. }),
            ) => Err(Stop::Deposed(object)),
            None => Err(Stop::OutOfTime),
            Some(_) => Ok(()),
        }
    }

    /// Ends in order: everything is committed, and the next owner may claim at once.
    fn finish(mut self) -> Result<(), Stop> {
        for _ in 0..LAST_TAKES {
            self.take(Duration::ZERO);
            if self.needs_base {
                return Err(Stop::OutOfTime);
            }
            self.send()?;
            if self.has_all() {
                break;
            }
        }
        if let Snapshot::Uploading { task, .. } = &self.snapshot {
            task.abort();
        }
        let is_equal = self.has_all();
        let Self { server, runtime, owner, mut position_file, mut watch, ending, .. } = self;
        let outcome = runtime.block_on(watch.watched(owner.release(), &ending, 0));
        let number = match outcome {
            Some(Ok(Outcome::Committed(number))) => number,
            Some(Ok(Outcome::Deposed { object, .. }) | Err(Error::Deposed { object, .. })) => {
                return Err(Stop::Deposed(object));
            }
            Some(Err(error)) => {
                watch.failed(&error.to_string());
                return Err(Stop::OutOfTime);
            }
            None => return Err(Stop::OutOfTime),
        };
        server.bucket.update(|figures| {
            figures.number = number;
            figures.state = State::Released;
        });
        if !is_equal {
            server.log.warning(
                "The bucket is released, without changes that the local log has not taken and no client was told of; the \
                 next start begins with a snapshot",
            );
            return Ok(());
        }
        let known = position_file.known.unwrap_or_default();
        if let Err(error) = position_file.write(Known { released: Some(number), ..known }) {
            let line = format_args!("bucket.state: {error}; the next start begins with a snapshot");
            server.log.warning(line);
        }
        server.log.notice("The bucket has everything, and is released");
        Ok(())
    }

    /// Returns true if the log lacks nothing. The feed holds back changes that the local log has refused, and a
    /// shutdown may happen in that state.
    fn has_all(&self) -> bool {
        let has_failed =
            self.server.durability.durable_log().is_some_and(|wal| wal.has_write_error());
        !has_failed && self.server.feed.waiting_bytes_of(Reader::Bucket) == 0
    }
}

/// Logs why nothing more is written, and the consequence.
fn stopped(server: &Server, url: &str, stop: &Stop) {
    match stop {
        Stop::Deposed(object) if server.bucket.lease.clock().is_some() => {
            renewal::deposed(server, url, object);
        }
        Stop::Deposed(object) => {
            let cause = format!(
                "another server has claimed the bucket {url} ({object}); this one has diverged from it. Stop it, and start \
                 it on an empty dir to use the bucket's data"
            );
            server.log.warning(&cause);
            server.durability.refuse(&cause);
            server.bucket.note_deposed();
            server.tell_all(&Notice::Durable);
        }
        Stop::OutOfTime => server.log.warning(
            "The bucket does not have everything, and is not released: start again on this directory to go on. On \
             another machine, --bucket-claim force goes on without what is missing",
        ),
    }
}
