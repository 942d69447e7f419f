//! The interface of saves to the program around them.

use std::sync::Arc;
use std::time::Duration;

use super::state::SaveId;
use tierce_config::Settings;

/// The program around the saves.
pub trait Host {
    /// Returns the configuration in force.
    fn settings(&self) -> Arc<Settings>;

    /// Returns the memory in use, in bytes, which snapshots record.
    fn used_memory(&self) -> u64;

    /// Records the latency of an event.
    fn note_latency(&self, event: &'static str, took: Duration);

    /// Reports the end of a save, so that waiting clients can be notified.
    fn saved(&self, save_id: SaveId, outcome: Result<(), Arc<str>>);
}
