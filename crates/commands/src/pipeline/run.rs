//! Calls that come over no connection: from a program that embeds the kernel, or from an import.
//!
//! A call passes the same stages as the request of a client, on the thread of its caller: admission, fetch, lock,
//! run, account, commit, acknowledge. Where a worker would defer a request, this thread waits: for the end of a
//! pause, for memory, for a value on disk, for a shard, for a save, with `appendfsync always` for the device, and
//! with `durability-replicas` for replicas. It never waits for keys: a blocking command that finds nothing replies as
//! after a timeout. A long command runs on this thread, too.
//!
//! So each call has a reply, unless CLIENT REPLY is off. Commands about the connection itself ([`OF_CONNECTIONS`])
//! are refused.

use std::time::Duration;

use tierce_keyspace::{STREAM_NAME_LEN, interleaving};
use tierce_output::{Mark, Output};
use tierce_wire::resp::{Args, OwnedArgs};

use crate::barrier::ReplyBarrier;
use crate::caller::Caller;
use crate::clock;
use crate::command::{Access, Command, Flags, Scope};
use crate::durability::{Reached, SyncPolicy};
use crate::error::CommandError;
use crate::kernel::Kernel;
use crate::lease::Holding;
use crate::monitors;
use crate::pipeline::acknowledge::LEASE_OVER;
use crate::pipeline::admission::{self, Admission, Barred};
use crate::pipeline::blocking;
use crate::pipeline::{self, Executed, Execution, Executor, Refused, Stopped, Turn};
use crate::replica_level::ReplicaLevel;
use crate::reply::Reply;
use crate::waiting::{self, Awaited};

/// Commands that act on their own connection, or close it.
const OF_CONNECTIONS: &[&str] =
    &["monitor", "psubscribe", "psync", "replconf", "shutdown", "ssubscribe", "subscribe", "sync"];

const NO_CONNECTION: CommandError =
    CommandError::new("ERR this command is for connections, and its caller has none");

const GAVE_UP: CommandError = CommandError::new(
    "TRYAGAIN the command was held back for too long: by CLIENT PAUSE, for memory, or by a slow disk",
);

const HAS_BEGUN: CommandError = CommandError::new(
    "TRYAGAIN this counts from now on, but writes are still under way that began before",
);

const LOG_IS_LATE: CommandError = CommandError::new(
    "TRYAGAIN the log is still being switched; INFO persistence tells when it is",
);

/// Retry interval for deferred calls. No thread is notified when a call may run again.
const RETRY_AFTER: Duration = Duration::from_millis(1);

impl Kernel {
    /// Executes a call, from its name to its reply.
    pub fn execute(&self, caller: &mut Caller, args: Args<'_>, output: &mut Output) {
        let call = (pipeline::resolve(self, args), args);
        let _ = self.run_by(Executor::Program, None, call, caller, output, clock::unix_ms());
    }

    /// Executes a command of the stream of this server's primary. The checks for clients (role, memory, pause) do not
    /// apply, since the primary has changed its data already. Time stands still before any deadline, so that the
    /// command sees expired keys.
    ///
    /// Changes are logged with the name of the stream and the offset after the command.
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
        let by = Executor::Primary { stream, offset };
        let _ = self.run_by(by, None, (Ok(command), args), caller, output, now_ms);
    }

    /// Executes a call of a known command, like [`Kernel::execute`], at a given time.
    pub fn run(
        &self,
        command: &Command,
        caller: &mut Caller,
        args: Args<'_>,
        output: &mut Output,
        now_ms: i64,
    ) {
        let _ = self.run_by(Executor::Program, None, (Ok(command), args), caller, output, now_ms);
    }

    /// Executes a call like [`Kernel::execute`], on a thread that is no worker. Its locked shards are marked as busy,
    /// as with the threads for long commands. It waits for obstacles until `gives_up`, and replies with an error
    /// then. If `gives_way` returns true, it returns `None`, and nothing has been done or replied. The reply may be
    /// shown after [`Kernel::await_replies`] with the returned barrier.
    pub fn execute_off_worker(
        &self,
        caller: &mut Caller,
        args: Args<'_>,
        output: &mut Output,
        gives_up: &dyn Fn() -> bool,
        gives_way: &dyn Fn() -> bool,
    ) -> Option<ReplyBarrier> {
        let call = (pipeline::resolve(self, args), args);
        self.run_off_worker(Terms { gives_up, gives_way }, call, caller, output)
    }

    /// Executes EXEC in the same way, under any name that clients use for it.
    pub fn exec_off_worker(
        &self,
        caller: &mut Caller,
        output: &mut Output,
        gives_up: &dyn Fn() -> bool,
    ) -> ReplyBarrier {
        let mut args = OwnedArgs::new();
        args.push(b"exec").expect("a short one");
        let command = self.commands.find_original(b"exec").expect("the table has it");
        let terms = Terms { gives_up, gives_way: &|| false };
        let barrier = self.run_off_worker(terms, (Ok(command), args.as_args()), caller, output);
        barrier.expect("it gives no way")
    }

    /// Returns the amount of work of a call.
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

    /// Executes a call for a thread that serves many callers: only of a command for one key or none, and only if it
    /// need not wait. Returns true if it ran. Otherwise, nothing was done or replied.
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
        let turn = Turn::new(self, &counters, clock::unix_ms());
        let execution = Execution { turn, command, args, by: Executor::AtOnce };
        let is_through = Run { execution, terms: None }.run_at_once(caller, output);
        self.spare.give_back(counters);
        is_through
    }

    fn run_off_worker(
        &self,
        terms: Terms<'_>,
        call: (Result<&Command, Refused<'_>>, Args<'_>),
        caller: &mut Caller,
        output: &mut Output,
    ) -> Option<ReplyBarrier> {
        let by = Executor::LongThread { to: None };
        self.run_by(by, Some(terms), call, caller, output, clock::unix_ms())
    }

    /// Returns the remaining barrier of the reply; `None` if the call gave way.
    fn run_by(
        &self,
        by: Executor<'_>,
        terms: Option<Terms<'_>>,
        (command, args): (Result<&Command, Refused<'_>>, Args<'_>),
        caller: &mut Caller,
        output: &mut Output,
        now_ms: i64,
    ) -> Option<ReplyBarrier> {
        let counters = self.spare.take(self.commands.id_count());
        let turn = Turn::new(self, &counters, now_ms);
        let outcome = command.and_then(|command| {
            if OF_CONNECTIONS.contains(&&*command.full_name) {
                return Err(Refused { command: Some(command), error: NO_CONNECTION });
            }
            Run { execution: Execution { turn, command, args, by }, terms }.run(caller, output)
        });
        let left = outcome.unwrap_or_else(|refused| {
            let refused = pipeline::refused_in_transaction(caller, refused);
            reply(caller, output, |reply| pipeline::refuse(self, &counters, reply, &refused));
            Some(ReplyBarrier::default())
        });
        self.spare.give_back(counters);
        left
    }
}

/// Amount of work of a call, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// No data, as in SCRIPT KILL or INFO. It waits neither for the device nor for memory.
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

/// Conditions for the waits of a call on a thread that is no worker.
#[derive(Clone, Copy)]
struct Terms<'a> {
    /// True to stop waiting.
    gives_up: &'a dyn Fn() -> bool,
    /// True to free the thread for others, and start again later.
    gives_way: &'a dyn Fn() -> bool,
}

/// One call.
struct Run<'k, 'a> {
    execution: Execution<'a, 'k>,
    /// Set on a thread that is no worker.
    terms: Option<Terms<'a>>,
}

impl<'k> Run<'k, '_> {
    /// Returns the remaining barrier of its reply, which is empty on the caller's own thread. `None` if it gave way;
    /// nothing has been done or replied then.
    fn run(
        &mut self,
        caller: &mut Caller,
        output: &mut Output,
    ) -> Result<Option<ReplyBarrier>, Refused<'k>> {
        let Execution { turn: Turn { kernel, .. }, command, by, .. } = self.execution;
        let mut locks = by.locks(kernel, command, caller);
        let begin = output.mark();
        let (level, is_unrecorded) = loop {
            match self.execution.execute(caller, &mut locks, output) {
                Ok(Executed::Queued) => {
                    self.queue(caller, output);
                    return Ok(Some(ReplyBarrier::default()));
                }
                Ok(Executed::Ran { level, is_unrecorded }) => break (level, is_unrecorded),
                Err(Stopped::Refused(refused)) => return Err(refused),
                Err(Stopped::Interrupted(_)) => {
                    if self.terms.is_some_and(|terms| (terms.gives_way)()) {
                        return Ok(None);
                    }
                    let quiet = caller.quiet.as_ref();
                    self.wait_to_retry(quiet.is_some_and(|quiet| quiet.pause.is_none()))?;
                }
            }
        };
        mute(caller, output, begin);
        self.await_reply(caller, output);
        // Waiting for each command would delay the stream. The replication link reports the progress of the log and
        // the bucket. It ends at the next command after the log has failed, and after a restart asks for everything
        // that is not in the log.
        if matches!(by, Executor::Primary { .. }) {
            return Ok(Some(ReplyBarrier::default()));
        }
        let mut left = ReplyBarrier::default();
        let mut barrier = self.barrier(caller, locks.take_logged(), is_unrecorded, level);
        if let (Ok(barrier), Some(_)) = (&mut barrier, self.terms) {
            // The calls of a request wait for the bucket together.
            left.bucket = std::mem::take(&mut barrier.bucket);
        }
        let confirmed = barrier.and_then(|barrier| match self.terms {
            Some(terms) => kernel.await_barrier(barrier, terms.gives_up),
            None => kernel.await_replies(barrier, &|| false),
        });
        self.tell_if(confirmed, caller, output, begin);
        Ok(Some(left))
    }

    /// Returns the barrier of its reply. A call that only reports on the server waits for no log.
    ///
    /// # Errors
    /// Fails if the log could not take its writes.
    fn barrier(
        &self,
        caller: &mut Caller,
        is_logged: bool,
        is_unrecorded: bool,
        level: Option<ReplicaLevel>,
    ) -> Result<ReplyBarrier, CommandError> {
        let Execution { turn: Turn { kernel, .. }, command, .. } = self.execution;
        // A transaction may have changed the level after its writes.
        let noted = std::mem::take(&mut caller.waits.logged.barrier);
        if is_logged && !admission::tells_of_server(command.spec) {
            let barrier = kernel.barrier_of_writes(caller.durability(), level);
            return barrier.map(|barrier| barrier.and(noted)).ok_or_else(|| kernel.not_in_log());
        }
        let replicas = level.filter(|_| is_logged || is_unrecorded);
        Ok(ReplyBarrier { replicas, ..ReplyBarrier::default() })
    }

    fn gives_up(&self) -> bool {
        self.terms.is_some_and(|terms| (terms.gives_up)())
    }

    /// Waits a little before the next attempt, unless it gives up. Deadlines count from the run, not from the
    /// arrival.
    fn wait_to_retry(&mut self, begun: bool) -> Result<(), Refused<'k>> {
        if self.gives_up() {
            let error = if begun { HAS_BEGUN } else { GAVE_UP };
            return Err(Refused { command: Some(self.execution.command), error });
        }
        interleaving::sleep(RETRY_AFTER);
        let now_ms = &mut self.execution.turn.now_ms;
        *now_ms = pipeline::renewed(*now_ms);
        Ok(())
    }

    fn queue(&self, caller: &mut Caller, output: &mut Output) {
        let Execution { turn: Turn { kernel, .. }, command, args, by } = self.execution;
        let queued = match by {
            // The primary has executed it. Limits are for clients; applied here, they would make the replica differ.
            Executor::Primary { .. } => {
                caller.queue_up_to(u64::MAX, &kernel.keyspace, command, args, None)
            }
            _ => caller.queue(kernel, command, args, None),
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

    /// Implements [`Kernel::execute_at_once`].
    fn run_at_once(&self, caller: &mut Caller, output: &mut Output) -> bool {
        let Execution { turn, command, args, by } = self.execution;
        let Turn { kernel, counters, now_ms, .. } = turn;
        let in_flight = kernel.in_flight_requests.enter();
        let mut locks = by.locks(kernel, command, caller);
        let admission = Admission::read(kernel, caller, now_ms);
        let Access { writes, may_write, .. } = Access::of(command.spec);
        let policy = caller.sync_policy(kernel);
        let would_wait = writes && matches!(policy, SyncPolicy::Always | SyncPolicy::Bucket)
            || (writes || may_write) && admission.level.is_some()
            || kernel.bucket.lease.holding() != Holding::Held;
        if admission.has_spilled || would_wait {
            return false;
        }
        match admission.check(kernel, caller, &mut locks, command, args) {
            Ok(()) => {}
            Err(Barred::Held(_)) => return false,
            Err(Barred::Refused(refused)) => {
                reply(caller, output, |reply| {
                    pipeline::refuse(kernel, counters, reply, &refused);
                });
                return true;
            }
        }
        // Locked shards are not waited for.
        let hash = command.has_one_key.then(|| kernel.keyspace.hash(args.at(command.first_key)));
        if caller.is_in_transaction() || hash.is_some_and(|hash| !locks.try_reach(hash)) {
            return false;
        }
        let begin = output.mark();
        if self.execution.run(caller, &mut locks, output).is_err() {
            return false;
        }
        mute(caller, output, begin);
        if admission.watched {
            monitors::show(kernel, command, caller, args);
        }
        locks.release();
        drop(in_flight);
        let confirmed =
            self.barrier(caller, locks.take_logged(), false, None).and_then(|barrier| {
                // It waits for nothing, unless its level was raised while it ran.
                kernel.await_barrier(barrier, &|| false)?;
                let is_held = kernel.bucket.lease.holding() == Holding::Held;
                if is_held { Ok(()) } else { Err(LEASE_OVER) }
            });
        self.tell_if(confirmed, caller, output, begin);
        true
    }

    /// Waits for a deferred reply: that of a save, or of a switch of the log. No other command defers its reply here.
    fn await_reply(&self, caller: &mut Caller, output: &mut Output) {
        let Some(pending) = caller.end_wait() else { return };
        let Execution { turn: Turn { kernel, .. }, command, .. } = self.execution;
        let begin = output.mark();
        let mut reply = Reply::new(output, caller.proto);
        let outcome = match pending.awaited {
            Awaited::Save(save_id) => {
                let outcome = kernel.persistence.wait(save_id);
                outcome.map_err(|reason| waiting::not_saved(&reason))
            }
            Awaited::LogSwitch { on, .. } => match self.await_log(on) {
                Reached::Now => Ok(()),
                Reached::Later(_) => Err(LOG_IS_LATE),
                Reached::Never(cause) => Err(waiting::not_switched(&cause)),
            },
            _ => Err(NO_CONNECTION),
        };
        blocking::reply_late(kernel, Some(command.id), outcome, &mut reply);
        if !pending.is_heard {
            output.truncate(begin);
        }
    }

    /// Waits until the log is on or off, as the caller asked.
    fn await_log(&self, on: bool) -> Reached {
        loop {
            let reached = self.execution.turn.kernel.durability.reached(on, true);
            if !matches!(reached, Reached::Later(_)) || self.gives_up() {
                return reached;
            }
            interleaving::sleep(RETRY_AFTER);
        }
    }

    /// Replaces the reply by an error if a confirmation failed.
    fn tell_if(
        &self,
        confirmed: Result<(), CommandError>,
        caller: &Caller,
        output: &mut Output,
        begin: Mark,
    ) {
        if let Err(error) = confirmed {
            let Execution { turn, command, .. } = self.execution;
            turn.kernel.count_error(&error, Some(command.id));
            output.truncate(begin);
            Reply::new(output, caller.proto).error(&error);
        }
    }
}

/// Writes a reply, unless the caller wants none.
fn reply(caller: &mut Caller, output: &mut Output, write: impl FnOnce(&mut Reply<'_>)) {
    let begin = output.mark();
    write(&mut Reply::new(output, caller.proto));
    mute(caller, output, begin);
}

/// Removes the output since `begin`, if the caller wants no replies.
fn mute(caller: &mut Caller, output: &mut Output, begin: Mark) {
    if caller.hears_nothing() {
        output.truncate(begin);
    }
    caller.reply_mode = caller.reply_mode.after_command();
}
