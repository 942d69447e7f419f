//! Replies as a client reads them, in both versions.
//!
//! [`ReplyScanner`] skips replies without storing anything, for load generators, which only count.
//! [`ReplyDecoder`] turns each into a [`Value`]. Both accept the input in any pieces and do not trust the server:
//! whatever it sends leads at worst to an error, never to a panic or to memory beyond a fixed multiple of what
//! arrived.
//!
//! Streamed strings and aggregates, which version 3 specifies and no server sends, are refused.

mod decoder;
mod error;
mod scanner;
mod token;

pub use decoder::{DEPTH_MAX, ReplyDecoder, Value};
pub use error::ReplyError;
pub use scanner::{ReplyScanner, Scanned};
