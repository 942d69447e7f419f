//! Opens, compacts, heals and closes the log while the server runs.
//!
//! One mechanism serves `CONFIG SET appendonly yes` and the healing of a write error: a new log is begun beside
//! whatever is there, all changes go to it from that moment, and all keys are written to it in a pass. Only
//! then does the new log count ([`LogDirectory`]), does a write error end, and may the log before be removed. A crash
//! before that leaves what counted before, which holds everything that was acknowledged: while there is a
//! write error no write is. `CONFIG SET appendonly no` closes the log; what is in it stays on disk.
//!
//! A change made before the log was opened is in the pass, and a later one is in the log. None is
//! missed: a thread that changes keys looks for the log after it has locked their shard, and the pass
//! locks each shard after the log was opened.
//!
//! If an attempt fails, what it made is removed and the write error stays, with the cause that it had. The next
//! attempt comes after as long as this one took, within bounds.
//!
//! All of this is a state machine: [`WalManager::step`] does the next step and says when to call again. It reads
//! no clock, starts no thread and waits for nothing but the disk.

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

/// How often the size of the log is looked at, and how often at most where there may soon be no room for a pass.
const CHECK_EVERY: Duration = Duration::from_millis(500);
const CHECK_EVERY_MIN: Duration = Duration::from_millis(20);

/// What is written to the log in a millisecond at most, for a guess at when that may be.
const BYTES_PER_MS_MAX: u64 = 512 << 10;

/// The least and the longest time between two attempts to do what has failed.
const RETRY_AFTER_MIN: Duration = Duration::from_millis(500);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// What keeps the log; see the head of the module.
pub struct WalManager<'k> {
    keyspace: &'k Keyspace,
    durable_log: Arc<DurableLog>,
    log_directory: LogDirectory,
    host: Arc<dyn Host>,
    /// The log that takes changes but does not count yet.
    incomplete: Option<Incomplete>,
    pass: Option<Pass<'k>>,
    /// A pass goes on then.
    pass_goes_on: Option<Instant>,
    /// What has failed is tried again then.
    retry_at: Option<Instant>,
    check_at: Option<Instant>,
    /// At the end there is one more attempt to heal, not more.
    has_tried_at_end: bool,
    /// It was said that a log is begun, and that one does not count yet: each new attempt is another one.
    has_told_begin: bool,
    /// It was said that there is no room for another log.
    has_told_room: bool,
}

/// A log that does not count yet.
struct Incomplete {
    path: PathBuf,
    begun: Instant,
    /// All keys are in it and on the device.
    is_full: bool,
}

/// When [`WalManager::step`] is to be called again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// At once.
    Now,
    /// After this time, or when something is asked for.
    After(Duration),
    /// When something is asked for.
    Asked,
    /// Never: the end has come.
    End,
}

/// The next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Task {
    /// There shall be a log, and there is none, or none that works.
    Begin,
    /// There shall be no log, and there is one.
    Close,
    /// It is as was asked.
    EndSwitch(u64),
    /// The log that was to count has failed.
    Abandon,
    /// A pass can begin.
    Pass,
    /// A pass, or what follows it, continues.
    Step,
    /// All keys are in the log, which shall count.
    Complete,
    /// It is time to see how large the log is.
    Check,
    Wait(Next),
}

impl DurableLog {
    /// Asks for a log, or that there is none. The id comes back with [`Host::switched`].
    pub fn switch(&self, on: bool) -> u64 {
        self.compaction.ask(|requests| {
            let is_ignored =
                planted::is(Fault::RefusedLogIsNotBegun) && requests.failure.take().is_some();
            requests.log = on && !is_ignored;
            requests.switch_id += 1;
            requests.switch_id
        })
    }

    /// The id of a switch that has not come to an end.
    pub fn switching(&self) -> Option<u64> {
        let requests = self.compaction.requests.lock();
        (requests.switch_id != requests.ended_switch_id).then_some(requests.switch_id)
    }

    /// Why the last switch came to nothing, if it did.
    pub fn switch_failure(&self) -> Option<String> {
        self.compaction.requests.lock().failure.clone()
    }

    /// Whether there is a log, or one is about to be begun.
    pub fn is_wanted(&self) -> bool {
        self.compaction.requests.lock().log
    }

    /// Asks the WAL manager to come to an end. What was asked for before is done.
    pub fn request_end(&self) {
        self.compaction.ask(|requests| requests.ends = true);
    }

    /// There is to be a log, since there is one.
    pub(super) fn note_wanted(&self) {
        self.compaction.ask(|requests| requests.log = true);
    }

    /// How often something was asked for; to be handed to [`Self::await_asked`].
    pub(super) fn asked(&self) -> u64 {
        self.compaction.requests.lock().count
    }

    /// Waits until more was asked for than `seen`.
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

    /// Whether a log refers to values on disk, or may do so later, so that these have to be durable: there
    /// is one, or there was, or is to be.
    pub fn may_refer(&self) -> bool {
        self.is_wanted() || self.is_on() || self.was_on()
    }

    /// Whether the log that counts says all that has happened and has reached the device: only then may
    /// go what it says is not needed. So it is without a log, unless one was switched off: what that one
    /// refers to stays as it does.
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
        // A log may have taken the place of another one meanwhile.
        Ok(!self.has_write_error() && !self.compaction.is_incomplete())
    }
}

impl<'k> WalManager<'k> {
    /// Of a durable log that has its log already, or none.
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
            has_told_begin: false,
            has_told_room: false,
        }
    }

    /// Does what is next, and says when to be called again.
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
            (Some(_), false) => self.pass_step(now, ends),
            (None, true) if self.durable_log.may_heal() => {
                let is_urgent = wants_pass || ends && !self.has_tried_at_end;
                if is_urgent { Task::Begin } else { self.later(Task::Begin, now) }
            }
            (None, true) => {
                // It goes on in no other log, and no thread must wait for it.
                self.give_up_pass();
                Task::Wait(Next::Asked)
            }
            (None, false) if ends => Task::Wait(Next::End),
            (None, false) if self.pass.is_some() => self.pass_step(now, false),
            (None, false) if wants_pass => Task::Pass,
            (None, false) => self.check_or_wait(now),
        };
        match task {
            // What is left to do is tried again after the next start.
            Task::Wait(_) if ends => Task::Wait(Next::End),
            task => task,
        }
    }

    /// This task, once the time for another attempt has come.
    fn later(&self, task: Task, now: Instant) -> Task {
        match self.retry_at {
            Some(at) if at > now => Task::Wait(Next::After(at - now)),
            _ => task,
        }
    }

    fn pass_step(&self, now: Instant, hurries: bool) -> Task {
        match self.pass_goes_on {
            Some(at) if at > now && !hurries && !self.is_short_of_room() => {
                Task::Wait(Next::After((at - now).min(CHECK_EVERY)))
            }
            _ => Task::Step,
        }
    }

    /// What the disk has to spare for a pass, if that is known.
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

    /// Begins a log that is to take the place of whatever there is.
    fn begin(&mut self, now: Instant) {
        let heals = self.durable_log.is_on();
        self.give_up_pass();
        self.retry_at = None;
        self.has_tried_at_end |= heals && self.durable_log.compaction.requests.lock().ends;
        if heals {
            self.tell_room();
        }
        // For its lock, its descriptors and the space it has set aside. What it holds stays on disk.
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

    /// Another log needs as much as all keys take. Where that is not there, an attempt takes minutes to find out.
    fn tell_room(&mut self) {
        let Some(Room { space, live }) = self.room() else { return };
        self.durable_log.compaction.set_needed(live);
        if space.free < live && !std::mem::replace(&mut self.has_told_room, true) {
            let lack = self.log_directory.lack_of_room(live, &space);
            self.warn(format_args!("The log has failed, and {lack}"));
        }
    }

    fn try_begin(&mut self, now: Instant) -> Result<(), RecoveryError> {
        // All that is in the log that was switched off has been deleted. Its room may be needed.
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

    /// There is still no log; the client that asked for it gets the reason.
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

    /// The log that was to count has failed before it did. Nothing is lost with it: what was acknowledged is
    /// in the one that counts, or was never said to be in any.
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
        if self.durable_log.compaction.note_failure() {
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
        // No thread waits for a device any more.
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
            return self.note_failed_pass("there is no room for it beside what is there");
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

    /// Has writers wait where the pass needs what is left of the disk. They outpace it otherwise, and the log
    /// would fail although most of it could go.
    fn keep_room(&mut self) {
        let Some(pass) = self.pass.as_mut().filter(|pass| pass.kind == Kind::Again) else { return };
        if pass.wants_room_check() {
            let space = self.log_directory.disk.space(&self.log_directory.dir);
            let left = space.map_or(u64::MAX, |space| pass.leaves_of(&space));
            self.set_room(left);
        }
    }

    /// Has writers wait when they have written so much more.
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
            // It failed, though the log has not.
            return self.begin_pass(now);
        };
        match pass.step(&self.durable_log, rate, now) {
            Ok(Step::Underway(ahead)) => self.pass_goes_on = Some(now + ahead),
            Ok(Step::Done(done)) => self.note_passed(&done),
            Err(error) => {
                // Once all keys are in the log only the end of the pass is left, unless the log has failed.
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
        // Writers wait for none. They hear what is wrong when the disk is full.
        self.set_room(u64::MAX);
        if self.durable_log.compaction.note_failure() {
            self.warn(format_args!("The log could not be compacted: {cause}"));
        }
    }

    /// Has a new log count now that all keys are in it.
    fn complete(&mut self, now: Instant) {
        let Some(Incomplete { path, .. }) = &self.incomplete else { return };
        if let Err(error) = self.log_directory.complete(path) {
            // Both logs hold what was acknowledged, and either may count until this succeeds.
            self.retry_at = Some(now + RETRY_AFTER_MIN);
            if self.durable_log.compaction.note_failure() {
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
            // They do not count, and the next start removes them.
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
        // They may be faster than this thread.
        self.set_room(room.map_or(u64::MAX, |room| compaction.room_before_pass(bytes, &room)));
        let spare_ms = room.map_or(u64::MAX, |room| room.spare() / BYTES_PER_MS_MAX);
        let next_check = Duration::from_millis(spare_ms).clamp(CHECK_EVERY_MIN, CHECK_EVERY);
        self.check_at = Some(now + next_check);
    }

    fn warn(&self, line: std::fmt::Arguments<'_>) {
        self.host.tell(Severity::Warning, line);
    }
}
