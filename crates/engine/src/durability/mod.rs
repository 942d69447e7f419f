//! Makes writes durable: the log of the keyspace.
//!
//! * `durable_log`: the log itself, which takes changes, and its write errors.
//! * `recovery`: loads the log into the keyspace before the first client is served.
//! * `cut_search`: the changes after a given offset of the log.
//! * `first_log`: creates a log from keys that were loaded from elsewhere.
//! * `syncer`: the thread that syncs the log, by policy.
//! * `exposure`: makes writers wait while a sync takes too long.
//! * `compactor`: writes live keys again so that the old part of the log can be dropped.
//! * `wal_manager`: decides when to compact, and creates, heals and closes the log at run time.
//! * `log_directory`: location of the logs, and which one is authoritative.
//! * `host`: the interface to the program around all of these.
//! * `serving`: the log with its threads.
//!
//! Guarantee under every policy: a write is handed to the operating system before its reply is sent.
//! So the death of the process loses no acknowledged write. Under `always`, the replies of a
//! connection are deferred until the log is synced; other connections continue.

mod compactor;
mod cut_search;
mod durable_log;
mod exposure;
mod first_log;
mod host;
mod log_directory;
mod recovery;
mod serving;
mod syncer;
mod wal_manager;

pub use compactor::{CompactionFigures, NotCompacted};
pub use cut_search::CutSearch;
pub use durable_log::{DurableLog, WalFigures};
pub use host::{
    CompactionSettings, Host, Operator, SWITCHED_BY_ANOTHER, Severity, Switched, SyncHost,
};
pub use log_directory::{LogDirectory, LogOptions, cold_dir, existing_log, log_dir};
pub use recovery::{Losses, RecoveryError, leave_stream, recover, replay, was_ever_written};
pub use serving::{Durability, Reached};
pub use tierce_config::SyncPolicy;
pub use wal_manager::{Next, WalManager};
