//! The Tierce server: everything between a socket's bytes and the commands, which are `tierce-commands`.
//!
//! In reading order:
//!
//! | module | contents |
//! |---|---|
//! | `start` | from a configuration to a running server, and to its shutdown |
//! | `listening` | opening and closing listeners |
//! | `tls` | certificates and keys of encrypted connections, and their failures |
//! | `server` | state that all workers share |
//! | `dispatcher` | the server as the event loops see it |
//! | `session` | a connection that speaks RESP |
//! | `batch` | requests that arrived together: parse, prefetch, execute |
//! | `memcached` | the protocols of memcached, on the shared keyspace |
//! | `pedrokv` | the protocol of PedroKV, on the shared keyspace |
//! | `turn` | how long one connection is served before the next one |
//! | `front_ends` | common parts of the protocols other than RESP |
//! | `connection` | a connection of any protocol, and the delivery of deferred replies |
//! | `suspend`, `fetcher`, `awaiting`, `set_aside` | waiting: for a time, for values on disk, for the log, for shards |
//! | `bucket` | the thread that writes the log in a bucket, and its steps at startup |
//! | `replication` | the threads of a primary and of a replica |

mod awaiting;
mod batch;
#[cfg(feature = "bucket")]
mod bucket;
#[cfg(not(feature = "bucket"))]
#[path = "no_bucket.rs"]
mod bucket;
mod connect;
mod connection;
mod deadlines;
mod deliver;
mod dispatcher;
mod fetcher;
mod front_ends;
mod last_words;
mod listening;
mod long_commands;
mod mail;
mod memcached;
mod pedrokv;
mod pid_file;
mod replication;
mod results;
mod server;
mod session;
mod set_aside;
#[cfg(test)]
mod simulation;
mod start;
mod supervision;
mod suspend;
mod tls;
mod turn;

use tierce_commands as commands;
use tierce_commands::pipeline::{admission, blocking, fetch, meter, plan};
use tierce_commands::{
    acl, answer, caller, clients, command_log, error, fault, kernel, message, monitors,
    notifications, offload, outgoing, pipeline, process, pubsub, reply, shutdown, stats, tracking,
    waiting,
};
use tierce_config as config;
use tierce_engine as engine;
use tierce_engine::{clock, durability, log, persistence};

pub use bucket::BucketError;
#[cfg(feature = "bucket")]
pub use bucket::{Restored, restore_into};
pub use listening::ListeningError;
pub use start::{
    Console, Ended, Instance, StartError, Stopper, check_access, descriptors_needed, is_open,
    log_refusal, run,
};
#[doc(hidden)]
pub use start::{Shards, SyncClock};
pub use supervision::wants_background;
pub use tierce_commands::{command, table as command_table, table_for as command_table_for};
pub use tierce_engine::{REDIS_VERSION, VERSION};
pub use tls::{CERTIFICATE_DAYS_MIN, TlsError, check as check_tls, ends as certificates_end};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
