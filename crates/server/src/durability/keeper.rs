//! What opens, compacts, heals and closes the log while the server runs.
//!
//! One mechanism serves `CONFIG SET appendonly yes` and the healing of a wound: a new log is begun beside
//! whatever is there, all changes go to it from that moment, and all keys are written to it in a pass. Only
//! then does the new log count ([`LogHome`]), does a wound end, and may the log before be removed. A crash
//! before that leaves what counted before, which holds everything that was acknowledged: while there is a
//! wound no write is. `CONFIG SET appendonly no` closes the log; what is in it stays on disk.
//!
//! A change that was made before the log was there is in the pass, and one that was made after it is
//! in the log. There is none between: whoever changes keys looks for the log after having locked
//! their shard, and the pass locks each shard after the log was there.
//!
//! If an attempt fails, what it made is removed and the wound stays, with the cause that it had. The next
//! attempt comes after as long as this one took, within bounds.
//!
//! All of this is a state machine: [`Keeper::step`] does what is next and says when to come back. It reads no
//! clock, starts no thread and waits for nothing but the disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tierce_cask::Wal;
use tierce_keyspace::Keyspace;
use tierce_keyspace::planted::{self, Fault};

use super::compactor::{Done, Kind, Pass, Room, Step};
use super::home::LogHome;
use super::host::{Host, Severity, Switched};
use super::journal::Journal;
use super::recovery::RecoveryError;

/// How often the size of the log is looked at, and how often at most where there may soon be no room for a pass.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const LOOK_EVERY_MIN: Duration = Duration::from_millis(20);

/// What is written to the log in a millisecond at most, for a guess at when that may be.
const BYTES_PER_MS_MAX: u64 = 512 << 10;

/// The least and the longest time between two attempts to do what has failed.
const RETRY_AFTER_MIN: Duration = Duration::from_millis(500);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// What keeps the log; see the head of the module.
pub struct Keeper<'k> {
    keyspace: &'k Keyspace,
    journal: Arc<Journal>,
    home: LogHome,
    host: Arc<dyn Host>,
    /// The log that takes changes but does not count yet.
    incomplete: Option<Incomplete>,
    pass: Option<Pass<'k>>,
    /// A pass goes on then.
    pass_goes_on: Option<Instant>,
    /// What has failed is tried again then.
    retry_at: Option<Instant>,
    look_at: Option<Instant>,
    /// At the end there is one more attempt to heal, not more.
    has_tried_at_end: bool,
}

/// A log that does not count yet.
struct Incomplete {
    path: PathBuf,
    begun: Instant,
    /// All keys are in it and on the device.
    is_full: bool,
}

/// When [`Keeper::step`] is to be called again.
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

/// What is to be done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Task {
    /// There shall be a log, and there is none, or none that works.
    Begin,
    /// There shall be no log, and there is one.
    Close,
    /// It is as was asked.
    Settle(u64),
    /// The log that was to count has failed.
    Abandon,
    /// A pass can begin.
    Pass,
    /// A pass, or what comes after it, goes on.
    Step,
    /// All keys are in the log, which shall count.
    Complete,
    /// It is time to see how large the log is.
    Look,
    Wait(Next),
}

impl Journal {
    /// Asks for a log, or that there is none. The ticket comes back with [`Host::switched`].
    pub fn switch(&self, on: bool) -> u64 {
        self.compaction.ask(|wishes| {
            let is_ignored =
                planted::is(Fault::RefusedLogIsNotBegun) && wishes.failure.take().is_some();
            wishes.log = on && !is_ignored;
            wishes.ticket += 1;
            wishes.ticket
        })
    }

    /// The ticket of a switch that has not come to an end.
    #[must_use]
    pub fn switching(&self) -> Option<u64> {
        let wishes = self.compaction.wishes.lock();
        (wishes.ticket != wishes.settled).then_some(wishes.ticket)
    }

    /// Why the last switch came to nothing, if it did.
    #[must_use]
    pub fn switch_failure(&self) -> Option<String> {
        self.compaction.wishes.lock().failure.clone()
    }

    /// Whether there is a log, or one is about to be begun.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.compaction.wishes.lock().log
    }

    /// Asks the keeper to come to an end. What was asked for before is done.
    pub fn end_keeping(&self) {
        self.compaction.ask(|wishes| wishes.ends = true);
    }

    /// There is to be a log, since there is one.
    pub(super) fn note_wanted(&self) {
        self.compaction.ask(|wishes| wishes.log = true);
    }

    /// How often something was asked for; to be handed to [`Self::await_asked`].
    pub(super) fn asked(&self) -> u64 {
        self.compaction.wishes.lock().count
    }

    /// Waits until more was asked for than `seen`.
    pub(super) fn await_asked(&self, seen: u64, at_most: Option<Duration>) {
        let compaction = &self.compaction;
        let mut wishes = compaction.wishes.lock();
        if wishes.count != seen {
            return;
        }
        match at_most {
            Some(time) => _ = compaction.changed.wait_for(&mut wishes, time),
            None => compaction.changed.wait(&mut wishes),
        }
    }

    /// Whether a log refers to values on disk, or may do so later, so that these have to be durable: there
    /// is one, or there was, or is to be.
    #[must_use]
    pub fn may_refer(&self) -> bool {
        self.is_wanted() || self.is_on() || self.was_on()
    }

    /// Whether the log that counts says all that has happened and has reached the device: only then may
    /// go what it says is not needed. So it is without a log, unless one was switched off: what that one
    /// refers to stays as it does.
    ///
    /// # Errors
    /// What the disk says.
    pub fn settle(&self) -> Result<bool, tierce_cask::Error> {
        if !self.is_on() {
            return Ok(!self.may_refer());
        }
        if self.is_wounded() || self.compaction.is_incomplete() {
            return Ok(false);
        }
        self.sync()?;
        // A log may have taken the place of another one meanwhile.
        Ok(!self.is_wounded() && !self.compaction.is_incomplete())
    }
}

impl<'k> Keeper<'k> {
    /// Of a journal that has its log already, or none.
    #[must_use]
    pub fn new(
        keyspace: &'k Keyspace,
        journal: Arc<Journal>,
        home: LogHome,
        host: Arc<dyn Host>,
    ) -> Self {
        Self {
            keyspace,
            journal,
            home,
            host,
            incomplete: None,
            pass: None,
            pass_goes_on: None,
            retry_at: None,
            look_at: None,
            has_tried_at_end: false,
        }
    }

    /// Does what is next, and says when to be called again.
    pub fn step(&mut self, now: Instant) -> Next {
        match self.next_task(now) {
            Task::Begin => self.begin(now),
            Task::Close => self.close(),
            Task::Settle(ticket) => self.settle(ticket, None),
            Task::Abandon => self.abandon(now),
            Task::Pass => self.begin_pass(now),
            Task::Step => self.step_pass(now),
            Task::Complete => self.complete(now),
            Task::Look => self.look(now),
            Task::Wait(next) => return next,
        }
        Next::Now
    }

    fn next_task(&mut self, now: Instant) -> Task {
        let mut wishes = self.journal.compaction.wishes.lock();
        let is_on = self.journal.is_on();
        if wishes.log != is_on {
            return if is_on { Task::Close } else { Task::Begin };
        }
        if wishes.ticket != wishes.settled {
            return Task::Settle(wishes.ticket);
        }
        let ends = wishes.ends;
        let wants_pass = std::mem::take(&mut wishes.pass);
        drop(wishes);
        if !is_on {
            return Task::Wait(if ends { Next::End } else { Next::Asked });
        }
        let has_failed = self.journal.log().is_none_or(|log| log.is_latched());
        let task = match (&self.incomplete, has_failed) {
            (Some(_), true) => return Task::Abandon,
            (Some(incomplete), false) if incomplete.is_full && wants_pass => Task::Complete,
            (Some(incomplete), false) if incomplete.is_full => self.later(Task::Complete, now),
            (Some(_), false) => self.pass_step(now, ends),
            (None, true) if self.journal.may_heal() => {
                let is_urgent = wants_pass || ends && !self.has_tried_at_end;
                if is_urgent { Task::Begin } else { self.later(Task::Begin, now) }
            }
            (None, true) => {
                // It goes on in no other log, and nobody is to wait for it.
                self.give_up_pass();
                Task::Wait(Next::Asked)
            }
            (None, false) if ends => Task::Wait(Next::End),
            (None, false) if self.pass.is_some() => self.pass_step(now, false),
            (None, false) if wants_pass => Task::Pass,
            (None, false) => self.look_or_wait(now),
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
                Task::Wait(Next::After((at - now).min(LOOK_EVERY)))
            }
            _ => Task::Step,
        }
    }

    /// What the disk has to spare for a pass, if that is known.
    fn room(&self) -> Option<Room> {
        let space = self.home.disk.space(&self.home.dir)?;
        Some(Room { space, live: self.keyspace.memory().entries })
    }

    fn is_short_of_room(&self) -> bool {
        self.room().is_some_and(|room| room.is_short())
    }

    fn look_or_wait(&self, now: Instant) -> Task {
        let at = self.look_at.unwrap_or(now);
        if at > now { Task::Wait(Next::After(at - now)) } else { Task::Look }
    }

    /// Begins a log that is to take the place of whatever there is.
    fn begin(&mut self, now: Instant) {
        let heals = self.journal.is_on();
        self.give_up_pass();
        self.retry_at = None;
        self.has_tried_at_end |= heals && self.journal.compaction.wishes.lock().ends;
        // For its lock, its descriptors and the space it has set aside. What it holds stays on disk.
        if heals && let Err(error) = self.journal.suspend() {
            self.warn(format_args!("The log that failed could not be closed: {error}"));
        }
        match self.try_begin(now) {
            Ok(()) => {
                if planted::is(Fault::WoundEndsTooEarly) {
                    self.journal.heal();
                }
                let what = "A log is begun; it counts when all keys are in it";
                self.host.tell(Severity::Notice, format_args!("{what}"));
            }
            Err(error) if heals => self.note_failed_attempt(now, now, &error.to_string()),
            Err(error) => self.refuse_to_begin(&error.to_string()),
        }
    }

    fn try_begin(&mut self, now: Instant) -> Result<(), RecoveryError> {
        let path = self.home.begin()?;
        let (disk, options) = (Arc::clone(&self.home.disk), self.home.options.wal.clone());
        let wal = match Wal::open_on(disk, &path, options, |_| Ok(())) {
            Ok((wal, _)) => wal,
            Err(error) => {
                self.discard(&path);
                return Err(RecoveryError::of(&path, error));
            }
        };
        self.incomplete = Some(Incomplete { path, begun: now, is_full: false });
        self.journal.compaction.set_incomplete(true);
        self.journal.open(wal);
        self.keyspace.begin_logging();
        self.begin_pass(now);
        Ok(())
    }

    /// There is no log, as before; whoever has asked for it is told.
    fn refuse_to_begin(&mut self, cause: &str) {
        self.journal.compaction.note_failure();
        self.warn(format_args!("The log could not be begun: {cause}"));
        let ticket = {
            let mut wishes = self.journal.compaction.wishes.lock();
            wishes.log = false;
            wishes.ticket
        };
        self.host.take_back();
        self.settle(ticket, Some(cause.to_owned()));
    }

    fn settle(&mut self, ticket: u64, failure: Option<String>) {
        {
            let mut wishes = self.journal.compaction.wishes.lock();
            wishes.settled = wishes.settled.max(ticket);
            wishes.failure.clone_from(&failure);
        }
        self.host.switched(&Switched { ticket, is_on: self.journal.is_on(), failure });
    }

    /// The log that was to count has failed before it did. Nothing is lost with it: what was acknowledged is
    /// in the one that counts, or was never said to be in any.
    fn abandon(&mut self, now: Instant) {
        self.give_up_pass();
        if let Err(error) = self.journal.suspend() {
            self.host.tell(
                Severity::Verbose,
                format_args!("The new log could not be closed before its removal: {error}"),
            );
        }
        let Some(Incomplete { path, begun, .. }) = self.incomplete.take() else { return };
        self.discard(&path);
        let cause = self.journal.wound().unwrap_or_default();
        self.note_failed_attempt(now, begun, &cause);
    }

    fn note_failed_attempt(&mut self, now: Instant, begun: Instant, cause: &str) {
        let took = now.saturating_duration_since(begun);
        self.retry_at = Some(now + took.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX));
        if self.journal.compaction.note_failure() {
            self.warn(format_args!("The log could not be written anew: {cause}"));
        }
    }

    fn discard(&self, path: &std::path::Path) {
        if let Err(error) = self.home.discard(path) {
            self.warn(format_args!("{} could not be removed: {error}", path.display()));
        }
    }

    fn close(&mut self) {
        self.keyspace.end_logging();
        self.give_up_pass();
        self.retry_at = None;
        if let Err(error) = self.journal.close() {
            self.warn(format_args!("The log could not be closed: {error}"));
        }
        self.journal.compaction.set_incomplete(false);
        if let Some(Incomplete { path, .. }) = self.incomplete.take() {
            self.discard(&path);
        }
        // Nobody waits for a device any more.
        self.host.device_reached();
        let what = "The log is closed; from now on data is in memory only";
        self.host.tell(Severity::Notice, format_args!("{what}"));
    }

    fn begin_pass(&mut self, now: Instant) {
        let Some(log) = self.journal.log() else { return };
        let kind = if self.incomplete.is_some() { Kind::First } else { Kind::Again };
        let compaction = &self.journal.compaction;
        if kind == Kind::Again
            && self.room().is_some_and(|room| !compaction.fits(log.wal.bytes(), &room))
        {
            return self.note_failed_pass("there is no room for it beside what is there");
        }
        match Pass::begin(kind, log, self.keyspace, now) {
            Ok(pass) => {
                self.pass = Some(pass);
                self.pass_goes_on = None;
                self.journal.compaction.set_running(Some(now));
            }
            Err(error) => self.note_failed_pass(&error.to_string()),
        }
    }

    /// Has writers wait where the pass needs what is left of the disk. They outpace it otherwise, and the log
    /// would fail although most of it could go.
    fn keep_room(&mut self) {
        let Some(pass) = self.pass.as_mut().filter(|pass| pass.kind == Kind::Again) else { return };
        if pass.wants_look() {
            let space = self.home.disk.space(&self.home.dir);
            let left = space.map_or(u64::MAX, |space| pass.leaves_of(&space));
            self.set_room(left);
        }
    }

    /// Has writers wait when they have written so much more.
    fn set_room(&self, bytes: u64) {
        let held = self.journal.is_room_taken();
        let until = self.journal.appended().saturating_add(bytes);
        self.journal.compaction.set_room_until(until);
        if held && !self.journal.is_room_taken() {
            self.host.writers_go_on();
        }
    }

    fn step_pass(&mut self, now: Instant) {
        self.keep_room();
        let hurries = self.journal.is_wounded();
        let rate = if hurries { 0 } else { self.host.settings().bytes_per_second };
        let Some(pass) = &mut self.pass else {
            // It failed, though the log has not.
            return self.begin_pass(now);
        };
        match pass.step(&self.journal, rate, now) {
            Ok(Step::Underway(ahead)) => self.pass_goes_on = Some(now + ahead),
            Ok(Step::Done(done)) => self.note_passed(&done),
            Err(error) => {
                // Once all keys are in the log only the end of the pass is left, unless the log has failed.
                let is_at_end = pass.has_all_keys();
                if !is_at_end || self.journal.log().is_none_or(|log| log.is_latched()) {
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
        self.journal.compaction.set_running(None);
        self.set_room(u64::MAX);
    }

    fn note_passed(&mut self, done: &Done) {
        self.give_up_pass();
        // Writers may have left little room meanwhile.
        self.look_at = None;
        self.journal.compaction.note_success(done);
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
        if self.journal.compaction.note_failure() {
            self.warn(format_args!("The log could not be compacted: {cause}"));
        }
    }

    /// Has a new log count now that all keys are in it.
    fn complete(&mut self, now: Instant) {
        let Some(Incomplete { path, .. }) = &self.incomplete else { return };
        if let Err(error) = self.home.complete(path) {
            // Both logs hold what was acknowledged, and either may count until this succeeds.
            self.retry_at = Some(now + RETRY_AFTER_MIN);
            if self.journal.compaction.note_failure() {
                self.warn(format_args!("The log could not be completed: {error}"));
            }
            return;
        }
        let Some(Incomplete { path, .. }) = self.incomplete.take() else { return };
        self.retry_at = None;
        self.journal.compaction.set_incomplete(false);
        self.journal.compaction.note_completed();
        self.journal.heal();
        self.host.device_reached();
        self.host
            .tell(Severity::Notice, format_args!("All keys are in the log in {}", path.display()));
        if let Err(error) = self.home.clear_others(&path) {
            // They do not count, and the next start removes them.
            self.warn(format_args!("What is left of the log before could not be removed: {error}"));
        }
    }

    fn look(&mut self, now: Instant) {
        self.look_at = Some(now + LOOK_EVERY);
        let Some(log) = self.journal.log() else { return };
        let settings = self.host.settings();
        let live = || self.keyspace.memory().entries;
        let bytes = log.wal.bytes();
        let compaction = &self.journal.compaction;
        let room = self.room();
        if compaction.is_due(bytes, &settings, live)
            || room.is_some_and(|room| compaction.is_urgent(bytes, &room))
        {
            return self.begin_pass(now);
        }
        // They may be faster than this thread.
        self.set_room(room.map_or(u64::MAX, |room| compaction.room_before_pass(bytes, &room)));
        let spare_ms = room.map_or(u64::MAX, |room| room.spare() / BYTES_PER_MS_MAX);
        let next_look = Duration::from_millis(spare_ms).clamp(LOOK_EVERY_MIN, LOOK_EVERY);
        self.look_at = Some(now + next_look);
    }

    fn warn(&self, line: std::fmt::Arguments<'_>) {
        self.host.tell(Severity::Warning, line);
    }
}
