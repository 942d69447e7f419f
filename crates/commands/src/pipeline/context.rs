//! The context in which a command runs.

use std::sync::Arc;

use tierce_keyspace::{Db, Key, KeyHash, NewString, ShardLocks};
use tierce_wire::resp::{Args, OwnedArgs, Rest};

use crate::caller::Caller;
use crate::clock;
use crate::command::{Command, Flags};
use crate::durability::SyncPolicy;
use crate::error::{CommandError, Interrupt};
use crate::hot_keys::{self, Probe};
use crate::kernel::Kernel;
use crate::replica_level::ReplicaLevel;
use crate::reply::Reply;
use crate::stats::Counters;

#[cfg(debug_assertions)]
use super::declared;
use super::{Bodies, Done, Guard, Mode, Request, Scale, Turn, WEIGHT_MAX, reply_error};

/// All that a command may touch while it runs.
pub struct Context<'a, 'k> {
    /// What executes commands.
    pub kernel: &'k Kernel,
    /// The client that sent the command.
    pub caller: &'a mut Caller,
    /// The call.
    pub call: Call<'a>,
    /// The data, as far as it is locked for the command.
    pub guard: Guard<'a, 'k>,
    /// Where the reply goes.
    pub reply: Reply<'a>,
    /// The command being run; for a subcommand, that one.
    pub command: &'k Command,
    /// What runs the commands.
    pub bodies: &'k Bodies,
    /// The counters of this worker.
    pub counters: &'k Counters,
    /// The time of this turn, in Unix milliseconds.
    pub now_ms: i64,
    /// Whether the command may wait for keys.
    pub mode: Mode<'a>,
    /// An argument that has a vector of its own.
    pub large: Option<&'a Arc<Vec<u8>>>,
    /// Arguments that have been hashed already, from the first key on.
    pub hashed: &'a [(&'a [u8], KeyHash)],
}

/// A call as it came, its name included. Bodies get their arguments apart from it, as many as their shape
/// proves (see [`Body`](super::Body)); what they may do with the whole is to keep it.
#[derive(Clone, Copy)]
pub struct Call<'a>(Args<'a>);

impl<'a> Call<'a> {
    /// The call with these arguments, the name included.
    #[inline]
    #[must_use]
    pub fn new(args: Args<'a>) -> Self {
        Self(args)
    }

    /// A word of its name, as the client has spelled it; none if there are fewer.
    #[must_use]
    pub fn word(self, index: usize) -> &'a [u8] {
        self.0.get(index).unwrap_or_default()
    }

    /// A copy to run once more.
    #[must_use]
    pub fn to_owned(self) -> OwnedArgs {
        self.0.to_owned()
    }

    /// A copy to run once more, with other arguments in the place of the last ones.
    #[must_use]
    pub fn to_owned_ending_with(self, end: &[Vec<u8>]) -> OwnedArgs {
        let kept = self.0.len().saturating_sub(end.len());
        let mut copy = OwnedArgs::new();
        for arg in self.0.iter().take(kept).chain(end.iter().map(Vec::as_slice)) {
            copy.push(arg).expect("as long as a call that came, but for some short arguments");
        }
        copy
    }

    /// All of it, the name included.
    pub(crate) fn args(self) -> Args<'a> {
        self.0
    }

    /// The first `N` arguments behind a name of so many words, and those behind them, if there are so many.
    #[inline(always)]
    pub(crate) fn arguments<const N: usize>(
        self,
        words: usize,
    ) -> Option<([&'a [u8]; N], Rest<'a>)> {
        Rest::new(self.0.from(words)).split_first()
    }
}

impl<'a, 'k> Context<'a, 'k> {
    /// The context of a request. In line wherever it is called, so that it is made where it stays.
    #[inline(always)]
    pub fn new(
        turn: Turn<'k>,
        request: Request<'a, 'k>,
        locks: &'a mut ShardLocks<'k>,
        reply: Reply<'a>,
    ) -> Self {
        let Turn { kernel, bodies, counters, now_ms } = turn;
        let Request { caller, command, args, mode, large, hashed } = request;
        Self {
            kernel,
            caller,
            call: Call::new(args),
            guard: Guard::new(locks),
            reply,
            command,
            bodies,
            counters,
            now_ms,
            mode,
            large,
            hashed,
        }
    }

    /// The turn that it runs in.
    pub(super) fn turn(&self) -> Turn<'k> {
        let Self { kernel, bodies, counters, now_ms, .. } = *self;
        Turn { kernel, bodies, counters, now_ms }
    }

    /// The last word of the command's name, as the client has spelled it.
    #[must_use]
    pub fn spelled_name(&self) -> &'a [u8] {
        self.call.word(usize::from(self.command.spec.words).saturating_sub(1))
    }

    /// The time from which an expiry time counts, and at which a consumer of a stream does something. It is the time
    /// of the command, or the present while that stands still ([`STOPPED_MS`](clock::STOPPED_MS)).
    pub fn moment_ms(&self) -> i64 {
        if self.now_ms == clock::STOPPED_MS { clock::unix_ms() } else { self.now_ms }
    }

    /// The selected database, open at the shard of `key`, and the reply. In line wherever it is called: as a
    /// call, which returns all of that through memory, it costs 35 instructions more.
    #[inline(always)]
    pub fn open<'b>(&mut self, key: &'b [u8]) -> (Db<'_>, Key<'b>, &mut Reply<'a>) {
        let key = self.kernel.keyspace.key_as(key, self.hashed.first().copied());
        (self.guard.db(self.caller.db, key.hash(), self.now_ms), key, &mut self.reply)
    }

    /// The keys among `args`. They are hashed again unless they are those that were locked, in their
    /// order.
    pub fn keys<'b>(&self, args: impl Iterator<Item = &'b [u8]>) -> Vec<Key<'b>> {
        args.enumerate().map(|(number, key)| self.key(number, key)).collect()
    }

    /// An argument as a key, which is hashed again unless it is the one with this number that was
    /// locked.
    #[inline]
    pub fn key<'b>(&self, number: usize, arg: &'b [u8]) -> Key<'b> {
        self.kernel.keyspace.key_as(arg, self.hashed.get(number).copied())
    }

    /// An argument as a string to be stored, which is kept as it is if it has a vector of its own.
    #[inline(always)]
    pub fn string_of<'v>(&self, arg: &'v [u8]) -> NewString<'v>
    where
        'a: 'v,
    {
        match self.large {
            Some(large) if std::ptr::eq(large.as_slice(), arg) => NewString::from_arc(large),
            _ => NewString::new(arg),
        }
    }

    /// Has later writes of the caller be as durable as these say.
    pub fn set_durability(
        &mut self,
        level: Option<SyncPolicy>,
        replica_level: Option<ReplicaLevel>,
    ) {
        // What a transaction has written before goes to the log at its end.
        let has_written = self.apart().is_none_or(|locks| {
            // What is pending with the shard of the last request goes to the log.
            locks.release();
            locks.has_logged()
        });
        self.caller.set_durability(level, self.kernel, has_written);
        self.caller.set_replica_level(replica_level);
    }

    /// The name for error texts: `get` or `client|list`.
    #[must_use]
    pub fn name(&self) -> &'k str {
        &self.command.full_name
    }
}

impl<'k> Context<'_, 'k> {
    /// Runs the command; an error becomes the reply, unless the command is to be run again. In line wherever it is
    /// called: a call costs 30 instructions.
    #[inline(always)]
    pub fn run(&mut self) -> Option<Interrupt> {
        let client = &self.caller.client;
        client.note_command(self.command.id);
        match self.enter() {
            Ok(()) => None,
            Err(error) => self.fail(&error),
        }
    }

    /// The same on a thread for long commands. The command has passed the gates, and passes them again when it has
    /// locked its keys.
    pub fn run_late(&mut self) -> Option<Interrupt> {
        match self.lock_late() {
            Ok(()) => self.run(),
            Err(error) => self.fail(&error),
        }
    }

    /// Locks what the command has declared, and runs it. Its cost is noted for its keys, while that is asked for.
    ///
    /// # Errors
    /// The error for the client; nothing has been replied then.
    #[inline]
    pub fn enter(&mut self) -> Result<(), CommandError> {
        match self.kernel.hot_keys.is_on() {
            false => self.enter_uncounted(),
            true => self.enter_counted(),
        }
    }

    #[cold]
    fn enter_counted(&mut self) -> Result<(), CommandError> {
        let (kernel, args) = (self.kernel, self.call.args());
        let probe = Probe::begin(&kernel.hot_keys, kernel.nanos, self.reply.parts().0);
        let done = self.enter_uncounted();
        // An interrupted one comes again, and so does one that goes on waiting.
        let is_through = done.as_ref().err().and_then(CommandError::interrupt).is_none();
        if let Some(probe) = probe
            && is_through
            && !self.mode.found_nothing()
        {
            let reply_bytes = match &done {
                _ if self.caller.hears_nothing() => 0,
                Ok(()) => probe.written(self.reply.parts().0),
                // It is written behind this.
                Err(error) => error.reply_bytes(),
            };
            // That of a client which has waited was noted when it began to.
            let is_new = !matches!(self.mode, Mode::Served(_));
            let request_bytes = if is_new { hot_keys::request_bytes(args) } else { 0 };
            let bytes = request_bytes + reply_bytes;
            probe.end(&kernel.hot_keys, (self.command, args), &self.caller.client, bytes);
        }
        done
    }

    /// Locks and runs it without a note of its cost: a program is noted as a whole, and not its calls.
    #[inline]
    pub(super) fn enter_uncounted(&mut self) -> Result<(), CommandError> {
        #[cfg(debug_assertions)]
        {
            let keyspace = &self.kernel.keyspace;
            self.guard.declared =
                declared::Declared::of(self.command.spec, self.call.args(), keyspace);
        }
        self.weigh(self.call.args().len())?;
        if self.caller.remembers_reads() {
            self.remember_reads()?;
        }
        #[cfg(debug_assertions)]
        tierce_keyspace::begin_naming(self.guard.locks);
        let done = (self.bodies.ways(self.command).enter)(self);
        #[cfg(debug_assertions)]
        self.check_naming(done.is_ok());
        done
    }

    /// A command that changes a key says what it has done.
    #[cfg(debug_assertions)]
    fn check_naming(&mut self, is_done: bool) {
        let unnamed = tierce_keyspace::end_naming(self.guard.locks).filter(|_| is_done);
        // DEBUG makes and breaks keys outside the normal path.
        if let Some((_, key)) = unnamed.filter(|_| self.command.spec.name != "debug") {
            let key = key.escape_ascii();
            panic!("{} has changed {key} without an event", self.command.full_name);
        }
    }

    /// Runs the body of another command for this call in the place of its own. It needs the same keys.
    ///
    /// # Errors
    /// Those of the body.
    pub(crate) fn run_as(
        &mut self,
        command: &'k Command,
        call: Args<'_>,
        mode: Mode<'_>,
    ) -> Result<(), CommandError> {
        let turn = self.turn();
        let Self { caller, guard, reply, large, hashed, .. } = self;
        let (large, hashed) = (*large, *hashed);
        let request = Request { caller, command, args: call, mode, large, hashed };
        let mut ctx = Context::new(turn, request, guard.locks, reply.reborrow());
        #[cfg(debug_assertions)]
        ctx.guard.declared.clone_from(&guard.declared);
        ctx.run_body()
    }

    /// Runs the body of the command, with whatever is locked.
    pub(super) fn run_body(&mut self) -> Done {
        (self.bodies.ways(self.command).run)(self)
    }

    /// Replies with an error, and counts it, unless it only says that the command is to be run again.
    #[cold]
    pub(crate) fn fail(&mut self, error: &CommandError) -> Option<Interrupt> {
        let interrupt = error.interrupt();
        if interrupt.is_none() {
            self.counters.failed(self.command.id);
            reply_error(&self.kernel.errors, self.counters, &mut self.reply, error);
        }
        interrupt
    }

    /// Has the caller told when the keys change that the command is about to read.
    ///
    /// # Errors
    /// An interrupt when another thread holds the shard of one for long.
    #[cold]
    fn remember_reads(&mut self) -> Result<(), CommandError> {
        let spec = self.command.spec;
        // Reads of a program are remembered when they happen.
        if !spec.flags.contains(Flags::READONLY) || spec.flags.contains(Flags::PROGRAM) {
            return Ok(());
        }
        let (db, reader, now_ms) = (self.caller.db, self.caller.client.id, self.now_ms);
        let args = self.call.args();
        for index in spec.key_indexes(args) {
            let key = self.kernel.keyspace.key(args.at(index));
            self.guard.reach(key.hash())?;
            self.guard.remember_reader(db, key, reader, now_ms);
        }
        Ok(())
    }

    /// For a body that weighs when it has its key open.
    #[must_use]
    pub fn scale(&self) -> Scale {
        // Commands that change the connection's subscriptions, or its tracking of keys, cannot run away from it.
        const STAYS: Flags = Flags::WHILE_SUBSCRIBED.with(Flags::TRACKING);
        let is_movable = !self.command.spec.flags.intersects(STAYS);
        let is_on_worker = self.mode.may_leave() && is_movable && self.kernel.offload.is_open();
        Scale::of(is_on_worker)
    }

    /// Called before work on this many elements.
    ///
    /// # Errors
    /// When that is too much for a worker: the command is run again elsewhere.
    #[inline]
    pub fn weigh(&self, elements: usize) -> Result<(), CommandError> {
        if elements > WEIGHT_MAX { self.weigh_heavy(elements) } else { Ok(()) }
    }

    /// Elsewhere, or as a part of something that cannot be interrupted, nothing is too heavy.
    #[cold]
    fn weigh_heavy(&self, elements: usize) -> Result<(), CommandError> {
        self.scale().weigh(elements)
    }
}
