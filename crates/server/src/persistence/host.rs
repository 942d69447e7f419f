//! What saves need of the program around them.

use std::sync::Arc;
use std::time::Duration;

use super::state::Ticket;
use crate::config::Settings;

/// The program around them.
pub trait Host {
    /// The configuration in force.
    fn settings(&self) -> Arc<Settings>;

    /// Memory in use, in bytes: snapshots tell of it.
    fn used_memory(&self) -> u64;

    /// Something took so long.
    fn note_latency(&self, event: &'static str, took: Duration);

    /// A save has ended. Whoever waits for it may be told.
    fn saved(&self, ticket: Ticket, outcome: Result<(), Arc<str>>);
}
