//! What makes writes durable: the log under the keyspace.
//!
//! * `journal`: the log itself; where changes go, and what happens when they cannot.
//! * `recovery`: from the log back to the keys, before anybody is served.
//! * `syncer`: a thread that has the log reach the device, by policy.
//! * `exposure`: holding writers back where that takes too long.
//! * `compactor`: writing live keys again so that the old part of the log can go.
//! * `keeper`: what decides when that is done, and begins, heals and closes the log at run time.
//! * `home`: where the log is, and which one counts.
//! * `host`: what all of these need of the program around them.
//! * `serving`: the log with its threads.
//!
//! What holds whatever the policy: a write is in the operating system's hands before its reply is
//! sent, so the death of the process loses nothing that was acknowledged. Under `always`, the replies
//! of a connection are kept back until the log has reached the device; other connections go on.

mod compactor;
mod exposure;
mod home;
mod host;
mod journal;
mod keeper;
mod recovery;
mod serving;
mod syncer;

pub use crate::config::SyncPolicy;
pub use compactor::{CompactionFigures, NotCompacted};
pub use home::{LogHome, LogOptions};
pub(crate) use home::{cold_dir, log_dir};
pub use host::{Host, KeeperSettings, Operator, SWITCHED_BY_ANOTHER, Severity, Switched, SyncHost};
pub use journal::{Journal, JournalFigures};
pub use keeper::{Keeper, Next};
pub(crate) use recovery::{Losses, replay};
pub use recovery::{RecoveryError, recover};
pub use serving::{Durability, Reached};
