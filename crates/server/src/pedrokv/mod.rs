//! The protocol of PedroKV, on the keyspace that all protocols share.
//!
//! | module | contents |
//! |---|---|
//! | `session` | the state of one connection |
//! | `serve` | requests that arrived together: parse, prefetch, execute |
//! | `run` | one request and its response |
//!
//! The protocol has three kinds of requests and nothing else: no databases, no times to live, no
//! password. Its clients see one database, and their values never expire.

mod run;
mod serve;
mod session;

use tierce_keyspace::DbIndex;
use tierce_wire::pedrokv::Failure;

use crate::command::Operations;

pub use serve::{BatchMemory, serve};
pub use session::Session;

/// Names under which requests are counted.
pub const OPERATIONS: &[&str] = &["pedrokv|get", "pedrokv|put", "pedrokv|delete"];

/// State of this protocol that the workers share.
pub struct Shared {
    /// Database that it sees.
    pub db: DbIndex,
    /// Path of its Unix socket; empty if there is none.
    pub unix_path: String,
    /// Operations that its requests are counted as.
    pub operations: Operations,
}

/// Error for clients while a password is set, which this protocol cannot transfer.
const PASSWORD: &str = "err: there is a password, which this protocol cannot say";

/// Error for a writer when memory is above its limit and nothing may be evicted.
const OUT_OF_MEMORY: &str = "err: out of memory";

/// Error for requests that the default user, who all clients of this protocol are, may not make.
const NO_PERMISSION: &str = "err: the default user has no permission for that";

/// Error for a reader of a key that holds no string, or a string that fits into no frame.
const NOT_A_VALUE: &str = Failure::NotSupported.text();

/// Error for a writer to a replica.
const READ_ONLY: &str = "err: this server is a read only replica";

/// Error for a writer while there are fewer replicas than `min-replicas-to-write` requires.
const TOO_FEW_REPLICAS: &str = "err: not enough good replicas to write";

/// Error for a client of a replica that has lost its primary.
const PRIMARY_IS_DOWN: &str = "err: the link with the primary is down";

/// Error for a client that needs a key which a script has kept locked for too long.
const BUSY: &str = "err: a script keeps the key busy";

/// Error for all requests while data are being loaded.
const LOADING: &str = "err: the server is loading the dataset";
