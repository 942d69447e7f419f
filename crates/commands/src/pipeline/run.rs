//! Calls whose caller is no connection: of a program that embeds the kernel, or of an import.
//!
//! A call passes the same stages as the request of a client, on the thread of its caller: gate, fetch, lock, run,
//! account, commit, acknowledge. Where a worker would set a request aside, this thread waits: for the end of a pause,
//! for memory, for a value on disk, for a shard, for a save, with `appendfsync always` for the device, and with
//! `durability-replicas` for replicas. Not for keys: a blocking command that finds nothing replies as if its time were
//! up. A long command runs on this thread, too.
//!
//! So each call leaves a reply, unless CLIENT REPLY has it off. Commands that are about the connection itself
//! ([`OF_CONNECTIONS`]) are refused.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tierce_keyspace::{Origin, STREAM_NAME_LEN, ShardLocks, Source, StreamPlace, interleaving};
use tierce_output::{Mark, Output};
use tierce_wire::resp::{Args, OwnedArgs};

use crate::caller::Caller;
use crate::clock;
use crate::command::{Access, Command, Flags, Scope};
use crate::durability::{Reached, SyncPolicy};
use crate::error::{CommandError, Interrupt};
use crate::kernel::Kernel;
use crate::lease::Holding;
use crate::monitors;
use crate::pipeline::blocking;
use crate::pipeline::fetch;
use crate::pipeline::gates::{self, Gates, Verdict};
use crate::pipeline::{self, Mode, Refused, Turn};
use crate::pipeline::{Attempt, Late, Ready};
use crate::replica_level::ReplicaLevel;
use crate::reply::Reply;
use crate::stats::Counters;
use crate::waiting::{self, Awaited};

/// Commands that do something to the connection that they come from, or reply by its end.
const OF_CONNECTIONS: &[&str] =
    &["monitor", "psubscribe", "psync", "replconf", "shutdown", "ssubscribe", "subscribe", "sync"];

const NO_CONNECTION: CommandError =
    CommandError::new("ERR this command is for connections, and its caller has none");

const GAVE_UP: CommandError = CommandError::new(
    "TRYAGAIN the command was held back for too long: by CLIENT PAUSE, for memory, or by a slow disk",
);

const LOG_IS_LATE: CommandError = CommandError::new(
    "TRYAGAIN the log is still being switched; INFO persistence tells when it is",
);

/// A call beside the workers waits so long for shards that others hold before it looks whether it gives up.
const SHARD_PATIENCE: Duration = Duration::from_millis(100);

/// A transaction of no more brief requests of a primary is as brief: a worker waits for some ten microseconds at most.
const BRIEF_REQUESTS: usize = 16;

/// How often a call looks again that a gate holds back: what closes a gate tells no thread when it opens.
const RETRY_AFTER: Duration = Duration::from_millis(1);

impl Kernel {
    /// Executes a call, from its name to its reply.
    pub fn execute(&self, caller: &mut Caller, args: Args<'_>, output: &mut Output) {
        match pipeline::resolve(self, args) {
            Ok(command) => self.run(command, caller, args, output, clock::unix_ms()),
            Err(refused) => {
                let counters = self.spare.take(self.commands.id_count());
                let refused = pipeline::refused_in_transaction(caller, refused);
                reply(caller, output, |reply| pipeline::refuse(self, &counters, reply, &refused));
                self.spare.give_back(counters);
            }
        }
    }

    /// Executes a command of a stream that this server follows. What keeps clients from changing data does not keep
    /// the primary from it, who has changed them already: neither the role nor memory nor a pause. Time stands still
    /// before any deadline, so that it meets keys that are past theirs.
    ///
    /// With it, the stream of this name is known up to an offset: what changes is logged with that place.
    pub fn apply(
        &self,
        caller: &mut Caller,
        args: Args<'_>,
        output: &mut Output,
        (stream, offset): ([u8; STREAM_NAME_LEN], u64),
    ) {
        let Ok(command) = pipeline::resolve(self, args) else {
            return self.execute(caller, args, output);
        };
        caller.set_primary();
        let now_ms = pipeline::time_of_effect(command.spec.name);
        let by = Runs::OfPrimary { stream, offset };
        self.run_by(by, command, caller, args, output, now_ms);
    }

    /// The same for a call of a known command, at a given time.
    pub fn run(
        &self,
        command: &Command,
        caller: &mut Caller,
        args: Args<'_>,
        output: &mut Output,
        now_ms: i64,
    ) {
        self.run_by(Runs::OfProgram, command, caller, args, output, now_ms);
    }

    /// The same as [`Kernel::execute`], on a thread beside workers: shards are announced as busy while they are held,
    /// as by the threads for long commands. What holds the call back is waited for until `gives_up` says so; the reply
    /// is an error then. Or until `gives_way` does: then it is `None`, and nothing has been done or replied. The reply
    /// may be shown once [`Kernel::settle`] allows it.
    pub fn execute_beside(
        &self,
        caller: &mut Caller,
        args: Args<'_>,
        output: &mut Output,
        gives_up: &dyn Fn() -> bool,
        gives_way: &dyn Fn() -> bool,
    ) -> Option<Owed> {
        let Ok(command) = pipeline::resolve(self, args) else {
            self.execute(caller, args, output);
            return Some(Owed::default());
        };
        let (owes_bucket, gave_way) = (Cell::new(false), Cell::new(false));
        let way = Way { gives: gives_way, gave: &gave_way };
        let by = Runs::Beside { gives_up, way, owes_bucket: &owes_bucket };
        self.run_by(by, command, caller, args, output, clock::unix_ms());
        (!gave_way.get()).then(|| Owed { bucket: owes_bucket.get() })
    }

    /// Executes EXEC in the same way, by whatever name clients call it.
    pub fn exec_beside(
        &self,
        caller: &mut Caller,
        output: &mut Output,
        gives_up: &dyn Fn() -> bool,
    ) -> Owed {
        let mut args = OwnedArgs::new();
        args.push(b"exec").expect("a short one");
        let command = self.commands.find_original(b"exec").expect("the table has it");
        let (bucket, gave) = (Cell::new(false), Cell::new(false));
        let way = Way { gives: &|| false, gave: &gave };
        let by = Runs::Beside { gives_up, way, owes_bucket: &bucket };
        self.run_by(by, command, caller, args.as_args(), output, clock::unix_ms());
        Owed { bucket: bucket.get() }
    }

    /// Waits until the replies to calls beside workers may be shown, or until `gives_up` says so.
    ///
    /// # Errors
    /// When the bucket does not have their changes in time, or its lease is over. It is not known then whether they
    /// count.
    pub fn settle(&self, owed: Owed, gives_up: &dyn Fn() -> bool) -> Result<(), CommandError> {
        let until = Instant::now() + BUCKET_PATIENCE;
        let is_deposed = || self.bucket.lease.holding() == Holding::Deposed;
        let is_over = || is_deposed() || Instant::now() >= until || gives_up();
        // Later changes of others are not waited for.
        let position = if owed.bucket { self.feed.position() } else { 0 };
        while self.bucket.committed() < position {
            if is_over() {
                return Err(self.not_in_bucket());
            }
            self.bucket.hasten(&self.feed);
            self.bucket.wait_for(position, SETTLE_LOOK);
        }
        while !self.bucket.wait_for_lease(SETTLE_LOOK) {
            if is_over() {
                return Err(LEASE_OVER);
            }
        }
        Ok(())
    }

    fn not_in_bucket(&self) -> CommandError {
        let cause = self.durability.write_failure();
        CommandError::not_logged(cause.or_else(|| Some("the bucket does not answer".to_owned())))
    }

    /// How much there is to do for a call once nothing holds it back.
    pub fn effort_of(&self, args: Args<'_>) -> Effort {
        let Ok(command) = pipeline::resolve(self, args) else { return Effort::Long };
        let spec = command.spec;
        // Messages may have to wait for their receivers, and for the end of a pause.
        if takes_little_data(command) || Access::of(spec).publishes {
            Effort::Little
        } else if spec.flags.contains(Flags::ALLOW_BUSY) || spec.runs_while_loading() {
            Effort::NoData
        } else {
            Effort::Long
        }
    }

    /// Executes a call if that takes neither waiting nor long: one of a command for a single key or for none, while
    /// nothing holds it back. Whether it has; otherwise nothing has been done or replied. For a thread that serves many
    /// callers.
    pub fn execute_at_once(
        &self,
        caller: &mut Caller,
        args: Args<'_>,
        output: &mut Output,
    ) -> bool {
        let Ok(command) = pipeline::resolve(self, args) else { return false };
        let is_for_none = command.is_brief && matches!(command.spec.scope(), Scope::Nothing);
        if !takes_little_data(command) || !(command.has_one_key || is_for_none) {
            return false;
        }
        let counters = self.spare.take(self.commands.id_count());
        let now_ms = clock::unix_ms();
        let by = Runs::AtOnce;
        let run = Run { kernel: self, counters: &counters, command, args, now_ms, by };
        let is_through = run.run_at_once(caller, output);
        self.spare.give_back(counters);
        is_through
    }

    fn run_by(
        &self,
        by: Runs<'_>,
        command: &Command,
        caller: &mut Caller,
        args: Args<'_>,
        output: &mut Output,
        now_ms: i64,
    ) {
        let counters = self.spare.take(self.commands.id_count());
        let mut run = Run { kernel: self, counters: &counters, command, args, now_ms, by };
        let outcome = match OF_CONNECTIONS.contains(&&*command.full_name) {
            false => run.run(caller, output),
            true => Err(Refused { command: Some(command), error: NO_CONNECTION }),
        };
        if let Err(refused) = outcome
            && !by.gave_way()
        {
            let refused = pipeline::refused_in_transaction(caller, refused);
            reply(caller, output, |reply| pipeline::refuse(self, &counters, reply, &refused));
        }
        self.spare.give_back(counters);
    }
}

/// How much there is to do for a call, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// It needs no data, such as SCRIPT KILL or INFO, and so waits neither for the device nor for memory.
    NoData,
    /// One key, or few elements.
    Little,
    /// More than a worker does at once.
    Long,
}

fn takes_little_data(command: &Command) -> bool {
    command.is_data_only
        && (command.has_one_key || command.is_brief)
        && !command.spec.flags.contains(Flags::PROGRAM)
}

/// What replies to calls beside workers wait for, apart from the lease of the bucket. See [`Kernel::settle`].
#[must_use]
#[derive(Debug, Clone, Copy, Default)]
pub struct Owed {
    /// They have changed something that is to be in the bucket.
    bucket: bool,
}

impl Owed {
    /// What this and another one wait for.
    pub fn and(self, other: Self) -> Self {
        Self { bucket: self.bucket || other.bucket }
    }
}

const LEASE_OVER: CommandError = CommandError::new(
    "MISCONF the lease of the bucket is over: it is not known whether this has been done",
);

/// How long a call that came over no connection waits for the bucket; its writes may get there later.
const BUCKET_PATIENCE: Duration = Duration::from_secs(10);

/// A call that waits for the bucket looks this often whether it gives up.
const SETTLE_LOOK: Duration = Duration::from_millis(100);

/// A call that waits, and has done nothing yet, may leave its thread to others and begin again later.
#[derive(Clone, Copy)]
struct Way<'a> {
    /// True if it does so now.
    gives: &'a dyn Fn() -> bool,
    /// True once it has.
    gave: &'a Cell<bool>,
}

/// On what kind of thread a call runs.
#[derive(Clone, Copy)]
enum Runs<'a> {
    /// Of a program that embeds the kernel: it waits for everything.
    OfProgram,
    /// The same for the stream of a primary, which passes no gates.
    OfPrimary {
        /// The name of the stream.
        stream: [u8; STREAM_NAME_LEN],
        /// Bytes of it that are known with this command.
        offset: u64,
    },
    /// Beside workers, which must not wait for what it holds.
    Beside {
        /// Whether it stops waiting.
        gives_up: &'a dyn Fn() -> bool,
        way: Way<'a>,
        /// Whether it has changed something that is to be in the bucket before its reply is shown.
        owes_bucket: &'a Cell<bool>,
    },
    /// One that must not wait at all.
    AtOnce,
}

impl Runs<'_> {
    fn gives_up(self) -> bool {
        matches!(self, Self::Beside { gives_up, .. } if gives_up())
    }

    /// Before it runs: whether it does not go on waiting.
    fn stops_waiting(self) -> bool {
        if let Self::Beside { way, .. } = self {
            way.gave.set((way.gives)());
        }
        self.gave_way() || self.gives_up()
    }

    fn gave_way(self) -> bool {
        matches!(self, Self::Beside { way, .. } if way.gave.get())
    }

    fn mode(self) -> Mode<'static> {
        match self {
            Self::OfProgram | Self::OfPrimary { .. } => Mode::Never,
            Self::Beside { .. } => Mode::Long { to: None },
            Self::AtOnce => Mode::OfProgram,
        }
    }
}

/// One call.
struct Run<'k, 'a> {
    kernel: &'k Kernel,
    counters: &'k Counters,
    command: &'k Command,
    args: Args<'a>,
    now_ms: i64,
    by: Runs<'a>,
}

impl<'k> Run<'k, '_> {
    fn run(&mut self, caller: &mut Caller, output: &mut Output) -> Result<(), Refused<'k>> {
        let keyspace = &self.kernel.keyspace;
        let mut locks = match self.by {
            Runs::Beside { .. } => keyspace.impatient_long_locks(SHARD_PATIENCE),
            Runs::OfPrimary { .. } if self.may_take_long(caller) => keyspace.long_locks(),
            Runs::OfProgram | Runs::OfPrimary { .. } | Runs::AtOnce => keyspace.locks(),
        };
        locks.set_origin(match self.by {
            Runs::OfProgram | Runs::OfPrimary { .. } => {
                Origin { source: Source::Library, client: caller.client.id }
            }
            Runs::Beside { .. } | Runs::AtOnce => caller.origin(),
        });
        let begin = output.mark();
        let access = caller.access_of(self.command);
        let gates = loop {
            let gates = match self.by {
                Runs::OfPrimary { .. } => Gates::read(self.kernel, caller, self.now_ms),
                _ => self.pass_gates(caller, &mut locks)?,
            };
            if caller.is_in_transaction() && self.command.is_queued() {
                self.queue(caller, output);
                return Ok(());
            }
            if gates.has_spilled {
                self.fetch(caller, &mut locks);
            }
            let place = self.begin_to_lead(caller, &mut locks);
            let interrupt = self.enter(caller, &mut locks, output);
            if let Some(place) = place {
                self.lead_on(place, caller, &mut locks);
            }
            match interrupt {
                None => break gates,
                Some(interrupt) => self.retry_after(interrupt, &mut locks)?,
            }
        };
        if gates.watched {
            // In the order of the changes, and so before anything is waited for.
            monitors::show(self.kernel, self.command, caller, self.args);
        }
        self.await_reply(caller, output);
        locks.release();
        let is_logged = locks.take_logged();
        let is_sure = !is_logged || self.acknowledge(caller, output, begin);
        if is_sure
            && let Some(level) = gates.level
            && self.has_written(caller, is_logged, access)
        {
            self.await_replicas(level, caller, output, begin);
        }
        let may_tell = match self.by {
            // The others are settled together.
            Runs::OfPrimary { .. } | Runs::Beside { .. } => true,
            _ => self.kernel.bucket.wait_for_lease(BUCKET_PATIENCE),
        };
        self.tell_if(may_tell, caller, output, begin);
        Ok(())
    }

    /// What a command of a primary changes leads to its place in the stream. One that locks its shards one after the
    /// other makes several records, of which the last one has to have the place: to do it twice does no harm.
    fn begin_to_lead(&self, caller: &Caller, locks: &mut ShardLocks<'k>) -> Option<StreamPlace> {
        let Runs::OfPrimary { stream, offset } = self.by else { return None };
        let place = StreamPlace { stream, offset, db: caller.db };
        if !self.is_stepwise() {
            locks.lead_to(place);
        }
        Some(place)
    }

    fn lead_on(&self, place: StreamPlace, caller: &Caller, locks: &mut ShardLocks<'k>) {
        if self.is_stepwise() {
            locks.move_to(Some(StreamPlace { db: caller.db, ..place }));
        }
        locks.release();
        locks.forget_lead();
    }

    /// Whether workers must not wait for the shards that the call holds. To say so costs more than a brief command
    /// does.
    fn may_take_long(&self, caller: &Caller) -> bool {
        match &caller.transaction {
            Some(queued) if self.command.is_exec() => {
                queued.runs_programs() || queued.may_be_heavy() || queued.len() > BRIEF_REQUESTS
            }
            _ => !self.command.is_brief,
        }
    }

    fn is_stepwise(&self) -> bool {
        matches!(self.command.spec.scope_of(self.args), Scope::Stepwise)
    }

    /// Waits for as long as a gate holds the call back.
    fn pass_gates(
        &mut self,
        caller: &mut Caller,
        locks: &mut ShardLocks<'k>,
    ) -> Result<Gates, Refused<'k>> {
        loop {
            let gates = Gates::read(self.kernel, caller, self.now_ms);
            match gates.judge(self.kernel, caller, locks, self.command, self.args) {
                Verdict::Passes => return Ok(gates),
                Verdict::Refused(refused) => return Err(refused),
                Verdict::Held(_) => {
                    locks.release();
                    if self.by.stops_waiting() {
                        return Err(self.refused(GAVE_UP));
                    }
                    self.wait_to_retry();
                }
            }
        }
    }

    fn queue(&self, caller: &mut Caller, output: &mut Output) {
        let queued = match self.by {
            // The primary has executed it. Limits are for clients, and without it the data would be no copy any more.
            Runs::OfPrimary { .. } => {
                let keyspace = &self.kernel.keyspace;
                caller.queue_up_to(u64::MAX, keyspace, self.command, self.args, None)
            }
            _ => caller.queue(self.kernel, self.command, self.args, None),
        };
        match queued {
            Ok(()) => reply(caller, output, |reply| reply.queued()),
            Err(_) => {
                caller.doom_transaction();
                let error = CommandError::new("ERR the transaction has become too large");
                reply(caller, output, |reply| reply.error(&error));
            }
        }
    }

    /// Reads the values from disk that the call needs, while no shard is locked.
    fn fetch(&self, caller: &Caller, locks: &mut ShardLocks<'k>) {
        let (now_ms, mut reads) = (self.now_ms, Vec::new());
        let added = if self.command.is_exec() {
            pipeline::add_pending_reads_of_exec(self.kernel, locks, caller, now_ms, &mut reads)
        } else {
            let db = caller.db;
            fetch::add_pending_reads(locks, db, self.command, self.args, now_ms, &mut reads)
        };
        debug_assert!(
            added.is_ok() || !matches!(self.by, Runs::OfProgram | Runs::OfPrimary { .. }),
            "these locks are waited for"
        );
        locks.release();
        fetch::read_all(locks, &reads, now_ms);
    }

    fn refused(&self, error: CommandError) -> Refused<'k> {
        Refused { command: Some(self.command), error }
    }

    /// The call has not run, and is to be tried again, unless it gives up.
    fn retry_after(
        &mut self,
        interrupt: Interrupt,
        locks: &mut ShardLocks<'k>,
    ) -> Result<(), Refused<'k>> {
        let Self { kernel, command, by, .. } = *self;
        debug_assert!(matches!(by, Runs::Beside { .. }), "{} is interrupted", command.full_name);
        locks.release();
        if let Some(error) = kernel.busy_with_program(interrupt) {
            return Err(self.refused(error));
        }
        if by.stops_waiting() {
            return Err(self.refused(GAVE_UP));
        }
        self.wait_to_retry();
        Ok(())
    }

    /// Deadlines count from when the call runs, not from when it came.
    fn wait_to_retry(&mut self) {
        interleaving::sleep(RETRY_AFTER);
        self.now_ms = pipeline::renewed(self.now_ms);
    }

    /// See [`Kernel::execute_at_once`].
    fn run_at_once(&self, caller: &mut Caller, output: &mut Output) -> bool {
        let Self { kernel, command, args, .. } = *self;
        let mut locks = kernel.keyspace.locks();
        locks.set_origin(caller.origin());
        let gates = Gates::read(kernel, caller, self.now_ms);
        let Access { writes, may_write, .. } = Access::of(command.spec);
        let policy = caller.sync_policy(kernel);
        let would_wait = writes && matches!(policy, SyncPolicy::Always | SyncPolicy::Bucket)
            || (writes || may_write) && gates.level.is_some()
            || kernel.bucket.lease.holding() != Holding::Held;
        if gates.has_spilled || would_wait {
            return false;
        }
        match gates.judge(kernel, caller, &mut locks, command, args) {
            Verdict::Passes => {}
            Verdict::Held(_) => return false,
            Verdict::Refused(refused) => {
                reply(caller, output, |reply| {
                    pipeline::refuse(kernel, self.counters, reply, &refused);
                });
                return true;
            }
        }
        // What is held is not waited for.
        let hash = command.has_one_key.then(|| kernel.keyspace.hash(args.at(command.first_key)));
        if caller.is_in_transaction() || hash.is_some_and(|hash| !locks.try_reach(hash)) {
            return false;
        }
        // Its thread is none of those that say when they are done with what they had let in.
        if writes && kernel.has_closed(Access::of(command.spec), caller.replica_level(kernel)) {
            return false;
        }
        let begin = output.mark();
        if self.enter(caller, &mut locks, output).is_some() {
            return false;
        }
        if gates.watched {
            monitors::show(kernel, command, caller, args);
        }
        locks.release();
        if locks.take_logged() {
            let _ = self.acknowledge(caller, output, begin);
        }
        self.tell_if(kernel.bucket.lease.holding() == Holding::Held, caller, output, begin);
        true
    }

    /// Runs the command, and accounts for it, unless it has to run again.
    fn enter(
        &self,
        caller: &mut Caller,
        locks: &mut ShardLocks<'k>,
        output: &mut Output,
    ) -> Option<Interrupt> {
        let Self { kernel, counters, command, args, now_ms, by } = *self;
        let begin = output.mark();
        let late = match by {
            Runs::OfProgram | Runs::OfPrimary { .. } | Runs::AtOnce => Late::No,
            Runs::Beside { .. } => Late::Yes(SHARD_PATIENCE),
        };
        // Clients that wait may need shards for which this thread would have to wait, a stream without limit.
        let ready = match by {
            Runs::AtOnce => Ready::ServeAtOnce,
            Runs::OfPrimary { .. } if kernel.offload.is_open() => Ready::ServeAtOnce,
            Runs::OfProgram | Runs::OfPrimary { .. } | Runs::Beside { .. } => Ready::Serve,
        };
        let turn = Turn::new(kernel, counters, now_ms);
        let attempt = Attempt { turn, command, args, mode: by.mode(), late, ready };
        if let Err(interrupt) = attempt.run(caller, locks, output) {
            debug_assert!(
                !matches!(by, Runs::OfProgram | Runs::OfPrimary { .. }),
                "{} waits for what it needs",
                command.full_name
            );
            return Some(interrupt);
        }
        mute(caller, output, begin);
        None
    }

    /// Waits for a reply that comes later: that of a save, or of a switch of the log. No other command leaves one to
    /// others here.
    fn await_reply(&self, caller: &mut Caller, output: &mut Output) {
        let Some(pending) = caller.end_wait() else { return };
        let begin = output.mark();
        let mut reply = Reply::new(output, caller.proto);
        let outcome = match pending.awaited {
            Awaited::Save(save_id) => {
                let outcome = self.kernel.persistence.wait(save_id);
                outcome.map_err(|reason| waiting::not_saved(&reason))
            }
            Awaited::LogSwitch { on, .. } => match self.await_log(on) {
                Reached::Now => Ok(()),
                Reached::Later(_) => Err(LOG_IS_LATE),
                Reached::Never(cause) => Err(waiting::not_switched(&cause)),
            },
            _ => Err(NO_CONNECTION),
        };
        blocking::reply_late(self.kernel, Some(self.command.id), outcome, &mut reply);
        if !pending.is_heard {
            output.truncate(begin);
        }
    }

    /// Waits until there is a log, or none, as the caller has asked for.
    fn await_log(&self, on: bool) -> Reached {
        loop {
            let reached = self.kernel.durability.reached(on, true);
            if !matches!(reached, Reached::Later(_)) || self.by.gives_up() {
                return reached;
            }
            interleaving::sleep(RETRY_AFTER);
        }
    }

    /// Replaces the reply by an error unless this server is sure to own the log of its bucket.
    fn tell_if(&self, may_tell: bool, caller: &Caller, output: &mut Output, begin: Mark) {
        if !may_tell {
            output.truncate(begin);
            Reply::new(output, caller.proto).error(&LEASE_OVER);
        }
    }

    /// True if a client's call has changed data.
    fn has_written(&self, caller: &mut Caller, is_logged: bool, access: Access) -> bool {
        let has_written = caller.has_written_unrecorded(self.kernel, access) || is_logged;
        has_written && !matches!(self.by, Runs::OfPrimary { .. })
    }

    /// Replaces the reply to a call that has written by an error, unless as many replicas as the level says confirm
    /// that in time.
    fn await_replicas(
        &self,
        level: ReplicaLevel,
        caller: &Caller,
        output: &mut Output,
        begin: Mark,
    ) {
        let kernel = self.kernel;
        if !kernel.are_replicas_level(level, || self.by.gives_up()) {
            let error = level.error();
            kernel.count_error(&error, Some(self.command.id));
            output.truncate(begin);
            Reply::new(output, caller.proto).error(&error);
        }
    }

    /// What the call has written is in the log. As durable as the caller wants it, it is acknowledged; if that cannot
    /// be, the reply is an error. Whether it is acknowledged.
    fn acknowledge(&self, caller: &Caller, output: &mut Output, begin: Mark) -> bool {
        // A wait for each command would hold up the stream. The link says how far the log is, and the bucket; when the
        // log has failed it ends at the next command, and a start asks for all that the log does not have.
        if matches!(self.by, Runs::OfPrimary { .. }) {
            return true;
        }
        let Some(wal) = self.kernel.durability.wal_handle() else { return true };
        let is_logged = match caller.sync_policy(self.kernel) {
            _ if gates::tells_of_server(self.command.spec) => true,
            _ if wal.has_write_error() => false,
            SyncPolicy::Always => wal.sync().is_ok(),
            SyncPolicy::Bucket => match self.by {
                Runs::Beside { owes_bucket, .. } => {
                    owes_bucket.set(true);
                    true
                }
                _ => self.kernel.bucket.wait(&self.kernel.feed, BUCKET_PATIENCE),
            },
            _ => true,
        };
        if caller.durability() == Some(SyncPolicy::EverySecond) {
            wal.promise();
        }
        if !is_logged {
            output.truncate(begin);
            Reply::new(output, caller.proto).error(&self.kernel.not_in_bucket());
        }
        is_logged
    }
}

/// Writes a reply, unless the caller wants none.
fn reply(caller: &mut Caller, output: &mut Output, write: impl FnOnce(&mut Reply<'_>)) {
    let begin = output.mark();
    write(&mut Reply::new(output, caller.proto));
    mute(caller, output, begin);
}

/// Takes back what was written since `begin`, if the caller wants no replies.
fn mute(caller: &mut Caller, output: &mut Output, begin: Mark) {
    if caller.hears_nothing() {
        output.truncate(begin);
    }
    caller.reply_mode = caller.reply_mode.after_command();
}
