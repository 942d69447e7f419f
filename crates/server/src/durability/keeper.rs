//! The thread that opens, compacts and closes the log while the server runs.
//!
//! `CONFIG SET appendonly yes` has it begin a new log beside whatever is there, to which all changes
//! go from that moment, and write all keys to it in a pass. Only then does the new log count
//! ([`LogHome`]): a crash before that leaves what counted before. `CONFIG SET appendonly no` has it
//! close the log; what is in it stays on disk.
//!
//! A change that was made before the log was there is in the pass, and one that was made after it is
//! in the log. There is none between: whoever changes keys looks for the log after having locked
//! their shard, and the pass locks each shard after the log was there.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tierce_cask::{Wal, WalOptions};

use super::compactor::{self, Kind};
use super::home::LogHome;
use super::journal::Journal;
use super::recovery::RecoveryError;
use super::syncer::Syncer;
use crate::server::Server;
use crate::service::Message;

/// How often the size of the log is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The thread; dropping it ends it.
pub(super) struct Keeper {
    journal: Arc<Journal>,
    thread: Option<JoinHandle<()>>,
}

/// What it works on.
struct Kept {
    journal: Arc<Journal>,
    home: LogHome,
    /// Has the log reach the device, while there is one.
    syncer: Option<Syncer>,
    /// The log that does not count yet, because not all keys are in it.
    incomplete: Option<PathBuf>,
}

/// What is to be done next.
enum Task {
    /// There shall be a log, and there is none.
    Open,
    /// There shall be no log, and there is one.
    Close,
    /// Somebody asked for a pass.
    Pass,
    /// It is time to see how large the log is.
    Look,
}

impl Keeper {
    pub(super) fn start(
        journal: &Arc<Journal>,
        home: &LogHome,
        server: &Arc<Server>,
    ) -> io::Result<Self> {
        let is_on = journal.is_on();
        {
            let mut wishes = journal.compaction.wishes.lock();
            wishes.log = is_on;
            wishes.ends = false;
        }
        let mut kept = Kept {
            journal: Arc::clone(journal),
            home: home.clone(),
            syncer: is_on.then(|| Syncer::start(journal, server)).transpose()?,
            incomplete: None,
        };
        let weak = Arc::downgrade(server);
        let thread = thread::Builder::new().name("log-keeper".into());
        let thread = thread.spawn(move || kept.run(&weak))?;
        Ok(Self { journal: Arc::clone(journal), thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.journal.compaction.wishes.lock().ends = true;
        self.journal.compaction.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Journal {
    /// Has a log begun, or the present one closed, unless that is how it is already.
    pub fn switch(&self, on: bool) {
        self.compaction.wishes.lock().log = on;
        self.compaction.changed.notify_all();
    }

    /// Whether there is a log, or one is about to be begun.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.compaction.wishes.lock().log
    }

    /// Waits for something to do; `None` at the end.
    fn next_task(&self) -> Option<Task> {
        let compaction = &self.compaction;
        let mut wishes = compaction.wishes.lock();
        loop {
            let is_on = self.is_on();
            if wishes.ends {
                return None;
            }
            if wishes.log != is_on {
                return Some(if is_on { Task::Close } else { Task::Open });
            }
            if std::mem::take(&mut wishes.pass) && is_on {
                return Some(Task::Pass);
            }
            if !is_on {
                compaction.changed.wait(&mut wishes);
            } else if compaction.changed.wait_for(&mut wishes, LOOK_EVERY).timed_out() {
                return Some(Task::Look);
            }
        }
    }
}

impl Kept {
    fn run(&mut self, server: &Weak<Server>) {
        while let Some(task) = self.journal.next_task() {
            let Some(server) = server.upgrade() else { return };
            match task {
                Task::Open => self.open(&server),
                Task::Close => self.close(&server),
                Task::Pass => self.pass(&server),
                Task::Look if self.is_pass_due(&server) => self.pass(&server),
                Task::Look => {}
            }
        }
    }

    fn open(&mut self, server: &Arc<Server>) {
        if let Err(error) = self.try_open(server) {
            // Nobody is acknowledged anything that he could not expect: without a log nothing is
            // durable. Tried again at the next CONFIG SET.
            self.journal.compaction.note_failure();
            self.journal.switch(false);
            server.log.warning(format_args!("The log could not be begun: {error}"));
        }
    }

    fn try_open(&mut self, server: &Arc<Server>) -> Result<(), RecoveryError> {
        let path = self.home.begin()?;
        let disk = Arc::clone(&self.home.disk);
        let (wal, _) = Wal::open_on(disk, &path, WalOptions::default(), |_| Ok(()))
            .map_err(|error| RecoveryError::of(&path, error))?;
        self.incomplete = Some(path);
        self.journal.compaction.set_incomplete(true);
        self.journal.open(wal);
        server.keyspace.begin_logging();
        self.syncer = Some(Syncer::start(&self.journal, server)?);
        server.log.notice("A log is begun; it counts when all keys are in it");
        self.pass(server);
        Ok(())
    }

    fn close(&mut self, server: &Server) {
        server.keyspace.end_logging();
        self.syncer = None;
        if let Err(error) = self.journal.close() {
            server.log.warning(format_args!("The log could not be closed: {error}"));
        }
        self.journal.compaction.set_incomplete(false);
        if let Some(path) = self.incomplete.take()
            && let Err(error) = self.home.clear(&path)
        {
            server.log.warning(format_args!("{} could not be removed: {error}", path.display()));
        }
        // Nobody waits for a device any more.
        server.post_to_all(&Message::Durable);
        server.log.notice("The log is closed; from now on data is in memory only");
    }

    fn is_pass_due(&self, server: &Server) -> bool {
        let journal = &self.journal;
        let is_missing = self.incomplete.is_some() && !journal.is_wounded();
        is_missing || journal.may_heal() || compactor::is_due(journal, server)
    }

    fn pass(&mut self, server: &Server) {
        let heals = self.journal.may_heal();
        if heals {
            self.journal.begin_healing();
        }
        let kind = if self.incomplete.is_some() { Kind::First } else { Kind::Again };
        if compactor::pass(&self.journal, server, kind) {
            self.note_complete(server);
        }
        if heals {
            self.journal.end_healing();
        }
    }

    /// Has a new log count once all keys are in it.
    fn note_complete(&mut self, server: &Server) {
        let Some(path) = &self.incomplete else { return };
        match self.home.complete(path) {
            Ok(()) => {
                server.log.notice(format_args!("All keys are in the log in {}", path.display()));
                self.incomplete = None;
                self.journal.compaction.set_incomplete(false);
            }
            Err(error) => {
                self.journal.compaction.note_failure();
                server.log.warning(format_args!("The log could not be completed: {error}"));
            }
        }
    }
}
