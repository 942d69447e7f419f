//! File descriptors: as many as `maxclients` requires, or fewer clients.

use std::num::NonZeroUsize;

use crate::config::{Config, DirectiveId, Peer, Settings};
use crate::log::Log;

use super::error::StartError;

/// Number of descriptors of a running server besides those of clients and the reserved ones: listeners, loops, and
/// files that are always open. A loop has two.
const OWN_DESCRIPTORS: u64 = 24;

const DESCRIPTORS_OF_A_LOOP: u64 = 2;

/// Returns the number of descriptors that a server with these settings needs to serve all its clients at once.
#[must_use]
pub fn descriptors_needed(settings: &Settings) -> u64 {
    const MAXCLIENTS: DirectiveId = DirectiveId::of("maxclients");
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    settings.count(MAXCLIENTS) + other_descriptors(settings.startup(cores).threads.get())
}

/// Raises the descriptor limit to what `maxclients` requires, or lowers `maxclients` to fit.
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

/// Raises the descriptor limit for this many clients; otherwise returns the number that fits.
pub(super) fn raise_descriptors(clients: u64, workers: usize) -> Result<(), u64> {
    let other = other_descriptors(workers);
    let granted = tierce_net::raise_fd_limit(clients + other + REFUSED_DESCRIPTORS);
    let fitting = granted.saturating_sub(other);
    if fitting < clients { Err(fitting) } else { Ok(()) }
}

/// Number of descriptors, if available, for rejected connections: each keeps one until its peer has read why. Otherwise
/// many of them would use up the descriptors reserved for others.
const REFUSED_DESCRIPTORS: u64 = 256;

/// Returns the number of descriptors that are not for clients.
fn other_descriptors(workers: usize) -> u64 {
    let loops = (workers as u64 + 1) * DESCRIPTORS_OF_A_LOOP;
    tierce_net::DESCRIPTORS_RESERVED + OWN_DESCRIPTORS + loops
}
