//! Replies, from a client's point of view, in both versions.
//!
//! [`ReplyScanner`] skips replies without storing anything, for load generators, which only count. [`ReplyDecoder`]
//! turns each into a [`Value`]. Both accept the input in any pieces and do not trust the server: any input causes
//! at worst an error, never a panic, and never memory beyond a fixed multiple of the received bytes.
//!
//! Streamed strings and aggregates are refused: version 3 specifies them, but no server sends them.

mod decoder;
mod error;
mod scanner;
mod token;

pub use decoder::{DEPTH_MAX, ReplyDecoder, Value};
pub use error::ReplyError;
pub use scanner::{ReplyScanner, Scanned};
