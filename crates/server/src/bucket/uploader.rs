//! The thread that writes the log: it follows the change feed, appends what has gathered, and takes snapshots.
//!
//! One append is in flight. What happens meanwhile waits in the feed and goes into the next: each `bucket-interval`, or
//! at once when a client waits for it.
//!
//! **A base.** Where the local data may have more than the log (after a crash, or when data get a bucket for the first
//! time), the log goes on behind a snapshot of them. Nothing is appended before that counts, so no restore ever sees
//! changes without what they were made to.
//!
//! **The lease** (`bucket-takeover yes`) is kept by any append, or by a RENEW, before a third of it is over. While this
//! thread waits for the local log to be synced it is not: a server whose disk has failed makes way for another one, and
//! looks whether that has come.

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
use super::place::{Known, Place};
use super::settings::{INTERVAL, bytes_max};
use cuts::Cuts;
use gathering::{Gathering, LOOK_EVERY};
use pace::Pace;
use snapshots::Snapshot;
use watch::{TICK, Watch, now_ms};

use crate::message::Notice;
use crate::server::Server;

/// A script may hold the data for much longer than a lease. A cut or a snapshot waits for it no longer than this, so
/// that the lease is renewed in time,
const LOCKS_MAX: Duration = Duration::from_millis(100);

/// and is tried again not earlier than this.
const BUSY_FOR: Duration = Duration::from_secs(1);

/// After a failure, a snapshot or an append is tried again not earlier.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// At the end of a server what waits is taken so many times: keys may still expire while the first is on its way.
const LAST_TAKES: usize = 3;

/// Why nothing more is written.
#[derive(Debug)]
enum Stop {
    /// Another server has claimed the log.
    Deposed(String),
    /// The end of the server came, and the store has not answered in time.
    OutOfTime,
}

/// The thread's state.
struct Uploader {
    server: Arc<Server>,
    runtime: Runtime,
    owner: Owner,
    place: Place,
    follower: Follower,
    ending: Arc<Ending>,
    watch: Watch,
    /// What was taken from the feed and is not committed, in order.
    held: Vec<FedBatch>,
    /// Whether some of that goes into the log: of marks, and of commands for replicas, only the positions count.
    has_changes: bool,
    /// Of what is held, everything up to this position is in the base.
    skipped: u64,
    /// The log goes on behind a snapshot that does not count yet.
    needs_base: bool,
    snapshot: Snapshot,
    /// What the log lacks of what was loaded; sent before anything else.
    tail: Vec<Vec<u8>>,
    /// Sent behind it.
    gaps: Vec<Vec<u8>>,
    cuts: Cuts,
    /// A snapshot is not begun before.
    snapshot_after: Instant,
    /// When the last snapshot came to count, in milliseconds since 1970: also one of an earlier owner.
    last_snapshot_ms: u64,
    /// Bytes of changes since the last snapshot, and of that snapshot.
    log_bytes: u64,
    /// Of these, what the snapshot under way has.
    covered_bytes: u64,
    snapshot_bytes: u64,
    /// When the last append began.
    appended: Option<Instant>,
    gathering: Gathering,
    pace: Pace,
    /// Finds out what is to be deleted.
    pruning: Option<JoinHandle<Result<Option<Deletion>, Error>>>,
    /// What is deleted when its time has come, and what was found to be deleted since.
    deletion: Option<Deletion>,
    later_deletion: Option<Deletion>,
    /// Deletes objects, and returns how many and the floor. It may take longer than a lease.
    deleting: Option<JoinHandle<Result<(u64, u64), Error>>>,
}

impl Claimed {
    /// Writes the log until the end is asked for.
    pub(super) fn run(self, server: Arc<Server>, ending: Arc<Ending>) {
        let state = if self.needs_base { State::Base } else { State::Following };
        server.bucket.update(|figures| figures.state = state);
        Uploader::new(server, self, ending).run();
    }
}

impl Uploader {
    fn new(server: Arc<Server>, claimed: Claimed, ending: Arc<Ending>) -> Self {
        let Claimed {
            runtime, store, owner, place, needs_base, tail, gaps, follower, mark, ..
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
            place,
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
        // Before writers go on: what they write would not be in the log any more.
        if let Err(stop) = outcome {
            stopped(&server, &url, &stop);
        }
        // No writer waits for a thread that is not there.
        server.durability.hold_for_outside(false);
        server.tell_all(&Notice::Resume);
    }

    /// Writes until the end is asked for.
    fn serve(&mut self) -> Result<(), Stop> {
        self.send_tail()?;
        while !self.watch.is_ending(&self.ending) {
            self.turn()?;
        }
        Ok(())
    }

    /// Takes what is there, and appends it when it is time.
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

    /// Takes what the feed has.
    fn take(&mut self, at_most: Duration) {
        let Ok(batch) = self.follower.wait(at_most) else { return self.begin_anew() };
        if batch.is_empty() {
            return;
        }
        self.watch.note_waiting();
        if self.needs_base && self.find_base(&batch) {
            // What is in the base is not needed.
            self.held.clear();
        }
        self.has_changes |= batch.iter().any(|(_, fed)| matches!(fed, Fed::Record(_)));
        self.held.push(batch);
    }

    /// Looks for the mark of the base. Whether it is there.
    fn find_base(&mut self, batch: &FedBatch) -> bool {
        let number = self.owner.group().end().number;
        let Snapshot::Writing { mark, position, .. } = &mut self.snapshot else { return false };
        let is_mark = |fed: &Fed<'_>| matches!(fed, Fed::Mark(Reader::Bucket, id) if id == mark);
        let Some((at, _)) = batch.iter().find(|(_, fed)| is_mark(fed)) else { return false };
        (*position, self.skipped) = (Some(number), at);
        self.cuts.note_base(*mark, number);
        true
    }

    /// More waited than may: the log goes on behind a new base.
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

    /// Lets more come until an object is due.
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
                // It was called.
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

    /// For how long more may come, by the interval of this moment. `None`: an object is due, or full, or writers wait.
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

    /// Appends all that is held.
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

    /// Everything up to this position is committed, and who waits for it is about to hear of it.
    fn note_gathered(&mut self, position: u64) {
        let Some(began) = self.appended else { return };
        let now = Instant::now();
        let items = position.saturating_sub(self.server.bucket.committed());
        self.gathering.committed(items, self.server.feed.position(), now - began, now);
    }

    /// Appends an object, however long that takes.
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

    /// Has a record committed, while so many bytes wait for that, however long it takes: its number.
    fn commit(
        &mut self,
        in_flight: u64,
        put: impl AsyncFn(&mut Owner) -> Result<Outcome, Error>,
    ) -> Result<u64, Stop> {
        // That of the first attempt of this record, once it is begun. Later attempts send the same bytes, and another
        // server may have claimed the log behind the first one: they prove nothing for what was executed since.
        let mut proof = None;
        loop {
            let (server, owner) = (&self.server, &mut self.owner);
            let put = async {
                // After a failure this record may be in flight still, and put anew, it would be there twice. What is in
                // flight before it is begun is another one.
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
            if let Some(number) = self.judge(outcome, in_flight)? {
                proof.inspect(|proof| self.note_proven(*proof));
                return Ok(number);
            }
        }
    }

    /// The number of a record that is committed; `None` if it is to be tried again.
    fn judge(
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

    /// Has the local device what is appended next: after a power cut, this directory is never behind the bucket.
    fn sync_here(&mut self, in_flight: u64) -> Result<(), Stop> {
        loop {
            let Some(durable_log) = self.server.durability.durable_log() else { return Ok(()) };
            // While the log has failed nothing new comes from the feed, but some may have been taken.
            if !durable_log.has_write_error() && durable_log.sync().is_ok() {
                return Ok(());
            }
            self.watch.failed("the local log has failed, and the bucket waits for it");
            self.rest(in_flight)?;
            self.look_for_successor(in_flight)?;
        }
    }

    /// Ends if another server has claimed the log while nothing is appended. If the store does not say, it is asked
    /// again.
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

    /// Ends in good order: all is committed, and the next owner may claim at once.
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
        let Self { server, runtime, owner, mut place, mut watch, ending, .. } = self;
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
        let known = place.known.unwrap_or_default();
        if let Err(error) = place.write(Known { released: Some(number), ..known }) {
            let line = format_args!("bucket.state: {error}; the next start begins with a snapshot");
            server.log.warning(line);
        }
        server.log.notice("The bucket has everything, and is released");
        Ok(())
    }

    /// Whether nothing is here that the log lacks. The feed holds back what the local log has refused, and that may be
    /// in the one with which the server ends.
    fn has_all(&self) -> bool {
        let has_failed =
            self.server.durability.durable_log().is_some_and(|wal| wal.has_write_error());
        !has_failed && self.server.feed.waiting_bytes_of(Reader::Bucket) == 0
    }
}

/// Says why nothing more is written, and what follows from it.
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
