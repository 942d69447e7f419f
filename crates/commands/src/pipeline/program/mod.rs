//! Programs (scripts and functions). A program runs under one guard, like a transaction, and has an undo log from its
//! first write on.
//!
//! The shards of the declared keys are locked together before a program runs. If it needs more, all its changes are
//! rolled back and it starts again:
//! - It accesses an undeclared key: it runs again with all shards locked.
//! - It takes too long for a worker, or calls a command that does: it runs again on a thread for programs.
//!
//! So no client sees a partial effect of a program. It can be killed at any time, and leaves nothing behind then. Its
//! writes are one record of the log. Its effects beyond keys happen at its end (`outbox`).
//!
//! A program that fails keeps what it has written, as in Redis, unless it is `atomic`.
//!
//! * `access`: the access of calls to the data.
//! * `account`: statistics of a run.
//! * `host`: the interface of a program to the server.
//! * `loading`: running the code of libraries.
//! * `outbox`: effects at the end of a program.
//! * `waiting`: BUSY errors for clients while endless programs occupy all threads.
//! * `workspace`: the Lua machine of a thread.

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
use crate::command_log;
use crate::error::{CommandError, Interrupt};
use crate::eviction::Room;
use crate::scripting::{
    ENDED_BY_SHUTDOWN, Ending, Held, History, Kind, KnownFunction, Run, Ticket,
};
use crate::stats::{ErrorCounts, Stat};

pub(crate) use self::access::{access_of, queued_access, stated_flags};
pub(crate) use self::workspace::Workspace;

/// Time limit of a program on a worker, which serves many connections. After it, the work is discarded and the
/// program runs on another thread.
const WORKER_TIME: Duration = Duration::from_millis(1);

/// Bounds of the bytes kept to undo and log the writes of a program. In between, the limit is `maxmemory`. All of
/// them are in memory until it ends, in addition to the data.
const WRITES_BYTES_MIN: u64 = 64 << 20;
const WRITES_BYTES_MAX: u64 = 1 << 30;

/// A program with a longer source starts on a thread for programs, because compiling it takes long if the machine
/// does not know it yet.
const WORKER_SOURCE_LEN_MAX: usize = 512 * 1024;

const KILLED: CommandError =
    CommandError::new("ERR Script killed by user with SCRIPT KILL. Its writes were undone");

/// Code to run.
#[derive(Clone, Copy)]
pub(crate) enum Code<'p> {
    /// A script, known by its SHA-1.
    Script(&'p Script),
    /// A function of a library, known by its name.
    Function {
        /// Library that registers it.
        library: &'p Library,
        /// Name in the library.
        name: &'p [u8],
    },
}

/// A program and its properties.
#[derive(Clone, Copy)]
pub(crate) struct Program<'p> {
    /// Code to run.
    pub(crate) code: Code<'p>,
    /// Rights and restrictions.
    pub(crate) flags: ProgramFlags,
    /// True if it declares its flags. Without flags, a script may write, unless each call says otherwise.
    pub(crate) has_flags: bool,
    /// Experience from its earlier runs.
    pub(crate) history: &'p History,
}

impl<'p> Program<'p> {
    /// Creates the program of a script.
    pub(crate) fn of_script(script: &'p Script, history: &'p History) -> Self {
        let (flags, has_flags) = (script.flags(), script.has_shebang());
        Self { code: Code::Script(script), flags, has_flags, history }
    }

    /// Returns the SHA-1 of a script, or the name of a function.
    fn name(&self) -> Vec<u8> {
        match self.code {
            Code::Script(script) => script.sha().to_hex().to_vec(),
            Code::Function { name, .. } => name.to_vec(),
        }
    }

    /// Creates the program of a function.
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

/// Effects of a run.
#[derive(Default)]
struct Effects {
    /// Effects beyond keys, for the end of the run.
    outbox: Outbox,
    /// True if there is an undo log.
    has_written: bool,
    /// Errors in its reply, which may be a single error. They are counted once the reply is final.
    errors: ErrorCounts,
}

/// End of a run that was not interrupted.
enum Ended {
    /// It has replied. The outbox is delivered once the keys are unlocked.
    Through(Option<Outbox>),
    /// It has accessed a key that is not locked, and nothing has happened.
    NeedsMore,
}

impl<'k> Context<'_, 'k> {
    /// Runs a program for the caller, and replies.
    ///
    /// # Errors
    /// Fails if it must not run now, or with an interrupt. Nothing has changed then.
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
        // At least one shard is locked, because code inside a guard never waits.
        let locked = if keys.is_empty() { &[&b""[..]] } else { keys };
        let locked = if is_wide { &[] } else { locked };
        let hashes: Vec<KeyHash> = locked.iter().map(|key| keyspace.hash(key)).collect();
        loop {
            let run = |ctx: &mut Context<'_, 'k>| {
                let shards = || hashes.iter().map(|hash| keyspace.shard_of(*hash)).collect();
                let held = || match (is_inside, is_wide) {
                    (true, _) => Held::AllByTransaction,
                    (false, true) => Held::All,
                    (false, false) => Held::Some(shards()),
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

    /// Returns the limits of a new program. One from the primary has none, since it has run there already.
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

    /// Checks two cases that no earlier check covers: on a stale replica, a program must declare that it may run
    /// there; a read-only command must not call a writer. For the rest, each call of a program is checked.
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

    /// Returns true if memory is over its limit and nothing can be evicted, which is checked before a program begins.
    /// Memory that the program adds is evicted later.
    fn is_out_of_memory(&mut self) -> bool {
        let keyspace = &self.kernel.keyspace;
        match self.caller.standing {
            Some(standing) => standing.is_out_of_memory,
            None if !keyspace.has_memory_limit() || !keyspace.is_short_of_memory() => false,
            None => self.kernel.make_room(self.guard.locks, 0, self.now_ms) == Room::None,
        }
    }

    /// Returns true for the read-only commands, such as EVAL_RO.
    fn is_read_only(&self) -> bool {
        self.command.spec.flags.contains(Flags::READONLY)
    }

    /// Delivers the messages of an ended program with its keys locked, so that they follow the order of the changes.
    /// Slow delivery to local clients comes later, unless a transaction keeps the keys locked anyway.
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

    /// Runs the program with the shards locked. `held` returns which ones.
    fn run_within(
        &mut self,
        program: &Program<'_>,
        call: &tierce_lua::Call<'_>,
        terms: Terms,
        held: impl FnOnce() -> Held,
    ) -> Result<Ended, CommandError> {
        let access = Access::of(self.command.spec);
        let may_write = access.may_write && !terms.is_read_only;
        self.check_again_as(Access { may_write, ..access })()?;
        let scripts = &self.kernel.scripts;
        let is_on_worker = self.mode.may_leave() && scripts.offload.is_open();
        if is_on_worker && (program.history.is_long() || program.is_large()) {
            // The lock attempt comes first, so that the client does not wait for a thread in vain.
            return Err(Interrupt::Long.into());
        }
        let ticket = (!is_on_worker).then(|| {
            let words = command_log::shorten(&self.kernel.commands, self.call.args());
            scripts.running.begin(Run::new(program.kind(), program.name(), words, held()))
        });
        let runs_on = RunsOn::new(self.kernel, ticket.as_ref().map(Ticket::run), terms);
        if self.mode.comes_late() {
            // A pause does not wait for it. If one has begun when the program ends, its writes are undone.
            self.caller.in_flight = None;
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
                self.caller.in_flight = Some(self.kernel.in_flight_requests.enter());
            }
            let is_seen = effects.has_written || effects.outbox.has_messages();
            if has_ended && is_seen && self.is_held_back(effects.has_written) {
                self.keep(effects, false);
                return Err(CommandError::from(Interrupt::Admission));
            }
            if !matches!(outcome, Outcome::Stopped(Stop::Undeclared | Stop::Long)) {
                account.book(self.kernel, self.counters);
            }
            Ok((outcome, effects))
        })?;
        self.end_program(program, outcome, ticket.as_ref(), effects, terms)
    }

    /// Runs the program once. The caller decides if its effects stay.
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
        let fieldsets = self.caller.fieldsets.take();
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
            // It ended before its machine checked.
            out.truncate(begin);
            outcome = Outcome::Stopped(stop);
        }
        let effects = host.finish();
        self.guard.locks.set_origin(origin);
        if self.caller.db != db {
            // SELECT in a program ends with the program.
            self.caller.select(db);
        }
        // Programs neither see the client's lists of fields nor leave any.
        if fieldsets.is_some() || self.caller.fieldsets.is_some() {
            self.caller.set_fieldsets(fieldsets);
        }
        // The client's last command is this one, not the last one of the program.
        self.caller.client.note_command(self.command.id);
        (outcome, effects)
    }

    /// Commits or rolls back its effects, and replies.
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

    /// Returns true if, while an offloaded program ran, a pause began or the server became a replica, whose primary
    /// does not have the new writes. The program is checked again then, and runs again if it still may.
    fn is_held_back(&self, has_written: bool) -> bool {
        let is_paused =
            || self.kernel.pause.holds(true, || false, crate::clock::unix_ms()).is_some();
        let is_read_only = || has_written && self.kernel.role.is_read_only();
        self.mode.comes_late() && (is_paused() || is_read_only())
    }

    /// Commits or rolls back the writes of the program. Returns the effects that are still to happen.
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
        // It is a setting of this server. The primary has already applied its own.
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

/// Returns the reason for which a program was stopped, for its error.
fn why_stopped(stop: Stop, ending: Option<Ending>, has_written_much: bool) -> &'static str {
    match (stop, ending) {
        (Stop::Killed, Some(Ending::Shutdown)) => "ended, since the server ends",
        (Stop::Killed, _) => "was killed",
        (Stop::TimeLimit, _) => "has run longer than script-time-limit allows",
        _ if has_written_much => "has written more than is kept to undo and log its writes",
        _ => "needs more memory than script-memory-limit allows",
    }
}
