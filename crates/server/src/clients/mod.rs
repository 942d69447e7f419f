//! The connected clients as the others see them.
//!
//! A session belongs to one worker. What other connections may ask about it (`CLIENT LIST`) or do
//! to it (`CLIENT KILL`) goes through its [`Client`], which both sides share.

mod client;
mod filter;
mod pause;
mod registry;
mod strangers;

pub use self::client::{Client, ClientFlags, Identity};
pub use self::filter::Filter;
pub use self::pause::{Pause, PauseMode};
pub use self::registry::Registry;
pub use self::strangers::{STRANGERS, STRANGERS_OUTPUT_BYTES_MAX, output_class};
