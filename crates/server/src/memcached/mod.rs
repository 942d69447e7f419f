//! The protocols of memcached, on the same keys as everything else.
//!
//! | module | what it holds |
//! |---|---|
//! | `session` | the state of one connection |
//! | `serve` | what arrived together: find the language, parse, prefetch, execute |
//! | `run` | what executing a request needs, and what all protocols have in common |
//! | `text`, `meta`, `binary` | the commands of each language |
//! | `admin` | commands for operators |
//! | `dump` | all keys, for tools |
//! | `auth` | passwords in a protocol that has none, and SASL |
//! | `expiry` | what memcached's times mean |
//! | `operations` | names under which requests are counted |
//! | `counters`, `prefixes`, `stats` | memcached's own statistics |
//! | `shared` | what the workers share |

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

/// The version of memcached whose replies these are. Some client libraries want to know one.
pub const MEMCACHED_VERSION: &str = "1.6.18";

/// The error for a writer while the log cannot take writes.
const NOT_LOGGED: &str = "the log cannot be written, and writes are refused until it can";

/// The error for a writer while snapshots cannot be written, and `stop-writes-on-bgsave-error` is
/// on.
const NOT_SAVED: &str = "snapshots cannot be written, and writes are refused until they can";

/// The error for what the user may not do.
const NO_PERMISSION: &str = "the user has no permission for that";

/// The error for a reader of a key that holds no string.
const WRONG_TYPE: &str = "the key holds no string";

/// Of a replica.
const READ_ONLY: &str = "this server is a read only replica";

/// The error for a writer while there are fewer replicas than `min-replicas-to-write` wants.
const TOO_FEW_REPLICAS: &str = "not enough good replicas to write";

/// Of a replica that has lost its primary.
const PRIMARY_IS_DOWN: &str = "the link with the primary is down";
