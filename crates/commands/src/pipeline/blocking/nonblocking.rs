//! Commands that never block: `NBLPOP` is BLPOP, and `NBKEYS` is KEYS, but the connection goes on, and a reply that
//! comes later goes to the client that the last argument names.
//!
//! Such a command runs the command that it is named after, in [`Mode::NonBlocking`]. If that has its reply at once, the
//! connection gets it like any other. If it has to wait for keys or takes long, then a [`Deferred`] is made, which
//! takes the place of the waiting client: it is served, or times out, as a blocked client is ([`super::serve`]), or its
//! command runs on a thread for long commands.
//!
//! When its sender or its receiver has gone it is cancelled like a blocked client whose connection ends, so no element
//! is popped for it any more.

use std::sync::Arc;

use tierce_keyspace::{Cancelled, Reason, forget_waiter_later};
use tierce_wire::number;
use tierce_wire::resp::{Args, Proto};

use super::in_vain::{GONE, TIME_IS_UP, answer_in_vain};
use crate::answer::Destination;
use crate::caller::Caller;
use crate::clients::{Client, Deferred, Ending, Leaving, NotTaken, Terms};
use crate::command::Command;
use crate::error::CommandError;
use crate::kernel::Kernel;
use crate::offload::Job;

/// An entry in the queue of a key.
const QUEUED_KEY_BYTES: usize = 96;

const NO_SUCH_CLIENT: CommandError =
    CommandError::new("ERR The client ID you want redirect to does not exist");
const NOT_ACCEPTED: CommandError = CommandError::new(
    "ERR The client ID you want redirect to does not accept results: it has to say CLIENT ACCEPTNB ON",
);

/// The client that a call names in its last argument: 0 is the caller.
///
/// # Errors
/// When there is none, when it does not accept results, or when the caller has too many pending.
pub(crate) fn listener(
    kernel: &Kernel,
    caller: &Caller,
    redirect: &[u8],
) -> Result<Arc<Client>, CommandError> {
    let id = number::parse_u64(redirect).ok_or(CommandError::NOT_AN_INTEGER)?;
    let own = &caller.client;
    let listener = if id == 0 || id == own.id {
        Arc::clone(own)
    } else {
        let other = kernel.clients.get(id).ok_or(NO_SUCH_CLIENT)?;
        if !other.accepts_results() {
            return Err(NOT_ACCEPTED);
        }
        other
    };
    let max = pending_max(kernel);
    own.results.lock().check(max).map_err(|not_taken| refusal(not_taken, max))?;
    Ok(listener)
}

fn pending_max(kernel: &Kernel) -> usize {
    kernel.config.live().client_pending_results() as usize
}

fn refusal(not_taken: NotTaken, max: usize) -> CommandError {
    match not_taken {
        NotTaken::NoListener => NOT_ACCEPTED,
        NotTaken::TooMany => CommandError::text(format!(
            "ERR {max} results are pending, and client-pending-results allows no more"
        )),
    }
}

/// A result of a call of the caller that `to` gets later.
///
/// # Errors
/// As [`listener`].
pub(super) fn begin(
    kernel: &Kernel,
    caller: &Caller,
    to: &Arc<Client>,
    command: &'static str,
    call: Args<'_>,
) -> Result<Arc<Deferred>, CommandError> {
    let (durability, pending_max) = (caller.durability(), pending_max(kernel));
    // Each word may be a key, with an entry in a queue.
    let bytes = call.bytes_len() + call.len() * QUEUED_KEY_BYTES;
    let terms = Terms { command, durability, bytes, pending_max };
    Deferred::begin(&caller.client, to, &terms, &kernel.clients.pending)
        .map_err(|not_taken| refusal(not_taken, pending_max))
}

/// Has a call of `command` that takes long run away from the worker while its connection goes on. Its result may have
/// `room` bytes.
///
/// # Errors
/// When no client can get the result: none is named that accepts it, or too many are pending.
pub fn send_away(
    kernel: &Kernel,
    caller: &Caller,
    command: &Command,
    args: Args<'_>,
    room: usize,
) -> Result<(), CommandError> {
    let to = listener(kernel, caller, args.at(args.len() - 1))?;
    let deferred = begin(kernel, caller, &to, command.spec.name, args)?;
    deferred.queue();
    let (to, command) = (Destination::Result(deferred), args.to_owned());
    kernel.offload.push(Job { to, caller: caller.stand_in(), command, room });
    Ok(())
}

/// Ends a command without its result. Whether it was waiting; otherwise its result is on the way.
pub(crate) fn cancel(kernel: &Kernel, deferred: &Deferred) -> bool {
    end(kernel, deferred, TIME_IS_UP, Leaving::Neither)
}

/// Ends all commands of a client, and returns how many.
pub(crate) fn cancel_all(kernel: &Kernel, client: &Client) -> usize {
    let sent: Vec<_> = client.results.lock().sent().cloned().collect();
    sent.iter().filter(|deferred| cancel(kernel, deferred)).count()
}

/// CLIENT ACCEPTNB: whether results of other clients' commands may be sent to a client. Those that wait for some are
/// ended if not.
pub(crate) fn accept_results(kernel: &Kernel, client: &Client, on: bool) {
    for deferred in client.accept_results(on) {
        end(kernel, &deferred, GONE, Leaving::Receiver);
    }
}

/// A client goes, or becomes like one that has just come: what it has sent, or was to get, is not wanted.
pub(crate) fn client_leaves(kernel: &Kernel, client: &Client) {
    // From here on nothing is begun for it.
    let mut all = client.accept_results(false);
    all.extend(client.results.lock().sent().cloned());
    for deferred in all {
        end(kernel, &deferred, GONE, deferred.leaving(client));
    }
}

/// The time of a command is up. Called by the worker of its sender.
pub fn result_is_due(kernel: &Kernel, deferred: &Arc<Deferred>) {
    if stop(kernel, deferred, TIME_IS_UP, Leaving::Neither) {
        let to = Destination::Result(Arc::clone(deferred));
        answer_in_vain(kernel, &to, None, Proto::Resp2, TIME_IS_UP);
    }
}

/// Ends the commands of a client that wait for keys; their results tell why.
pub(super) fn end_all(kernel: &Kernel, client: &Client, reason: Reason) {
    let sent: Vec<_> = client.results.lock().sent().cloned().collect();
    for deferred in sent.into_iter().filter(|deferred| deferred.is_waiting()) {
        if stop(kernel, &deferred, reason, Leaving::Neither) {
            answer_in_vain(kernel, &Destination::Result(deferred), None, Proto::Resp2, reason);
        }
    }
}

/// Ends a command without its result. Whether that was not too late.
fn end(kernel: &Kernel, deferred: &Deferred, reason: Reason, leaving: Leaving) -> bool {
    let is_stopped = stop(kernel, deferred, reason, leaving);
    if is_stopped || leaving == Leaving::Receiver {
        // A result that is made at this moment finds that it is not wanted.
        kernel.end_result(deferred);
    }
    is_stopped
}

/// Whether a command has no result any more. The caller may hold shards, so the reaper takes the waiter out of its
/// queues.
fn stop(kernel: &Kernel, deferred: &Deferred, reason: Reason, leaving: Leaving) -> bool {
    match deferred.cancel(leaving) {
        Ending::TooLate => return false,
        Ending::Now => kernel.offload.forget(deferred),
        Ending::Of(waiter) => match waiter.state.cancel(reason) {
            Cancelled::Now => forget_waiter_later(&kernel.keyspace, &waiter),
            // The holder of the claim answers.
            Cancelled::ByAnother | Cancelled::TooLate => return false,
        },
    }
    true
}
