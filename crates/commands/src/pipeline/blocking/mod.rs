//! Commands that wait for keys: BLPOP and its relatives, XREAD BLOCK.
//!
//! Such a command looks at its keys with all of their shards locked. If it finds something, it
//! replies like any other command. If not, it ends with `wait`, which registers the client under the
//! same locks. Its connection is suspended, and the worker serves others.
//!
//! A thread that changes such a key serves the clients that wait for it after its own command
//! ([`serve`](super::serve)): it runs the waiting client's command again, on behalf of that client, and sends the
//! reply as an [`Answer`]. So waiting clients get the elements that a command has pushed before the
//! next command of the pushing connection runs, as users of Redis expect.
//!
//! Three events can end the waiting: a thread serves the client, its timeout ends (or CLIENT UNBLOCK ends
//! it), or its connection closes. The waiter's [`WaiterState`](tierce_keyspace::WaiterState) lets exactly
//! one of them do so.

mod confirmations;
mod nonblocking;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::fence;

use parking_lot::Mutex;
use tierce_keyspace::{Cancelled, Db, Key, Reason, Waiter};
use tierce_output::Output;
use tierce_wire::resp::{Args, OwnedArgs, Proto};

use crate::answer::{Answer, Answered, Destination};
use crate::caller::Caller;
use crate::clients::{Client, ClientFlags, Listener};
use crate::command::CommandId;
use crate::error::CommandError;
use crate::kernel::Kernel;
use crate::pipeline::Mode;
use crate::pipeline::{self, Context, Guard};
use crate::reply::Reply;
pub use crate::waiting::Patience;
use crate::waiting::{self, Awaited, ReplyTo};

pub(crate) use nonblocking::{accept_results, cancel, cancel_all, client_leaves, listener};
pub use nonblocking::{result_is_due, send_away};

/// What a command waits for.
pub(crate) struct Wait<'a> {
    /// The keys, all of which are locked.
    pub(crate) keys: &'a [Key<'a>],
    /// The call, as it is to be run when one of them has changed.
    pub(crate) command: OwnedArgs,
    /// How long.
    pub(crate) patience: Patience,
    /// The group of consumers that it reads for, if any. It learns that the group or its stream is gone.
    pub(crate) group: Option<&'a [u8]>,
}

/// Why a client is answered without being served.
const TIME_IS_UP: Reason = Reason(1);
const UNBLOCKED: Reason = Reason(2);
const GONE: Reason = Reason(3);
const ROLE_CHANGED: Reason = Reason(4);
const REDIRECTED: Reason = Reason(5);

/// To a client that has waited for what a replica cannot give it.
pub(crate) const ENDED_BY_ROLE: CommandError = CommandError::new(
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
);

/// A client that waits, for the threads that serve it.
pub(super) struct Blocked {
    pub(super) to: Destination,
    pub(super) proto: Proto,
    /// The caller that its command runs for. Only the thread that holds the claim locks this.
    pub(super) caller: Mutex<Caller>,
    pub(super) command: OwnedArgs,
    pub(super) group: Option<Box<[u8]>>,
    /// The shards of all keys of its command, those that it does not wait for as well.
    pub(super) shards: Box<[usize]>,
}

impl Blocked {
    /// True if its command needs one of these shards.
    pub(super) fn needs_any(&self, shards: &[usize]) -> bool {
        self.shards.iter().any(|shard| shards.contains(shard))
    }

    /// Notes a reply of so many bytes that its client gets, for whom there was nothing.
    pub(super) fn note_reply(&self, kernel: &Kernel, client: &Client, bytes: usize) {
        let args = self.command.as_args();
        if let Ok(command) = pipeline::resolve(kernel, args) {
            kernel.hot_keys.note_reply(command, args, client.conn.worker, bytes);
        }
    }

    /// True if its command needs no shard beside that of the key which it waits for.
    pub(super) fn is_in_one_shard(&self) -> bool {
        self.shards.iter().all(|shard| *shard == self.shards[0])
    }
}

/// The shards of the keys of a call.
fn shards_of(kernel: &Kernel, call: Args<'_>) -> Box<[usize]> {
    let Ok(command) = pipeline::resolve(kernel, call) else { return Box::default() };
    let keyspace = &kernel.keyspace;
    let shard_of = |index| keyspace.shard_of(keyspace.hash(call.at(index)));
    command.spec.key_indexes(call).map(shard_of).collect()
}

/// Offers each of some keys to `serve`, which replies if it finds something there. If it finds nothing
/// anywhere, the client waits for as long as `patience` says; a command without any replies that there is
/// nothing. All shards are locked throughout.
pub(crate) fn first_of<'b>(
    ctx: &mut Context<'_, '_>,
    keys: impl Iterator<Item = &'b [u8]>,
    patience: Option<Patience>,
    mut serve: impl FnMut(&mut Db<'_>, Key<'_>, &mut Reply<'_>) -> Result<bool, CommandError>,
) -> Result<(), CommandError> {
    let keys = ctx.keys(keys);
    let Context { kernel, guard, caller, call, reply, now_ms, mode, .. } = ctx;
    for key in &keys {
        match serve(&mut guard.db(caller.db, key.hash(), *now_ms), *key, reply) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) if mode.passes_over(&error) => {}
            Err(error) => return Err(error),
        }
    }
    match patience {
        Some(patience) => {
            let terms = Wait { keys: &keys, command: call.to_owned(), patience, group: None };
            wait(kernel, *mode, caller, reply, guard, terms);
        }
        None => reply.null_array(),
    }
    Ok(())
}

/// Ends a command that has found nothing: its client waits, if it may.
pub(crate) fn wait(
    kernel: &Kernel,
    mode: Mode<'_>,
    caller: &mut Caller,
    reply: &mut Reply<'_>,
    guard: &mut Guard<'_, '_>,
    wait: Wait<'_>,
) {
    let to = match mode {
        Mode::Served(served) => return served.found_nothing.set(true),
        Mode::Never | Mode::OfProgram | Mode::Long { to: None } => return reply.null_array(),
        Mode::Long { to: Some(to) } => to.clone(),
        Mode::Client => Destination::Reply(caller.reply_to()),
        Mode::NonBlocking { to, name } => {
            match nonblocking::begin(kernel, caller, to, name, wait.command.as_args()) {
                Ok(deferred) => Destination::Result(deferred),
                Err(error) => {
                    kernel.count_error(&error, None);
                    return reply.error(&error);
                }
            }
        }
    };
    let Wait { keys, command, patience, group } = wait;
    let about = Blocked {
        to: to.clone(),
        proto: caller.proto,
        caller: Mutex::new(stand_in(caller)),
        shards: shards_of(kernel, command.as_args()),
        command,
        group: group.map(Box::from),
    };
    let register = || guard.wait(caller.db, keys, group.is_some(), about);
    match &to {
        Destination::Reply(to) => {
            let awaited = Awaited::Keys { waiter: register(), patience };
            match mode {
                Mode::Long { .. } => wait_elsewhere(kernel, caller, *to, awaited),
                _ => caller.wait_for(awaited),
            }
        }
        Destination::Result(deferred) => {
            if deferred.wait(register) == Listener::There {
                kernel.set_deadline(deferred, patience);
            }
            if let Mode::Long { .. } = mode {
                // Tells the thread of the command that there is no reply.
                caller.waits.wait_for(Awaited::LongCommand, true);
            }
        }
    }
}

/// Runs the command of a client for which other threads act.
fn stand_in(caller: &Caller) -> Caller {
    let (client, rights) = (Arc::clone(&caller.client), caller.rights().clone());
    let mut stand_in = Caller::with_rights(client, rights, true);
    (stand_in.db, stand_in.proto, stand_in.no_touch) = (caller.db, caller.proto, caller.no_touch);
    stand_in.inherit_levels(caller);
    stand_in.inherit_tracking(caller);
    stand_in
}

/// Has the connection wait whose command has run away from its worker. This is posted while the keys are locked:
/// so it comes to the worker before the reply to a client that changes one of them.
fn wait_elsewhere(kernel: &Kernel, away: &mut Caller, to: ReplyTo, awaited: Awaited) {
    let caller = Some(Box::new(away.away()));
    // Tells the thread of the command that there is no reply.
    away.waits.wait_for(awaited.clone(), true);
    let (to, reply) = (Destination::Reply(to), Answered::Later(awaited));
    kernel.answer(Answer { to, reply, logged_at: None, invalidation: None, caller });
}

/// Cancels the wait of a client that has gone.
pub fn nobody_waits(kernel: &Kernel, worker: u16, awaited: &Awaited) {
    if let Awaited::Keys { waiter, .. } = awaited {
        waiter.state.cancel(GONE);
        kernel.keyspace.worker_locks(worker).forget_waiter(waiter);
    }
    if let Awaited::Confirmations { to, .. } = awaited {
        let _ = kernel.stop_confirming(*to);
    }
}

/// The error for a client that is not served for this reason; none if it is told that there is nothing.
fn error_in_vain(kernel: &Kernel, reason: Reason) -> Option<CommandError> {
    const ERROR: CommandError = CommandError::new("UNBLOCKED client unblocked via CLIENT UNBLOCK");
    match reason {
        UNBLOCKED => Some(ERROR),
        ROLE_CHANGED => Some(ENDED_BY_ROLE),
        REDIRECTED => Some(kernel.redirection().unwrap_or(ENDED_BY_ROLE)),
        _ => None,
    }
}

/// Answers the last command of a client, or one whose result comes later, that is not served for this reason. Returns
/// how many bytes the reply has.
pub(super) fn answer_in_vain(
    kernel: &Kernel,
    to: &Destination,
    command: Option<CommandId>,
    proto: Proto,
    reason: Reason,
) -> usize {
    if let Some(deferred) = to.deferred()
        && reason == GONE
    {
        kernel.end_result(deferred);
        return 0;
    }
    let proto = to.deferred().map_or(proto, |deferred| deferred.choose_proto());
    let mut output = Output::new();
    let mut reply = Reply::new(&mut output, proto);
    match error_in_vain(kernel, reason) {
        Some(error) => reply_late(kernel, command_of(kernel, to, command), Err(error), &mut reply),
        None => reply.null_array(),
    }
    let bytes = output.written();
    let reply = Answered::With(output.take());
    let (to, logged_at, invalidation) = (to.clone(), None, None);
    kernel.answer(Answer { to, reply, logged_at, invalidation, caller: None });
    bytes
}

/// Writes the reply to a command that has waited for it: OK, or an error, which is counted.
pub fn reply_late(
    kernel: &Kernel,
    command: Option<CommandId>,
    outcome: Result<(), CommandError>,
    reply: &mut Reply<'_>,
) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(error) => {
            kernel.count_error(&error, command);
            reply.error(&error);
        }
    }
}

/// The command that is answered: the last one of its client, unless it is one whose result comes later.
fn command_of(kernel: &Kernel, to: &Destination, last: Option<CommandId>) -> Option<CommandId> {
    let Some(deferred) = to.deferred() else { return last };
    kernel.commands.find_original(deferred.command.as_bytes()).map(|command| command.id)
}

/// The patience of a client that waits for a reply has ended. Whether it is answered and goes on; otherwise
/// another thread is just answering it.
pub fn time_is_up(kernel: &Kernel, caller: &mut Caller, output: &mut Output) -> bool {
    if let Some(Awaited::Keys { waiter, .. }) = caller.waits.awaited()
        && waiter.state.cancel(TIME_IS_UP) != Cancelled::Now
    {
        return false;
    }
    let mut confirmed = None;
    if let Some(Awaited::Confirmations { to, .. }) = caller.waits.awaited() {
        confirmed = kernel.stop_confirming(*to);
        if confirmed.is_none() {
            return false;
        }
    }
    let Some(pending) = caller.end_wait() else { return true };
    if let Awaited::Keys { waiter, .. } = &pending.awaited {
        kernel.keyspace.worker_locks(caller.client.conn.worker).forget_waiter(waiter);
    }
    if pending.is_heard {
        let mut reply = Reply::new(output, caller.proto);
        match pending.awaited {
            Awaited::Confirmations { .. } => {
                confirmed.into_iter().for_each(|confirmed| confirmed.reply(&mut reply));
            }
            Awaited::Device { .. } => waiting::reply_synced(0, &mut reply),
            Awaited::Keys { waiter, .. } => {
                let begin = reply.parts().0.written();
                reply.null_array();
                let bytes = reply.parts().0.written() - begin;
                blocked_of(&waiter).note_reply(kernel, &caller.client, bytes);
            }
            _ => reply.null_array(),
        }
    }
    true
}

pub(super) fn blocked_of(waiter: &Waiter) -> &Blocked {
    waiter.about::<Blocked>().expect("only this module makes waiters")
}

/// The connection of a client ends.
pub fn connection_ends(kernel: &Kernel, caller: &mut Caller) {
    if let Some(pending) = caller.end_wait() {
        nobody_waits(kernel, caller.client.conn.worker, &pending.awaited);
    }
    client_leaves(kernel, &caller.client);
}

/// CLIENT UNBLOCK: whether the client was waiting. Its worker takes it out of the queues, which needs the
/// shards of its keys: the caller may hold some.
pub(crate) fn unblock(kernel: &Kernel, client: &Client, with_error: bool) -> bool {
    let reason = if with_error { UNBLOCKED } else { TIME_IS_UP };
    end_confirming(kernel, client, reason, || ()) || end_waiting(kernel, client, reason, || ())
}

/// Ends the waiting of a client for replicas, after `prepare`. Whether it was waiting.
fn end_confirming(
    kernel: &Kernel,
    client: &Client,
    reason: Reason,
    prepare: impl FnOnce(),
) -> bool {
    let Some((to, proto, confirmed)) = kernel.unblock_confirming(client.conn) else { return false };
    prepare();
    let mut output = Output::new();
    let mut reply = Reply::new(&mut output, proto);
    match error_in_vain(kernel, reason) {
        // The replies that wait for the level become errors, which are counted there.
        Some(error) if confirmed.is_of_level() => reply.error(&error),
        Some(error) => reply_late(kernel, client.last_command(), Err(error), &mut reply),
        None => confirmed.reply(&mut reply),
    }
    let (to, reply) = (Destination::Reply(to), Answered::With(output.take()));
    kernel.answer(Answer { to, reply, logged_at: None, invalidation: None, caller: None });
    true
}

/// The server is a replica now: clients that wait for keys or replicas get an error, and their connections end, as in
/// Redis, except for those that are told where to wait for keys. The caller may hold shards.
pub(crate) fn unblock_all(kernel: &Kernel) {
    // The other one is in `Kernel::end_wait_of_replica`.
    fence(SeqCst);
    kernel.clients.all().iter().for_each(|client| unblock_by_role(kernel, client));
    kernel.primary.confirmations.dismiss_threads();
}

/// The same for one client.
fn unblock_by_role(kernel: &Kernel, client: &Client) {
    let redirects = client.has(ClientFlags::REDIRECTS);
    // Only who takes a client out of its list answers it. So this answer closes the connection or leaves it open, and
    // no other answer is on its way when the client is told that it is being closed.
    let close = || client.set(ClientFlags::CLOSING, true);
    end_confirming(kernel, client, ROLE_CHANGED, close);
    // Nothing has been done for it, unlike for one that waits for replicas, which must not do its write again
    // elsewhere.
    match redirects {
        true => end_waiting(kernel, client, REDIRECTED, || ()),
        false => end_waiting(kernel, client, ROLE_CHANGED, close),
    };
    nonblocking::end_all(kernel, client, ROLE_CHANGED);
}

/// Ends the waiting of a client for keys, if nobody else does, after `prepare`. Whether it was waiting.
fn end_waiting(kernel: &Kernel, client: &Client, reason: Reason, prepare: impl FnOnce()) -> bool {
    let Some(waiter) = client.waiter.lock().clone() else { return false };
    match waiter.state.cancel(reason) {
        Cancelled::TooLate => false,
        Cancelled::ByAnother => true,
        Cancelled::Now => {
            prepare();
            let (blocked, command) = (blocked_of(&waiter), client.last_command());
            let bytes = answer_in_vain(kernel, &blocked.to, command, blocked.proto, reason);
            blocked.note_reply(kernel, client, bytes);
            true
        }
    }
}
