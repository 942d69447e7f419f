//! Notifications from an engine to the program around it.

use std::sync::Arc;

use crate::durability::Switched;
use crate::persistence::SaveId;

/// The users of an engine, such as the sessions of a server.
pub trait Audience: Send + Sync {
    /// Receives a notification. Called by threads of the engine, so it must not block.
    fn hear(&self, news: News);

    /// Returns the memory that the users take themselves.
    fn memory(&self) -> AudienceMemory;
}

/// Memory of the users of an engine, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct AudienceMemory {
    /// Connections and their buffers.
    pub connections: usize,
    /// Their subscriptions, and pending messages to them.
    pub messages: usize,
}

/// A notification.
#[derive(Clone, Debug)]
pub enum News {
    /// A sync of the log has ended, or never will.
    DeviceReached,
    /// Waiting writers may go on.
    WritersGoOn,
    /// The log was switched on or off, or the switch failed.
    LogSwitched(Arc<Switched>),
    /// A save has ended.
    Saved {
        /// Id of the save.
        save_id: SaveId,
        /// Its outcome, with the reason of a failure.
        outcome: Result<(), Arc<str>>,
    },
    /// Each thread that owns memory must return the unused part.
    PurgeMemory,
}
