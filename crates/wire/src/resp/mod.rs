//! RESP, the Redis protocol: requests of clients, replies of the server.
//!
//! The byte layouts are in `docs/formats/resp.md`. Versions 2 and 3 differ in replies only: a
//! request is an array of bulk strings in both, or an inline line of words.
//!
//! | module | direction | what it does |
//! |---|---|---|
//! | `request` | client to server | finds the complete requests of an input, in place |
//! | `encode` | server to client | appends replies to a buffer |
//! | `reply` | server to client | counts replies or decodes them, for clients and tests |

mod encode;
mod reply;
mod request;

pub use encode::Encoder;
pub use reply::{DEPTH_MAX, ReplyDecoder, ReplyError, ReplyScanner, Scanned, Value};
pub use request::{
    Args, ArgsTooLarge, AuthState, Batch, KeptRequests, Limits, OwnedArgs, Parsed, Parser,
    ProtocolError, Rest, Status, parse_with_side_buffer,
};

/// Protocol version of a connection, chosen by `HELLO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Proto {
    /// Version 2; every connection starts with it.
    #[default]
    Resp2,
    /// Version 3, with separate types for maps, sets, doubles, booleans and pushes.
    Resp3,
}
