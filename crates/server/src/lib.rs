//! The Tierce server: everything between a socket's bytes and the keyspace.
//!
//! In reading order:
//!
//! | module | what it holds |
//! |---|---|
//! | [`config`] | directives, their sources, and the values in force |
//! | `start` | from a configuration to a running server, and to its end |
//! | `listening`, `log` | where it listens, and what it tells its operator |
//! | `service` | the server as the event loops see it |
//! | `message` | what workers are told by others |
//! | `session` | the state of one connection |
//! | `batch` | requests that arrived together: parse, prefetch, execute |
//! | `plan`, `gates` | what is known of a batch ahead, and what its requests have to pass |
//! | `execute` | one request: lookup, checks, locks, the command |
//! | [`command`] | the table of commands: names, arity, flags, keys, documentation |
//! | `commands` | the commands themselves, by chapter |
//! | `reply` | writing replies in either protocol version |
//! | `memcached` | the protocols of memcached, on the same keys |
//! | `pedrokv` | the protocol of PedroKV, on the same keys |
//! | `foreign` | what the protocols beside RESP have in common |
//! | `engine` | the store: all of the following, without sessions |
//! | `durability` | the log of writes: recovery, syncing, compaction |
//! | `spill`, `fetch` | values that go to disk, and come back |
//! | `persistence` | snapshots, in Redis' formats |
//! | `eviction` | what happens at the limit of memory |
//! | [`transfer`] | import and export of data of Redis |
//! | `clients` | connections as others see them |
//! | `stats`, `meter`, `slowlog`, `latency` | accounts |
//! | `secrets` | what those may not show |

mod acknowledge;
mod batch;
mod blocking;
mod clients;
mod clock;
pub mod command;
mod commands;
mod compactness;
pub mod config;
/// For tests that drive the log without a server.
#[doc(hidden)]
pub mod durability;
mod engine;
mod error;
mod eviction;
mod execute;
mod fetch;
mod foreign;
#[doc(hidden)]
pub mod fuzzing;
mod gates;
pub mod inspection;
mod latency;
mod listening;
mod log;
mod memcached;
pub mod memory;
mod message;
mod meter;
mod pedrokv;
mod persistence;
mod plan;
mod process;
mod random;
mod reply;
mod secrets;
mod server;
mod service;
mod session;
mod slowlog;
mod spill;
mod start;
mod stats;
mod supervision;
#[cfg(test)]
mod test_dir;
mod transaction;
pub mod transfer;
mod waiting;

pub use commands::table as command_table;
pub use listening::ListeningError;
pub use log::LogError;
#[doc(hidden)]
pub use start::SyncClock;
pub use start::{Instance, StartError, Stopper, log_refusal, run};
pub use supervision::wants_background;

/// The version of Tierce.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of Redis whose commands and replies these are. Client libraries choose features by
/// what INFO and HELLO report, so it must be one they know.
pub const REDIS_VERSION: &str = "7.2.0";
