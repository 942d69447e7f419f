//! File descriptors: as many as `maxclients` asks for, or fewer clients.

use std::num::NonZeroUsize;

use crate::config::{Config, DirectiveId, Peer, Settings};
use crate::log::Log;

use super::error::StartError;

/// Descriptors that a running server has beside those of clients and those that are reserved: listeners,
/// loops, and the files that are always open. A loop has two.
const OWN_DESCRIPTORS: u64 = 24;

const DESCRIPTORS_OF_A_LOOP: u64 = 2;

/// File descriptors that a server with these settings needs to serve all its clients at once.
#[must_use]
pub fn descriptors_needed(settings: &Settings) -> u64 {
    const MAXCLIENTS: DirectiveId = DirectiveId::of("maxclients");
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    settings.count(MAXCLIENTS) + other_descriptors(settings.startup(cores).threads.get())
}

/// Has the system give as many descriptors as `maxclients` asks for, or takes back what it asks.
pub(super) fn fit_to_descriptors(
    config: &Config,
    workers: usize,
    log: &Log,
) -> Result<(), StartError> {
    let asked = config.live().maxclients();
    let Err(fitting) = raise_descriptors(asked, workers) else { return Ok(()) };
    if fitting == 0 {
        return Err(StartError::Descriptors { needed: other_descriptors(workers) + 1 });
    }
    log.warning(format_args!(
        "maxclients is {fitting} instead of {asked}: the system gives this process no more file \
         descriptors (see ulimit -n)"
    ));
    // The directive is not watched yet, and a smaller number is valid.
    let _ = config.set(&[(b"maxclients", fitting.to_string().as_bytes())], Peer::Local);
    Ok(())
}

/// Makes room for so many clients; otherwise the number there is room for.
pub(super) fn raise_descriptors(clients: u64, workers: usize) -> Result<(), u64> {
    let other = other_descriptors(workers);
    let granted = tierce_net::raise_fd_limit(clients + other + REFUSED_DESCRIPTORS);
    let fitting = granted.saturating_sub(other);
    if fitting < clients { Err(fitting) } else { Ok(()) }
}

/// Descriptors, if there are so many, for connections that are refused: each has one until its peer has read why. A
/// crowd of them would otherwise take those of the places that are kept for others.
const REFUSED_DESCRIPTORS: u64 = 256;

/// Descriptors that are not for clients.
fn other_descriptors(workers: usize) -> u64 {
    let loops = (workers as u64 + 1) * DESCRIPTORS_OF_A_LOOP;
    tierce_net::DESCRIPTORS_RESERVED + OWN_DESCRIPTORS + loops
}
