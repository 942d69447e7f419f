//! From the records of a log back to a keyspace.
//!
//! One thread reads records in their order and deals their operations out to loaders, each of which
//! has shards of its own: operations on one key stay in order, and shards are loaded side by side.
//! What concerns a whole database waits until all loaders have done what came before.
//!
//! Time stands still meanwhile: a deadline that has passed since counts like any other, because the
//! operations that follow were made when it had not. What is due is removed afterwards, as always.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};

use super::op::{Effect, Malformed, Op, Reader};
use crate::context::Touch;
use crate::db::Db;
use crate::entry::{Attributes, Entry};
use crate::flush::Freeing;
use crate::key::Key;
use crate::keyspace::{DbIndex, Keyspace};
use crate::locker::Locker;
use crate::usage::Access;

/// Operations are handed to a loader in chunks of about this many bytes.
const CHUNK_BYTES: usize = 128 * 1024;

/// Chunks that may wait for one loader.
const CHUNKS_WAITING_MAX: usize = 4;

/// Before any deadline.
const NO_TIME_MS: i64 = i64::MIN;

/// Why a log cannot be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The bytes are no operations.
    #[error("not an operation: {0}")]
    Malformed(#[from] Malformed),
    /// The log speaks of a database that this server was not given.
    #[error("the log has keys in database {0}, and there are only {1} (directive databases)")]
    NoSuchDatabase(u64, usize),
}

/// What was replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Replayed {
    /// Records.
    pub records: u64,
    /// Operations in them.
    pub operations: u64,
}

enum Task {
    Chunk(Vec<u8>),
    /// All loaders have to come here before any goes on.
    Meet(Arc<Barrier>),
}

/// A keyspace being loaded.
pub struct Replay {
    keyspace: Arc<Keyspace>,
    loaders: Vec<Loader>,
    done: Replayed,
}

struct Loader {
    chunk: Vec<u8>,
    tasks: SyncSender<Task>,
    thread: JoinHandle<()>,
}

impl Replay {
    /// Starts `threads` loaders. All keys count as used for the last time at `now_ms`.
    ///
    /// # Errors
    ///
    /// If the operating system refuses a thread.
    pub fn start(keyspace: Arc<Keyspace>, threads: usize, now_ms: i64) -> std::io::Result<Self> {
        let access = Access { stamp: (now_ms / 1000) as u16, uses: 0 };
        let loaders = (0..threads.max(1))
            .map(|_| Loader::start(&keyspace, access))
            .collect::<Result<_, _>>()?;
        Ok(Self { keyspace, loaders, done: Replayed::default() })
    }

    /// Replays one record.
    ///
    /// # Errors
    ///
    /// If it is none. Some of its operations may have been replayed then.
    pub fn record(&mut self, record: &[u8]) -> Result<(), ReplayError> {
        let mut ops = Reader::new(record);
        while let Some((op, bytes)) = ops.next()? {
            self.done.operations += 1;
            match op {
                Op::Key { db, key, .. } => {
                    db_index(&self.keyspace, db)?;
                    let shard = self.keyspace.hasher.shard(self.keyspace.hash(key));
                    let loaders = self.loaders.len();
                    self.loaders[shard % loaders].push(bytes);
                }
                Op::Flush { db } => {
                    let db = db_index(&self.keyspace, db)?;
                    self.meet();
                    self.keyspace.locker().flush([db], Freeing::Later);
                }
                Op::Swap { a, b } => {
                    let (a, b) = (db_index(&self.keyspace, a)?, db_index(&self.keyspace, b)?);
                    self.meet();
                    self.keyspace.locker().swap(a, b);
                }
            }
        }
        self.done.records += 1;
        Ok(())
    }

    /// Waits until everything is loaded.
    #[must_use]
    pub fn finish(mut self) -> Replayed {
        for loader in &mut self.loaders {
            loader.send();
        }
        for Loader { tasks, thread, .. } in self.loaders {
            drop(tasks);
            thread.join().expect("a loader does not panic");
        }
        self.done
    }

    /// Waits until the loaders have done everything so far.
    fn meet(&mut self) {
        let all_here = Arc::new(Barrier::new(self.loaders.len() + 1));
        for loader in &mut self.loaders {
            loader.send();
            loader.give(Task::Meet(Arc::clone(&all_here)));
        }
        all_here.wait();
    }
}

impl Loader {
    fn start(keyspace: &Arc<Keyspace>, access: Access) -> std::io::Result<Self> {
        let (tasks, inbox) = sync_channel(CHUNKS_WAITING_MAX);
        let keyspace = Arc::clone(keyspace);
        let builder = thread::Builder::new().name("loader".into());
        let thread = builder.spawn(move || load(&keyspace, &inbox, access))?;
        Ok(Self { chunk: Vec::new(), tasks, thread })
    }

    fn push(&mut self, op: &[u8]) {
        self.chunk.extend_from_slice(op);
        if self.chunk.len() >= CHUNK_BYTES {
            self.send();
        }
    }

    fn send(&mut self) {
        if !self.chunk.is_empty() {
            let chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_BYTES));
            self.give(Task::Chunk(chunk));
        }
    }

    fn give(&self, task: Task) {
        self.tasks.send(task).expect("a loader stays until its tasks end");
    }
}

fn load(keyspace: &Keyspace, inbox: &Receiver<Task>, access: Access) {
    for task in inbox {
        match task {
            Task::Chunk(chunk) => {
                let mut locker = keyspace.locker();
                locker.set_touch(Touch::No);
                let mut ops = Reader::new(&chunk);
                // The dealer has read these bytes before.
                while let Ok(Some((op, _))) = ops.next() {
                    apply(keyspace, &mut locker, op, access);
                }
            }
            Task::Meet(all_here) => {
                all_here.wait();
            }
        }
    }
}

fn apply(keyspace: &Keyspace, locker: &mut Locker<'_>, op: Op<'_>, access: Access) {
    let Op::Key { db, key, effect } = op else { return };
    let Ok(db) = db_index(keyspace, db) else { return };
    let key = keyspace.key(key);
    let mut db = locker.db(db, key.hash(), NO_TIME_MS);
    match effect {
        Effect::Put { value, deadline_ms, flags } => {
            let attributes = Attributes::of_flags(flags);
            let content = value.content();
            let entry =
                Entry::with_attributes(key.bytes(), content, deadline_ms, attributes, access);
            db.put(key, entry).expect("a key of a log is not too long");
        }
        Effect::Remove => _ = db.remove(key),
        Effect::Deadline(Some(deadline_ms)) => _ = db.set_deadline(key, deadline_ms),
        Effect::Deadline(None) => _ = db.clear_deadline(key),
        Effect::Write { offset, bytes } => write(&mut db, key, offset, bytes),
    }
}

/// Writes into a string that is there. One that is not follows as a whole, see
/// [`checkpoint`](super::checkpoint).
fn write(db: &mut Db<'_>, key: Key<'_>, offset: u64, bytes: &[u8]) {
    if db.peek(key).is_some() {
        // The limit on values may be lower now than when this was written; the write that is too
        // long then is one that this server would refuse, too.
        _ = db.overwrite(key, offset as usize, bytes);
    }
}

fn db_index(keyspace: &Keyspace, number: u64) -> Result<DbIndex, ReplayError> {
    let db = usize::try_from(number).ok().and_then(|number| keyspace.db_index(number));
    db.ok_or_else(|| ReplayError::NoSuchDatabase(number, keyspace.db_indices().count()))
}
