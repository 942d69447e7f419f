//! The log with its threads.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use parking_lot::Mutex;
use tierce_cask::disk::OsDisk;
use tierce_keyspace::Keyspace;

use super::compactor::CompactionFigures;
use super::exposure;
use super::home::{LogHome, LogOptions};
use super::host::{Host, Operator, SWITCHED_BY_ANOTHER, Severity, SyncHost};
use super::journal::Journal;
use super::keeper::{Keeper, Next};
use super::syncer::Syncer;
use crate::config::SyncPolicy;
use crate::log::Log;

/// The log and its threads.
pub struct Durability {
    journal: Arc<Journal>,
    home: LogHome,
    threads: Mutex<Option<Threads>>,
}

/// What a client that has switched the log may be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reached {
    /// It is as he wants it.
    Now,
    /// It will be, or not, when the switch with this ticket has come to an end.
    Later(u64),
    /// It is not, for this reason.
    Never(String),
}

impl Durability {
    /// Around a journal, which has a log or not.
    #[must_use]
    pub(crate) fn new(journal: Arc<Journal>, home: LogHome) -> Self {
        Self { journal, home, threads: Mutex::default() }
    }

    /// For a server that never has a log: that of a tool.
    pub(crate) fn without_log() -> Self {
        let home = LogHome::new(Arc::new(OsDisk), Path::new(""), LogOptions::default());
        Self::new(Arc::default(), home)
    }

    /// The log, if there is one, or would be if it had not failed.
    #[must_use]
    #[inline]
    pub fn journal(&self) -> Option<&Arc<Journal>> {
        Some(&self.journal).filter(|journal| journal.is_on())
    }

    /// What holds the log, whether or not there is one.
    #[must_use]
    pub fn journal_on_or_off(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Has a log begun, or the present one closed, soon.
    pub fn switch(&self, on: bool) {
        self.journal.switch(on);
    }

    /// How far it has come with a switch, which `has_changed` something or found it set that way.
    #[must_use]
    pub fn reached(&self, on: bool, has_changed: bool) -> Reached {
        if let Some(ticket) = self.journal.switching() {
            return Reached::Later(ticket);
        }
        match self.journal.wound() {
            // A new log may have failed since; then the switch itself has not.
            Some(cause) if on && !has_changed => Reached::Never(self.still_wounded(&cause)),
            _ if on != self.journal.is_on() => {
                let failure = self.journal.switch_failure();
                Reached::Never(failure.unwrap_or_else(|| SWITCHED_BY_ANOTHER.to_owned()))
            }
            _ => Reached::Now,
        }
    }

    /// What to tell somebody who wants a log when there is one that has failed.
    fn still_wounded(&self, cause: &str) -> String {
        let what_next = match self.journal.may_heal() {
            true => "another one is being written, and writes are refused until it is complete",
            false => "CONFIG SET appendonly no and then yes begins another one",
        };
        format!("the log has failed ({cause}); {what_next}")
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

    /// The positions behind which, up to its end, a log that could not be closed had nothing on the device.
    #[must_use]
    pub fn lost(&self) -> Option<Range<u64>> {
        self.journal.lost()
    }

    /// Whether writes under a policy have to wait: for a sync that takes too long, or for a pass that needs
    /// what is left of the disk. Which policy it is matters only if a sync does.
    #[must_use]
    #[inline]
    pub fn holds_back(&self, policy: impl FnOnce() -> SyncPolicy) -> bool {
        self.journal.keeps_room()
            || self.journal.exposure.is_too_long() && policy() == SyncPolicy::EverySecond
    }

    /// A writer waits for that. Returns after how many milliseconds it is to look again, if it is not told
    /// before.
    #[must_use]
    pub fn hold_back(&self) -> u64 {
        if self.journal.exposure.is_too_long() {
            self.journal.exposure.hold();
        }
        exposure::LOOK_AGAIN_MS
    }

    /// How often writers were held back.
    #[must_use]
    pub fn delays(&self) -> u64 {
        self.journal.exposure.delays()
    }

    /// Moves the time on by which that is decided: for tests.
    pub(crate) fn advance_clock(&self, ms: u64) {
        self.journal.exposure.advance(ms);
    }

    /// What a client is told that wants to write while writes are refused.
    #[must_use]
    pub fn misconfigured(&self) -> String {
        let cause =
            self.journal.wound().unwrap_or_else(|| "the log is being written anew".to_owned());
        format!("MISCONF Errors writing to the AOF file: {cause}")
    }

    /// Starts the threads that keep the log.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start(&self, keyspace: &Arc<Keyspace>, host: Arc<dyn SyncHost>) -> io::Result<()> {
        let syncer = Syncer::start(&self.journal, Arc::clone(&host))?;
        let keeper = KeeperThread::start(&self.journal, &self.home, keyspace, host)?;
        *self.threads.lock() = Some(Threads { _keeper: keeper, _syncer: syncer });
        Ok(())
    }

    /// Ends the threads and closes the log; everything is on the device then.
    pub fn stop(&self, log: &Log) {
        drop(self.threads.lock().take());
        if let Err(error) = self.journal.close() {
            log.warning(format_args!("The log could not be closed: {error}"));
        }
    }
}

/// They end in this order when they are dropped.
struct Threads {
    _keeper: KeeperThread,
    _syncer: Syncer,
}

/// The thread that calls [`Keeper::step`]; dropping it waits for its end.
struct KeeperThread {
    journal: Arc<Journal>,
    thread: Option<JoinHandle<()>>,
}

impl KeeperThread {
    fn start(
        journal: &Arc<Journal>,
        home: &LogHome,
        keyspace: &Arc<Keyspace>,
        host: Arc<dyn Host>,
    ) -> io::Result<Self> {
        let (keyspace, home) = (Arc::clone(keyspace), home.clone());
        let of_thread = Arc::clone(journal);
        let thread = thread::Builder::new().name("log-keeper".into());
        let thread = thread.spawn(move || run(&keyspace, of_thread, home, host))?;
        Ok(Self { journal: Arc::clone(journal), thread: Some(thread) })
    }
}

impl Drop for KeeperThread {
    fn drop(&mut self) {
        self.journal.end_keeping();
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn run(keyspace: &Keyspace, journal: Arc<Journal>, home: LogHome, host: Arc<dyn Host>) {
    let mut keeper = Keeper::new(keyspace, Arc::clone(&journal), home, host);
    loop {
        let seen = journal.asked();
        match keeper.step(Instant::now()) {
            Next::Now => {}
            Next::After(time) => journal.await_asked(seen, Some(time)),
            Next::Asked => journal.await_asked(seen, None),
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
