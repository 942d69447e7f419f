//! The protocols of memcached, on the same keys as everything else.
//!
//! | module | what it holds |
//! |---|---|
//! | `session` | the state of one connection |
//! | `serve` | what arrived together: find the language, parse, prefetch, execute |
//! | `run` | what executing a request needs, and what all languages do alike |
//! | `text`, `meta`, `binary` | the commands of each language |
//! | `admin` | commands for operators |
//! | `dump` | all keys, for tools |
//! | `auth` | passwords in a protocol that has none, and SASL |
//! | `expiry` | what memcached's times mean |
//! | `counters`, `prefixes`, `stats` | accounts |
//! | `shared` | what the workers share |

mod admin;
mod auth;
mod binary;
mod counters;
mod dump;
mod expiry;
mod meta;
mod prefixes;
mod run;
mod serve;
mod session;
mod shared;
mod stats;
mod text;

pub use counters::Totals;
pub use serve::{BatchMemory, serve};
pub use session::Session;
pub use shared::Shared;

/// The version of memcached whose replies these are. Some client libraries want to know one.
pub const MEMCACHED_VERSION: &str = "1.6.18";

/// What a writer is told while the log cannot take writes.
const NOT_LOGGED: &str = "the log cannot be written, and writes are refused until it can";

/// What a reader of a key is told that holds no string.
const WRONG_TYPE: &str = "the key holds no string";
