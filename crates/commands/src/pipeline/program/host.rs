//! Interface of a program to the server: commands, each checked separately as in Redis, and the end of the program.

use std::sync::Arc;
use std::time::Duration;

use tierce_keyspace::{ShardLocks, events_len, interleaving};
use tierce_lua::{Host, LogLevel, NoSuchCommand, Replication, Stop};
use tierce_output::Output;
use tierce_wire::resp::{Args, OwnedArgs, Proto};

use super::super::within::{StartOver, Within};
use super::super::{Context, Done, Mode, Refused, Turn, WEIGHT_MAX, refuse_counting, resolve};
use super::account::Account;
use super::outbox::{self, Outbox};
use super::waiting::turn_away_from_programs;
use super::workspace::{Buffers, WORDS_KEPT_BYTES};
use super::{Effects, WORKER_TIME};
use crate::acl::{self, Denial};
use crate::caller::Caller;
use crate::command::{Access, Command, Flags};
use crate::command_log;
use crate::error::CommandError;
use crate::kernel::Kernel;
use crate::pipeline::admission;
use crate::pipeline::fetch;
use crate::pipeline::meter::Meter;
use crate::pubsub::Kind;
use crate::reply::Reply;
use crate::scripting::Run;

/// Longest word that is checked before all words of a large call are copied. Names of commands are shorter.
const SHORT_WORD_LEN_MAX: usize = 64;

/// Calls between two reads of the clock, which costs a tenth of a call.
const CALLS_PER_LOOK: u32 = 8;

/// Error for commands that programs may never call.
const NOT_ALLOWED: CommandError =
    CommandError::new("ERR This Redis command is not allowed from script");
const READ_ONLY: CommandError =
    CommandError::new("ERR Write commands are not allowed from read-only scripts.");
const UNKNOWN: CommandError = CommandError::new("ERR Unknown Redis command called from script");
const WRONG_NUMBER: CommandError =
    CommandError::new("ERR Wrong number of args calling Redis command from script");
const STALE: CommandError = CommandError::new("ERR Can not execute the command on a stale replica");
const TOO_LARGE: CommandError =
    CommandError::new("ERR The arguments of a command called from script are too large");

/// Limits of a program.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    /// True for a program in the stream of this server's primary. Neither the role nor memory nor a limit refuses or
    /// ends it.
    pub(super) is_of_primary: bool,
    pub(super) is_read_only: bool,
    pub(super) allows_oom: bool,
    /// True if memory was over its limit at its begin, and nothing could be evicted.
    pub(super) is_out_of_memory: bool,
    /// Bytes that it may use; 0 for no limit.
    pub(super) memory_limit: usize,
    /// Bytes of undo data and log records for its writes.
    pub(super) writes_limit: usize,
}

/// Thread of a program, and its limit there.
pub(super) enum RunsOn<'r> {
    /// A worker, until this time of the kernel's clock.
    Worker { until_nanos: u64 },
    /// A thread that it may occupy until it is killed, or for this long.
    OwnThread { run: &'r Arc<Run>, time_limit: Option<Duration> },
}

impl<'r> RunsOn<'r> {
    /// Uses the thread that a run occupies, or a worker.
    pub(super) fn new(kernel: &Kernel, run: Option<&'r Arc<Run>>, terms: Terms) -> Self {
        let Some(run) = run else {
            return Self::Worker { until_nanos: (kernel.nanos)() + WORKER_TIME.as_nanos() as u64 };
        };
        let limit_ms = kernel.config.live().script_time_limit();
        let is_limited = limit_ms > 0 && !terms.is_of_primary;
        Self::OwnThread { run, time_limit: is_limited.then(|| Duration::from_millis(limit_ms)) }
    }
}

/// State of one run of a program.
pub(super) struct ProgramHost<'h, 'k> {
    kernel: &'k Kernel,
    caller: &'h mut Caller,
    locks: &'h mut ShardLocks<'k>,
    buffers: &'h mut Buffers,
    runs_on: RunsOn<'h>,
    terms: Terms,
    effects: Effects,
    /// Statistics of its calls, which count if the run counts.
    account: &'h Account<'h>,
    within: Within<'h, 'k>,
    /// Calls until the next read of the clock.
    calls_left: u32,
}

impl<'h, 'k> ProgramHost<'h, 'k> {
    pub(super) fn new(
        turn: Turn<'k>,
        caller: &'h mut Caller,
        locks: &'h mut ShardLocks<'k>,
        buffers: &'h mut Buffers,
        (runs_on, terms): (RunsOn<'h>, Terms),
        effects: Effects,
        account: &'h Account<'h>,
    ) -> Self {
        let (kernel, counters) = (turn.kernel, &account.aside.counters);
        let mode = match runs_on {
            RunsOn::Worker { .. } => Mode::OfProgram,
            RunsOn::OwnThread { .. } => Mode::Never,
        };
        let meter = Meter::start_aside(kernel, counters, &account.noted);
        let within = Within { turn, mode, meter, counters, errors: &account.errors };
        let calls_left = CALLS_PER_LOOK;
        Self {
            kernel,
            caller,
            locks,
            buffers,
            runs_on,
            terms,
            effects,
            account,
            within,
            calls_left,
        }
    }

    /// Accounts for the calls, and returns their effects.
    pub(super) fn finish(mut self) -> Effects {
        let words = &self.buffers.last_words;
        self.within.meter.finish(&self.caller.client, || {
            command_log::shorten(&self.kernel.commands, words.as_args())
        });
        self.buffers.shrink();
        self.effects
    }

    /// Returns the command of a call if it is allowed. The checks and their order are those of Redis.
    fn admit(&self, args: Args<'_>) -> Result<&'k Command, Refused<'k>> {
        let command = resolve(self.kernel, args).map_err(|refused| Refused {
            error: if refused.command.is_some() { WRONG_NUMBER } else { UNKNOWN },
            ..refused
        })?;
        let flags = command.spec.flags;
        let refused = |error| Err(Refused { command: Some(command), error });
        if flags.intersects(Flags::NOSCRIPT.with(Flags::NONBLOCKING)) {
            return refused(NOT_ALLOWED);
        }
        let (denials, origin) = (&self.account.denials, acl::Origin::Lua);
        let allowed = self.kernel.check_rights_noting(denials, self.caller, command, args, origin);
        if let Err(error) = allowed {
            return refused(error);
        }
        let is_client = !self.terms.is_of_primary;
        if is_client && self.caller.is_stale(&self.kernel.role) && !flags.contains(Flags::STALE) {
            return refused(STALE);
        }
        // Messages are visible to others, even if they change nothing.
        if self.terms.is_read_only && (may_change(command) || Access::of(command.spec).publishes) {
            return refused(READ_ONLY);
        }
        // A program that has written may continue.
        let is_checked = is_client
            && !self.effects.has_written
            && flags.intersects(Flags::WRITE.with(Flags::DENYOOM));
        match is_checked.then(|| self.closed_to(flags)).flatten() {
            Some(error) => refused(error),
            None => Ok(command),
        }
    }

    /// Returns the reason to refuse writes of a command with these flags now.
    fn closed_to(&self, flags: Flags) -> Option<CommandError> {
        let kernel = self.kernel;
        let fault = || match self.caller.standing {
            Some(standing) => standing.fault,
            None => kernel.fault_of_writes(self.caller.replica_level(kernel)),
        };
        if let Some(fault) = flags.contains(Flags::WRITE).then(fault).flatten() {
            return Some(admission::error_of(fault, kernel));
        }
        let is_short = self.terms.is_out_of_memory && !self.terms.allows_oom;
        let is_refused = flags.contains(Flags::DENYOOM) && is_short;
        is_refused.then_some(CommandError::OUT_OF_MEMORY)
    }

    /// Makes a call. Its reply goes to the reply buffer.
    ///
    /// # Errors
    /// Fails with the reason to end the run.
    fn make(&mut self, args: Args<'_>, proto: Proto) -> Result<(), Stop> {
        let command = match self.admit(args) {
            Ok(command) => command,
            Err(refused) => {
                self.refuse(&refused, proto);
                return Ok(());
            }
        };
        self.account.aside.note(command.id);
        let Self { kernel, caller, locks, buffers, effects, within, .. } = self;
        let reply = Reply::new(&mut buffers.reply, proto);
        let (call, last) = ((command, args, None), buffers.last_words.as_args());
        within.run(call, last, caller, locks, reply, |ctx| enter(ctx, effects))?;
        if kernel.clients.has_monitors() && !command.spec.flags.contains(Flags::ADMIN) {
            effects.outbox.show_inner(caller, args);
        }
        if buffers.reply.exceeds_limit() {
            return Err(Stop::MemoryLimit);
        }
        self.check_memory()
    }

    /// # Errors
    /// Fails if the program has written or collected too much.
    pub(super) fn check_memory(&self) -> Result<(), Stop> {
        match self.memory_left() {
            Some(_) if !self.effects.outbox.is_full() => Ok(()),
            _ => Err(Stop::MemoryLimit),
        }
    }

    /// Returns the bytes that the program may still use outside its machine; `None` if it exceeds the limit.
    fn memory_left(&self) -> Option<usize> {
        let Terms { memory_limit, writes_limit, .. } = self.terms;
        let undo = self.locks.undo_bytes();
        match memory_limit {
            _ if undo > writes_limit => None,
            0 => Some(usize::MAX),
            limit => {
                limit.checked_sub(undo + self.effects.outbox.bytes() + self.buffers.words_bytes())
            }
        }
    }

    /// Returns true if the words exceed the size of a client request.
    fn is_too_large(&self, len: usize) -> bool {
        len as u64 > self.kernel.config.live().client_query_buffer_limit()
    }

    /// Refuses a large call before its words are copied, and writes the error: because of its size, or because its
    /// short words name a forbidden command.
    fn refuses_unread(&mut self, words: &[&[u8]], len: usize, proto: Proto) -> bool {
        if self.is_too_large(len) {
            write_error(&mut self.buffers.reply, &TOO_LARGE, proto);
            return true;
        }
        let short = |word: &&[u8]| word.len() <= SHORT_WORD_LEN_MAX;
        let shortened = words.iter().map(|word| if short(word) { *word } else { b"" });
        let mut copy = OwnedArgs::new();
        let _ = copy_words(shortened, &mut copy);
        let args = copy.as_args();
        let may_be_called = resolve(self.kernel, args).is_ok_and(|command| {
            !matches!(self.caller.rights().check(command, args), Err(Denial::Command))
        });
        if may_be_called {
            // Only all words decide if these keys are allowed.
            return false;
        }
        let Err(refused) = self.admit(args) else { return false };
        self.refuse(&refused, proto);
        true
    }

    fn refuse(&mut self, refused: &Refused<'_>, proto: Proto) {
        let Account { aside, errors, .. } = self.account;
        if let Some(command) = refused.command {
            aside.note(command.id);
        }
        let mut reply = Reply::new(&mut self.buffers.reply, proto);
        refuse_counting(errors, &aside.counters, &mut reply, refused);
    }

    fn copy_and_make(&mut self, words: &[&[u8]], len: usize, proto: Proto) -> Result<(), Stop> {
        let room = self.memory_left().and_then(|left| left.checked_sub(len));
        self.buffers.reply.set_room(room.ok_or(Stop::MemoryLimit)?);
        let mut copy = std::mem::take(&mut self.buffers.words);
        let done = match copy_words(words.iter().copied(), &mut copy) {
            Some(()) => self.make(copy.as_args(), proto),
            None => {
                write_error(&mut self.buffers.reply, &TOO_LARGE, proto);
                Ok(())
            }
        };
        self.buffers.keep(copy);
        done
    }
}

/// Runs a call in its context. The first call that may change keys starts an undo log.
fn enter(ctx: &mut Context<'_, '_>, effects: &mut Effects) -> Result<Done, StartOver> {
    match ctx.command.spec.name {
        "publish" => return publish(ctx, &mut effects.outbox, Kind::Channel),
        "spublish" => return publish(ctx, &mut effects.outbox, Kind::ShardChannel),
        _ => {}
    }
    let is_covered = match ctx.hashed {
        [(_, hash)] => ctx.guard.locks.covers(*hash),
        _ => ctx.covers(),
    };
    if !is_covered {
        return Err(StartOver::WithMoreLocked);
    }
    if ctx.mode.may_leave() && ctx.kernel.keyspace.has_spilled() && needs_disk(ctx) {
        return Err(StartOver::Elsewhere);
    }
    if !effects.has_written && may_change(ctx.command) {
        ctx.guard.locks.begin_undo();
        effects.has_written = true;
    }
    Ok(ctx.enter_uncounted())
}

/// Defers a message until the program has ended, and replies how many clients would get it now.
fn publish(ctx: &mut Context<'_, '_>, outbox: &mut Outbox, kind: Kind) -> Result<Done, StartOver> {
    let (args, pubsub) = (ctx.call.args(), &ctx.kernel.pubsub);
    let (channel, message) = (args.at(1), args.at(2));
    if ctx.mode.may_leave() {
        outbox.weight += pubsub.weight_of_patterns(channel, WEIGHT_MAX).min(WEIGHT_MAX + 1);
        if outbox.weight > WEIGHT_MAX {
            return Err(StartOver::Elsewhere);
        }
    }
    outbox.publish(kind, channel, message, events_len(ctx.guard.locks));
    ctx.reply.count(pubsub.receivers(kind, channel));
    Ok(Ok(()))
}

/// Returns true if a command may change keys.
fn may_change(command: &Command) -> bool {
    command.spec.flags.intersects(Flags::WRITE.with(Flags::MAY_WRITE))
}

/// Returns true if a call needs values from disk, for which no worker waits.
fn needs_disk(ctx: &mut Context<'_, '_>) -> bool {
    let (db, now_ms) = (ctx.caller.db, ctx.now_ms);
    let (command, args, mut reads) = (ctx.command, ctx.call.args(), Vec::new());
    let added =
        fetch::add_pending_reads_of_call(ctx.guard.locks, db, command, args, now_ms, &mut reads);
    added.is_err() || !reads.is_empty()
}

/// Copies the words of a call; `None` if they are too large for one.
fn copy_words<'w>(mut words: impl Iterator<Item = &'w [u8]>, copy: &mut OwnedArgs) -> Option<()> {
    copy.clear();
    words.try_for_each(|word| copy.push(word).ok())
}

fn write_error(output: &mut Output, error: &CommandError, proto: Proto) {
    Reply::new(output, proto).error(error);
}

impl Host for ProgramHost<'_, '_> {
    fn call(&mut self, words: &[&[u8]], proto: Proto, reply: &mut Vec<u8>) -> Result<(), Stop> {
        self.calls_left -= 1;
        if self.calls_left == 0 {
            self.calls_left = CALLS_PER_LOOK;
            self.look()?;
        }
        let len = words.iter().map(|word| word.len()).sum();
        let done = if len > WORDS_KEPT_BYTES && self.refuses_unread(words, len, proto) {
            Ok(())
        } else {
            self.copy_and_make(words, len, proto)
        };
        match done {
            Ok(()) => self.buffers.reply.drain_into(reply),
            Err(_) => self.buffers.reply.reset(),
        }
        done
    }

    #[inline]
    fn look(&mut self) -> Result<(), Stop> {
        interleaving::pass("script");
        self.check_memory()?;
        match self.runs_on {
            RunsOn::Worker { until_nanos } if (self.kernel.nanos)() >= until_nanos => {
                Err(Stop::Long)
            }
            RunsOn::OwnThread { run, .. } if run.ending().is_some() => Err(Stop::Killed),
            RunsOn::OwnThread { run, time_limit: Some(limit) } if run.elapsed() >= limit => {
                Err(Stop::TimeLimit)
            }
            RunsOn::OwnThread { run, .. } => {
                turn_away_from_programs(self.kernel, run, self.within.turn.counters);
                Ok(())
            }
            RunsOn::Worker { .. } => Ok(()),
        }
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        if outbox::logs(self.kernel, level) {
            self.effects.outbox.log(level, message);
        }
    }

    fn acl_check(&mut self, words: &[&[u8]]) -> Result<bool, NoSuchCommand> {
        if self.is_too_large(words.iter().map(|word| word.len()).sum()) {
            return Err(NoSuchCommand);
        }
        let mut copy = OwnedArgs::new();
        copy_words(words.iter().copied(), &mut copy).ok_or(NoSuchCommand)?;
        let args = copy.as_args();
        let command = match resolve(self.kernel, args) {
            Ok(command) => command,
            // The number of arguments does not matter here.
            Err(refused) => refused.command.ok_or(NoSuchCommand)?,
        };
        Ok(self.caller.rights().check(command, args).is_ok())
    }

    fn count_error(&mut self, error: &[u8]) {
        let error = CommandError::text(String::from_utf8_lossy(error).into_owned());
        self.effects.errors.count(error.kind());
    }

    /// All effects go to the log. Otherwise, a restart would restore different data.
    fn set_repl(&mut self, _replication: Replication) {}
}
