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

use tierce_keyspace::DbIndex;
use tierce_wire::pedrokv::Failure;

use crate::command::Operations;

pub use serve::{BatchMemory, serve};
pub use session::Session;

/// What requests are accounted for as.
pub const OPERATIONS: &[&str] = &["pedrokv|get", "pedrokv|put", "pedrokv|delete"];

/// What the workers share for this protocol.
pub struct Shared {
    /// The database that it sees.
    pub db: DbIndex,
    /// Where its Unix socket is; empty if there is none.
    pub unix_path: String,
    /// As what its requests are accounted for.
    pub operations: Operations,
}

/// The error for clients while a password is set, which this protocol cannot carry.
const PASSWORD: &str = "err: there is a password, which this protocol cannot say";

/// The error for a writer when memory is beyond its limit and nothing may be evicted.
const OUT_OF_MEMORY: &str = "err: out of memory";

/// The error for what the default user, who all clients of this protocol are, may not do.
const NO_PERMISSION: &str = "err: the default user has no permission for that";

/// The error for a reader of a key that holds no string, or a string that fits no frame.
const NOT_A_VALUE: &str = Failure::NotSupported.text();

/// The error for a writer to a replica.
const READ_ONLY: &str = "err: this server is a read only replica";

/// The error for a writer while there are fewer replicas than `min-replicas-to-write` wants.
const TOO_FEW_REPLICAS: &str = "err: not enough good replicas to write";

/// The error for a client of a replica that has lost its primary.
const PRIMARY_IS_DOWN: &str = "err: the link with the primary is down";
