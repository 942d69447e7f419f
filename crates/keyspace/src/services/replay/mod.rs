//! From the records of a log back to a keyspace.
//!
//! One thread reads records in their order and dispatches their operations to the shards of their keys.
//! What was dispatched to a shard goes to a loader in chunks; each loader has shards of its own. So
//! operations on one key stay in order, shards are loaded side by side, and a loader works on the
//! index of one shard for hundreds of operations, which then comes from the processor's caches: a log
//! names keys in the order of their changes, which has nothing to do with where they are.
//! What concerns a whole database waits until all loaders have done what came before.
//!
//! A loader keeps the lists aside that a checkpoint has logged in parts, until they are complete. They may
//! never be, if the log ends before, or if the list goes; what the log says of such a list stands.
//!
//! The log of another server ([`Replay::of_another`]) says where values are on the disk of that one. A key that gets
//! such a value gets it from the key that had it here.
//!
//! Time stands still meanwhile: a deadline that has passed since counts like any other, because the
//! operations that follow were made when it had not. What is due is removed afterwards, as always.

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
use crate::change::log::op::{Effect, Op};
use crate::change::log::piece::{BatchPiece, Unfinished};
use crate::change::stream_place::StreamPlace;
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

/// Operations on one shard are handed over in chunks of about this many bytes: some hundred
/// operations, which make up for fetching what is not in the caches of the shard's index. Loading took
/// less the larger they were, up to 128 KB.
const CHUNK_BYTES: usize = 64 * 1024;

/// All shards' chunks that are being filled have about this many bytes at most. Beyond 256 shards they
/// are shorter.
const FILLING_BYTES_MAX: usize = 16 << 20;

/// Chunks go to a loader in a batch when they have this many bytes, which bounds what waits whether
/// operations are short or long.
const BATCH_BYTES: usize = 4 * CHUNK_BYTES;

/// Batches that may wait for one loader. The dispatcher waits when there are as many.
const BATCHES_WAITING_MAX: usize = 4;

/// Keys of this many operations are prefetched at once.
const GROUP_LEN: usize = 16;

/// Before any deadline.
pub(super) const NO_TIME_MS: i64 = i64::MIN;

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
    /// The log extends a string with zero bytes beyond the limit on values.
    #[error(
        "the log has a value that was extended to {0} bytes, and no more than {1} are allowed \
         (directive proto-max-bulk-len)"
    )]
    ValueTooLong(u64, u64),
    /// The log says that values are on disk, and there is no cold store.
    #[error("the log has values that were spilled to disk, and they are not there")]
    NoColdStore,
    /// Another server's log says where that has a value on its disk.
    #[error("the log has a value that is on the disk of the server that wrote it")]
    Elsewhere,
}

/// What was replayed.
#[derive(Debug, Default)]
pub struct Replayed {
    /// Records.
    pub records: u64,
    /// Operations in them.
    pub operations: u64,
    /// Batches whose last piece was not there.
    pub unfinished: Unfinished,
}

enum Task {
    /// Chunks, each with operations on keys of one shard.
    Load(Vec<Vec<u8>>),
    /// All loaders have to come here before any goes on. The lists of these databases that are not
    /// complete are forgotten: the databases are emptied or exchanged next.
    Barrier(Arc<Barrier>, Vec<DbIndex>),
}

/// A keyspace being loaded.
pub struct Replay {
    keyspace: Arc<Keyspace>,
    /// What was dispatched to each shard and not handed over yet.
    filling: Vec<Chunk>,
    loaders: Vec<Loader>,
    unfinished: Unfinished,
    /// The log is another server's, and has its places: on its disk, and in a stream.
    is_of_another: bool,
    /// Something was handed to loaders, or waits for that, since all of them had done everything.
    has_dispatched: bool,
    done: Replayed,
}

/// Operations on keys of one shard.
struct Chunk {
    ops: Vec<u8>,
    /// The length at which it is handed over.
    full_at: usize,
    /// That of those that follow.
    usual: usize,
}

struct Loader {
    batch: Vec<Vec<u8>>,
    batch_bytes: usize,
    tasks: SyncSender<Task>,
    thread: JoinHandle<Result<(), ReplayError>>,
}

impl Replay {
    /// Starts `threads` loaders. All keys count as used for the last time at `now_ms`.
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

    /// Replays the changes of another server, beside nothing else.
    #[must_use]
    pub fn of_another(self) -> Self {
        Self { is_of_another: true, ..self }
    }

    /// Replays one record.
    ///
    /// # Errors
    ///
    /// If it is none. Some of its operations may have been replayed then.
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

    /// Replays a batch. One long value, or whatever else is of one shard, is not copied.
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

    /// The shard of all these operations, and how many there are, if there is one.
    fn only_shard(&self, ops: &[u8]) -> Result<Option<(usize, u64)>, ReplayError> {
        let (mut only, mut count) = (None, 0);
        let mut ops = Reader::new(ops);
        while let Some((op, _)) = ops.next()? {
            let (db, key) = match op {
                Op::Key { effect, .. } if self.is_of_another && is_elsewhere(&effect) => {
                    return Ok(None);
                }
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
                Op::Key { db, key, effect } if self.is_of_another && is_elsewhere(&effect) => {
                    let (db, key) = (db_index(&self.keyspace, db)?, self.keyspace.key(key));
                    if self.has_dispatched {
                        self.barrier(&[]);
                    }
                    let mut locks = self.keyspace.locks();
                    locks.set_touch(Touch::No);
                    moved.apply(&mut locks.db(db, key.hash(), NO_TIME_MS), key, effect)?;
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
                    // There are no watchers while data is loaded.
                    swap_dbs(&mut self.keyspace.locks(), a, b, i64::MIN);
                }
                // The place of another server in a stream is none of this one.
                Op::Place(_) if self.is_of_another => {}
                // That of the whole log is the last one.
                Op::Place(place) => {
                    let is_there =
                        |place: &StreamPlace| self.keyspace.db_index(place.db.get()).is_some();
                    *self.keyspace.stream_place.lock() = place.filter(is_there);
                }
                // They are for those who look for changes.
                Op::Restatement | Op::Cut(_) => {}
                // It has nothing to do with keys, which loaders may be behind with.
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

    /// Waits until everything is loaded.
    ///
    /// # Errors
    ///
    /// If a record was none, in a way that only loading it shows.
    pub fn finish(mut self) -> Result<Replayed, ReplayError> {
        self.hand_over_all();
        for Loader { tasks, thread, .. } in self.loaders {
            drop(tasks);
            thread.join().expect("a loader does not panic")?;
        }
        self.done.unfinished = self.unfinished;
        Ok(self.done)
    }

    /// Waits until the loaders have done everything so far, and have them forget the incomplete lists of
    /// these databases.
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
    /// An empty one for each shard. These first ones are full at different lengths: operations are
    /// spread evenly, so that else all shards' would be full at about the same time, again and again,
    /// with loaders that have too much to do then and nothing in between.
    fn of_shards(shards: usize) -> Vec<Self> {
        let usual = CHUNK_BYTES.min(FILLING_BYTES_MAX / shards);
        let first = |nth| Self { ops: Vec::new(), full_at: usual * nth / shards, usual };
        (1..=shards).map(first).collect()
    }

    /// Appends an operation. Returns what there is if that is enough to be handed over.
    #[inline]
    fn push(&mut self, op: &[u8]) -> Option<Vec<u8>> {
        if self.ops.capacity() == 0 {
            // With room for the last operation, if that is no long one.
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

/// Whether this says where a value is on the disk of the server that wrote it.
fn is_elsewhere(effect: &Effect<'_>) -> bool {
    matches!(effect, Effect::Taken(_) | Effect::Spilled { .. })
}

/// After an error a loader loads nothing more, but takes part until the tasks end: others wait for it.
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

/// Has the store keep a value on disk that a key gets.
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

/// Writes into a string that is there. One that is not follows as a whole, see
/// [`checkpoint`](super::checkpoint). Nor is one that is on disk, which was written as a whole afterwards.
///
/// The limit on values may be lower now than when this was written. It is no reason to forget what was
/// written, but damaged numbers must not take all memory: zero bytes, of which the log has only the number,
/// are not made beyond it.
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
