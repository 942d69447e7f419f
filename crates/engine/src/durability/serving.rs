//! The log with its threads.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use parking_lot::Mutex;
use tierce_keyspace::Keyspace;
use tierce_storage::disk::{OsDisk, Space};

use super::compactor::CompactionFigures;
use super::cut_search::CutSearch;
use super::durable_log::DurableLog;
use super::exposure;
use super::first_log;
use super::host::{Host, Operator, SWITCHED_BY_ANOTHER, Severity, SyncHost};
use super::log_directory::{LogDirectory, LogOptions};
use super::recovery::{self, RecoveryError};
use super::syncer::Syncer;
use super::wal_manager::{Next, WalManager};
use crate::loading::Loading;
use crate::log::Log;
use tierce_config::SyncPolicy;

/// The log and its threads.
pub struct Durability {
    durable_log: Arc<DurableLog>,
    log_directory: LogDirectory,
    threads: Mutex<Option<Threads>>,
    outside: Outside,
    search: Mutex<Option<CutSearch>>,
}

/// Restrictions on writers by the external storage that also keeps the writes.
#[derive(Default)]
struct Outside {
    /// Reason why writes are refused, once they are.
    cause: OnceLock<String>,
    /// Writers must wait.
    is_held: AtomicBool,
}

/// Result of switching the log, for the client that asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reached {
    /// The log is in the wanted state.
    Now,
    /// The outcome is known when the switch with this id has ended.
    Later(u64),
    /// The log is not in the wanted state, for this reason.
    Never(String),
}

impl Durability {
    /// Wraps a durable log, which may or may not have an open log.
    pub fn new(durable_log: Arc<DurableLog>, log_directory: LogDirectory) -> Self {
        let (threads, outside, search) = Default::default();
        Self { durable_log, log_directory, threads, outside, search }
    }

    /// Creates one for the server of a tool, which never has a log.
    pub fn without_log() -> Self {
        let log_directory =
            LogDirectory::new(Arc::new(OsDisk), Path::new(""), LogOptions::default());
        Self::new(Arc::default(), log_directory)
    }

    /// Returns true if the log that [`Durability::recover`] would load has ever had a record. Call it before that.
    ///
    /// # Errors
    /// When the data directory cannot be read.
    pub fn was_ever_written(&self) -> Result<bool, RecoveryError> {
        recovery::was_ever_written(&self.log_directory)
    }

    /// Returns the log in the data directory if this process has neither loaded nor written it, because `appendonly`
    /// was off at the start. A log that is created now would replace it.
    ///
    /// # Errors
    /// When the data directory cannot be read, or the authoritative log is missing.
    pub fn unread_log(&self) -> io::Result<Option<PathBuf>> {
        match self.durable_log.is_on() || self.durable_log.was_on() {
            true => Ok(None),
            false => self.log_directory.existing(),
        }
    }

    /// Loads the log of the data directory into the keyspace, which logs its changes there from now on; see
    /// [`recover`](super::recover).
    ///
    /// # Errors
    /// When the log cannot be read, with the file and the remedy.
    pub fn recover(
        &self,
        keyspace: &Arc<Keyspace>,
        operator: &dyn Operator,
        accepts_losses: bool,
        loading: &Loading,
    ) -> Result<(), RecoveryError> {
        let Self { durable_log, log_directory, .. } = self;
        loading.expect(log_directory.bytes());
        let loaded = (&**durable_log, keyspace, log_directory);
        let mut search = self.search.lock();
        let search = search.as_mut();
        recovery::recover_and_search(loaded, operator, accepts_losses, loading, search)
    }

    /// Makes [`Durability::recover`] search the log.
    pub fn search(&self, search: CutSearch) {
        *self.search.lock() = Some(search);
    }

    /// Returns the result of that search; see [`CutSearch::finish`].
    pub fn take_found(&self) -> Option<Vec<Vec<u8>>> {
        self.search.lock().take()?.finish()
    }

    /// Writes all of `keyspace` to a new log in the data directory, which has none, and logs changes there from now
    /// on. If this fails, or the process dies meanwhile, the directory has no log.
    ///
    /// # Errors
    /// When the directory cannot be written to.
    pub fn begin_with(&self, keyspace: &Keyspace) -> Result<(), RecoveryError> {
        first_log::begin_with(&self.durable_log, keyspace, &self.log_directory)
    }

    /// Refuses all writes from now on, for this reason, and acknowledges no write that still waits for storage: the
    /// external storage belongs to another server.
    pub fn refuse(&self, cause: &str) {
        self.outside.cause.get_or_init(|| cause.to_owned());
    }

    /// Makes writers wait while the external storage that keeps their writes is behind.
    pub fn hold_for_outside(&self, is_held: bool) {
        self.outside.is_held.store(is_held, Ordering::Relaxed);
    }

    /// Returns true if [`hold_for_outside`](Self::hold_for_outside) is in force.
    #[inline]
    pub fn is_held_for_outside(&self) -> bool {
        self.outside.is_held.load(Ordering::Relaxed)
    }

    /// Returns the log if there is one, or would be if it had not failed.
    #[must_use]
    #[inline]
    pub fn durable_log(&self) -> Option<&Arc<DurableLog>> {
        Some(&self.durable_log).filter(|durable_log| durable_log.is_on())
    }

    /// Returns the durable log, even if it is switched off.
    #[must_use]
    pub fn wal_on_or_off(&self) -> &Arc<DurableLog> {
        &self.durable_log
    }

    /// Requests that a log is created, or the present one closed, soon.
    pub fn switch(&self, on: bool) {
        self.durable_log.switch(on);
    }

    /// Returns the state of a switch. `has_changed` is false if the setting already had this value.
    pub fn reached(&self, on: bool, has_changed: bool) -> Reached {
        if let Some(switch_id) = self.durable_log.switching() {
            return Reached::Later(switch_id);
        }
        match self.durable_log.write_error() {
            // After `has_changed` the switch itself has succeeded, even if the new log has failed since.
            Some(cause) if on && !has_changed => Reached::Never(self.still_failing(&cause)),
            _ if on != self.durable_log.is_on() => {
                let failure = self.durable_log.switch_failure();
                Reached::Never(failure.unwrap_or_else(|| SWITCHED_BY_ANOTHER.to_owned()))
            }
            _ => Reached::Now,
        }
    }

    /// Returns the error for a client that wants a log when the present one has failed.
    fn still_failing(&self, cause: &str) -> String {
        let what_next = match self.durable_log.may_heal() {
            true => "another one is being written, and writes are refused until it is complete",
            false => self.way_to_another_log(),
        };
        format!("the log has failed ({cause}); {what_next}")
    }

    /// Returns true if there is a log, or one is about to be created.
    pub fn is_wanted(&self) -> bool {
        self.durable_log.is_wanted()
    }

    /// Returns the figures for INFO.
    pub fn compaction_figures(&self) -> CompactionFigures {
        self.durable_log.compaction_figures()
    }

    /// Returns true if the log cannot take writes. Followers of the log do not get refused writes either.
    #[inline]
    pub fn log_has_failed(&self) -> bool {
        self.durable_log.has_write_error() && self.durable_log.is_on()
    }

    /// Returns true if writes must be refused: the log has failed, or the external storage cannot keep them.
    #[inline]
    pub fn refuses_writes(&self) -> bool {
        self.log_has_failed() || self.outside.cause.get().is_some()
    }

    /// Returns the positions of a log that could not be closed which never became durable: after the first, up to
    /// the last.
    pub fn lost(&self) -> Option<Range<u64>> {
        self.durable_log.lost()
    }

    /// Returns true if writers under this policy must wait: for a slow sync, for external storage, or for a pass
    /// that needs the rest of the disk. The policy matters only for a slow sync.
    #[inline]
    pub fn holds_back(&self, policy: impl FnOnce() -> SyncPolicy) -> bool {
        self.durable_log.keeps_room()
            || self.is_held_for_outside()
            || self.durable_log.exposure.is_too_long() && policy() == SyncPolicy::EverySecond
    }

    /// Notes that a writer waits. Returns after how many milliseconds it must check again, if nobody wakes it
    /// earlier.
    pub fn hold_back(&self) -> u64 {
        if self.durable_log.exposure.is_too_long() {
            self.durable_log.exposure.hold();
        }
        exposure::CHECK_AGAIN_MS
    }

    /// Returns how many times writers began to wait.
    pub fn delays(&self) -> u64 {
        self.durable_log.exposure.delays()
    }

    /// Advances the clock of that decision, for tests.
    #[doc(hidden)]
    pub fn advance_clock(&self, ms: u64) {
        self.durable_log.exposure.advance(ms);
    }

    /// Returns the reason why writes are refused, with the missing space if a new log lacks room.
    pub fn write_failure(&self) -> Option<String> {
        let of_log = || {
            let cause = self.durable_log.write_error()?;
            let needed = self.durable_log.compaction.needed();
            let lacks = self.disk_space().filter(|space| space.free < needed);
            let lack = lacks.map(|space| self.log_directory.lack_of_room(needed, &space));
            Some(lack.map_or(cause.clone(), |lack| format!("{cause}; {lack}")))
        };
        self.outside.cause.get().cloned().or_else(of_log)
    }

    /// Notes if values may be spilled: then the log cannot be switched at run time.
    pub fn note_spilling(&self, spills: bool) {
        self.log_directory.spills.store(spills, Ordering::Relaxed);
    }

    /// Returns the remedy for a log that has failed for good.
    pub fn way_to_another_log(&self) -> &'static str {
        self.log_directory.way_to_another()
    }

    /// Returns the space of the device that holds the data directory.
    pub fn disk_space(&self) -> Option<Space> {
        self.log_directory.disk.space(&self.log_directory.dir)
    }

    /// Returns the data directory.
    pub fn dir(&self) -> &Path {
        &self.log_directory.dir
    }

    /// Starts the threads of the log.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn start(&self, keyspace: &Arc<Keyspace>, host: Arc<dyn SyncHost>) -> io::Result<()> {
        let syncer = Syncer::start(&self.durable_log, Arc::clone(&host))?;
        let wal_manager =
            WalManagerThread::start(&self.durable_log, &self.log_directory, keyspace, host)?;
        *self.threads.lock() = Some(Threads { _wal_manager: wal_manager, _syncer: syncer });
        Ok(())
    }

    /// Ends the threads and closes the log. Everything is durable afterwards.
    pub fn stop(&self, log: &Log) {
        drop(self.threads.lock().take());
        if let Err(error) = self.durable_log.close() {
            log.warning(format_args!("The log could not be closed: {error}"));
        }
    }
}

/// The threads; they end in this order when dropped.
struct Threads {
    _wal_manager: WalManagerThread,
    _syncer: Syncer,
}

/// The thread that calls [`WalManager::step`]; dropping it waits for its end.
struct WalManagerThread {
    durable_log: Arc<DurableLog>,
    thread: Option<JoinHandle<()>>,
}

impl WalManagerThread {
    fn start(
        durable_log: &Arc<DurableLog>,
        log_directory: &LogDirectory,
        keyspace: &Arc<Keyspace>,
        host: Arc<dyn Host>,
    ) -> io::Result<Self> {
        let (keyspace, log_directory) = (Arc::clone(keyspace), log_directory.clone());
        let of_thread = Arc::clone(durable_log);
        let thread = thread::Builder::new().name("wal-manager".into());
        let thread = thread.spawn(move || run(&keyspace, of_thread, log_directory, host))?;
        Ok(Self { durable_log: Arc::clone(durable_log), thread: Some(thread) })
    }
}

impl Drop for WalManagerThread {
    fn drop(&mut self) {
        self.durable_log.request_end();
        if let Some(thread) = self.thread.take() {
            // The panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn run(
    keyspace: &Keyspace,
    durable_log: Arc<DurableLog>,
    log_directory: LogDirectory,
    host: Arc<dyn Host>,
) {
    let mut wal_manager = WalManager::new(keyspace, Arc::clone(&durable_log), log_directory, host);
    loop {
        let seen = durable_log.asked();
        match wal_manager.step(Instant::now()) {
            Next::Now => {}
            Next::After(time) => durable_log.await_asked(seen, Some(time)),
            Next::Asked => durable_log.await_asked(seen, None),
            Next::End => return,
        }
    }
}

impl Operator for Log {
    fn tell(&self, severity: Severity, line: fmt::Arguments<'_>) {
        match severity {
            Severity::Verbose => self.verbose(line),
            Severity::Notice => self.notice(line),
            Severity::Warning => self.warning(line),
        }
    }
}
