//! The connected clients as others see them.
//!
//! A session belongs to one worker. Other connections read its state (`CLIENT LIST`) or act on it
//! (`CLIENT KILL`) through its [`Client`], which both sides share.

mod client;
mod deferred;
mod filter;
mod memory;
mod pause;
mod registry;
mod slots;
mod strangers;

pub use self::client::{Client, ClientFlags, Identity, Origin};
pub use self::deferred::{Deferred, Ending, Leaving, Listener, NotTaken, Pending, Results, Terms};
pub use self::filter::Filter;
pub use self::memory::ClientMemory;
pub use self::pause::{Hold, Pause, PauseMode};
pub use self::registry::Registry;
pub use self::slots::{Listening, Protocol};
pub use self::strangers::{
    REPLICAS, STRANGERS, STRANGERS_OUTPUT_BYTES_MAX, SUBSCRIBERS, output_class,
};
