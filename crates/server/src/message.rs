//! What workers are told by others.

use std::sync::Arc;

use crate::blocking;
use crate::durability::Switched;
use crate::persistence::Ticket;

/// Something that a worker is told.
#[derive(Clone)]
pub enum Message {
    /// Sessions that wait for the end of a pause may go on.
    Resume,
    /// A line for those who watch all commands.
    Monitor(Arc<[u8]>),
    /// Somebody will look at the backlogs of clients: let them see those of now.
    NoteBacklogs,
    /// A save has ended. Whoever waits for it gets a reply.
    Saved {
        /// Which one.
        ticket: Ticket,
        /// How it ended, or why it failed.
        outcome: Result<(), Arc<str>>,
    },
    /// The server does not end after all, since it could not save. Whoever asked for the end gets
    /// an error.
    StaysUp,
    /// The answer to a client that has waited for keys.
    Answer(blocking::Answer),
    /// Keys have changed for which clients wait whom nobody has served.
    ServeWaiters,
    /// Memory that the allocator holds for this worker is to go back to the system.
    Purge,
    /// The log has reached the device, or never will.
    Durable,
    /// The log was switched on or off, or could not be. Whoever asked for that gets a reply.
    LogSwitched(Arc<Switched>),
    /// The `timeout` directive has changed.
    IdleTimeout {
        /// Zero for never.
        timeout_ms: u64,
    },
}
