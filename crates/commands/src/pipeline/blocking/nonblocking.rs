//! Commands that never block: `NBLPOP` is BLPOP, and `NBKEYS` is KEYS, but the connection goes on, and a later reply
//! goes to the client that the last argument names.
//!
//! Such a command runs the command that it is named after, in [`Mode::NonBlocking`]. If that has its reply at once,
//! the connection gets it as usual. If it has to wait for keys or takes long, a [`Deferred`] takes the role of the
//! waiting client: it is served, or times out, like a blocked client ([`super::serve`]), or its command runs on a
//! thread for long commands.
//!
//! If its sender or its receiver disconnects, it is cancelled like a blocked client, so no element is popped for it
//! any more.

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

/// Bytes of an entry in the queue of a key.
const QUEUED_KEY_BYTES: usize = 96;

const NO_SUCH_CLIENT: CommandError =
    CommandError::new("ERR The client ID you want redirect to does not exist");
const NOT_ACCEPTED: CommandError = CommandError::new(
    "ERR The client ID you want redirect to does not accept results: it has to say CLIENT ACCEPTNB ON",
);

/// Returns the client that a call names in its last argument: 0 is the caller.
///
/// # Errors
/// Fails if there is no such client, if it does not accept results, or if the caller has too many pending.
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

/// Creates a deferred result of a call of the caller for `to`.
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

/// Offloads a long call of `command` while its connection goes on. Its result may have `room` bytes.
///
/// # Errors
/// Fails if no named client accepts the result, or too many are pending.
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

/// Ends a command without its result. Returns true if it was waiting; otherwise its result is on the way.
pub(crate) fn cancel(kernel: &Kernel, deferred: &Deferred) -> bool {
    end(kernel, deferred, TIME_IS_UP, Leaving::Neither)
}

/// Ends all commands of a client, and returns their number.
pub(crate) fn cancel_all(kernel: &Kernel, client: &Client) -> usize {
    let sent: Vec<_> = client.results.lock().sent().cloned().collect();
    sent.iter().filter(|deferred| cancel(kernel, deferred)).count()
}

/// CLIENT ACCEPTNB: sets if a client accepts results of other clients' commands. Switching it off ends the pending
/// ones.
pub(crate) fn accept_results(kernel: &Kernel, client: &Client, on: bool) {
    for deferred in client.accept_results(on) {
        end(kernel, &deferred, GONE, Leaving::Receiver);
    }
}

/// Cancels all results that a client has requested or would receive, when it disconnects or is reset.
pub(crate) fn client_leaves(kernel: &Kernel, client: &Client) {
    // Afterwards no new command can begin for it.
    let mut all = client.accept_results(false);
    all.extend(client.results.lock().sent().cloned());
    for deferred in all {
        end(kernel, &deferred, GONE, deferred.leaving(client));
    }
}

/// Ends a command whose time is up. Called by the worker of its sender.
pub fn result_is_due(kernel: &Kernel, deferred: &Arc<Deferred>) {
    if stop(kernel, deferred, TIME_IS_UP, Leaving::Neither) {
        let to = Destination::Result(Arc::clone(deferred));
        answer_in_vain(kernel, &to, None, Proto::Resp2, TIME_IS_UP);
    }
}

/// Ends the commands of a client that wait for keys; their results contain the reason.
pub(super) fn end_all(kernel: &Kernel, client: &Client, reason: Reason) {
    let sent: Vec<_> = client.results.lock().sent().cloned().collect();
    for deferred in sent.into_iter().filter(|deferred| deferred.is_waiting()) {
        if stop(kernel, &deferred, reason, Leaving::Neither) {
            answer_in_vain(kernel, &Destination::Result(deferred), None, Proto::Resp2, reason);
        }
    }
}

/// Ends a command without its result. Returns true if that was not too late.
fn end(kernel: &Kernel, deferred: &Deferred, reason: Reason, leaving: Leaving) -> bool {
    let is_stopped = stop(kernel, deferred, reason, leaving);
    if is_stopped || leaving == Leaving::Receiver {
        // If a result is just being made, its thread sees that it is not wanted.
        kernel.end_result(deferred);
    }
    is_stopped
}

/// Stops a command. Returns true if it has no result any more. The caller may hold shards, so the reaper removes the
/// waiter from its queues.
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
