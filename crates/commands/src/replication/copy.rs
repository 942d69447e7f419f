//! A full copy of the data on its way to one or several replicas: an RDB file in a frame.
//!
//! The writing thread waits for the slowest replica when that is [`AHEAD_BYTES_MAX`] behind. This bounds the memory of
//! a copy. A replica that reads nothing for `repl-timeout` is disconnected, and the others continue.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tierce_keyspace::DbIndex;
use tierce_replication::backlog::{Backlog, Reader};

use crate::persistence::{CopySink, SaveError};

/// Limit of bytes between the writer and the slowest replica.
const AHEAD_BYTES_MAX: usize = 4 << 20;

/// Number of bytes after which the writer checks its readers.
const CHUNK_BYTES: usize = 64 << 10;

/// Length of the mark after a copy whose length is not known in advance.
const MARK_LEN: usize = 40;

/// A copy.
pub struct Copy {
    bytes: Arc<Backlog>,
    mark: String,
    /// The selected database of the stream after the copy, unless the stream begins with a `SELECT`.
    stream_db: OnceLock<DbIndex>,
    state: Mutex<State>,
    /// Time of its completion, in Unix milliseconds.
    complete_ms: OnceLock<i64>,
    /// Signaled when all readers are known.
    opened: Condvar,
    /// Called when there is more to read.
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Its readers are not known yet.
    Begun,
    Open,
    Complete,
    Failed,
}

/// The writing end of a copy.
struct Sink {
    copy: Arc<Copy>,
    /// Time after which a replica that reads nothing is disconnected.
    patience: Duration,
    version_max: Option<u16>,
    buffer: Vec<u8>,
}

impl fmt::Debug for Copy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copy").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Copy {
    /// Creates a copy and its writing end. A reader that reads nothing for `patience` is disconnected. `wake` is called
    /// when there is more to read. All readers know versions of RDB up to `version_max`.
    #[must_use]
    pub fn begin(
        patience: Duration,
        version_max: Option<u16>,
        wake: Box<dyn Fn() + Send + Sync>,
    ) -> (Arc<Self>, Box<dyn CopySink>) {
        let word = || crate::random::word();
        let mark: String = format!("{:016x}{:016x}{:08x}", word(), word(), word() as u32);
        debug_assert_eq!(mark.len(), MARK_LEN);
        let copy = Arc::new(Self {
            bytes: Backlog::new(0, 0),
            mark,
            stream_db: OnceLock::new(),
            state: Mutex::new(State::Begun),
            complete_ms: OnceLock::new(),
            opened: Condvar::new(),
            wake,
        });
        let sink = Sink { copy: Arc::clone(&copy), patience, version_max, buffer: Vec::new() };
        (copy, Box::new(sink))
    }

    /// Adds a reader at its beginning; `None` if the copy is already being sent.
    #[must_use]
    pub fn reader(&self) -> Option<Reader> {
        self.bytes.reader_at(0).filter(|_| *self.state.lock() == State::Begun)
    }

    /// Starts sending: all readers are known. If the stream after the copy does not begin with a `SELECT`, `stream_db`
    /// is its selected database.
    pub fn open(&self, stream_db: Option<DbIndex>) {
        if let Some(db) = stream_db {
            // It is opened once.
            let _ = self.stream_db.set(db);
        }
        let mut state = self.state.lock();
        if *state == State::Begun {
            *state = State::Open;
        }
        drop(state);
        self.opened.notify_all();
    }

    /// Returns the header before the copy.
    #[must_use]
    pub fn frame(&self) -> String {
        format!("$EOF:{}\r\n", self.mark)
    }

    /// Returns `None` while it is being written; otherwise true if it is complete.
    #[must_use]
    pub fn ended(&self) -> Option<bool> {
        match *self.state.lock() {
            State::Begun | State::Open => None,
            State::Complete => Some(true),
            State::Failed => Some(false),
        }
    }

    /// Returns the time of its completion in Unix milliseconds, if it is complete.
    #[must_use]
    pub fn complete_ms(&self) -> Option<i64> {
        self.complete_ms.get().copied()
    }

    /// Marks it as failed, unless it is complete.
    pub fn fail(&self) {
        let mut state = self.state.lock();
        if *state != State::Complete {
            *state = State::Failed;
            // All readers are dropped, so the writer does not wait for them.
            self.bytes.restart(0);
        }
        drop(state);
        self.opened.notify_all();
    }
}

impl Sink {
    fn wait_until_open(&self) {
        let mut state = self.copy.state.lock();
        while *state == State::Begun {
            self.copy.opened.wait(&mut state);
        }
    }

    fn pass_on(&mut self) -> io::Result<()> {
        self.wait_until_open();
        self.copy.bytes.append(&self.buffer, 0);
        self.buffer.clear();
        (self.copy.wake)();
        match self.copy.bytes.wait_for_readers(AHEAD_BYTES_MAX, self.patience) {
            true => Ok(()),
            false => {
                Err(io::Error::other("the replicas have gone, or took nothing for repl-timeout"))
            }
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= CHUNK_BYTES {
            self.pass_on()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl CopySink for Sink {
    fn version_max(&self) -> Option<u16> {
        self.version_max
    }

    fn stream_db(&self) -> Option<DbIndex> {
        self.wait_until_open();
        self.copy.stream_db.get().copied()
    }

    fn end(mut self: Box<Self>, outcome: Result<(), &SaveError>) {
        self.buffer.extend_from_slice(self.copy.mark.as_bytes());
        let is_whole = outcome.is_ok() && self.pass_on().is_ok();
        let mut state = self.copy.state.lock();
        if is_whole && *state == State::Open {
            let _ = self.copy.complete_ms.set(crate::clock::unix_ms());
            *state = State::Complete;
        }
        drop(state);
        self.copy.fail();
        (self.copy.wake)();
    }
}
