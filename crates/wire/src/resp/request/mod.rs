//! Requests: parsed in place, in whatever pieces they arrive.
//!
//! The parser accepts what Redis 7.2 accepts and refuses the rest with its texts. Results do not depend on how the
//! input was split: line limits apply exactly, while Redis notices an overlong line only when it has to wait for
//! its end.

mod args;
mod batch;
mod error;
mod inline;
mod kept;
mod limits;
mod opening;
mod parser;
mod rest;
mod side_buffer;

pub use args::{Args, ArgsTooLarge, OwnedArgs};
pub use batch::Batch;
pub use error::ProtocolError;
pub use kept::KeptRequests;
pub use limits::{AuthState, Limits};
pub use parser::{Parsed, Parser, Status};
pub use rest::Rest;
pub use side_buffer::parse_with_side_buffer;
