//! Loads the records of a log into a keyspace.
//!
//! One thread reads records in order and dispatches their operations to the shards of their keys. Operations for a
//! shard go to a loader in chunks; each loader has its own shards. So operations on one key stay in order, and shards
//! are loaded in parallel. A loader works on one shard's index for hundreds of operations, so that the index is in
//! the processor's caches: keys are logged in the order of their changes, which is random in the index. Operations on
//! a whole database wait until all loaders have done everything before.
//!
//! A loader keeps lists that a checkpoint has logged in parts in a side buffer until they are complete. They may
//! never be, if the log ends before, or if the list is removed; then the other operations on the list apply.
//!
//! The log of another server ([`Replay::of_another`]) states locations on that server's disk. Here, a key with such a
//! value gets it from the key that had it before, as it does in any log if the value was in memory and large. The
//! dispatcher moves such values, while no loader works.
//!
//! Nothing expires meanwhile, even if a deadline has passed since: the operations that follow were made before it had
//! passed. Expired keys are removed afterwards, as usual.

mod live;
mod moved;

pub use live::LiveReplay;

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};

use tierce_collections::Collection;

use crate::access::context::Touch;
use crate::access::db::Db;
use crate::access::keyspace::Keyspace;
use crate::access::shard_locks::ShardLocks;
use crate::change::log::encode::encode_remove;
use crate::change::log::op::{Effect, Op};
use crate::change::log::piece::{BatchPiece, Unfinished};
use crate::change::stream_position::StreamPosition;
use crate::codec::{Malformed, Reader};
use crate::data::collections::list;
use crate::data::collections::list::StagingLists;
use crate::data::entry::{Attributes, Content, Entry, Spilled};
use crate::data::key::Key;
use crate::data::stamp::Stamp;
use crate::data::usage::Access;
use crate::data::value::ValueType;
use crate::db_index::DbIndex;
use crate::planted::{self, Fault};
use crate::registries::flushed::Freeing;
use crate::services::code::CodeEditor;
use crate::services::flush::{flush_dbs, swap_dbs};
use crate::services::replay::moved::Moved;

/// Approximate size of the chunks for a shard: some hundred operations, which outweigh the cache misses for the
/// shard's index. Loading was faster the larger they were, up to 128 KB.
const CHUNK_BYTES: usize = 64 * 1024;

/// Maximum bytes of all shards' chunks being filled. With more than 256 shards they are shorter.
const FILLING_BYTES_MAX: usize = 16 << 20;

/// Size of a batch of chunks for a loader, which limits the waiting bytes for short and long operations.
const BATCH_BYTES: usize = 4 * CHUNK_BYTES;

/// Maximum number of batches waiting for one loader. Beyond it the dispatcher waits.
const BATCHES_WAITING_MAX: usize = 4;

/// Number of operations whose keys are prefetched at once.
const GROUP_LEN: usize = 16;

/// Time before any deadline.
pub(super) const NO_TIME_MS: i64 = i64::MIN;

/// Reason why a log cannot be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The bytes are no operations.
    #[error("not an operation: {0}")]
    Malformed(#[from] Malformed),
    /// The log has a database that this server does not have.
    #[error("the log has keys in database {0}, and there are only {1} (directive databases)")]
    NoSuchDatabase(u64, usize),
    /// The log extends a string with zero bytes beyond the limit on values.
    #[error(
        "the log has a value that was extended to {0} bytes, and no more than {1} are allowed \
         (directive proto-max-bulk-len)"
    )]
    ValueTooLong(u64, u64),
    /// The log has values on disk, and there is no cold store.
    #[error("the log has values that were spilled to disk, and they are not there")]
    NoColdStore,
    /// Another server's log states a location on that server's disk.
    #[error("the log has a value that is on the disk of the server that wrote it")]
    Elsewhere,
}

/// Result of a replay.
#[derive(Debug, Default)]
pub struct Replayed {
    /// Number of records.
    pub records: u64,
    /// Number of operations in them.
    pub operations: u64,
    /// Batches without their last piece.
    pub unfinished: Unfinished,
}

enum Task {
    /// Chunks, each with operations on keys of one shard.
    Load(Vec<Vec<u8>>),
    /// All loaders must reach this before any continues. Incomplete lists of these databases are forgotten: the
    /// databases are emptied or exchanged next.
    Barrier(Arc<Barrier>, Vec<DbIndex>),
}

/// A keyspace being loaded.
pub struct Replay {
    keyspace: Arc<Keyspace>,
    /// Dispatched operations of each shard that were not handed over yet.
    filling: Vec<Chunk>,
    loaders: Vec<Loader>,
    unfinished: Unfinished,
    /// True if the log is another server's, with its own disk locations and offsets.
    is_of_another: bool,
    /// True if something was dispatched since all loaders were idle.
    has_dispatched: bool,
    done: Replayed,
}

/// Operations on keys of one shard.
struct Chunk {
    ops: Vec<u8>,
    /// Length at which it is handed over.
    full_at: usize,
    /// Length at which later chunks are handed over.
    usual: usize,
}

struct Loader {
    batch: Vec<Vec<u8>>,
    batch_bytes: usize,
    tasks: SyncSender<Task>,
    thread: JoinHandle<Result<(), ReplayError>>,
}

impl Replay {
    /// Starts `threads` loaders. The last use of all keys is set to `now_ms`.
    ///
    /// # Errors
    ///
    /// If the operating system refuses a thread.
    pub fn start(keyspace: Arc<Keyspace>, threads: usize, now_ms: i64) -> std::io::Result<Self> {
        let access = Access { stamp: Stamp::at(now_ms), uses: 0 };
        let loaders = (0..threads.max(1))
            .map(|_| Loader::start(&keyspace, access))
            .collect::<Result<_, _>>()?;
        let filling = Chunk::of_shards(keyspace.shard_count());
        let (unfinished, done) = Default::default();
        let (is_of_another, has_dispatched) = (false, false);
        Ok(Self { keyspace, filling, loaders, unfinished, is_of_another, has_dispatched, done })
    }

    /// Replays the changes of another server instead of this server's own log.
    #[must_use]
    pub fn of_another(self) -> Self {
        Self { is_of_another: true, ..self }
    }

    /// Replays one record.
    ///
    /// # Errors
    ///
    /// If it is no record. Some of its operations may have been replayed then.
    pub fn record(&mut self, record: &[u8]) -> Result<(), ReplayError> {
        match BatchPiece::read(record)? {
            None => self.operations(record)?,
            Some(piece) => {
                if let Some(ops) = self.unfinished.add(piece) {
                    self.batch(ops)?;
                }
            }
        }
        self.done.records += 1;
        Ok(())
    }

    /// Replays a batch. A batch for a single shard, such as one long value, is not copied.
    fn batch(&mut self, ops: Vec<u8>) -> Result<(), ReplayError> {
        let Some((shard, count)) = self.only_shard(&ops)? else { return self.operations(&ops) };
        self.done.operations += count;
        self.has_dispatched = true;
        let before = std::mem::take(&mut self.filling[shard].ops);
        let loader = self.loader_of(shard);
        for chunk in [before, ops] {
            if !chunk.is_empty() {
                loader.push(chunk);
            }
        }
        Ok(())
    }

    /// Returns the common shard of all these operations, if there is one, and their number.
    fn only_shard(&self, ops: &[u8]) -> Result<Option<(usize, u64)>, ReplayError> {
        let (mut only, mut count) = (None, 0);
        let mut ops = Reader::new(ops);
        while let Some((op, _)) = ops.next()? {
            let (db, key) = match op {
                Op::Key { effect, .. } if self.is_move(&effect) => return Ok(None),
                Op::Key { db, key, .. } => (db, key),
                Op::Restatement => continue,
                _ => return Ok(None),
            };
            db_index(&self.keyspace, db)?;
            let shard = self.keyspace.hasher.shard(self.keyspace.hash(key));
            if *only.get_or_insert(shard) != shard {
                return Ok(None);
            }
            count += 1;
        }
        Ok(only.map(|shard| (shard, count)))
    }

    fn operations(&mut self, record: &[u8]) -> Result<(), ReplayError> {
        let (mut ops, mut moved) = (Reader::new(record), Moved::default());
        while let Some((op, bytes)) = ops.next()? {
            self.done.operations += 1;
            match op {
                Op::Key { db, key, effect } if self.is_move(&effect) => {
                    self.move_value(db, key, effect, &mut moved)?;
                }
                Op::Key { db, key, .. } => {
                    db_index(&self.keyspace, db)?;
                    let shard = self.keyspace.hasher.shard(self.keyspace.hash(key));
                    self.dispatch(shard, bytes);
                }
                Op::Flush { db } => {
                    let db = db_index(&self.keyspace, db)?;
                    match planted::is(Fault::FlushEndsAllLists) {
                        true => self.barrier(&self.keyspace.db_indices().collect::<Vec<_>>()),
                        false => self.barrier(&[db]),
                    }
                    flush_dbs(&mut self.keyspace.locks(), [db], Freeing::Later);
                }
                Op::Swap { a, b } => {
                    let (a, b) = (db_index(&self.keyspace, a)?, db_index(&self.keyspace, b)?);
                    self.barrier(&[a, b]);
                    // There are no watchers while data are loaded.
                    swap_dbs(&mut self.keyspace.locks(), a, b, i64::MIN);
                }
                // The offset of another server does not apply to this one.
                Op::Position(_) if self.is_of_another => {}
                // The last offset in the log is the valid one.
                Op::Position(position) => {
                    let is_there = |position: &StreamPosition| {
                        self.keyspace.db_index(position.db.get()).is_some()
                    };
                    *self.keyspace.stream_position.lock() = position.filter(is_there);
                }
                // These are for readers of changes.
                Op::Restatement | Op::Cut(_) => {}
                // Code is independent of keys, so loaders may be behind.
                Op::Code { kind, name, source: Some(source) } => {
                    CodeEditor::lock(&mut self.keyspace.locks()).put(kind, name, source);
                }
                Op::Code { kind, name, source: None } => {
                    CodeEditor::lock(&mut self.keyspace.locks()).remove(kind, name);
                }
            }
        }
        Ok(())
    }

    /// Returns true if the operation takes a value from a key, or gives it to another one.
    fn is_move(&self, effect: &Effect<'_>) -> bool {
        match effect {
            Effect::Taken(spilled) | Effect::Spilled { spilled, .. } => {
                self.is_of_another || *spilled == Spilled::IN_MEMORY
            }
            _ => false,
        }
    }

    fn move_value(
        &mut self,
        db: u64,
        key: &[u8],
        effect: Effect<'_>,
        moved: &mut Moved,
    ) -> Result<(), ReplayError> {
        let (db, key) = (db_index(&self.keyspace, db)?, self.keyspace.key(key));
        let is_given = matches!(effect, Effect::Spilled { .. });
        if is_given {
            // The loader may have an incomplete list of this key, which a pass has begun and not ended.
            let mut remove = Vec::new();
            encode_remove(&mut remove, db, key.bytes());
            self.dispatch(self.keyspace.hasher.shard(key.hash()), &remove);
        }
        if self.has_dispatched {
            self.barrier(&[]);
        }
        let mut locks = self.keyspace.locks();
        locks.set_touch(Touch::No);
        match moved.apply(&mut locks.db(db, key.hash(), NO_TIME_MS), key, effect) {
            // The older part of the log was dropped after a pass, which has visited this key after the move.
            Err(ReplayError::Elsewhere) if !self.is_of_another => Ok(()),
            done => done,
        }
    }

    /// Waits until everything is loaded.
    ///
    /// # Errors
    ///
    /// If a record was malformed in a way that only loading detects.
    pub fn finish(mut self) -> Result<Replayed, ReplayError> {
        self.hand_over_all();
        for Loader { tasks, thread, .. } in self.loaders {
            drop(tasks);
            thread.join().expect("a loader does not panic")?;
        }
        self.done.unfinished = self.unfinished;
        Ok(self.done)
    }

    /// Waits until the loaders have done everything so far, and have forgotten the incomplete lists of these
    /// databases.
    fn barrier(&mut self, ended: &[DbIndex]) {
        self.hand_over_all();
        let all_here = Arc::new(Barrier::new(self.loaders.len() + 1));
        for loader in &self.loaders {
            loader.give(Task::Barrier(Arc::clone(&all_here), ended.to_vec()));
        }
        all_here.wait();
        self.has_dispatched = false;
    }

    fn dispatch(&mut self, shard: usize, op: &[u8]) {
        self.has_dispatched = true;
        if let Some(full) = self.filling[shard].push(op) {
            self.loader_of(shard).push(full);
        }
    }

    fn hand_over_all(&mut self) {
        for shard in 0..self.filling.len() {
            let ops = std::mem::take(&mut self.filling[shard].ops);
            if !ops.is_empty() {
                self.loader_of(shard).push(ops);
            }
        }
        self.loaders.iter_mut().for_each(Loader::send);
    }

    fn loader_of(&mut self, shard: usize) -> &mut Loader {
        let loaders = self.loaders.len();
        &mut self.loaders[shard % loaders]
    }
}

impl Chunk {
    /// Returns an empty chunk for each shard. The first ones are full at different lengths. Since operations are
    /// spread evenly, all chunks would otherwise be full at the same time again and again, and loaders would be
    /// overloaded then and idle in between.
    fn of_shards(shards: usize) -> Vec<Self> {
        let usual = CHUNK_BYTES.min(FILLING_BYTES_MAX / shards);
        let first = |nth| Self { ops: Vec::new(), full_at: usual * nth / shards, usual };
        (1..=shards).map(first).collect()
    }

    /// Appends an operation. Returns the chunk if it is long enough to be handed over.
    #[inline]
    fn push(&mut self, op: &[u8]) -> Option<Vec<u8>> {
        if self.ops.capacity() == 0 {
            // With room for the last operation, unless it is long.
            self.ops.reserve(self.full_at + self.full_at / 8);
        }
        self.ops.extend_from_slice(op);
        if self.ops.len() < self.full_at {
            return None;
        }
        self.full_at = self.usual;
        Some(std::mem::take(&mut self.ops))
    }
}

impl Loader {
    fn start(keyspace: &Arc<Keyspace>, access: Access) -> std::io::Result<Self> {
        let (tasks, inbox) = sync_channel(BATCHES_WAITING_MAX);
        let keyspace = Arc::clone(keyspace);
        let builder = thread::Builder::new().name("loader".into());
        let thread = builder.spawn(move || load(&keyspace, &inbox, access))?;
        Ok(Self { batch: Vec::new(), batch_bytes: 0, tasks, thread })
    }

    fn push(&mut self, chunk: Vec<u8>) {
        self.batch_bytes += chunk.len();
        self.batch.push(chunk);
        if self.batch_bytes >= BATCH_BYTES {
            self.send();
        }
    }

    fn send(&mut self) {
        self.batch_bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        self.give(Task::Load(batch));
    }

    fn give(&self, task: Task) {
        self.tasks.send(task).expect("a loader stays until its tasks end");
    }
}

/// Runs a loader. After an error it loads nothing more, but continues until the tasks end: others wait for it.
fn load(keyspace: &Keyspace, inbox: &Receiver<Task>, access: Access) -> Result<(), ReplayError> {
    let mut outcome = Ok(());
    let mut staging = StagingLists::default();
    for task in inbox {
        match task {
            Task::Load(chunks) => {
                for chunk in chunks {
                    if outcome.is_ok() {
                        outcome = load_chunk(keyspace, &mut staging, &chunk, access);
                    }
                }
            }
            Task::Barrier(all_here, ended) => {
                ended.into_iter().for_each(|db| staging.forget_all_of(db));
                all_here.wait();
            }
        }
    }
    outcome
}

fn load_chunk(
    keyspace: &Keyspace,
    staging: &mut StagingLists,
    chunk: &[u8],
    access: Access,
) -> Result<(), ReplayError> {
    let mut locks = keyspace.locks();
    locks.set_touch(Touch::No);
    let mut ops = Reader::new(chunk);
    let mut group = Vec::with_capacity(GROUP_LEN);
    loop {
        group.clear();
        while group.len() < GROUP_LEN
            && let Some((op, _)) = ops.next()?
        {
            if let Op::Key { db, key, effect } = op {
                group.push((db_index(keyspace, db)?, keyspace.key(key), effect));
            }
        }
        if group.is_empty() {
            return Ok(());
        }
        locks.prefetch(group.iter().map(|(db, key, _)| (*db, key.hash())));
        for (db, key, effect) in group.drain(..) {
            apply(keyspace, &mut locks, staging, (db, key, effect), access)?;
        }
    }
}

pub(super) fn apply(
    keyspace: &Keyspace,
    locks: &mut ShardLocks<'_>,
    staging: &mut StagingLists,
    (index, key, effect): (DbIndex, Key<'_>, Effect<'_>),
    access: Access,
) -> Result<(), ReplayError> {
    let mut db = locks.db(index, key.hash(), NO_TIME_MS);
    let put = |db: &mut Db<'_>, content, deadline_ms, attributes| {
        let entry = Entry::with_attributes(key.bytes(), content, deadline_ms, attributes, access);
        db.put(key, entry).expect("a key of a log is not too long");
    };
    if effect.is_anew() {
        staging.forget(index, key.bytes());
    }
    match effect {
        Effect::Put { value, deadline_ms, attributes } => {
            put(&mut db, value.content(), deadline_ms, attributes);
        }
        Effect::Spilled { spilled, deadline_ms, attributes } => {
            hold(keyspace, &mut db, key, spilled)?;
            put(&mut db, Content::Spilled(spilled), deadline_ms, attributes);
        }
        Effect::Mark { marks, flags } => _ = db.note(key, flags, marks),
        Effect::Remove | Effect::Taken(_) => _ = db.remove(key),
        Effect::Deadline(Some(deadline_ms)) => _ = db.set_deadline(key, deadline_ms),
        Effect::Deadline(None) => _ = db.clear_deadline(key),
        Effect::Write { offset, bytes } => write(&mut db, key, offset, bytes)?,
        Effect::Edit { is_whole, deadline_ms, edits } => {
            let complete = staging.apply(index, key.bytes(), edits, &keyspace.limits)?;
            if !list::is_part(edits) {
                db.apply_edits(key, is_whole, deadline_ms, edits, access)?;
            }
            if let Some(list) = complete {
                let content = Content::Collection(Collection::List(list));
                put(&mut db, content, deadline_ms, Attributes::NONE);
            }
        }
    }
    Ok(())
}

/// Makes the store keep the value on disk of a key.
fn hold(
    keyspace: &Keyspace,
    db: &mut Db<'_>,
    key: Key<'_>,
    spilled: Spilled,
) -> Result<(), ReplayError> {
    let store = keyspace.cold_store().ok_or(ReplayError::NoColdStore)?;
    if db.peek(key).and_then(Entry::location) != Some(spilled.location) {
        store.hold(spilled.location);
    }
    Ok(())
}

/// Writes into a string that exists. An absent string follows as a whole, see [`checkpoint`](super::checkpoint). A
/// string on disk was written as a whole afterwards, too.
///
/// The limit on values may be lower now than at the time of the write. Written bytes are kept anyway. But damaged
/// numbers must not take all memory: zero bytes, of which the log has only the number, are not created beyond the
/// limit.
fn write(db: &mut Db<'_>, key: Key<'_>, offset: u64, bytes: &[u8]) -> Result<(), ReplayError> {
    let is_string = |entry: &&Entry| !entry.is_spilled() && entry.value_type() == ValueType::String;
    let Some(entry) = db.peek(key).filter(is_string) else { return Ok(()) };
    let (present, limit) = (entry.string_len() as u64, db.value_len_max() as u64);
    if offset > present.max(limit) {
        return Err(ReplayError::ValueTooLong(offset, limit));
    }
    db.overwrite_any_len(key, offset as usize, bytes)
        .expect("a string in memory can be written to");
    Ok(())
}

pub(super) fn db_index(keyspace: &Keyspace, number: u64) -> Result<DbIndex, ReplayError> {
    let db = usize::try_from(number).ok().and_then(|number| keyspace.db_index(number));
    db.ok_or_else(|| ReplayError::NoSuchDatabase(number, keyspace.db_indices().count()))
}
