//! The protocol of PedroKV, on the same keys as everything else.
//!
//! | module | what it holds |
//! |---|---|
//! | `session` | the state of one connection |
//! | `serve` | what arrived together: parse, prefetch, execute |
//! | `run` | one request and its response |
//!
//! The protocol has three kinds of requests and nothing else: no databases, no times to live, no
//! password. Its clients see one database, and what they store never expires.

mod run;
mod serve;
mod session;

use tierce_wire::pedrokv::Failure;

pub use serve::{BatchMemory, serve};
pub use session::Session;

/// What clients are told while there is a password, for which this protocol has no place.
const PASSWORD: &str = "err: there is a password, which this protocol cannot say";

/// What a writer is told when memory is beyond its limit and nothing may be evicted.
const OUT_OF_MEMORY: &str = "err: out of memory";

/// What a reader is told of a key that holds no string, or a string that fits no frame.
const NOT_A_VALUE: &str = Failure::NotSupported.text();
