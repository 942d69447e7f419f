//! Makes writes durable: the log under the keyspace.
//!
//! * `durable_log`: the log itself; where changes go, and what happens when they cannot.
//! * `recovery`: from the log back to the keys, before the first client is served.
//! * `cut_search`: the changes behind a place in the log.
//! * `first_log`: a log that begins with what was loaded from elsewhere.
//! * `syncer`: a thread that has the log reach the device, by policy.
//! * `exposure`: holding writers back where that takes too long.
//! * `compactor`: writing live keys again so that the old part of the log can go.
//! * `wal_manager`: what decides when that is done, and begins, heals and closes the log at run time.
//! * `log_directory`: where the log is, and which one counts.
//! * `host`: what all of these need from the program around them.
//! * `serving`: the log with its threads.
//!
//! What holds whatever the policy: a write is in the operating system's hands before its reply is
//! sent, so the death of the process loses nothing that was acknowledged. Under `always`, the replies
//! of a connection are held back until the log has reached the device; other connections continue.

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
