//! What an engine tells the program around it.

use std::sync::Arc;

use crate::durability::Switched;
use crate::persistence::SaveId;

/// The users of an engine, such as the sessions of a server.
pub trait Audience: Send + Sync {
    /// Something has happened. Called by threads of the engine, which must not be kept waiting.
    fn hear(&self, news: News);

    /// Memory that they take themselves.
    fn memory(&self) -> AudienceMemory;
}

/// Memory of the users of an engine, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct AudienceMemory {
    /// Connections and their buffers.
    pub connections: usize,
    /// What they subscribe to, and messages on their way to them.
    pub messages: usize,
}

/// What has happened.
#[derive(Clone, Debug)]
pub enum News {
    /// The log has reached the device, or never will.
    DeviceReached,
    /// Writers that were held back may go on.
    WritersGoOn,
    /// The log was switched on or off, or could not be.
    LogSwitched(Arc<Switched>),
    /// A save has ended.
    Saved {
        /// Which one.
        save_id: SaveId,
        /// How it ended, or why it failed.
        outcome: Result<(), Arc<str>>,
    },
    /// Each thread that owns memory is to give back what it does not need.
    PurgeMemory,
}
