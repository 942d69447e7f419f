//! Programs (scripts and functions): run within one guard, like a transaction, with an undo log from their first write
//! on.
//!
//! The shards of the declared keys are locked together before a program runs. What it needs beyond that ends the run:
//! all that it has done is taken back, and it runs again from its beginning.
//! - It reaches for a key that it has not declared: it runs again with all shards locked.
//! - It takes longer than a worker has time for, or calls a command that does: it runs again on a thread for programs.
//!
//! So neither its client nor any other sees a part of what it does. It can be killed at any time, and leaves nothing
//! behind then. Its writes are one record of the log, and what it does beyond keys happens at its end (`outbox`).
//!
//! A program that fails keeps what it has written, as in Redis, unless it is `atomic`.
//!
//! * `access`: what a call does to the data.
//! * `account`: what its calls add to the accounts of the server.
//! * `host`: what a program reaches from its machine.
//! * `loading`: running the code of libraries.
//! * `outbox`: what happens when it has ended.
//! * `waiting`: who waits for a thread that endless programs have.
//! * `workspace`: the machine of a thread.

mod access;
mod account;
mod host;
mod loading;
mod outbox;
mod waiting;
mod workspace;

use std::time::Duration;

use tierce_keyspace::planted::{self, Fault};
use tierce_keyspace::{KeyHash, Origin, ShardLocks, Source};
use tierce_lua::{Failure, Flags as ProgramFlags, Library, Machine, Outcome, Script, Stop};
use tierce_wire::resp::Encoder;

use self::account::Account;
use self::host::{ProgramHost, RunsOn, Terms};
use self::outbox::{Outbox, Pace};
use self::workspace::Buffers;
use super::{Context, Done};
use crate::command::{Access, Flags};
use crate::error::{CommandError, Interrupt};
use crate::eviction::Room;
use crate::scripting::{
    ENDED_BY_SHUTDOWN, Ending, Held, History, Kind, KnownFunction, Run, Ticket,
};
use crate::slowlog;
use crate::stats::{ErrorCounts, Stat};

pub(crate) use self::access::{access_of, queued_access, stated_flags};
pub(crate) use self::workspace::Workspace;

/// The longest that a program may run on a worker, which serves many connections. One that takes longer has run so long
/// in vain.
const WORKER_TIME: Duration = Duration::from_millis(1);

/// Bytes that may be kept to undo and to log the writes of a program: as many as `maxmemory`, within these bounds. All
/// of them are in memory until it ends, beside the data.
const WRITES_BYTES_MIN: u64 = 64 << 20;
const WRITES_BYTES_MAX: u64 = 1 << 30;

/// A program with a longer source begins on a thread for programs: a machine that does not know it yet takes long to
/// compile it.
const WORKER_SOURCE_LEN_MAX: usize = 512 * 1024;

const KILLED: CommandError =
    CommandError::new("ERR Script killed by user with SCRIPT KILL. Its writes were undone");

/// What is run.
#[derive(Clone, Copy)]
pub(crate) enum Code<'p> {
    /// A script, which others know by its SHA-1.
    Script(&'p Script),
    /// A function of a library, which others know by its name.
    Function {
        /// Where it is registered.
        library: &'p Library,
        /// What it is called there.
        name: &'p [u8],
    },
}

/// A program, and what is known of it.
#[derive(Clone, Copy)]
pub(crate) struct Program<'p> {
    /// What is run.
    pub(crate) code: Code<'p>,
    /// What it may do.
    pub(crate) flags: ProgramFlags,
    /// Whether it says so itself. A script that does not may write, unless each call says otherwise.
    pub(crate) has_flags: bool,
    /// What its earlier runs were like.
    pub(crate) history: &'p History,
}

impl<'p> Program<'p> {
    /// A script.
    pub(crate) fn of_script(script: &'p Script, history: &'p History) -> Self {
        let (flags, has_flags) = (script.flags(), script.has_shebang());
        Self { code: Code::Script(script), flags, has_flags, history }
    }

    /// What others know it by.
    fn name(&self) -> Vec<u8> {
        match self.code {
            Code::Script(script) => script.sha().to_hex().to_vec(),
            Code::Function { name, .. } => name.to_vec(),
        }
    }

    /// A function.
    pub(crate) fn of_function(known: &'p KnownFunction) -> Self {
        let KnownFunction { library, function, history } = known;
        let code = Code::Function { library, name: &function.name };
        Self { code, flags: function.flags, has_flags: true, history }
    }

    fn kind(&self) -> Kind {
        match self.code {
            Code::Script(_) => Kind::Script,
            Code::Function { .. } => Kind::Function,
        }
    }

    fn is_large(&self) -> bool {
        let source = match self.code {
            Code::Script(script) => script.source(),
            Code::Function { library, .. } => &library.code,
        };
        source.len() > WORKER_SOURCE_LEN_MAX
    }

    fn is(&self, flag: ProgramFlags) -> bool {
        self.flags.contains(flag)
    }
}

/// What a run has done.
#[derive(Default)]
struct Effects {
    /// What happens when it has ended.
    outbox: Outbox,
    /// There is an undo log.
    has_written: bool,
    /// The errors in its reply, which may be nothing but one. They count once it is known that the reply does.
    errors: ErrorCounts,
}

/// How a run has ended that was not interrupted.
enum Ended {
    /// It has replied. Here is what happens once the keys are unlocked.
    Through(Option<Outbox>),
    /// It has reached for a key that is not locked, and nothing has happened.
    NeedsMore,
}

impl<'k> Context<'_, 'k> {
    /// Runs a program for the caller, and replies.
    ///
    /// # Errors
    /// When it must not run as things are, or an interrupt; nothing has changed then.
    pub(crate) fn run_program(
        &mut self,
        program: &Program<'_>,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Done {
        let terms = self.terms_of(program);
        self.check_terms(program, &terms)?;
        let call = tierce_lua::Call { keys, args, proto: self.reply.proto() };
        let keyspace = &self.kernel.keyspace;
        let (is_inside, mut is_wide) = (self.is_within(), program.history.begins_wide());
        // One shard is locked in any case: what runs inside of a guard does not wait.
        let locked = if keys.is_empty() { &[&b""[..]] } else { keys };
        let locked = if is_wide { &[] } else { locked };
        let hashes: Vec<KeyHash> = locked.iter().map(|key| keyspace.hash(key)).collect();
        loop {
            let run = |ctx: &mut Context<'_, 'k>| {
                let held = || match is_inside || is_wide {
                    true => Held::All,
                    false => {
                        Held::Some(hashes.iter().map(|hash| keyspace.shard_of(*hash)).collect())
                    }
                };
                let ended = ctx.run_within(program, &call, terms, held)?;
                Ok::<_, CommandError>(ctx.deliver(ended, is_inside))
            };
            let ended = match is_wide {
                true => self.within(&[], ShardLocks::try_lock_all, run)?,
                false => self.within(&[], |locks| locks.try_lock_many(&hashes), run)?,
            };
            match ended? {
                Ended::Through(None) => return Ok(()),
                Ended::Through(Some(outbox)) => {
                    self.guard.end_turn();
                    let pace = if self.mode.may_leave() { Pace::AtOnce } else { Pace::InTurn };
                    outbox.deliver(self.kernel, self.caller, self.guard.locks, pace);
                    return Ok(());
                }
                Ended::NeedsMore => {
                    program.history.was_wide();
                    is_wide = true;
                }
            }
        }
    }

    /// What a program may do that begins now. That of a primary has had its effects there.
    fn terms_of(&mut self, program: &Program<'_>) -> Terms {
        let is_of_primary = self.caller.is_primary();
        let memory_limit = self.kernel.config.live().script_memory_limit() as usize;
        let writes_limit = match self.kernel.keyspace.eviction().limit_bytes {
            0 => WRITES_BYTES_MAX,
            limit => limit.clamp(WRITES_BYTES_MIN, WRITES_BYTES_MAX),
        };
        Terms {
            is_of_primary,
            is_read_only: self.is_read_only() || program.is(ProgramFlags::NO_WRITES),
            allows_oom: program.is(ProgramFlags::ALLOW_OOM),
            is_out_of_memory: !is_of_primary && self.is_out_of_memory(),
            memory_limit: if is_of_primary { 0 } else { memory_limit },
            writes_limit: if is_of_primary { usize::MAX } else { writes_limit as usize },
        }
    }

    /// Checks what the gates do not: a program that does not state that it runs on a stale replica, and a writer that is
    /// called by a read-only command. For the rest, each call of a program is checked.
    fn check_terms(&self, program: &Program<'_>, terms: &Terms) -> Done {
        const WRITES: CommandError =
            CommandError::new("ERR Can not execute a script with write flag using *_ro command.");
        if terms.is_of_primary {
            return Ok(());
        }
        if self.caller.is_stale(&self.kernel.role) && !program.is(ProgramFlags::ALLOW_STALE) {
            return Err(CommandError::PRIMARY_IS_DOWN);
        }
        let writes = program.has_flags && !program.is(ProgramFlags::NO_WRITES);
        if writes && self.is_read_only() { Err(WRITES) } else { Ok(()) }
    }

    /// Whether memory is beyond its limit and nothing can be evicted, as it is before a program begins. What that adds
    /// is evicted later.
    fn is_out_of_memory(&mut self) -> bool {
        let keyspace = &self.kernel.keyspace;
        match self.caller.standing {
            Some(standing) => standing.is_out_of_memory,
            None if !keyspace.has_memory_limit() || !keyspace.is_short_of_memory() => false,
            None => self.kernel.make_room(self.guard.locks, 0, self.now_ms) == Room::None,
        }
    }

    /// Whether the call is one of EVAL_RO and its relatives.
    fn is_read_only(&self) -> bool {
        self.command.spec.flags.contains(Flags::READONLY)
    }

    /// Sends the messages of a program that has ended while its keys are locked, so that they follow the order of the
    /// changes; those to clients of this server not if that takes long, unless a transaction keeps the keys anyway.
    fn deliver(&mut self, ended: Ended, is_inside: bool) -> Ended {
        let Ended::Through(Some(outbox)) = ended else { return ended };
        let takes_long =
            || outbox.takes_long(self.kernel) || planted::is(Fault::MessagesWithoutLocks);
        let comes_later = !is_inside && takes_long();
        if !comes_later {
            outbox.deliver(self.kernel, self.caller, self.guard.locks, Pace::AtOnce);
        }
        if !is_inside {
            self.guard.locks.commit_effects();
        }
        outbox.tell_replicas(self.kernel, self.caller);
        Ended::Through(comes_later.then_some(outbox))
    }

    /// Runs it with the shards locked. `held` says which these are.
    fn run_within(
        &mut self,
        program: &Program<'_>,
        call: &tierce_lua::Call<'_>,
        terms: Terms,
        held: impl FnOnce() -> Held,
    ) -> Result<Ended, CommandError> {
        let access = Access::of(self.command.spec);
        let may_write = access.may_write && !terms.is_read_only;
        self.judge_again_as(Access { may_write, ..access })()?;
        let scripts = &self.kernel.scripts;
        let is_on_worker = self.mode.may_leave() && scripts.offload.is_open();
        if is_on_worker && (program.history.is_long() || program.is_large()) {
            // It was tried whether the shards are to be had, so that the client does not wait for a thread in vain.
            return Err(Interrupt::Long.into());
        }
        let ticket = (!is_on_worker).then(|| {
            let words = slowlog::shorten(&self.kernel.commands, self.call.args());
            scripts.running.begin(Run::new(program.kind(), program.name(), words, held()))
        });
        let runs_on = RunsOn::new(self.kernel, ticket.as_ref().map(Ticket::run), terms);
        if self.mode.comes_late() {
            // A pause does not wait for it: if one has begun when the program ends, its writes are undone.
            self.caller.passage = None;
        }
        let (outcome, effects) = Workspace::with(self.kernel, |workspace| {
            let (machine, buffers, aside) = workspace.parts();
            let (account, on) = (Account::new(aside), (runs_on, terms));
            let (outcome, effects) =
                self.run_on_machine(program, call, on, (machine, buffers), &account);
            if let Some(ticket) = &ticket
                && program.history.is_long()
                && ticket.run().elapsed() < WORKER_TIME
            {
                program.history.was_short();
            }
            let has_ended = !matches!(outcome, Outcome::Stopped(_));
            if self.mode.comes_late() {
                self.caller.passage = Some(self.kernel.passages.enter());
            }
            let is_seen = effects.has_written || effects.outbox.has_messages();
            if has_ended && is_seen && self.is_held_back(effects.has_written) {
                self.keep(effects, false);
                return Err(CommandError::from(Interrupt::Gate));
            }
            if !matches!(outcome, Outcome::Stopped(Stop::Undeclared | Stop::Long)) {
                account.book(self.kernel, self.counters);
            }
            Ok((outcome, effects))
        })?;
        self.end_program(program, outcome, ticket.as_ref(), effects, terms)
    }

    /// Runs it once. The caller decides whether its effects stay.
    fn run_on_machine(
        &mut self,
        program: &Program<'_>,
        call: &tierce_lua::Call<'_>,
        on: (RunsOn<'_>, Terms),
        (machine, buffers): (&mut Machine, &mut Buffers),
        account: &Account<'_>,
    ) -> (Outcome, Effects) {
        let (turn, db, origin) = (self.turn(), self.caller.db, self.guard.locks.origin());
        let client = self.caller.client.id;
        self.guard.locks.set_origin(Origin { source: Source::Script, client });
        let mut effects = Effects::default();
        if self.kernel.clients.has_monitors() {
            effects.outbox.show_call(self.caller, self.call.args());
        }
        let Self { caller, guard, reply, .. } = self;
        machine.set_memory_limit(on.1.memory_limit);
        let mut host = ProgramHost::new(turn, caller, guard.locks, buffers, on, effects, account);
        let out = reply.parts().0.buffer();
        let begin = out.len();
        let mut outcome = match program.code {
            Code::Script(script) => machine.run(script, call, &mut host, out),
            Code::Function { library, name } => {
                machine.run_function(library, name, call, &mut host, out)
            }
        };
        if let (Err(stop), false) = (host.check_memory(), matches!(outcome, Outcome::Stopped(_))) {
            // It has ended before its machine has looked.
            out.truncate(begin);
            outcome = Outcome::Stopped(stop);
        }
        let effects = host.finish();
        self.guard.locks.set_origin(origin);
        if self.caller.db != db {
            // SELECT in a program is for that alone.
            self.caller.select(db);
        }
        // Not the last one that it has called.
        self.caller.client.note_command(self.command.id);
        (outcome, effects)
    }

    /// Keeps what it has done or takes it back, and replies.
    fn end_program(
        &mut self,
        program: &Program<'_>,
        outcome: Outcome,
        ticket: Option<&Ticket<'_>>,
        effects: Effects,
        terms: Terms,
    ) -> Result<Ended, CommandError> {
        let stop = match outcome {
            Outcome::Reply { is_error } => {
                let errors = self.kernel.errors.add_all(&effects.errors);
                self.counters.add(Stat::Errors, errors);
                if is_error || errors > 0 {
                    self.counters.failed(self.command.id);
                }
                let is_kept = !(is_error && self.is_atomic(program));
                return Ok(self.keep(effects, is_kept));
            }
            Outcome::Failed(failure) => {
                let is_kept = !self.is_atomic(program);
                self.counters.add(Stat::NestingLimitErrors, failure.is_too_deep.into());
                self.reply_failure(&failure);
                return Ok(self.keep(effects, is_kept));
            }
            Outcome::Stopped(stop) => stop,
        };
        let has_written_much = self.guard.locks.undo_bytes() > terms.writes_limit;
        self.keep(effects, false);
        match stop {
            Stop::Undeclared => Ok(Ended::NeedsMore),
            Stop::Long => {
                program.history.was_long();
                Err(Interrupt::Long.into())
            }
            stop => {
                let ending = ticket.and_then(|ticket| ticket.run().ending());
                let why = why_stopped(stop, ending, has_written_much);
                self.log_stop(program, why);
                Err(match (stop, ending) {
                    (Stop::Killed, Some(Ending::Shutdown)) => CommandError::new(ENDED_BY_SHUTDOWN),
                    (Stop::Killed, _) => KILLED,
                    _ => CommandError::text(format!("ERR Script {why}. Its writes were undone")),
                })
            }
        }
    }

    /// True if a pause has begun while the program ran, away from its worker, or the server has become a replica, whose
    /// primary has not what was written here. It is judged again, and runs again if it still may.
    fn is_held_back(&self, has_written: bool) -> bool {
        let is_paused =
            || self.kernel.pause.holds(true, || false, crate::clock::unix_ms()).is_some();
        let is_read_only = || has_written && self.kernel.role.is_read_only();
        self.mode.comes_late() && (is_paused() || is_read_only())
    }

    /// Commits what the program has written, or takes it back. Returns what is still to happen.
    fn keep(&mut self, effects: Effects, is_kept: bool) -> Ended {
        self.caller.program_has_written |= effects.has_written && is_kept;
        match (effects.has_written, is_kept) {
            (false, _) => {}
            (true, true) => self.guard.locks.commit(),
            (true, false) => self.guard.locks.rollback(),
        }
        let outbox = effects.outbox;
        Ended::Through(Some(if is_kept { outbox } else { outbox.into_calls() }))
    }

    fn is_atomic(&self, program: &Program<'_>) -> bool {
        // A setting of this server, and the one of the primary has had its effect there.
        let is_set = || !self.caller.is_primary() && self.kernel.config.live().script_atomic();
        program.is(ProgramFlags::ATOMIC) || is_set()
    }

    fn reply_failure(&mut self, Failure { text, is_counted, .. }: &Failure) {
        self.counters.failed(self.command.id);
        self.counters.add(Stat::Errors, u64::from(*is_counted));
        if *is_counted {
            let text = String::from_utf8_lossy(text).into_owned();
            self.kernel.errors.count(CommandError::text(text).kind());
        }
        let (output, proto) = self.reply.parts();
        Encoder::new(output.buffer(), proto).error(text);
    }

    fn log_stop(&self, program: &Program<'_>, why: &str) {
        let what = match program.kind() {
            Kind::Script => "Script",
            Kind::Function => "Function",
        };
        let name = program.name();
        let name = name.escape_ascii();
        self.kernel.log.warning(format_args!("{what} {name} {why}; its writes were undone"));
    }
}

/// The error for a program that was stopped.
fn why_stopped(stop: Stop, ending: Option<Ending>, has_written_much: bool) -> &'static str {
    match (stop, ending) {
        (Stop::Killed, Some(Ending::Shutdown)) => "ended, since the server ends",
        (Stop::Killed, _) => "was killed",
        (Stop::TimeLimit, _) => "has run longer than script-time-limit allows",
        _ if has_written_much => "has written more than is kept to undo and log its writes",
        _ => "needs more memory than script-memory-limit allows",
    }
}
