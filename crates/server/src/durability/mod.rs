//! What makes writes durable: the log under the keyspace.
//!
//! * [`journal`]: the log itself; where changes go, and what happens when they cannot.
//! * [`recovery`]: from the log back to the keys, before anybody is served.
//! * [`syncer`]: a thread that has the log reach the device, by policy.
//! * [`compactor`]: writing live keys again so that the old part of the log can go.
//! * [`keeper`]: the thread that does that, and that begins and closes the log at run time.
//! * [`home`]: where the log is, and which one counts.
//! * [`policy`]: when a write is durable enough to be acknowledged.
//!
//! What holds whatever the policy: a write is in the operating system's hands before its reply is
//! sent, so the death of the process loses nothing that was acknowledged. Under `always`, the replies
//! of a connection are kept back until the log has reached the device; other connections go on.

mod compactor;
mod home;
mod journal;
mod keeper;
mod policy;
mod recovery;
mod syncer;

pub use compactor::CompactionFigures;
pub(crate) use home::{LogHome, is_log_name, log_dir};
pub use journal::Journal;
pub use policy::SyncPolicy;
pub use recovery::RecoveryError;
pub(crate) use recovery::{Losses, replay};

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tierce_cask::disk::OsDisk;
use tierce_keyspace::Keyspace;

use crate::error::CommandError;
use crate::log::Log;
use crate::server::Server;

/// The log and its threads.
pub struct Durability {
    journal: Arc<Journal>,
    home: LogHome,
    keeper: Mutex<Option<keeper::Keeper>>,
}

impl Durability {
    /// Around a journal, which has a log or not.
    #[must_use]
    pub(crate) fn new(journal: Arc<Journal>, home: LogHome) -> Self {
        Self { journal, home, keeper: Mutex::default() }
    }

    /// For a server that never has a log: that of a tool.
    pub(crate) fn without_log() -> Self {
        Self::new(Arc::default(), LogHome::new(Arc::new(OsDisk), Path::new("")))
    }

    /// The log, if there is one.
    #[must_use]
    #[inline]
    pub fn journal(&self) -> Option<&Arc<Journal>> {
        Some(&self.journal).filter(|journal| journal.is_on())
    }

    /// Has a log begun, or the present one closed, soon.
    pub fn switch(&self, on: bool) {
        self.journal.switch(on);
    }

    /// Whether there is a log, or one is about to be begun.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.journal.is_wanted()
    }

    /// Figures for INFO.
    #[must_use]
    pub fn compaction_figures(&self) -> CompactionFigures {
        self.journal.compaction_figures()
    }

    /// Whether writes have to be refused because the log cannot take them.
    #[must_use]
    #[inline]
    pub fn refuses_writes(&self) -> bool {
        self.journal.is_wounded() && self.journal.is_on()
    }

    /// The reply to a write while they are refused.
    #[must_use]
    pub fn misconfigured(&self) -> CommandError {
        let cause =
            self.journal.wound().unwrap_or_else(|| "the log is being written anew".to_owned());
        CommandError::text(format!("MISCONF Errors writing to the AOF file: {cause}"))
    }

    /// Starts the threads that keep the log.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start(&self, server: &Arc<Server>) -> std::io::Result<()> {
        *self.keeper.lock() = Some(keeper::Keeper::start(&self.journal, &self.home, server)?);
        Ok(())
    }

    /// Ends the threads and closes the log; everything is on the device then.
    pub fn stop(&self, log: &Log) {
        drop(self.keeper.lock().take());
        if let Err(error) = self.journal.close() {
            log.warning(format_args!("The log could not be closed: {error}"));
        }
    }
}

/// Loads what the log in the data directory holds into the keyspace, which from then on writes
/// there.
///
/// Returns whether there has ever been a record in the log: not in a new one. With `accepts_losses`,
/// values that the log says are on disk may be gone, which the operator is told.
///
/// # Errors
/// When the log cannot be read, with the file and what can be done.
pub(crate) fn recover(
    journal: &Journal,
    keyspace: &Arc<Keyspace>,
    home: &LogHome,
    log: &Log,
    accepts_losses: bool,
) -> Result<bool, RecoveryError> {
    let dir = home.current()?;
    home.clear_others(&dir)?;
    recovery::recover(journal, keyspace, Arc::clone(&home.disk), &dir, log, accepts_losses)
}
