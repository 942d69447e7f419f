//! Waits that end unserved: after a timeout, CLIENT UNBLOCK, the end of the connection, or a change of the role.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::fence;

use tierce_keyspace::{Cancelled, Reason, forget_waiter};
use tierce_output::Output;
use tierce_wire::resp::Proto;

use super::super::handoff;
use super::super::redirect::redirection;
use super::blocked_of;
use super::nonblocking::{client_leaves, end_all};
use crate::answer::{Answer, Answered, Destination};
use crate::caller::Caller;
use crate::clients::{Client, ClientFlags};
use crate::command::CommandId;
use crate::error::CommandError;
use crate::kernel::Kernel;
use crate::reply::Reply;
use crate::waiting::{self, Awaited};

/// Reasons to answer a client without serving it.
pub(super) const TIME_IS_UP: Reason = Reason(1);
const UNBLOCKED: Reason = Reason(2);
pub(super) const GONE: Reason = Reason(3);
const ROLE_CHANGED: Reason = Reason(4);
const REDIRECTED: Reason = Reason(5);
/// The client connects to another server, which it was told before.
const MOVED: Reason = Reason(6);

/// Error for a client that waits for something that a replica cannot give it.
pub(crate) const ENDED_BY_ROLE: CommandError = CommandError::new(
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
);

/// Cancels the wait of a client that has gone.
pub fn nobody_waits(kernel: &Kernel, worker: u16, awaited: &Awaited) {
    if let Awaited::Keys { waiter, .. } = awaited {
        waiter.state.cancel(GONE);
        forget_waiter(&mut kernel.keyspace.worker_locks(worker), waiter);
    }
    if let Awaited::Confirmations { to, .. } = awaited {
        let _ = kernel.stop_confirming(*to);
    }
}

/// Returns the error for a client that is not served for this reason; `None` if it gets an empty reply.
fn error_in_vain(kernel: &Kernel, reason: Reason) -> Option<CommandError> {
    const ERROR: CommandError = CommandError::new("UNBLOCKED client unblocked via CLIENT UNBLOCK");
    match reason {
        UNBLOCKED => Some(ERROR),
        ROLE_CHANGED => Some(ENDED_BY_ROLE),
        REDIRECTED => Some(redirection(kernel).unwrap_or(ENDED_BY_ROLE)),
        _ => None,
    }
}

/// Answers a client that is not served for this reason. It is the reply to its last command, or a deferred result.
/// Returns the number of bytes.
pub(in crate::pipeline) fn answer_in_vain(
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
    if reason == MOVED {
        return answer_with(kernel, to.clone(), proto, |_| ());
    }
    let proto = to.deferred().map_or(proto, |deferred| deferred.choose_proto());
    answer_with(kernel, to.clone(), proto, |reply| match error_in_vain(kernel, reason) {
        Some(error) => reply_late(kernel, command_of(kernel, to, command), Err(error), reply),
        None => reply.null_array(),
    })
}

/// Answers a client with the output of `write`, which is not about changes, and returns the number of bytes.
pub(super) fn answer_with(
    kernel: &Kernel,
    to: Destination,
    proto: Proto,
    write: impl FnOnce(&mut Reply<'_>),
) -> usize {
    let mut output = Output::new();
    write(&mut Reply::new(&mut output, proto));
    let (bytes, reply) = (output.written(), Answered::With(output.take()));
    kernel.answer(Answer { to, reply, logged_at: None, invalidation: None, caller: None });
    bytes
}

/// Writes a deferred reply: OK, or an error, which is counted.
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

/// Returns the command that is answered: the one of a deferred result, else the last one of its client.
fn command_of(kernel: &Kernel, to: &Destination, last: Option<CommandId>) -> Option<CommandId> {
    let Some(deferred) = to.deferred() else { return last };
    kernel.commands.find_original(deferred.command.as_bytes()).map(|command| command.id)
}

/// Ends the wait of a client after its timeout. Returns true if it was answered and goes on; otherwise another thread
/// is just answering it.
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
        forget_waiter(&mut kernel.keyspace.worker_locks(caller.client.conn.worker), waiter);
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

/// Ends the waits of a connection that closes.
pub fn connection_ends(kernel: &Kernel, caller: &mut Caller) {
    if let Some(pending) = caller.end_wait() {
        nobody_waits(kernel, caller.client.conn.worker, &pending.awaited);
    }
    client_leaves(kernel, &caller.client);
}

/// CLIENT UNBLOCK: returns true if the client was waiting. Its worker removes it from the queues later, since that
/// needs the shards of its keys, and the caller may hold some.
pub(crate) fn unblock(kernel: &Kernel, client: &Client, with_error: bool) -> bool {
    let reason = if with_error { UNBLOCKED } else { TIME_IS_UP };
    end_confirming(kernel, client, reason, || ()) || end_waiting(kernel, client, reason, || ())
}

/// Calls `prepare` and ends the wait of a client for replicas. Returns true if it was waiting.
fn end_confirming(
    kernel: &Kernel,
    client: &Client,
    reason: Reason,
    prepare: impl FnOnce(),
) -> bool {
    let Some((to, proto, confirmed)) = kernel.unblock_confirming(client.conn) else { return false };
    prepare();
    answer_with(kernel, Destination::Reply(to), proto, |reply| {
        match error_in_vain(kernel, reason) {
            // The replies that wait for the level become errors, which are counted there.
            Some(error) if confirmed.is_of_level() => reply.error(&error),
            Some(error) => reply_late(kernel, client.last_command(), Err(error), reply),
            None => confirmed.reply(reply),
        }
    });
    true
}

/// Ends all waits after the server became a replica. Clients get an error, and their connections close, as in Redis,
/// except for those that are redirected to wait for keys elsewhere. The caller may hold shards.
pub(crate) fn unblock_all(kernel: &Kernel) {
    // It pairs with the fence in `Kernel::end_wait_of_replica`.
    fence(SeqCst);
    kernel.clients.all().iter().for_each(|client| unblock_by_role(kernel, client, false));
    kernel.primary.confirmations.dismiss_threads();
}

/// Ends the wait of one client for that reason. `is_led` if it was just told of the server that has taken over.
pub(super) fn unblock_by_role(kernel: &Kernel, client: &Client, is_led: bool) {
    let redirects = client.has(ClientFlags::REDIRECTS);
    // Only the thread that removes a client from its list answers it. So this answer alone decides if the connection
    // closes, and no other answer is in flight when the client is marked as closing.
    let close = || client.set(ClientFlags::CLOSING, true);
    end_confirming(kernel, client, ROLE_CHANGED, close);
    // Nothing has been done for it. A client that waits for replicas is different: it must not repeat its write
    // elsewhere.
    match redirects {
        // It waits on, until it can be told where to go.
        _ if handoff::concerns(client) && kernel.failover.is_on() => false,
        _ if is_led || handoff::leads_away(kernel, client) => {
            // A library would repeat the requests before it as well.
            let has_run = client.has(ClientFlags::WAITS_IN_PIPELINE);
            end_waiting(kernel, client, if has_run { ROLE_CHANGED } else { MOVED }, close)
        }
        true => end_waiting(kernel, client, REDIRECTED, || ()),
        false => end_waiting(kernel, client, ROLE_CHANGED, close),
    };
    end_all(kernel, client, ROLE_CHANGED);
}

/// Ends the waits of clients that were told to go to the server that has taken over.
pub(crate) fn unblock_moved(kernel: &Kernel) {
    let clients = kernel.clients.all();
    let told = clients.iter().filter(|client| handoff::concerns(client));
    told.for_each(|client| unblock_by_role(kernel, client, handoff::can_follow(kernel, client)));
}

/// Calls `prepare` and ends the wait of a client for keys, unless another thread does. Returns true if it was
/// waiting.
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
