//! Clients that a replica sends to its primary (`CLIENT CAPA redirect`).
//!
//! Such a client gets `-REDIRECT host:port` for what changes data, and for what reads them unless it has said READONLY:
//! it wants the primary, and cannot tell that what it reads here is old. During a failover no client is redirected before
//! the other server has taken over: that one would send it back.

use crate::caller::Caller;
use crate::clients::ClientFlags;
use crate::command::Command;
use crate::error::CommandError;
use crate::kernel::Kernel;

/// True if the caller makes a call of `command` at the primary; `writes` says if that writes.
pub(crate) fn concerns(caller: &Caller, command: &Command, writes: bool) -> bool {
    let client = &caller.client;
    if !client.has(ClientFlags::REDIRECTS) {
        return false;
    }
    let reads = match &caller.transaction {
        // What dooms it is the answer.
        Some(queued) if command.is_exec() => !queued.is_doomed && queued.reads_data,
        _ => command.spec.flags.reads_data(),
    };
    writes || reads && !client.has(ClientFlags::READS_REPLICAS)
}

/// The error that tells a client where the primary is, if this server is a replica.
#[cold]
pub(super) fn redirection(kernel: &Kernel) -> Option<CommandError> {
    let primary = kernel.role.following()?.primary;
    Some(CommandError::text(format!("REDIRECT {primary}")))
}

/// That error, if the client understands it.
#[cold]
pub(super) fn redirection_of(kernel: &Kernel, caller: &Caller) -> Option<CommandError> {
    let is_understood = caller.client.has(ClientFlags::REDIRECTS);
    is_understood.then(|| redirection(kernel)).flatten()
}
