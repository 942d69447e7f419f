//! Redirection of clients from a replica to its primary (`CLIENT CAPA redirect`).
//!
//! Such a client gets `-REDIRECT host:port` for writes, and for reads unless it has sent READONLY, because it wants
//! the primary and cannot tell that the data here are old. During a failover no client is redirected before the other
//! server has taken over: that server would send it back.

use crate::caller::Caller;
use crate::clients::ClientFlags;
use crate::command::Command;
use crate::error::CommandError;
use crate::kernel::Kernel;

/// Returns true if the call must be redirected to the primary. `writes` is true for a writing call.
pub(crate) fn concerns(caller: &Caller, command: &Command, writes: bool) -> bool {
    let client = &caller.client;
    if !client.has(ClientFlags::REDIRECTS) {
        return false;
    }
    let reads = match &caller.transaction {
        // A doomed transaction gets its own error.
        Some(queued) if command.is_exec() => !queued.is_doomed && queued.reads_data,
        _ => command.spec.flags.reads_data(),
    };
    writes || reads && !client.has(ClientFlags::READS_REPLICAS)
}

/// Returns the redirection error with the address of the primary, if this server is a replica.
#[cold]
pub(super) fn redirection(kernel: &Kernel) -> Option<CommandError> {
    let primary = kernel.role.following()?.primary;
    Some(CommandError::text(format!("REDIRECT {primary}")))
}

/// Returns that error, if the client understands it.
#[cold]
pub(super) fn redirection_of(kernel: &Kernel, caller: &Caller) -> Option<CommandError> {
    let is_understood = caller.client.has(ClientFlags::REDIRECTS);
    is_understood.then(|| redirection(kernel)).flatten()
}
