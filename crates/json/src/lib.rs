//! Bodies and paths of requests as commands, and replies as JSON.
//!
//! Pure bytes in and out. It is a crate apart from `tierce-gateway` because all bytes of a request and of its reply pass
//! here: it is optimized for speed, and the code of HTTP around it for size.

#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod fuzzing;
mod reply;
pub mod request;

pub use reply::{Form, Strings, append_base64, decode, error};

/// Why a request has no commands, or no reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The request is wrong itself.
    Malformed(String),
    /// Its command has replied this error.
    OfCommand(String),
    /// What the command has replied has no form in JSON.
    NotShown,
}
