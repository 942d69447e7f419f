//! What makes writes durable: the log under the keyspace.
//!
//! * [`journal`]: the log itself; where changes go, and what happens when they cannot.
//! * [`recovery`]: from the log back to the keys, before anybody is served.
//! * [`syncer`]: a thread that has the log reach the device, by policy.
//! * [`compactor`]: a thread that writes live keys again so that the old part of the log can go.
//! * [`policy`]: when a write is durable enough to be acknowledged.
//!
//! What holds whatever the policy: a write is in the operating system's hands before its reply is
//! sent, so the death of the process loses nothing that was acknowledged. Under `always`, the replies
//! of a connection are kept back until the log has reached the device; other connections go on.

mod compactor;
mod journal;
mod policy;
mod recovery;
mod syncer;

pub use journal::Journal;
pub use policy::SyncPolicy;
pub use recovery::RecoveryError;
pub(crate) use recovery::replay;

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tierce_cask::disk::Disk;
use tierce_keyspace::Keyspace;

use crate::config::Startup;
use crate::error::CommandError;
use crate::log::Log;
use crate::server::Server;

/// The log and its threads; nothing of it with `appendonly no`.
#[derive(Default)]
pub struct Durability {
    journal: Option<Arc<Journal>>,
    threads: Mutex<Option<Threads>>,
}

struct Threads {
    _syncer: syncer::Syncer,
    _compactor: compactor::Compactor,
}

impl Durability {
    /// With a log, or without one.
    #[must_use]
    pub fn new(journal: Option<Arc<Journal>>) -> Self {
        Self { journal, threads: Mutex::default() }
    }

    /// The log, if there is one.
    #[must_use]
    #[inline]
    pub fn journal(&self) -> Option<&Arc<Journal>> {
        self.journal.as_ref()
    }

    /// Whether writes have to be refused because the log cannot take them.
    #[must_use]
    #[inline]
    pub fn refuses_writes(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.is_wounded())
    }

    /// The reply to a write while they are refused.
    #[must_use]
    pub fn misconfigured(&self) -> CommandError {
        let cause = self.journal.as_ref().and_then(|journal| journal.wound());
        let cause = cause.unwrap_or_else(|| "the log is being written anew".to_owned());
        CommandError::text(format!("MISCONF Errors writing to the AOF file: {cause}"))
    }

    /// Starts the threads that sync and compact the log.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start(&self, server: &Arc<Server>) -> std::io::Result<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        *self.threads.lock() = Some(Threads {
            _syncer: syncer::Syncer::start(journal, server)?,
            _compactor: compactor::Compactor::start(journal, server)?,
        });
        Ok(())
    }

    /// Ends the threads and closes the log; everything is on the device then.
    pub fn stop(&self, log: &Log) {
        drop(self.threads.lock().take());
        if let Some(journal) = &self.journal
            && let Err(error) = journal.close()
        {
            log.warning(format_args!("The log could not be closed: {error}"));
        }
    }
}

/// Loads what the log in the data directory holds into the keyspace, which from then on writes
/// there.
///
/// Returns whether there was any record in the log: there is none in a new one.
///
/// # Errors
/// When the log cannot be read, with the file and what can be done.
pub fn recover(
    journal: &Journal,
    keyspace: &Arc<Keyspace>,
    disk: Arc<dyn Disk>,
    startup: &Startup,
    log: &Log,
) -> Result<bool, RecoveryError> {
    recovery::recover(journal, keyspace, disk, &log_dir(&startup.dir), log)
}

/// Where the log is inside of the data directory.
#[must_use]
pub fn log_dir(dir: &Path) -> std::path::PathBuf {
    dir.join("wal")
}
