//! Requests: found in place, in whatever pieces they arrive.
//!
//! The parser accepts what Redis 7.2 accepts and refuses the rest with its texts. Results do not depend on how the
//! input was split: the limits on lines apply exactly, while Redis notices an overlong line only when it has to wait
//! for its end.

mod apart;
mod args;
mod batch;
mod error;
mod inline;
mod kept;
mod limits;
mod opening;
mod parser;
mod rest;

pub use apart::parse_apart;
pub use args::{Args, ArgsTooLarge, OwnedArgs};
pub use batch::Batch;
pub use error::ProtocolError;
pub use kept::KeptRequests;
pub use limits::{AuthState, Limits};
pub use parser::{Parsed, Parser, Status};
pub use rest::Rest;
