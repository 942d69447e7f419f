//! Context of a command while it runs.

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

/// Everything that a command may touch while it runs.
pub struct Context<'a, 'k> {
    /// Kernel that executes commands.
    pub kernel: &'k Kernel,
    /// The client that sent the command.
    pub caller: &'a mut Caller,
    /// The call.
    pub call: Call<'a>,
    /// Data, as far as locked for the command.
    pub guard: Guard<'a, 'k>,
    /// Destination of the reply.
    pub reply: Reply<'a>,
    /// Command being run; for a subcommand, the subcommand.
    pub command: &'k Command,
    /// Functions of the commands.
    pub bodies: &'k Bodies,
    /// The counters of this worker.
    pub counters: &'k Counters,
    /// The time of this turn, in Unix milliseconds.
    pub now_ms: i64,
    /// Mode: it says if the command may wait for keys.
    pub mode: Mode<'a>,
    /// Argument that has a vector of its own.
    pub large: Option<&'a Arc<Vec<u8>>>,
    /// Arguments that have been hashed already, from the first key on.
    pub hashed: &'a [(&'a [u8], KeyHash)],
}

/// A call as received, with its name. Bodies get their arguments separately, as many as their shape guarantees (see
/// [`Body`](super::Body)). They use the whole call only to keep a copy.
#[derive(Clone, Copy)]
pub struct Call<'a>(Args<'a>);

impl<'a> Call<'a> {
    /// Creates the call with these arguments, which include the name.
    #[inline]
    #[must_use]
    pub fn new(args: Args<'a>) -> Self {
        Self(args)
    }

    /// Returns a word of its name, as the client has spelled it, or nothing beyond the end.
    #[must_use]
    pub fn word(self, index: usize) -> &'a [u8] {
        self.0.get(index).unwrap_or_default()
    }

    /// Returns a copy to run the call again.
    #[must_use]
    pub fn to_owned(self) -> OwnedArgs {
        self.0.to_owned()
    }

    /// Returns a copy to run the call again, with the last arguments replaced.
    #[must_use]
    pub fn to_owned_ending_with(self, end: &[Vec<u8>]) -> OwnedArgs {
        let kept = self.0.len().saturating_sub(end.len());
        let mut copy = OwnedArgs::new();
        for arg in self.0.iter().take(kept).chain(end.iter().map(Vec::as_slice)) {
            copy.push(arg).expect("as long as a call that came, but for some short arguments");
        }
        copy
    }

    /// Returns all words, with the name.
    pub(crate) fn args(self) -> Args<'a> {
        self.0
    }

    /// Returns the first `N` arguments after a name of this many words, and the rest, if there are so many.
    #[inline(always)]
    pub(crate) fn arguments<const N: usize>(
        self,
        words: usize,
    ) -> Option<([&'a [u8]; N], Rest<'a>)> {
        Rest::new(self.0.from(words)).split_first()
    }
}

impl<'a, 'k> Context<'a, 'k> {
    /// Creates the context of a request. Always inlined, so that it is built in its final memory.
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

    /// Returns the turn of the command.
    pub(super) fn turn(&self) -> Turn<'k> {
        let Self { kernel, bodies, counters, now_ms, .. } = *self;
        Turn { kernel, bodies, counters, now_ms }
    }

    /// Returns the last word of the command's name, as the client has spelled it.
    #[must_use]
    pub fn spelled_name(&self) -> &'a [u8] {
        self.call.word(usize::from(self.command.spec.words).saturating_sub(1))
    }

    /// Returns the time from which an expiry time counts, and of the activity of a stream consumer. It is the time of
    /// the command, or the present if that time stands still ([`STOPPED_MS`](clock::STOPPED_MS)).
    pub fn moment_ms(&self) -> i64 {
        if self.now_ms == clock::STOPPED_MS { clock::unix_ms() } else { self.now_ms }
    }

    /// Returns the selected database, opened at the shard of `key`, and the reply. Always inlined: a real call
    /// returns all of that through memory and costs 35 more instructions.
    #[inline(always)]
    pub fn open<'b>(&mut self, key: &'b [u8]) -> (Db<'_>, Key<'b>, &mut Reply<'a>) {
        let key = self.kernel.keyspace.key_as(key, self.hashed.first().copied());
        (self.guard.db(self.caller.db, key.hash(), self.now_ms), key, &mut self.reply)
    }

    /// Returns the keys among `args`. The hashes of the locked keys are reused, if the order is the same.
    pub fn keys<'b>(&self, args: impl Iterator<Item = &'b [u8]>) -> Vec<Key<'b>> {
        args.enumerate().map(|(number, key)| self.key(number, key)).collect()
    }

    /// Returns an argument as a key. The hash is reused if it is the locked key with this number.
    #[inline]
    pub fn key<'b>(&self, number: usize, arg: &'b [u8]) -> Key<'b> {
        self.kernel.keyspace.key_as(arg, self.hashed.get(number).copied())
    }

    /// Returns an argument as a string to store. It is not copied if it has a vector of its own.
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

    /// Sets the sync policy for later writes of the caller.
    pub fn set_durability(
        &mut self,
        level: Option<SyncPolicy>,
        replica_level: Option<ReplicaLevel>,
    ) {
        // Earlier writes of a transaction go to the log at its end.
        let has_written = self.unlocked().is_none_or(|locks| {
            // Pending records of the last request's shard go to the log.
            locks.release();
            locks.has_logged()
        });
        self.caller.set_durability(level, self.kernel, has_written);
        self.caller.set_replica_level(replica_level);
    }

    /// Returns the name for error texts: `get` or `client|list`.
    #[must_use]
    pub fn name(&self) -> &'k str {
        &self.command.full_name
    }
}

impl<'k> Context<'_, 'k> {
    /// Runs the command. An error becomes the reply, unless the command is to run again. Always inlined: a call costs
    /// 30 instructions.
    #[inline(always)]
    pub fn run(&mut self) -> Option<Interrupt> {
        let client = &self.caller.client;
        client.note_command(self.command.id);
        match self.enter() {
            Ok(()) => None,
            Err(error) => self.fail(&error),
        }
    }

    /// Runs the command on a thread for long commands. It was admitted before, and is checked again once its keys are
    /// locked.
    pub fn run_late(&mut self) -> Option<Interrupt> {
        match self.lock_late() {
            Ok(()) => self.run(),
            Err(error) => self.fail(&error),
        }
    }

    /// Locks the declared keys and runs the command. The cost is recorded for its keys while HOTKEYS is on.
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
        // An interrupted call comes again, and so does one that waits on.
        let is_through = done.as_ref().err().and_then(CommandError::interrupt).is_none();
        if let Some(probe) = probe
            && is_through
            && !self.mode.found_nothing()
        {
            let reply_bytes = match &done {
                _ if self.caller.hears_nothing() => 0,
                Ok(()) => probe.written(self.reply.parts().0),
                // The error is written later.
                Err(error) => error.reply_bytes(),
            };
            // The request of a waiting client was recorded at the begin of its wait.
            let is_new = !matches!(self.mode, Mode::Served(_));
            let request_bytes = if is_new { hot_keys::request_bytes(args) } else { 0 };
            let bytes = request_bytes + reply_bytes;
            probe.end(&kernel.hot_keys, (self.command, args), &self.caller.client, bytes);
        }
        done
    }

    /// Locks and runs the command without recording its cost. A program is recorded as a whole.
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

    /// Checks that a command reports an event for each key that it changes.
    #[cfg(debug_assertions)]
    fn check_naming(&mut self, is_done: bool) {
        let unnamed = tierce_keyspace::end_naming(self.guard.locks).filter(|_| is_done);
        // DEBUG changes keys in unusual ways.
        if let Some((_, key)) = unnamed.filter(|_| self.command.spec.name != "debug") {
            let key = key.escape_ascii();
            panic!("{} has changed {key} without an event", self.command.full_name);
        }
    }

    /// Runs the body of another command for this call instead of its own. It needs the same keys.
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

    /// Runs the body of the command under the current locks.
    pub(super) fn run_body(&mut self) -> Done {
        (self.bodies.ways(self.command).run)(self)
    }

    /// Replies with an error and counts it. An interrupt is only returned, because the command is to run again.
    #[cold]
    pub(crate) fn fail(&mut self, error: &CommandError) -> Option<Interrupt> {
        let interrupt = error.interrupt();
        if interrupt.is_none() {
            self.counters.failed(self.command.id);
            reply_error(&self.kernel.errors, self.counters, &mut self.reply, error);
        }
        interrupt
    }

    /// Registers the caller for invalidations of the keys that the command is about to read.
    ///
    /// # Errors
    /// An interrupt if another thread holds a shard for long.
    #[cold]
    fn remember_reads(&mut self) -> Result<(), CommandError> {
        let spec = self.command.spec;
        // Reads of a program are registered when they happen.
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

    /// Returns the scale, for a body that weighs while its key is open.
    #[must_use]
    pub fn scale(&self) -> Scale {
        // Commands that change subscriptions or tracking of the connection cannot be offloaded.
        const STAYS: Flags = Flags::WHILE_SUBSCRIBED.with(Flags::TRACKING);
        let is_movable = !self.command.spec.flags.intersects(STAYS);
        let is_on_worker = self.mode.may_leave() && is_movable && self.kernel.offload.is_open();
        Scale::of(is_on_worker)
    }

    /// Must be called before work on this many elements.
    ///
    /// # Errors
    /// Fails if that is too much for a worker. The command then runs again on another thread.
    #[inline]
    pub fn weigh(&self, elements: usize) -> Result<(), CommandError> {
        if elements > WEIGHT_MAX { self.weigh_heavy(elements) } else { Ok(()) }
    }

    /// Weighs only on a worker, and only what can be interrupted.
    #[cold]
    fn weigh_heavy(&self, elements: usize) -> Result<(), CommandError> {
        self.scale().weigh(elements)
    }
}
