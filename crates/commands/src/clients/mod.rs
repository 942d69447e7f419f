//! The connected clients as others see them.
//!
//! A session belongs to one worker. What other connections may ask about it (`CLIENT LIST`) or do
//! to it (`CLIENT KILL`) goes through its [`Client`], which both sides share.

mod client;
mod deferred;
mod filter;
mod memory;
mod pause;
mod places;
mod registry;
mod strangers;

pub use self::client::{Client, ClientFlags, Identity, Origin};
pub use self::deferred::{Deferred, Ending, Leaving, Listener, NotTaken, Pending, Results, Terms};
pub use self::filter::Filter;
pub use self::memory::ClientMemory;
pub use self::pause::{Hold, Pause, PauseMode};
pub use self::places::{Listening, Protocol};
pub use self::registry::Registry;
pub use self::strangers::{
    REPLICAS, STRANGERS, STRANGERS_OUTPUT_BYTES_MAX, SUBSCRIBERS, output_class,
};
