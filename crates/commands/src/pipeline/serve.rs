//! Serves clients that wait for a key that has changed.

use std::slice;
use std::sync::Arc;

use tierce_keyspace::{
    KeyHash, Returned, SHARD_PATIENCE, ShardLocks, WaitKey, Waiter, claim_waiter, forget_waiter,
    forget_waiter_later, leave_unserved,
};
use tierce_output::Output;

use super::blocking::{Blocked, ENDED_BY_ROLE, answer_in_vain, blocked_of};
use super::locking::held_by_program;
use super::redirect::redirection_of;
use super::{Mode, Served};
use crate::acl;
use crate::answer::{Answer, Answered};
use crate::caller::Caller;
use crate::command::{Access, Command};
use crate::command_log;
use crate::error::{CommandError, Interrupt};
use crate::kernel::Kernel;
use crate::offload::{RETRY_ADMISSION_AFTER, RETRY_SHARD_AFTER, Work};
use crate::pipeline::meter::Meter;
use crate::pipeline::sizes::Sizes;
use crate::pipeline::{self, Context, Refused, Request, Turn};
use crate::reply::Reply;
use crate::stats::Counters;

/// Environment of serving, besides the data.
struct Serving<'k, 'o> {
    kernel: &'k Kernel,
    counters: &'k Counters,
    /// Buffer for each reply; empty in between.
    output: &'o mut Output,
    now_ms: i64,
    /// True if this thread waits for no shard. It leaves clients that need more than their key's shard to others.
    at_once: bool,
}

/// Result of an attempt to serve a client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It has its reply.
    Served,
    /// It has an error as its reply, and its command has done nothing.
    Refused,
    /// There was nothing for it.
    Nothing,
    /// It must not be served any more.
    Passed,
    /// Its command was interrupted before it ran.
    Interrupted(Interrupt),
}

/// Consumer groups whose readers have found nothing in a stream: one check is enough for all that want no more. Each has
/// the time that entries have at least been pending which the reader would have claimed; the maximum for none.
///
/// The check of a reader sets the time of the next one, which is early enough for those that claim later. This holds
/// only between readers of this stream alone, because that time is set under the first key of a client.
#[derive(Default)]
struct FoundNothing(Vec<(Box<[u8]>, u64)>);

impl FoundNothing {
    /// Returns true if the reader would find nothing.
    fn includes(&self, waiter: &Waiter, blocked: &Blocked) -> bool {
        let Some(group) = &blocked.group else { return false };
        let wanted_ms = match blocked.claims_idle_ms {
            Some(_) if waiter.keys().len() > 1 => return false,
            claims => claims.unwrap_or(u64::MAX),
        };
        self.0.iter().any(|(other, idle_ms)| other == group && *idle_ms <= wanted_ms)
    }

    fn note(&mut self, waiter: &Waiter) {
        let Some(blocked) = waiter.about::<Blocked>() else { return };
        let is_alone = waiter.keys().len() == 1;
        let idle_ms = blocked.claims_idle_ms.filter(|_| is_alone).unwrap_or(u64::MAX);
        self.0.extend(blocked.group.clone().map(|group| (group, idle_ms)));
    }
}

/// Serves all clients that wait for keys that were changed with these locks. Their commands may change further keys;
/// clients that wait for these are served, too. `output` belongs to no connection, and is reused for each reply.
///
/// A worker leaves a key to a thread for long commands when a waiting client asks for so much that it takes long.
///
/// Returns the elapsed nanoseconds, which are booked for the clients that were served.
#[cold]
pub fn serve<'k>(
    kernel: &'k Kernel,
    locks: &mut ShardLocks<'k>,
    counters: &'k Counters,
    output: &mut Output,
    now_ms: i64,
) -> u64 {
    Serving { kernel, counters, output, now_ms, at_once: false }.serve(locks)
}

/// Serves clients on a thread that must not wait: only those that need no more than their key's shard. It leaves the
/// others to threads for long commands.
#[cold]
pub fn serve_at_once<'k>(
    kernel: &'k Kernel,
    locks: &mut ShardLocks<'k>,
    counters: &'k Counters,
    now_ms: i64,
) -> u64 {
    let output = &mut Output::new();
    Serving { kernel, counters, output, now_ms, at_once: true }.serve(locks)
}

impl<'k> Serving<'k, '_> {
    fn serve(mut self, locks: &mut ShardLocks<'k>) -> u64 {
        let since_nanos = (self.kernel.nanos)();
        while locks.has_ready() {
            for key in locks.take_ready() {
                self.serve_key(locks, &key);
            }
        }
        (self.kernel.nanos)().saturating_sub(since_nanos)
    }

    fn serve_key(&mut self, locks: &mut ShardLocks<'k>, key: &WaitKey) {
        let mut after = None;
        let mut found_nothing = FoundNothing::default();
        // Shards locked by others for long: clients that need them are tried again with the first of them.
        let mut busy_shards: Vec<usize> = Vec::new();
        let keyspace = &self.kernel.keyspace;
        let hash = keyspace.hash(&key.1);
        loop {
            if self.at_once && !locks.try_reach(hash) {
                return self.kernel.offload.serve(key.clone());
            }
            if self.is_held_by_program(locks, hash) || locks.reach(hash).is_err() {
                return self.leave_for_later(locks, key);
            }
            let may_find = |waiter: &Waiter| {
                waiter.about::<Blocked>().is_none_or(|blocked| {
                    !found_nothing.includes(waiter, blocked) && !blocked.needs_any(&busy_shards)
                })
            };
            let Some(waiter) = claim_waiter(locks, key, after, self.now_ms, may_find) else {
                return;
            };
            after = Some(waiter.sequence());
            let (outcome, is_noted) = self.serve_one(locks, &waiter);
            // Other threads have changed some of its keys meanwhile, and left them to this thread.
            let keys = if is_noted { waiter.keys() } else { slice::from_ref(key) };
            match outcome {
                Outcome::Served | Outcome::Refused | Outcome::Passed => {}
                Outcome::Nothing => found_nothing.note(&waiter),
                Outcome::Interrupted(Interrupt::Busy(busy)) => {
                    keys.iter().for_each(|key| self.leave_for_later(locks, key));
                    // Clients behind it may still take from the key.
                    busy_shards.push(busy.shard);
                }
                Outcome::Interrupted(Interrupt::Long) => {
                    keys.iter().cloned().for_each(|key| self.kernel.offload.serve(key));
                    if self.writes(&waiter) {
                        // It goes before those behind it.
                        return;
                    }
                }
                Outcome::Interrupted(Interrupt::Admission | Interrupt::Role | Interrupt::Quiet) => {
                    let works = keys.iter().cloned().map(Work::Serve);
                    return works
                        .for_each(|work| self.kernel.offload.put_off(work, RETRY_ADMISSION_AFTER));
                }
            }
        }
    }

    /// Returns true if a thread that is no worker is known to wait in vain for the shard.
    fn is_held_by_program(&self, locks: &ShardLocks<'k>, hash: KeyHash) -> bool {
        let shard = self.kernel.keyspace.shard_of(hash);
        self.may_leave(locks)
            && self.kernel.scripts.running.refusal(shard, SHARD_PATIENCE).is_some()
    }

    /// Returns true for a thread that is no worker, if there are threads to retry later.
    fn may_leave(&self, locks: &ShardLocks<'k>) -> bool {
        !locks.is_of_worker() && self.kernel.offload.is_open()
    }

    /// Defers a key whose shard others have locked for long. A worker is woken when the shard is free. No other
    /// thread is woken, so the key is retried later.
    fn leave_for_later(&self, locks: &mut ShardLocks<'k>, key: &WaitKey) {
        match locks.is_of_worker() {
            true => leave_unserved(locks, key.clone()),
            false => self.kernel.offload.put_off(Work::Serve(key.clone()), RETRY_SHARD_AFTER),
        }
    }

    fn writes(&self, waiter: &Waiter) -> bool {
        let args = waiter.about::<Blocked>().map(|blocked| blocked.command.as_args());
        let command = args.and_then(|args| pipeline::resolve(self.kernel, args).ok());
        command.is_none_or(|command| Access::of(command.spec).writes)
    }

    /// Runs the command of a claimed client, and answers it if there is something for it. Returns true if others have
    /// changed keys of it that this thread has not checked.
    fn serve_one(&mut self, locks: &mut ShardLocks<'k>, waiter: &Arc<Waiter>) -> (Outcome, bool) {
        let blocked = blocked_of(waiter);
        let mut caller = blocked.caller.lock();
        let changer = (locks.origin(), locks.touch());
        locks.set_origin(caller.origin());
        locks.set_touch(caller.touch());
        let attempted = self.attempts(locks, waiter, blocked, &mut caller);
        locks.set_origin(changer.0);
        locks.set_touch(changer.1);
        attempted
    }

    fn attempts(
        &mut self,
        locks: &mut ShardLocks<'k>,
        waiter: &Arc<Waiter>,
        blocked: &Blocked,
        caller: &mut Caller,
    ) -> (Outcome, bool) {
        let mut is_noted = false;
        loop {
            let meter = Meter::start(self.kernel, self.counters);
            let outcome = self.attempt(locks, blocked, caller);
            if matches!(outcome, Outcome::Served | Outcome::Refused) {
                waiter.state.done();
                forget_waiter(locks, waiter);
                let reply = self.output.take();
                // This keeps the buffer from staying as large as the largest reply.
                self.output.reset();
                let args = blocked.command.as_args();
                let command = pipeline::resolve(self.kernel, args).ok();
                // A command that has written nothing needs no further confirmation.
                let has_written = outcome == Outcome::Served && self.writes(waiter);
                let logged_at = if has_written { self.note_logged(locks) } else { None };
                if let Some(command) = command {
                    let words = || command_log::shorten(&self.kernel.commands, args);
                    meter.served(command, &caller.client, words);
                    Sizes(self.kernel).note((command, args), &caller.client, reply.len());
                }
                let invalidation = command.and_then(|command| caller.reads_of(command, args));
                let (to, reply) = (blocked.to.clone(), Answered::With(reply));
                self.kernel.answer(Answer { to, reply, logged_at, invalidation, caller: None });
                return (outcome, false);
            }
            loop {
                match waiter.state.give_back() {
                    Returned::Waiting => return (outcome, is_noted),
                    Returned::CheckAgain if outcome == Outcome::Nothing => break,
                    Returned::CheckAgain => is_noted = true,
                    Returned::Answer(reason) => {
                        match self.at_once {
                            true => forget_waiter_later(&self.kernel.keyspace, waiter),
                            false => forget_waiter(locks, waiter),
                        }
                        let command = caller.client.last_command();
                        let (to, proto) = (&blocked.to, blocked.proto);
                        let bytes = answer_in_vain(self.kernel, to, command, proto, reason);
                        blocked.note_reply(self.kernel, &caller.client, bytes);
                        return (outcome, false);
                    }
                }
            }
        }
    }

    /// Runs the command. If there was something for this client, the reply is in the output.
    fn attempt(
        &mut self,
        locks: &mut ShardLocks<'k>,
        blocked: &Blocked,
        caller: &mut Caller,
    ) -> Outcome {
        let args = blocked.command.as_args();
        let Ok(command) = pipeline::resolve(self.kernel, args) else { return Outcome::Passed };
        caller.renew_rights(&self.kernel.acl.users);
        if caller.closing {
            // Its user is deleted, and its connection is about to close.
            return Outcome::Passed;
        }
        if let Some(deferred) = blocked.to.deferred() {
            // The connection goes on meanwhile, and may have chosen another protocol version.
            caller.proto = deferred.choose_proto();
        }
        if self.at_once && !blocked.is_in_one_shard() {
            return Outcome::Interrupted(Interrupt::Long);
        }
        if let Err(error) = self.check_rights(blocked, caller, command) {
            let mut reply = Reply::new(self.output, caller.proto);
            blocked.note_reply(self.kernel, &caller.client, error.reply_bytes());
            let refused = Refused { command: Some(command), error };
            pipeline::refuse(self.kernel, self.counters, &mut reply, &refused);
            return Outcome::Refused;
        }
        if self.may_leave(locks)
            && let Some(busy) = held_by_program(self.kernel, caller, command, args, SHARD_PATIENCE)
        {
            return Outcome::Interrupted(Interrupt::Busy(busy));
        }
        let must_be_brief = locks.is_of_worker() || self.at_once;
        let served = Served { is_on_worker: must_be_brief, ..Served::default() };
        let level = caller.replica_level(self.kernel);
        let begin = self.output.mark();
        let reply = Reply::new(self.output, caller.proto);
        let turn = Turn::new(self.kernel, self.counters, self.now_ms);
        let request = Request::new(caller, command, args, Mode::Served(&served));
        let mut ctx = Context::new(turn, request, locks, reply);
        if let Err(error) = ctx.enter() {
            // This is read before the role, which the end of a failover changes first.
            let lacks_replicas = level.is_some() && self.kernel.lacks_replicas(level);
            let error = match ctx.fail(&error) {
                Some(Interrupt::Admission) if self.kernel.role.is_read_only() => {
                    // It began to wait when the role changed.
                    redirection_of(ctx.kernel, ctx.caller).unwrap_or(ENDED_BY_ROLE)
                }
                Some(Interrupt::Admission) if lacks_replicas => {
                    // Its level can no longer be met, and others wait behind it.
                    CommandError::TOO_FEW_REPLICAS
                }
                Some(interrupt) => return Outcome::Interrupted(interrupt),
                None => return Outcome::Refused,
            };
            ctx.fail(&error);
            blocked.note_reply(self.kernel, &ctx.caller.client, error.reply_bytes());
            return Outcome::Refused;
        }
        if served.found_nothing.get() {
            self.output.truncate(begin);
            return Outcome::Nothing;
        }
        Outcome::Served
    }

    /// Checks the rights to the call that the client has sent. The call that runs can differ: NBLPOP runs as BLPOP,
    /// without the last argument.
    fn check_rights(
        &self,
        blocked: &Blocked,
        caller: &Caller,
        command: &Command,
    ) -> Result<(), CommandError> {
        let mut call = blocked.command.as_args().to_owned();
        let mut sent = command;
        if let Some(deferred) = blocked.to.deferred() {
            sent = self.kernel.commands.find_original(deferred.command.as_bytes()).unwrap_or(sent);
            call.push(b"0").expect("as long as a call that came, but for some short arguments");
        }
        self.kernel.check_rights(caller, sent, call.as_args(), acl::Origin::TopLevel)
    }

    /// Flushes the records of these locks to the log and returns the end of the log, if there were any.
    fn note_logged(&self, locks: &mut ShardLocks<'_>) -> Option<u64> {
        let kernel = self.kernel;
        if kernel.durability.durable_log().is_none() && !kernel.feed.is_followed() {
            return None;
        }
        locks.release();
        locks.has_logged().then(|| kernel.durability.wal_on_or_off().appended())
    }
}
