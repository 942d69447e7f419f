//! Passes loaded data in batches from the thread that reads the file to the one that stores it.
//!
//! Reading and decompressing a value takes about as long as storing it, and only storing needs the shards. So two
//! threads halve the time of a load. A few batches circulate between them.
//!
//! **Bounds.** A batch ends at [`BATCH_BYTES`] or with the value that exceeds it. After a batch with a large value,
//! nothing is read until everything is stored. So two large values are never in memory here at the same time.

use std::panic::resume_unwind;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use tierce_collections::Collection;
use tierce_keyspace::{
    CodeEditor, CodeKind, DbIndex, Expiry, ItemNote, KeyHash, Keyspace, ShardLocks,
};

use super::error::LoadError;
use super::member_deadlines::MemberDeadlines;
use crate::clock::BEFORE_ALL_MS;
use crate::loading::{GivenUp, Loading};
use crate::log::Log;

/// Number of batches that circulate.
const BATCHES: usize = 4;

/// Size at which a batch is passed on: bytes of the file or of its strings, whichever is more.
const BATCH_BYTES: usize = 64 << 10;

/// Length of a batch from which its value counts as large.
const LARGE_BYTES: usize = 1 << 20;

/// Number of keys that are prefetched together.
const PREFETCHED: usize = 32;

/// Interval of the progress lines of a long load.
const REPORT_EVERY: Duration = Duration::from_secs(2);

/// Number of keys for each reading of the clock.
const KEYS_PER_LOOK: u64 = 4096;

#[derive(Default)]
struct Batch {
    /// Keys and strings of all items, one after the other.
    bytes: Vec<u8>,
    items: Vec<Item>,
    /// Offset in the file after the batch.
    offset: u64,
}

struct Item {
    content: Content,
    /// Offset in `bytes` after its key, or the name of its code.
    key_end: usize,
    /// Offset in `bytes` after its string or source.
    end: usize,
    /// Offset in the file after the item.
    offset: u64,
}

enum Content {
    String(KeyFacts),
    Collection(Box<Collection>, KeyFacts),
    /// Deadlines of members of a set before it.
    MemberDeadlines(KeyFacts),
    Code(CodeKind),
}

/// Metadata of a key.
#[derive(Clone, Copy)]
pub(super) struct KeyFacts {
    pub(super) db: DbIndex,
    pub(super) hash: KeyHash,
    pub(super) deadline_ms: Option<i64>,
    pub(super) note: ItemNote,
}

impl Content {
    fn facts(&self) -> Option<&KeyFacts> {
        match self {
            Self::String(facts) | Self::Collection(_, facts) | Self::MemberDeadlines(facts) => {
                Some(facts)
            }
            Self::Code(_) => None,
        }
    }
}

/// Runs `read` in another thread, and stores the data that it passes on, also the data before an error.
///
/// # Errors
/// Those of `read` and of the storer, or when the system cannot start a thread.
pub(super) fn pass<T: Send>(
    read: impl FnOnce(Outgoing) -> Result<T, LoadError> + Send,
    storer: Storer<'_, '_>,
) -> Result<T, LoadError> {
    let (full, to_store) = channel();
    let (back, stored) = channel();
    let failed = |source| LoadError::Io { path: storer.path.to_owned(), source };
    thread::scope(|scope| {
        let outgoing =
            Outgoing { batch: Batch::default(), begin: 0, spare: Vec::new(), out: 0, full, stored };
        let builder = thread::Builder::new().name("loader".into());
        let reading = builder.spawn_scoped(scope, move || read(outgoing)).map_err(failed)?;
        let is_stored = storer.store_all(to_store, back);
        let read = reading.join().unwrap_or_else(|panic| resume_unwind(panic));
        is_stored.and(read)
    })
}

/// The reading thread's end of the channel. The storing thread ends when this is dropped.
pub(super) struct Outgoing {
    batch: Batch,
    /// Offset in the file before the batch.
    begin: u64,
    spare: Vec<Batch>,
    /// Number of batches that have not come back.
    out: usize,
    full: Sender<Batch>,
    stored: Receiver<Batch>,
}

impl Outgoing {
    pub(super) fn string(&mut self, key: &[u8], value: &[u8], facts: KeyFacts) {
        self.push(key, value, Content::String(facts));
    }

    pub(super) fn collection(&mut self, key: &[u8], value: Collection, facts: KeyFacts) {
        self.push(key, b"", Content::Collection(Box::new(value), facts));
    }

    pub(super) fn member_deadlines(&mut self, key: &[u8], pairs: &[u8], facts: KeyFacts) {
        self.push(key, pairs, Content::MemberDeadlines(facts));
    }

    pub(super) fn code(&mut self, kind: CodeKind, name: &[u8], source: &[u8]) {
        self.push(name, source, Content::Code(kind));
    }

    fn push(&mut self, key: &[u8], value: &[u8], content: Content) {
        let Batch { bytes, items, offset } = &mut self.batch;
        bytes.extend_from_slice(key);
        let key_end = bytes.len();
        bytes.extend_from_slice(value);
        items.push(Item { content, key_end, end: bytes.len(), offset: *offset });
    }

    /// Notes that the file is read up to `offset`, and that its data is in the batch, unless it is left out.
    ///
    /// # Errors
    /// When the storing thread has ended.
    pub(super) fn note_read(&mut self, offset: u64) -> Result<(), LoadError> {
        self.batch.offset = offset;
        if let Some(item) = self.batch.items.last_mut() {
            item.offset = offset;
        }
        if self.len() >= BATCH_BYTES { self.pass_on() } else { Ok(()) }
    }

    fn len(&self) -> usize {
        self.batch.bytes.len().max((self.batch.offset - self.begin) as usize)
    }

    /// Passes on the current batch.
    ///
    /// # Errors
    /// When the storing thread has ended.
    pub(super) fn pass_on(&mut self) -> Result<(), LoadError> {
        let out_max = if self.len() >= LARGE_BYTES { 0 } else { BATCHES - 1 };
        let offset = self.batch.offset;
        // The next batch begins where this one ends, even if the storing thread has ended.
        self.begin = offset;
        let next = Batch { offset, ..Batch::default() };
        self.full.send(std::mem::replace(&mut self.batch, next)).map_err(|_| GivenUp)?;
        self.out += 1;
        while self.out > out_max {
            self.spare.push(self.stored.recv().map_err(|_| GivenUp)?);
            self.out -= 1;
        }
        if let Some(spare) = self.spare.pop() {
            self.batch = Batch { offset, ..spare };
        }
        Ok(())
    }
}

/// Stores the data that the other thread reads.
pub(super) struct Storer<'a, 'k> {
    pub(super) path: &'a Path,
    pub(super) locks: &'a mut ShardLocks<'k>,
    pub(super) progress: Progress<'a>,
}

impl Storer<'_, '_> {
    /// Drops both channel ends at the end, also after an error or a panic. A reader that waits for a batch ends then.
    fn store_all(mut self, full: Receiver<Batch>, back: Sender<Batch>) -> Result<(), LoadError> {
        for mut batch in full {
            self.store(&mut batch)?;
            self.note(batch.offset)?;
            batch.bytes.clear();
            if batch.bytes.capacity() > LARGE_BYTES {
                batch = Batch::default();
            }
            // At the end the reader takes no batches back.
            let _ = back.send(batch);
        }
        Ok(())
    }

    fn store(&mut self, batch: &mut Batch) -> Result<(), LoadError> {
        let keyspace = self.locks.keyspace();
        let Batch { bytes, items, .. } = batch;
        let mut start = 0;
        for first in (0..items.len()).step_by(PREFETCHED) {
            let chunk = &items[first..items.len().min(first + PREFETCHED)];
            let places = chunk.iter().filter_map(|item| item.content.facts());
            self.locks.prefetch(places.map(|facts| (facts.db, facts.hash)));
            for item in items.iter_mut().skip(first).take(PREFETCHED) {
                let (name, value) = (&bytes[start..item.key_end], &bytes[item.key_end..item.end]);
                start = item.end;
                self.store_item(keyspace, item, name, value)?;
            }
        }
        items.clear();
        Ok(())
    }

    fn store_item(
        &mut self,
        keyspace: &Keyspace,
        item: &mut Item,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), LoadError> {
        let content = std::mem::replace(&mut item.content, Content::Code(CodeKind::Library));
        let stored = match content {
            Content::Code(kind) => {
                CodeEditor::lock(self.locks).put(kind, name, value);
                return Ok(());
            }
            Content::MemberDeadlines(facts) => {
                let mut db = self.locks.db(facts.db, facts.hash, BEFORE_ALL_MS);
                // The key may have been left out, and another one be there.
                _ = MemberDeadlines::store(value, &mut db, keyspace.key(name));
                return Ok(());
            }
            // Never treat these keys as expired: the reader decides what has expired. By the clock, a key of a
            // replication stream could go missing here without a record in that stream.
            Content::String(facts) => {
                let expiry = facts.deadline_ms.map_or(Expiry::Never, Expiry::At);
                let mut db = self.locks.db(facts.db, facts.hash, BEFORE_ALL_MS);
                db.restore_item(keyspace.key(name), value, expiry, facts.note)
            }
            Content::Collection(collection, facts) => {
                let mut db = self.locks.db(facts.db, facts.hash, BEFORE_ALL_MS);
                db.put_collection(keyspace.key(name), *collection, facts.deadline_ms).map(drop)
            }
        };
        stored.map_err(|error| LoadError::Unsupported {
            path: self.path.to_owned(),
            offset: item.offset,
            what: format!("the key {}: {error}", name.escape_ascii()),
        })?;
        self.progress.keys += 1;
        if self.progress.keys.is_multiple_of(KEYS_PER_LOOK) {
            // A guard over all shards keeps them locked; one record describes the whole change.
            if !self.locks.is_within() {
                self.locks.release();
            }
            self.progress.tell(item.offset);
        }
        self.note(item.offset)
    }

    /// Reports the progress to threads that wait for the start.
    fn note(&mut self, offset: u64) -> Result<(), LoadError> {
        let Some(loading) = self.progress.loading else { return Ok(()) };
        if loading.is_slowed() {
            // The call below may sleep.
            self.locks.release();
        }
        Ok(loading.note(offset)?)
    }
}

/// Progress of a load.
pub(super) struct Progress<'a> {
    log: &'a Log,
    /// Receiver of the progress at a start.
    loading: Option<&'a Loading>,
    total_bytes: u64,
    keys: u64,
    /// Time of the last progress line.
    reported: Instant,
}

impl<'a> Progress<'a> {
    pub(super) fn new(log: &'a Log, loading: Option<&'a Loading>, total_bytes: u64) -> Self {
        Self { log, loading, total_bytes, keys: 0, reported: Instant::now() }
    }

    /// Logs the progress from time to time.
    fn tell(&mut self, offset: u64) {
        if self.reported.elapsed() < REPORT_EVERY {
            return;
        }
        self.reported = Instant::now();
        let keys = crate::count(self.keys, "key");
        let Some(loading) = self.loading else {
            let percent = offset as f64 * 100.0 / self.total_bytes.max(1) as f64;
            self.log.notice(format_args!("Loading: {percent:.0} %, {keys}"));
            return;
        };
        if let Some(report) = loading.report_for_log() {
            self.log.notice(format_args!("Loading: {report}, {keys}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tierce_config::LogLevel;
    use tierce_keyspace::Options;

    use super::*;

    /// Longer than any load in these tests takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Returns the result of a load that is aborted while values of this length are read.
    fn given_up_with_values_of(len: usize) -> Option<Result<(), LoadError>> {
        let (done, outcome) = channel();
        // A scoped thread would be joined even if it hangs.
        thread::spawn(move || {
            let keyspace = Arc::new(Keyspace::new(Options::default()).expect("a keyspace"));
            let log = Log::open(None, LogLevel::Nothing).expect("nothing is opened");
            let loading = Loading::default();
            loading.give_up();
            let mut locks = keyspace.locks();
            let storer = Storer {
                path: Path::new("a.rdb"),
                locks: &mut locks,
                progress: Progress::new(&log, Some(&loading), 0),
            };
            let hash = |key: &[u8]| keyspace.hash(key);
            let read = |mut out: Outgoing| {
                let value = vec![b'v'; len];
                for number in 1..=100 * BATCHES {
                    let key = number.to_string().into_bytes();
                    let (hash, note) = (hash(&key), ItemNote::default());
                    out.string(
                        &key,
                        &value,
                        KeyFacts { db: DbIndex::ZERO, hash, deadline_ms: None, note },
                    );
                    if out.note_read((number * len) as u64).is_err() {
                        break;
                    }
                }
                // Called after an error too, as the reader of a file does.
                out.pass_on()
            };
            let _ = done.send(pass(read, storer));
        });
        outcome.recv_timeout(PATIENCE).ok()
    }

    #[test]
    fn a_reader_that_waits_for_a_batch_ends_with_the_storer() {
        for len in [BATCH_BYTES, LARGE_BYTES] {
            let outcome = given_up_with_values_of(len);
            assert!(matches!(outcome, Some(Err(LoadError::GivenUp(_)))), "{len}: {outcome:?}");
        }
    }
}
