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

/// What keeps writes outside of this machine has to say to writers.
#[derive(Default)]
struct Outside {
    /// Why they are refused, once they are.
    cause: OnceLock<String>,
    /// They have to wait.
    is_held: AtomicBool,
}

/// The result for a client that has switched the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reached {
    /// It is as he wants it.
    Now,
    /// It will be, or not, when the switch with this id has come to an end.
    Later(u64),
    /// It is not, for this reason.
    Never(String),
}

impl Durability {
    /// Around a durable log, which has a log or not.
    pub fn new(durable_log: Arc<DurableLog>, log_directory: LogDirectory) -> Self {
        let (threads, outside, search) = Default::default();
        Self { durable_log, log_directory, threads, outside, search }
    }

    /// For a server that never has a log: that of a tool.
    pub fn without_log() -> Self {
        let log_directory =
            LogDirectory::new(Arc::new(OsDisk), Path::new(""), LogOptions::default());
        Self::new(Arc::default(), log_directory)
    }

    /// Whether there has ever been a record in the log that [`Durability::recover`] would load; before that.
    ///
    /// # Errors
    /// When the data directory cannot be read.
    pub fn was_ever_written(&self) -> Result<bool, RecoveryError> {
        recovery::was_ever_written(&self.log_directory)
    }

    /// The log in the data directory, if this process has neither loaded nor written it: `appendonly` was off at the
    /// start. A log that is begun now would replace it.
    ///
    /// # Errors
    /// When the data directory cannot be read, or the log that counts is missing.
    pub fn unread_log(&self) -> io::Result<Option<PathBuf>> {
        match self.durable_log.is_on() || self.durable_log.was_on() {
            true => Ok(None),
            false => self.log_directory.existing(),
        }
    }

    /// Loads what the log in the data directory holds into the keyspace, whose log it is from then on; see
    /// [`recover`](super::recover).
    ///
    /// # Errors
    /// When the log cannot be read, with the file and what can be done.
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

    /// Has [`Durability::recover`] search the log.
    pub fn search(&self, search: CutSearch) {
        *self.search.lock() = Some(search);
    }

    /// The result of that search; see [`CutSearch::finish`].
    pub fn take_found(&self) -> Option<Vec<Vec<u8>>> {
        self.search.lock().take()?.finish()
    }

    /// Makes all that is in `keyspace` the content of the data directory, which has no log, and has changes go there
    /// from now on. If that fails, or the process dies meanwhile, the directory has no log.
    ///
    /// # Errors
    /// When the directory cannot be written to.
    pub fn begin_with(&self, keyspace: &Keyspace) -> Result<(), RecoveryError> {
        first_log::begin_with(&self.durable_log, keyspace, &self.log_directory)
    }

    /// Refuses all writes from now on, for this reason, and has nothing acknowledged that waits for a device: what
    /// keeps them outside of this machine belongs to another server.
    pub fn refuse(&self, cause: &str) {
        self.outside.cause.get_or_init(|| cause.to_owned());
    }

    /// Whether writers have to wait, because what keeps their writes outside of this machine is behind.
    pub fn hold_for_outside(&self, is_held: bool) {
        self.outside.is_held.store(is_held, Ordering::Relaxed);
    }

    /// Whether [`hold_for_outside`](Self::hold_for_outside) is in force.
    #[inline]
    pub fn is_held_for_outside(&self) -> bool {
        self.outside.is_held.load(Ordering::Relaxed)
    }

    /// The log, if there is one, or would be if it had not failed.
    #[must_use]
    #[inline]
    pub fn durable_log(&self) -> Option<&Arc<DurableLog>> {
        Some(&self.durable_log).filter(|durable_log| durable_log.is_on())
    }

    /// What holds the log, whether or not there is one.
    #[must_use]
    pub fn wal_on_or_off(&self) -> &Arc<DurableLog> {
        &self.durable_log
    }

    /// Has a log begun, or the present one closed, soon.
    pub fn switch(&self, on: bool) {
        self.durable_log.switch(on);
    }

    /// How far it has come with a switch, which `has_changed` something or found it set that way.
    pub fn reached(&self, on: bool, has_changed: bool) -> Reached {
        if let Some(switch_id) = self.durable_log.switching() {
            return Reached::Later(switch_id);
        }
        match self.durable_log.write_error() {
            // A new log may have failed since; then the switch itself has not.
            Some(cause) if on && !has_changed => Reached::Never(self.still_failing(&cause)),
            _ if on != self.durable_log.is_on() => {
                let failure = self.durable_log.switch_failure();
                Reached::Never(failure.unwrap_or_else(|| SWITCHED_BY_ANOTHER.to_owned()))
            }
            _ => Reached::Now,
        }
    }

    /// What to tell a client that wants a log when there is one that has failed.
    fn still_failing(&self, cause: &str) -> String {
        let what_next = match self.durable_log.may_heal() {
            true => "another one is being written, and writes are refused until it is complete",
            false => "CONFIG SET appendonly no and then yes begins another one",
        };
        format!("the log has failed ({cause}); {what_next}")
    }

    /// Whether there is a log, or one is about to be begun.
    pub fn is_wanted(&self) -> bool {
        self.durable_log.is_wanted()
    }

    /// Figures for INFO.
    pub fn compaction_figures(&self) -> CompactionFigures {
        self.durable_log.compaction_figures()
    }

    /// Whether the log cannot take writes. Who follows it does not get what it refuses, either.
    #[inline]
    pub fn log_has_failed(&self) -> bool {
        self.durable_log.has_write_error() && self.durable_log.is_on()
    }

    /// Whether writes have to be refused: the log cannot take them, or they are to be safe outside of this machine
    /// and cannot be.
    #[inline]
    pub fn refuses_writes(&self) -> bool {
        self.log_has_failed() || self.outside.cause.get().is_some()
    }

    /// The positions behind which, up to its end, a log that could not be closed had nothing on the device.
    pub fn lost(&self) -> Option<Range<u64>> {
        self.durable_log.lost()
    }

    /// Whether writes under a policy have to wait: for a sync that takes too long, or for a pass that needs
    /// what is left of the disk. Which policy it is matters only if a sync does.
    #[inline]
    pub fn holds_back(&self, policy: impl FnOnce() -> SyncPolicy) -> bool {
        self.durable_log.keeps_room()
            || self.is_held_for_outside()
            || self.durable_log.exposure.is_too_long() && policy() == SyncPolicy::EverySecond
    }

    /// A writer waits for that. Returns after how many milliseconds it is to look again, if it is not told
    /// before.
    pub fn hold_back(&self) -> u64 {
        if self.durable_log.exposure.is_too_long() {
            self.durable_log.exposure.hold();
        }
        exposure::CHECK_AGAIN_MS
    }

    /// How often writers were held back.
    pub fn delays(&self) -> u64 {
        self.durable_log.exposure.delays()
    }

    /// Moves the time on by which that is decided: for tests.
    #[doc(hidden)]
    pub fn advance_clock(&self, ms: u64) {
        self.durable_log.exposure.advance(ms);
    }

    /// Why writes are refused: the error of the disk, unless a new log is being written by now.
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

    /// The space of the device that the data directory is on.
    pub fn disk_space(&self) -> Option<Space> {
        self.log_directory.disk.space(&self.log_directory.dir)
    }

    /// The data directory.
    pub fn dir(&self) -> &Path {
        &self.log_directory.dir
    }

    /// Starts the threads that keep the log.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start(&self, keyspace: &Arc<Keyspace>, host: Arc<dyn SyncHost>) -> io::Result<()> {
        let syncer = Syncer::start(&self.durable_log, Arc::clone(&host))?;
        let wal_manager =
            WalManagerThread::start(&self.durable_log, &self.log_directory, keyspace, host)?;
        *self.threads.lock() = Some(Threads { _wal_manager: wal_manager, _syncer: syncer });
        Ok(())
    }

    /// Ends the threads and closes the log; everything is on the device then.
    pub fn stop(&self, log: &Log) {
        drop(self.threads.lock().take());
        if let Err(error) = self.durable_log.close() {
            log.warning(format_args!("The log could not be closed: {error}"));
        }
    }
}

/// They end in this order when they are dropped.
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
            // A panic was reported when it happened.
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
