//! Turns bodies and paths of requests into commands, and replies into JSON.
//!
//! Pure bytes in and out. The crate is separate from `tierce-gateway` because every byte of a request and its reply
//! passes through it: it is optimized for speed, and the HTTP code around it for size.

#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod fuzzing;
mod reply;
pub mod request;

pub use reply::{Form, Strings, append_base64, decode, error};

/// Reason why a request has no commands, or no reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The request itself is malformed.
    Malformed(String),
    /// The command replied with this error.
    OfCommand(String),
    /// The reply of the command has no form in JSON.
    NotShown,
}
