//! What an engine tells those who use it.

use std::sync::Arc;

use crate::durability::Switched;
use crate::persistence::Ticket;

/// Those who use an engine: the sessions of a server, say.
pub trait Audience: Send + Sync {
    /// Something has happened. Called by threads of the engine, which must not be kept waiting.
    fn hear(&self, news: News);

    /// Memory that they take themselves, in bytes.
    fn memory_bytes(&self) -> usize;
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
        ticket: Ticket,
        /// How it ended, or why it failed.
        outcome: Result<(), Arc<str>>,
    },
    /// Each thread that owns memory is to give back what it does not need.
    PurgeMemory,
}
