//! The protocols of memcached, on the keyspace that all protocols share.
//!
//! | module | contents |
//! |---|---|
//! | `session` | the state of one connection |
//! | `serve` | requests that arrived together: detect the protocol, parse, prefetch, execute |
//! | `run` | execution of a request, common to all languages |
//! | `text`, `meta`, `binary` | the commands of each language |
//! | `admin` | commands for operators |
//! | `dump` | all keys, for tools |
//! | `auth` | passwords in a protocol that has none, and SASL |
//! | `expiry` | the meaning of memcached's times |
//! | `operations` | names under which requests are counted |
//! | `counters`, `prefixes`, `stats` | memcached's own statistics |
//! | `shared` | state that the workers share |

mod admin;
mod auth;
mod binary;
mod counters;
mod dump;
mod expiry;
mod meta;
mod operations;
mod prefixes;
mod run;
mod serve;
mod session;
mod shared;
mod stats;
mod text;

pub use operations::NAMES as OPERATIONS;
pub use serve::{BatchMemory, serve};
pub use session::Session;
pub use shared::{Host, Shared};

/// Version of memcached whose replies are used. Some client libraries ask for one.
pub const MEMCACHED_VERSION: &str = "1.6.18";

/// Error for a writer while the log cannot take writes.
const NOT_LOGGED: &str = "the log cannot be written, and writes are refused until it can";

/// Error for a writer while snapshots cannot be written, and `stop-writes-on-bgsave-error` is on.
const NOT_SAVED: &str = "snapshots cannot be written, and writes are refused until they can";

/// Error for a request that the user may not make.
const NO_PERMISSION: &str = "the user has no permission for that";

/// Error for a reader of a key that holds no string.
const WRONG_TYPE: &str = "the key holds no string";

/// Error for a writer to a replica.
const READ_ONLY: &str = "this server is a read only replica";

/// Error for a writer while there are fewer replicas than `min-replicas-to-write` requires.
const TOO_FEW_REPLICAS: &str = "not enough good replicas to write";

/// Error for a client of a replica that has lost its primary.
const PRIMARY_IS_DOWN: &str = "the link with the primary is down";

/// Error for a client that needs a key which a script has kept locked for too long.
const BUSY: &str = "a script keeps the key busy";

/// Error for all requests while data are being loaded.
const LOADING: &str = "the server is loading the dataset";
