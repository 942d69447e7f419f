//! Threads that execute one request at a time: [`Execution`] takes it through the stages once.
//!
//! [`Executor`] says how such threads differ. What interrupts a request is waited for in their own loops: `run` beside
//! this file, and `long_commands` of the server.

use std::sync::Arc;

use tierce_keyspace::{Origin, SHARD_PATIENCE, STREAM_NAME_LEN, ShardLocks, Source, StreamPlace};
use tierce_output::Output;
use tierce_wire::resp::Args;

use crate::answer::Destination;
use crate::caller::Caller;
use crate::clock::{self, STOPPED_MS};
use crate::command::{Access, Command, Scope};
use crate::error::Interrupt;
use crate::kernel::Kernel;
use crate::monitors;
use crate::pipeline::fetch;
use crate::pipeline::gates::{Barred, Gates};
use crate::pipeline::locking::held_by_program;
use crate::pipeline::meter::{Meter, Timing, Words};
use crate::pipeline::{
    Context, Mode, Refused, Request, Turn, add_pending_reads, serve, serve_at_once,
};
use crate::replica_level::ReplicaLevel;
use crate::reply::Reply;
use crate::slowlog;

/// A transaction of no more brief requests of a primary is as brief: a worker waits for some ten microseconds at most.
const BRIEF_REQUESTS: usize = 16;

/// The kind of thread that executes a request.
#[derive(Clone, Copy)]
pub enum Executor<'a> {
    /// A program that embeds the kernel. It waits for shards without a limit, and for no key.
    Program,
    /// The applier of a primary's stream. It waits in the same way, passes no gates, and notes its place in the stream
    /// with each change.
    Primary {
        /// The name of the stream.
        stream: [u8; STREAM_NAME_LEN],
        /// Bytes of it that are known with this command.
        offset: u64,
    },
    /// A thread for what takes long, beside workers that set aside requests for the shards that it holds.
    Beside {
        /// The client of a request that a worker has sent here, and has shown to monitors. It may wait for keys.
        to: Option<&'a Destination>,
    },
    /// A thread that must not wait at all.
    AtOnce,
}

impl<'a> Executor<'a> {
    /// No locks yet, of the kind that it takes, for changes in the name of the caller.
    pub fn locks<'k>(
        self,
        kernel: &'k Kernel,
        command: &Command,
        caller: &Caller,
    ) -> ShardLocks<'k> {
        let keyspace = &kernel.keyspace;
        let mut locks = match self {
            Self::Beside { .. } => keyspace.impatient_long_locks(SHARD_PATIENCE),
            Self::Primary { .. } if may_take_long(command, caller) => keyspace.long_locks(),
            Self::Program | Self::Primary { .. } | Self::AtOnce => keyspace.locks(),
        };
        locks.set_origin(match self {
            Self::Program | Self::Primary { .. } => {
                Origin { source: Source::Library, client: caller.client.id }
            }
            Self::Beside { .. } | Self::AtOnce => caller.origin(),
        });
        locks
    }

    fn mode(self) -> Mode<'a> {
        match self {
            Self::Program | Self::Primary { .. } => Mode::Never,
            Self::Beside { to } => Mode::Long { to },
            Self::AtOnce => Mode::OfProgram,
        }
    }

    /// False if this thread waits for the shards of clients that wait for keys it has changed, or leaves those that need
    /// more than is free to others. A stream would wait without a limit.
    fn serves_at_once(self, kernel: &Kernel) -> bool {
        match self {
            Self::AtOnce => true,
            Self::Primary { .. } => kernel.offload.is_open(),
            Self::Program | Self::Beside { .. } => false,
        }
    }

    fn passes_gates(self) -> bool {
        !matches!(self, Self::Primary { .. })
    }

    /// True if all that it waits for comes, so that nothing interrupts what it executes.
    fn waits_for_all(self) -> bool {
        matches!(self, Self::Program | Self::Primary { .. })
    }
}

/// True if workers must not wait for the shards that a call of a primary holds. To say so costs more than a brief
/// command does.
fn may_take_long(command: &Command, caller: &Caller) -> bool {
    match &caller.transaction {
        Some(queued) if command.is_exec() => {
            queued.runs_programs || queued.may_be_heavy || queued.len() > BRIEF_REQUESTS
        }
        _ => !command.is_brief,
    }
}

/// A request, and who executes it.
pub struct Execution<'a, 'k> {
    /// The turn of the thread.
    pub turn: Turn<'k>,
    /// The command.
    pub command: &'k Command,
    /// The arguments, with the name.
    pub args: Args<'a>,
    /// The thread.
    pub by: Executor<'a>,
}

/// The outcome of a request.
pub enum Executed {
    /// It is one of a transaction, to be kept for EXEC.
    Queued,
    /// It has run.
    Ran {
        /// The replicas that are to have its changes before its reply is sent.
        level: Option<ReplicaLevel>,
        /// It may have changed data of which neither a log nor a stream tells.
        is_unrecorded: bool,
    },
}

/// Why a request has not run. It has changed and replied nothing.
pub enum Stopped<'k> {
    /// The error is its reply.
    Refused(Refused<'k>),
    /// It is to be tried again.
    Interrupted(Interrupt),
}

impl<'k> Execution<'_, 'k> {
    /// Takes the request through all stages. Nothing is locked behind it.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn execute(
        &self,
        caller: &mut Caller,
        locks: &mut ShardLocks<'k>,
        output: &mut Output,
    ) -> Result<Executed, Stopped<'k>> {
        let access = caller.access_of(self.command, self.args);
        let is_under_way = access.passes_on() && self.by.passes_gates();
        caller.passage = is_under_way.then(|| self.turn.kernel.passages.enter());
        let begin = output.mark();
        let outcome = self.pass(caller, access, locks, output);
        locks.release();
        if matches!(outcome, Err(Stopped::Interrupted(_))) {
            // A program that was taken back had replied.
            output.truncate(begin);
        }
        caller.passage = None;
        outcome
    }

    fn pass(
        &self,
        caller: &mut Caller,
        access: Access,
        locks: &mut ShardLocks<'k>,
        output: &mut Output,
    ) -> Result<Executed, Stopped<'k>> {
        let Self { turn: Turn { kernel, now_ms, .. }, command, args, by } = *self;
        let gates = Gates::read(kernel, caller, now_ms);
        if by.passes_gates() {
            gates.judge(kernel, caller, locks, command, args).map_err(|barred| match barred {
                Barred::Refused(refused) => Stopped::Refused(refused),
                Barred::Held(_) => Stopped::Interrupted(Interrupt::Gate),
            })?;
        }
        if caller.is_in_transaction() && command.is_queued() {
            return Ok(Executed::Queued);
        }
        let done = self.run_apart(caller, locks, output, gates.has_spilled);
        if let Err(interrupt) = done {
            debug_assert!(!by.waits_for_all(), "{} is interrupted", command.full_name);
            debug_assert_ne!(interrupt, Interrupt::Long, "{} is here already", command.full_name);
            let stopped = |error| Stopped::Refused(Refused { command: Some(command), error });
            let error = kernel.busy_with_program(interrupt);
            return Err(error.map_or(Stopped::Interrupted(interrupt), stopped));
        }
        // In the order of the changes. A worker has shown what it has sent here, but for EXEC, which is shown behind
        // what it runs.
        let is_shown = matches!(by, Executor::Beside { to: Some(_) }) && !command.is_exec();
        if gates.watched && !is_shown {
            monitors::show(kernel, command, caller, args);
        }
        let is_unrecorded = caller.has_written_unrecorded(kernel, access);
        Ok(Executed::Ran { level: gates.level, is_unrecorded })
    }

    /// Runs the request once what it needs is in memory, and with its place in the stream.
    fn run_apart(
        &self,
        caller: &mut Caller,
        locks: &mut ShardLocks<'k>,
        output: &mut Output,
        has_spilled: bool,
    ) -> Result<(), Interrupt> {
        let Self { turn: Turn { kernel, .. }, command, args, by } = *self;
        if matches!(by, Executor::Beside { .. })
            && let Some(busy) = held_by_program(kernel, caller, command, args, SHARD_PATIENCE)
        {
            return Err(Interrupt::Busy(busy));
        }
        if has_spilled {
            self.fetch(caller, locks)?;
        }
        let place = self.note_place(caller, locks);
        let done = self.run(caller, locks, output);
        if let Some(place) = place {
            self.log_place(place, caller, locks);
        }
        done
    }

    /// Reads the values from disk that the call needs, while no shard is locked.
    fn fetch(&self, caller: &Caller, locks: &mut ShardLocks<'k>) -> Result<(), Interrupt> {
        let Self { turn: Turn { kernel, now_ms, .. }, command, args, by } = *self;
        let mut reads = Vec::new();
        let call = (command, args);
        let added = add_pending_reads(locks, kernel, caller, call, now_ms, &mut reads);
        debug_assert!(added.is_ok() || !by.waits_for_all(), "these locks are waited for");
        locks.release();
        fetch::read_all(locks, &reads, now_ms).and(added).map_err(Interrupt::Busy)
    }

    /// A change by a command of a primary leads to its place in the stream. One that locks its shards one after the
    /// other makes several records, of which the last one has to have the place: to do it twice does no harm.
    fn note_place(&self, caller: &Caller, locks: &mut ShardLocks<'k>) -> Option<StreamPlace> {
        let Executor::Primary { stream, offset } = self.by else { return None };
        let place = StreamPlace { stream, offset, db: caller.db };
        if !self.is_stepwise() {
            locks.lead_to(place);
        }
        Some(place)
    }

    fn log_place(&self, place: StreamPlace, caller: &Caller, locks: &mut ShardLocks<'k>) {
        if self.is_stepwise() {
            locks.move_to(Some(StreamPlace { db: caller.db, ..place }));
        }
        locks.release();
        locks.forget_lead();
    }

    fn is_stepwise(&self) -> bool {
        matches!(self.command.spec.scope_of(self.args), Scope::Stepwise)
    }

    /// Locks, runs, serves those who wait for what has changed, and accounts for it.
    ///
    /// # Errors
    /// When it is to be tried again.
    pub fn run(
        &self,
        caller: &mut Caller,
        locks: &mut ShardLocks<'k>,
        output: &mut Output,
    ) -> Result<(), Interrupt> {
        let Self { turn, command, args, .. } = *self;
        let kernel = turn.kernel;
        locks.set_touch(caller.touch());
        let client = Arc::clone(&caller.client);
        let mut meter = Meter::start(kernel, turn.counters);
        let timing = meter.begin(command, &client, Words::new);
        if let Some(interrupt) = self.enter(caller, locks, output) {
            meter.take_back(timing);
            return Err(interrupt);
        }
        if locks.has_ready() {
            self.serve_ready(locks, &mut meter);
        }
        meter.look_again();
        let words = || slowlog::shorten(&kernel.commands, args);
        match timing == Timing::Alone && caller.waits.is_for_keys() {
            true => meter.end_blocked(command, &client),
            false => meter.end(timing, command, &client, words),
        }
        meter.finish(&client, words);
        Ok(())
    }

    fn enter(
        &self,
        caller: &mut Caller,
        locks: &mut ShardLocks<'k>,
        output: &mut Output,
    ) -> Option<Interrupt> {
        let reply = Reply::new(output, caller.proto);
        let request = Request::new(caller, self.command, self.args, self.by.mode());
        let mut context = Context::new(self.turn, request, locks, reply);
        match self.by {
            Executor::Beside { .. } => context.run_late(),
            _ => context.run(),
        }
    }

    fn serve_ready(&self, locks: &mut ShardLocks<'k>, meter: &mut Meter<'k>) {
        let Turn { kernel, counters, now_ms, .. } = self.turn;
        // Those who wait read as all clients do, also where the changes are made at a time that stands still.
        let now_ms = if now_ms == STOPPED_MS { clock::unix_ms() } else { now_ms };
        let serving = match self.by.serves_at_once(kernel) {
            true => serve_at_once(kernel, locks, counters, now_ms),
            false => serve(kernel, locks, counters, &mut Output::new(), now_ms),
        };
        meter.leave_out(serving);
    }
}
