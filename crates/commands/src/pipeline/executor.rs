//! Threads that execute one request at a time: [`Execution`] passes it through the stages once.
//!
//! [`Executor`] says how such threads differ. They handle interrupts in their own loops: the file `run` next to this
//! one, and `long_commands` of the server.

use std::sync::Arc;

use tierce_keyspace::{
    Origin, SHARD_PATIENCE, STREAM_NAME_LEN, ShardLocks, Source, StreamPosition,
};
use tierce_output::Output;
use tierce_wire::resp::Args;

use crate::answer::Destination;
use crate::caller::Caller;
use crate::clock::{self, STOPPED_MS};
use crate::command::{Access, Command, Scope};
use crate::command_log;
use crate::error::Interrupt;
use crate::kernel::Kernel;
use crate::monitors;
use crate::pipeline::admission::{Admission, Barred};
use crate::pipeline::fetch;
use crate::pipeline::locking::held_by_program;
use crate::pipeline::meter::{Meter, Timing, Words};
use crate::pipeline::sizes::Sizes;
use crate::pipeline::{
    Context, Mode, Refused, Request, Turn, add_pending_reads, serve, serve_at_once,
};
use crate::replica_level::ReplicaLevel;
use crate::reply::Reply;

/// Upper bound of brief requests in a brief transaction of a primary: a worker waits some ten microseconds.
const BRIEF_REQUESTS: usize = 16;

/// Kind of thread that executes a request.
#[derive(Clone, Copy)]
pub enum Executor<'a> {
    /// Program that embeds the kernel. It waits for shards without a limit, and for no key.
    Program,
    /// Applier of a primary's stream. It waits like a program, skips the admission checks, and logs its stream offset
    /// with each change.
    Primary {
        /// Name of the stream.
        stream: [u8; STREAM_NAME_LEN],
        /// Offset of the stream after this command.
        offset: u64,
    },
    /// Thread for long work, next to workers, which defer requests for its locked shards.
    LongThread {
        /// Client of an offloaded request, which a worker has already shown to monitors. It may wait for keys.
        to: Option<&'a Destination>,
    },
    /// Thread that must never wait.
    AtOnce,
}

impl<'a> Executor<'a> {
    /// Creates the shard locks of this kind of thread, for changes by the caller.
    pub fn locks<'k>(
        self,
        kernel: &'k Kernel,
        command: &Command,
        caller: &Caller,
    ) -> ShardLocks<'k> {
        let keyspace = &kernel.keyspace;
        let mut locks = match self {
            Self::LongThread { .. } => keyspace.impatient_long_locks(SHARD_PATIENCE),
            Self::Primary { .. } if may_take_long(command, caller) => keyspace.long_locks(),
            Self::Program | Self::Primary { .. } | Self::AtOnce => keyspace.locks(),
        };
        locks.set_origin(match self {
            Self::Program | Self::Primary { .. } => {
                Origin { source: Source::Library, client: caller.client.id }
            }
            Self::LongThread { .. } | Self::AtOnce => caller.origin(),
        });
        locks
    }

    fn mode(self) -> Mode<'a> {
        match self {
            Self::Program | Self::Primary { .. } => Mode::Never,
            Self::LongThread { to } => Mode::Long { to },
            Self::AtOnce => Mode::OfProgram,
        }
    }

    /// Returns true if this thread never waits for the shards of blocked clients; it leaves those that need more to
    /// others. An applier would wait without a limit.
    fn serves_at_once(self, kernel: &Kernel) -> bool {
        match self {
            Self::AtOnce => true,
            Self::Primary { .. } => kernel.offload.is_open(),
            Self::Program | Self::LongThread { .. } => false,
        }
    }

    fn passes_admission(self) -> bool {
        !matches!(self, Self::Primary { .. })
    }

    /// Returns true if every wait of this thread succeeds, so that nothing interrupts its requests.
    fn waits_for_all(self) -> bool {
        matches!(self, Self::Program | Self::Primary { .. })
    }
}

/// Returns true if workers must not wait for the shards that a primary's call locks. Marking them busy costs more
/// than a brief command.
fn may_take_long(command: &Command, caller: &Caller) -> bool {
    match &caller.transaction {
        Some(queued) if command.is_exec() => {
            queued.runs_programs || queued.may_be_heavy || queued.len() > BRIEF_REQUESTS
        }
        _ => !command.is_brief,
    }
}

/// A request and its executing thread.
pub struct Execution<'a, 'k> {
    /// Turn of the thread.
    pub turn: Turn<'k>,
    /// The command.
    pub command: &'k Command,
    /// Arguments, with the name.
    pub args: Args<'a>,
    /// The thread.
    pub by: Executor<'a>,
}

/// Outcome of a request.
pub enum Executed {
    /// It was queued for EXEC.
    Queued,
    /// It has run.
    Ran {
        /// Replicas that must have its changes before its reply is sent.
        level: Option<ReplicaLevel>,
        /// True if it may have changed data that are in no log or stream.
        is_unrecorded: bool,
    },
}

/// Reason that a request has not run. It has changed and replied nothing.
pub enum Stopped<'k> {
    /// The error is its reply.
    Refused(Refused<'k>),
    /// It is to run again.
    Interrupted(Interrupt),
}

impl<'k> Execution<'_, 'k> {
    /// Passes the request through all stages. Nothing is locked afterwards.
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
        let is_under_way = access.passes_on() && self.by.passes_admission();
        caller.in_flight = is_under_way.then(|| self.turn.kernel.in_flight_requests.enter());
        let begin = output.mark();
        let outcome = self.pass(caller, access, locks, output);
        locks.release();
        if matches!(outcome, Err(Stopped::Interrupted(_))) {
            // A program that was rolled back had replied.
            output.truncate(begin);
        }
        caller.in_flight = None;
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
        let admission = Admission::read(kernel, caller, now_ms);
        if by.passes_admission() {
            admission.check(kernel, caller, locks, command, args).map_err(
                |barred| match barred {
                    Barred::Refused(refused) => Stopped::Refused(refused),
                    Barred::Held(_) => Stopped::Interrupted(Interrupt::Admission),
                },
            )?;
        }
        if caller.is_in_transaction() && command.is_queued() {
            return Ok(Executed::Queued);
        }
        let done = self.run_unlocked(caller, locks, output, admission.has_spilled);
        if let Err(interrupt) = done {
            debug_assert!(!by.waits_for_all(), "{} is interrupted", command.full_name);
            debug_assert_ne!(interrupt, Interrupt::Long, "{} is here already", command.full_name);
            let stopped = |error| Stopped::Refused(Refused { command: Some(command), error });
            let error = kernel.busy_with_program(interrupt);
            return Err(error.map_or(Stopped::Interrupted(interrupt), stopped));
        }
        // Monitors see calls in the order of the changes. A worker has shown an offloaded call already, but not EXEC,
        // which is shown after its requests.
        let is_shown = matches!(by, Executor::LongThread { to: Some(_) }) && !command.is_exec();
        if admission.watched && !is_shown {
            monitors::show(kernel, command, caller, args);
        }
        let is_unrecorded = caller.has_written_unrecorded(kernel, access);
        Ok(Executed::Ran { level: admission.level, is_unrecorded })
    }

    /// Fetches the needed values, then runs the request and logs its stream offset.
    fn run_unlocked(
        &self,
        caller: &mut Caller,
        locks: &mut ShardLocks<'k>,
        output: &mut Output,
        has_spilled: bool,
    ) -> Result<(), Interrupt> {
        let Self { turn: Turn { kernel, .. }, command, args, by } = *self;
        if matches!(by, Executor::LongThread { .. })
            && let Some(busy) = held_by_program(kernel, caller, command, args, SHARD_PATIENCE)
        {
            return Err(Interrupt::Busy(busy));
        }
        if has_spilled {
            self.fetch(caller, locks)?;
        }
        let position = self.note_position(caller, locks);
        let done = self.run(caller, locks, output);
        if let Some(position) = position {
            self.log_position(position, caller, locks);
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

    /// Has the next change logged with its stream offset. A command that locks its shards one after the other makes
    /// several records, and only the last one may have the offset. Repeating it does no harm.
    fn note_position(&self, caller: &Caller, locks: &mut ShardLocks<'k>) -> Option<StreamPosition> {
        let Executor::Primary { stream, offset } = self.by else { return None };
        let position = StreamPosition { stream, offset, db: caller.db };
        if !self.is_stepwise() {
            locks.lead_to(position);
        }
        Some(position)
    }

    fn log_position(&self, position: StreamPosition, caller: &Caller, locks: &mut ShardLocks<'k>) {
        if self.is_stepwise() {
            locks.move_to(Some(StreamPosition { db: caller.db, ..position }));
        }
        locks.release();
        locks.forget_lead();
    }

    fn is_stepwise(&self) -> bool {
        matches!(self.command.spec.scope_of(self.args), Scope::Stepwise)
    }

    /// Locks, runs, serves the clients that wait for its changes, and accounts for it.
    ///
    /// # Errors
    /// An interrupt, if it is to run again.
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
        let written = output.written();
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
        let words = || command_log::shorten(&kernel.commands, args);
        match timing == Timing::Alone && caller.waits.is_for_keys() {
            true => meter.end_blocked(command, &client),
            false => {
                meter.end(timing, command, &client, words);
                let reply_bytes = output.written().saturating_sub(written);
                Sizes(kernel).note((command, args), &client, reply_bytes);
            }
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
            Executor::LongThread { .. } => context.run_late(),
            _ => context.run(),
        }
    }

    fn serve_ready(&self, locks: &mut ShardLocks<'k>, meter: &mut Meter<'k>) {
        let Turn { kernel, counters, now_ms, .. } = self.turn;
        // Waiting clients read at the present time, even if the time of the change stands still.
        let now_ms = if now_ms == STOPPED_MS { clock::unix_ms() } else { now_ms };
        let serving = match self.by.serves_at_once(kernel) {
            true => serve_at_once(kernel, locks, counters, now_ms),
            false => serve(kernel, locks, counters, &mut Output::new(), now_ms),
        };
        meter.leave_out(serving);
    }
}
