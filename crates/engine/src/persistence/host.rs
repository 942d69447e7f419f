//! What saves need from the program around them.

use std::sync::Arc;
use std::time::Duration;

use super::state::SaveId;
use tierce_config::Settings;

/// The program around them.
pub trait Host {
    /// The configuration in force.
    fn settings(&self) -> Arc<Settings>;

    /// Memory in use, in bytes: snapshots tell of it.
    fn used_memory(&self) -> u64;

    /// Something took so long.
    fn note_latency(&self, event: &'static str, took: Duration);

    /// A save has ended. Clients that wait for it can be notified.
    fn saved(&self, save_id: SaveId, outcome: Result<(), Arc<str>>);
}
