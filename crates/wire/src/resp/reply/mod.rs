//! Replies as a client reads them, in both versions.
//!
//! [`ReplyScanner`] passes over replies without storing anything, which is what a load generator
//! wants: it counts. [`ReplyDecoder`] turns each into a [`Value`]. Both accept any cut of the
//! input, and treat the server as just another peer: what it sends leads to an error, never to a
//! panic or to memory beyond a fixed multiple of what arrived.
//!
//! Streamed strings and aggregates, which version 3 describes and no server sends, are refused.

mod decoder;
mod error;
mod scanner;
mod token;

pub use decoder::{DEPTH_MAX, ReplyDecoder, Value};
pub use error::ReplyError;
pub use scanner::{ReplyScanner, Scanned};
