//! Opens, compacts, heals and closes the log while the server runs.
//!
//! `CONFIG SET appendonly yes` and the healing of a write error use the same steps. A new log is created next to the
//! old one, all changes go to it from that moment, and a pass writes all keys to it. Only then does the new log
//! become authoritative ([`LogDirectory`]), the write error end, and may the old log be removed. A crash before that
//! leaves the old log authoritative. After a write error it holds all acknowledged writes, because none is acknowledged
//! during the error. `CONFIG SET appendonly no` closes the log; its content stays on disk.
//!
//! A change made before the log was opened is in the pass, and a later one is in the log. None is missed: a thread
//! that changes keys looks for the log after it has locked their shard, and the pass locks each shard after the log
//! was opened.
//!
//! A failed attempt is removed, and the write error keeps its first cause. The next attempt begins after as much time
//! as the failed one took, within bounds.
//!
//! All of this is a state machine: [`WalManager::step`] does the next step and says when to call again. It reads no
//! clock, starts no thread, and waits only for the disk and, for milliseconds, for a locked shard.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tierce_keyspace::Keyspace;
use tierce_keyspace::planted::{self, Fault};
use tierce_storage::Wal;

use super::compactor::{Done, Kind, Pass, Room, Step};
use super::durable_log::DurableLog;
use super::host::{Host, Severity, Switched};
use super::log_directory::LogDirectory;
use super::recovery::RecoveryError;

/// Interval between checks of the log's size, and the shortest interval if there may soon be no room for a pass.
const CHECK_EVERY: Duration = Duration::from_millis(500);
const CHECK_EVERY_MIN: Duration = Duration::from_millis(20);

/// Assumed upper bound of the write rate, to estimate when the disk may be full.
const BYTES_PER_MS_MAX: u64 = 512 << 10;

/// Bounds of the time between two attempts after a failure.
const RETRY_AFTER_MIN: Duration = Duration::from_millis(500);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// The manager of the log; see the head of the module.
pub struct WalManager<'k> {
    keyspace: &'k Keyspace,
    durable_log: Arc<DurableLog>,
    log_directory: LogDirectory,
    host: Arc<dyn Host>,
    /// The log that takes changes but is not authoritative yet.
    incomplete: Option<Incomplete>,
    pass: Option<Pass<'k>>,
    /// Time at which the pass goes on.
    pass_goes_on: Option<Instant>,
    /// Time of the next attempt after a failure.
    retry_at: Option<Instant>,
    check_at: Option<Instant>,
    /// True after the one attempt to heal at the end.
    has_tried_at_end: bool,
    /// A client asked for the present attempt or pass.
    is_asked: bool,
    /// The operator was told that a new log is being created; later attempts are not reported again.
    has_told_begin: bool,
    /// The operator was told that there is no room for another log.
    has_told_room: bool,
}

/// A log that is not authoritative yet.
struct Incomplete {
    path: PathBuf,
    begun: Instant,
    /// All keys are in it and durable.
    is_full: bool,
}

/// Time at which [`WalManager::step`] must be called again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// At once.
    Now,
    /// After this time, or on a request.
    After(Duration),
    /// On a request.
    Asked,
    /// Never: the manager has ended.
    End,
}

/// Next step of the state machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Task {
    /// A log is wanted, and there is none that works.
    Begin,
    /// No log is wanted, and there is one.
    Close,
    /// The wanted state is reached.
    EndSwitch(u64),
    /// The new log has failed before it became authoritative.
    Abandon,
    /// A pass can begin.
    Pass,
    /// The pass, or the step after it, continues.
    Step,
    /// All keys are in the new log, which shall become authoritative.
    Complete,
    /// The size of the log must be checked.
    Check,
    Wait(Next),
}

impl DurableLog {
    /// Requests that the log is switched on or off. [`Host::switched`] reports the returned id.
    pub fn switch(&self, on: bool) -> u64 {
        self.compaction.ask(|requests| {
            let is_ignored =
                planted::is(Fault::RefusedLogIsNotBegun) && requests.failure.take().is_some();
            requests.log = on && !is_ignored;
            requests.switch_id += 1;
            requests.switch_id
        })
    }

    /// Returns the id of a switch that has not ended.
    pub fn switching(&self) -> Option<u64> {
        let requests = self.compaction.requests.lock();
        (requests.switch_id != requests.ended_switch_id).then_some(requests.switch_id)
    }

    /// Returns the reason why the last switch failed, if it did.
    pub fn switch_failure(&self) -> Option<String> {
        self.compaction.requests.lock().failure.clone()
    }

    /// Returns true if there is a log, or one is about to be created.
    pub fn is_wanted(&self) -> bool {
        self.compaction.requests.lock().log
    }

    /// Asks the WAL manager to end. Earlier requests are still served.
    pub fn request_end(&self) {
        self.compaction.ask(|requests| requests.ends = true);
    }

    /// Notes that a log is wanted, because there is one.
    pub(super) fn note_wanted(&self) {
        self.compaction.ask(|requests| requests.log = true);
    }

    /// Returns the number of requests, for [`Self::await_asked`].
    pub(super) fn asked(&self) -> u64 {
        self.compaction.requests.lock().count
    }

    /// Waits until there are more requests than `seen`.
    pub(super) fn await_asked(&self, seen: u64, at_most: Option<Duration>) {
        let compaction = &self.compaction;
        let mut requests = compaction.requests.lock();
        if requests.count != seen {
            return;
        }
        match at_most {
            Some(time) => _ = compaction.changed.wait_for(&mut requests, time),
            None => compaction.changed.wait(&mut requests),
        }
    }

    /// Returns true if a log refers to values on disk, or may do so later, so that they must be durable: there is a
    /// log, was one, or will be one.
    pub fn may_refer(&self) -> bool {
        self.is_wanted() || self.is_on() || self.was_on()
    }

    /// Syncs the authoritative log. Returns true if it has all changes and is durable; only then may values be
    /// removed that it does not need. Without a log, returns true unless one was switched off: the values that it
    /// refers to must stay.
    ///
    /// # Errors
    /// Failures of the disk.
    pub fn sync_if_complete(&self) -> Result<bool, tierce_storage::Error> {
        if !self.is_on() {
            return Ok(!self.may_refer());
        }
        if self.has_write_error() || self.compaction.is_incomplete() {
            return Ok(false);
        }
        self.sync()?;
        // A new log may have replaced the old one meanwhile.
        Ok(!self.has_write_error() && !self.compaction.is_incomplete())
    }
}

impl<'k> WalManager<'k> {
    /// Creates the manager of a durable log, which may or may not have an open log.
    pub fn new(
        keyspace: &'k Keyspace,
        durable_log: Arc<DurableLog>,
        log_directory: LogDirectory,
        host: Arc<dyn Host>,
    ) -> Self {
        Self {
            keyspace,
            durable_log,
            log_directory,
            host,
            incomplete: None,
            pass: None,
            pass_goes_on: None,
            retry_at: None,
            check_at: None,
            has_tried_at_end: false,
            is_asked: false,
            has_told_begin: false,
            has_told_room: false,
        }
    }

    /// Does the next step and returns when to call again.
    pub fn step(&mut self, now: Instant) -> Next {
        match self.next_task(now) {
            Task::Begin => self.begin(now),
            Task::Close => self.close(),
            Task::EndSwitch(switch_id) => self.end_switch(switch_id, None),
            Task::Abandon => self.abandon(now),
            Task::Pass => self.begin_pass(now),
            Task::Step => self.step_pass(now),
            Task::Complete => self.complete(now),
            Task::Check => self.check_size(now),
            Task::Wait(next) => return next,
        }
        Next::Now
    }

    fn next_task(&mut self, now: Instant) -> Task {
        let mut requests = self.durable_log.compaction.requests.lock();
        let is_on = self.durable_log.is_on();
        if requests.log != is_on {
            return if is_on { Task::Close } else { Task::Begin };
        }
        if requests.switch_id != requests.ended_switch_id {
            return Task::EndSwitch(requests.switch_id);
        }
        let ends = requests.ends;
        let mut wants_pass = std::mem::take(&mut requests.pass);
        self.is_asked |= wants_pass;
        if self.pass.is_none() {
            wants_pass |= std::mem::take(&mut requests.new_pass);
        }
        drop(requests);
        if !is_on {
            return Task::Wait(if ends { Next::End } else { Next::Asked });
        }
        let has_failed = self.durable_log.log().is_none_or(|log| log.is_latched());
        let task = match (&self.incomplete, has_failed) {
            (Some(_), true) => return Task::Abandon,
            (Some(incomplete), false) if incomplete.is_full && wants_pass => Task::Complete,
            (Some(incomplete), false) if incomplete.is_full => self.later(Task::Complete, now),
            // At the end, too, it waits for a shard: without this log, memory has keys that no file has.
            (Some(_), false) => return self.pass_step(now, ends),
            (None, true) if self.durable_log.may_heal() => {
                let is_urgent = wants_pass || ends && !self.has_tried_at_end;
                if is_urgent { Task::Begin } else { self.later(Task::Begin, now) }
            }
            (None, true) => {
                // The pass cannot go on in another log, and no thread may wait for it.
                self.give_up_pass();
                Task::Wait(Next::Asked)
            }
            (None, false) if ends => Task::Wait(Next::End),
            (None, false) if self.pass.is_some() => self.pass_step(now, false),
            (None, false) if wants_pass => Task::Pass,
            (None, false) => self.check_or_wait(now),
        };
        match task {
            // The next start tries the remaining work again.
            Task::Wait(_) if ends => Task::Wait(Next::End),
            task => task,
        }
    }

    /// Returns this task once the time of the next attempt has come.
    fn later(&self, task: Task, now: Instant) -> Task {
        match self.retry_at {
            Some(at) if at > now => Task::Wait(Next::After(at - now)),
            _ => task,
        }
    }

    fn pass_step(&self, now: Instant, hurries: bool) -> Task {
        let is_blocked = self.pass.as_ref().is_some_and(Pass::is_blocked);
        match self.pass_goes_on {
            Some(at) if at > now && (is_blocked || !hurries && !self.is_short_of_room()) => {
                Task::Wait(Next::After((at - now).min(CHECK_EVERY)))
            }
            _ => Task::Step,
        }
    }

    /// Returns the room for a pass, if it is known.
    fn room(&self) -> Option<Room> {
        let space = self.log_directory.disk.space(&self.log_directory.dir)?;
        Some(Room { space, live: self.keyspace.memory().logged() })
    }

    fn is_short_of_room(&self) -> bool {
        self.room().is_some_and(|room| room.is_short())
    }

    fn check_or_wait(&self, now: Instant) -> Task {
        let at = self.check_at.unwrap_or(now);
        if at > now { Task::Wait(Next::After(at - now)) } else { Task::Check }
    }

    /// Creates a log that will replace the present one, if any.
    fn begin(&mut self, now: Instant) {
        let heals = self.durable_log.is_on();
        self.give_up_pass();
        self.retry_at = None;
        self.has_tried_at_end |= heals && self.durable_log.compaction.requests.lock().ends;
        if heals {
            self.tell_room();
        }
        // This frees its lock, its descriptors and its preallocated space. Its content stays on disk.
        if heals && let Err(error) = self.durable_log.suspend() {
            self.warn(format_args!("The log that failed could not be closed: {error}"));
        }
        match self.try_begin(now) {
            Ok(()) => {
                if planted::is(Fault::WriteErrorEndsTooEarly) {
                    self.durable_log.heal();
                }
                if !std::mem::replace(&mut self.has_told_begin, true) {
                    let what = "A log is begun; it counts when all keys are in it";
                    self.host.tell(Severity::Notice, format_args!("{what}"));
                }
            }
            Err(error) if heals => self.note_failed_attempt(now, now, &error.to_string()),
            Err(error) => self.refuse_to_begin(&error.to_string()),
        }
    }

    /// Warns if there is no room for another log, which needs as much as all keys. Without the check, an attempt
    /// takes minutes to fail.
    fn tell_room(&mut self) {
        let Some(Room { space, live }) = self.room() else { return };
        self.durable_log.compaction.set_needed(live);
        if space.free < live && !std::mem::replace(&mut self.has_told_room, true) {
            let lack = self.log_directory.lack_of_room(live, &space);
            self.warn(format_args!("The log has failed, and {lack}"));
        }
    }

    fn try_begin(&mut self, now: Instant) -> Result<(), RecoveryError> {
        // All data of the log that was switched off has been deleted. Its space may be needed.
        let is_empty = || self.keyspace.total_len() == 0 && self.keyspace.code().all().is_empty();
        if !self.durable_log.is_on() && self.durable_log.was_on() && is_empty() {
            self.log_directory.give_up()?;
        }
        let path = self.log_directory.begin()?;
        let (disk, options) =
            (Arc::clone(&self.log_directory.disk), self.log_directory.options.wal.clone());
        let wal = match Wal::open_on(disk, &path, options, |_| Ok(())) {
            Ok((wal, _)) => wal,
            Err(error) => {
                self.discard(&path);
                return Err(RecoveryError::of(&path, error));
            }
        };
        self.incomplete = Some(Incomplete { path, begun: now, is_full: false });
        self.durable_log.compaction.set_incomplete(true);
        self.durable_log.open(wal);
        self.keyspace.begin_logging();
        self.begin_pass(now);
        Ok(())
    }

    /// Gives the reason to the client that asked for a log. There is still none.
    fn refuse_to_begin(&mut self, cause: &str) {
        self.durable_log.compaction.note_failure();
        self.warn(format_args!("The log could not be created: {cause}"));
        let switch_id = {
            let mut requests = self.durable_log.compaction.requests.lock();
            requests.log = false;
            requests.switch_id
        };
        self.host.take_back();
        self.end_switch(switch_id, Some(cause.to_owned()));
    }

    fn end_switch(&mut self, switch_id: u64, failure: Option<String>) {
        {
            let mut requests = self.durable_log.compaction.requests.lock();
            requests.ended_switch_id = requests.ended_switch_id.max(switch_id);
            requests.failure.clone_from(&failure);
        }
        self.host.switched(&Switched { switch_id, is_on: self.durable_log.is_on(), failure });
    }

    /// Removes the new log, which failed before it became authoritative. Nothing is lost: all acknowledged writes are
    /// in the authoritative log, or were never said to be logged.
    fn abandon(&mut self, now: Instant) {
        self.give_up_pass();
        if let Err(error) = self.durable_log.suspend() {
            self.host.tell(
                Severity::Verbose,
                format_args!("The new log could not be closed before its removal: {error}"),
            );
        }
        let Some(Incomplete { path, begun, .. }) = self.incomplete.take() else { return };
        self.discard(&path);
        let cause = self.durable_log.write_error().unwrap_or_default();
        self.note_failed_attempt(now, begun, &cause);
    }

    fn note_failed_attempt(&mut self, now: Instant, begun: Instant, cause: &str) {
        let took = now.saturating_duration_since(begun);
        self.retry_at = Some(now + took.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX));
        if self.must_tell_failure() {
            self.warn(format_args!("The log could not be rewritten: {cause}"));
        }
    }

    fn discard(&self, path: &std::path::Path) {
        if let Err(error) = self.log_directory.discard(path) {
            self.warn(format_args!("{} could not be removed: {error}", path.display()));
        }
    }

    fn close(&mut self) {
        self.keyspace.end_logging();
        self.give_up_pass();
        (self.retry_at, self.has_told_begin, self.has_told_room) = (None, false, false);
        if let Err(error) = self.durable_log.close() {
            self.warn(format_args!("The log could not be closed: {error}"));
        }
        self.durable_log.compaction.set_incomplete(false);
        if let Some(Incomplete { path, .. }) = self.incomplete.take() {
            self.discard(&path);
        }
        // No thread waits for a sync any more.
        self.host.device_reached();
        let what = "The log is closed; from now on data is in memory only";
        self.host.tell(Severity::Notice, format_args!("{what}"));
    }

    fn begin_pass(&mut self, now: Instant) {
        let Some(log) = self.durable_log.log() else { return };
        let kind = if self.incomplete.is_some() { Kind::First } else { Kind::Again };
        let compaction = &self.durable_log.compaction;
        if kind == Kind::Again
            && self.room().is_some_and(|room| !compaction.fits(log.wal.bytes(), &room))
        {
            return self
                .note_failed_pass("there is no room on the disk for another copy of the data");
        }
        match Pass::begin(kind, log, self.keyspace, now) {
            Ok(pass) => {
                self.pass = Some(pass);
                self.pass_goes_on = None;
                self.durable_log.compaction.set_running(Some(now));
            }
            Err(error) => self.note_failed_pass(&error.to_string()),
        }
    }

    /// Makes writers wait if the pass needs the rest of the disk. Otherwise they outpace it, and the log fails
    /// although most of it is garbage.
    fn keep_room(&mut self) {
        let Some(pass) = self.pass.as_mut().filter(|pass| pass.kind == Kind::Again) else { return };
        if pass.wants_room_check() {
            let space = self.log_directory.disk.space(&self.log_directory.dir);
            let left = space.map_or(u64::MAX, |space| pass.leaves_of(&space));
            self.set_room(left);
        }
    }

    /// Makes writers wait once they have written this many more bytes.
    fn set_room(&self, bytes: u64) {
        let held = self.durable_log.is_room_taken();
        let until = self.durable_log.appended().saturating_add(bytes);
        self.durable_log.compaction.set_room_until(until);
        if held && !self.durable_log.is_room_taken() {
            self.host.writers_go_on();
        }
    }

    fn step_pass(&mut self, now: Instant) {
        self.keep_room();
        let hurries = self.durable_log.has_write_error();
        let rate = if hurries { 0 } else { self.host.settings().bytes_per_second };
        let Some(pass) = &mut self.pass else {
            // The pass failed, though the log has not.
            return self.begin_pass(now);
        };
        match pass.step(&self.durable_log, rate, now) {
            Ok(Step::Underway(ahead)) => {
                self.pass_goes_on = Some(now + ahead);
                if pass.must_report_block(now) {
                    let by = "a script or a long command keeps keys locked";
                    self.warn(format_args!("The log cannot be compacted or begun while {by}"));
                }
            }
            Ok(Step::Done(done)) => self.note_passed(&done),
            Err(error) => {
                // Once all keys are in the log, only the end of the pass remains, unless the log has failed.
                let is_at_end = pass.has_all_keys();
                if !is_at_end || self.durable_log.log().is_none_or(|log| log.is_latched()) {
                    self.give_up_pass();
                }
                self.note_failed_pass(&error.to_string());
                self.pass_goes_on = Some(now + RETRY_AFTER_MIN);
            }
        }
    }

    fn give_up_pass(&mut self) {
        self.pass = None;
        self.pass_goes_on = None;
        self.durable_log.compaction.set_running(None);
        self.set_room(u64::MAX);
    }

    fn note_passed(&mut self, done: &Done) {
        self.give_up_pass();
        // Writers may have left little room meanwhile.
        self.check_at = None;
        self.durable_log.compaction.note_success(done);
        self.is_asked = false;
        if let Some(incomplete) = &mut self.incomplete {
            incomplete.is_full = true;
        }
        self.host.tell(
            Severity::Verbose,
            format_args!(
                "Compacted the log in {:.1} s: {} bytes written, {} bytes freed",
                done.took.as_secs_f64(),
                done.written,
                done.freed
            ),
        );
    }

    fn note_failed_pass(&mut self, cause: &str) {
        // Writers do not wait for a failed pass. They get an error when the disk is full.
        self.set_room(u64::MAX);
        if self.must_tell_failure() {
            self.warn(format_args!("The log could not be compacted: {cause}"));
        }
    }

    /// Counts a failure. Returns true if the operator has not been told of one since the last success, or has asked
    /// for this attempt, which was answered before it began.
    fn must_tell_failure(&mut self) -> bool {
        let is_first = self.durable_log.compaction.note_failure();
        std::mem::take(&mut self.is_asked) || is_first
    }

    /// Makes the new log authoritative, now that it has all keys.
    fn complete(&mut self, now: Instant) {
        let Some(Incomplete { path, .. }) = &self.incomplete else { return };
        if let Err(error) = self.log_directory.complete(path) {
            // Both logs hold all acknowledged writes, and either may be authoritative until this succeeds.
            self.retry_at = Some(now + RETRY_AFTER_MIN);
            if self.must_tell_failure() {
                self.warn(format_args!("The log could not be completed: {error}"));
            }
            return;
        }
        let Some(Incomplete { path, .. }) = self.incomplete.take() else { return };
        (self.retry_at, self.has_told_begin, self.has_told_room) = (None, false, false);
        self.durable_log.compaction.set_incomplete(false);
        self.durable_log.compaction.note_completed();
        self.durable_log.heal();
        self.host.device_reached();
        self.host
            .tell(Severity::Notice, format_args!("All keys are in the log in {}", path.display()));
        if let Err(error) = self.log_directory.clear_others(&path) {
            // The leftovers are not authoritative, and the next start removes them.
            self.warn(format_args!("The rest of the previous log could not be removed: {error}"));
        }
    }

    fn check_size(&mut self, now: Instant) {
        self.check_at = Some(now + CHECK_EVERY);
        let Some(log) = self.durable_log.log() else { return };
        let settings = self.host.settings();
        let live = || self.keyspace.memory().logged();
        let bytes = log.wal.bytes();
        let compaction = &self.durable_log.compaction;
        let room = self.room();
        if compaction.is_due(bytes, &settings, live)
            || room.is_some_and(|room| compaction.is_urgent(bytes, &room))
        {
            return self.begin_pass(now);
        }
        // Writers may be faster than this thread.
        self.set_room(room.map_or(u64::MAX, |room| compaction.room_before_pass(bytes, &room)));
        let spare_ms = room.map_or(u64::MAX, |room| room.spare() / BYTES_PER_MS_MAX);
        let next_check = Duration::from_millis(spare_ms).clamp(CHECK_EVERY_MIN, CHECK_EVERY);
        self.check_at = Some(now + next_check);
    }

    fn warn(&self, line: std::fmt::Arguments<'_>) {
        self.host.tell(Severity::Warning, line);
    }
}
