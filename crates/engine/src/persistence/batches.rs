//! What a load reads, on its way from the thread that reads the file to the one that stores it, in batches.
//!
//! To read and decompress a value takes about as long as to store it, and only storing needs the shards. So a load
//! takes half as long with two threads. A few batches go round between both.
//!
//! **Bounds.** A batch ends at [`BATCH_BYTES`] or with the value that makes it longer. Behind one with a large value
//! nothing is read until everything is stored, so two large values are never here at the same time.

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
use crate::clock::BEFORE_ALL_MS;
use crate::loading::{GivenUp, Loading};
use crate::log::Log;

/// So many batches go round.
const BATCHES: usize = 4;

/// A batch is passed on when so much of the file is in it, or so much of its strings.
const BATCH_BYTES: usize = 64 << 10;

/// A value is large if its batch is longer than this.
const LARGE_BYTES: usize = 1 << 20;

/// So many keys are looked for at once.
const PREFETCHED: usize = 32;

/// A load that takes longer says how far it is, each time that so much has passed.
const REPORT_EVERY: Duration = Duration::from_secs(2);

/// The clock is read once for this many keys.
const KEYS_PER_LOOK: u64 = 4096;

#[derive(Default)]
struct Batch {
    /// The keys and strings of all items, one behind the other.
    bytes: Vec<u8>,
    items: Vec<Item>,
    /// How much of the file is read behind it.
    offset: u64,
}

struct Item {
    content: Content,
    /// Where its key, or the name of its code, ends in the bytes of the batch.
    key_end: usize,
    /// Where its string or source ends.
    end: usize,
    /// How much of the file is read behind it.
    offset: u64,
}

enum Content {
    String(Place),
    Collection(Box<Collection>, Place),
    Code(CodeKind),
}

/// What is known of a key besides its value.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) db: DbIndex,
    pub(super) hash: KeyHash,
    pub(super) deadline_ms: Option<i64>,
    pub(super) note: ItemNote,
}

impl Content {
    fn place(&self) -> Option<&Place> {
        match self {
            Self::String(place) | Self::Collection(_, place) => Some(place),
            Self::Code(_) => None,
        }
    }
}

/// Reads with `read` in another thread, and stores what comes. What came before an error is stored.
///
/// # Errors
/// Those of `read` and of the storer, or when the system has no thread to give.
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

/// The end of the reading thread. The other one ends when this is dropped.
pub(super) struct Outgoing {
    batch: Batch,
    /// How much of the file was read before the batch.
    begin: u64,
    spare: Vec<Batch>,
    /// So many batches have not come back.
    out: usize,
    full: Sender<Batch>,
    stored: Receiver<Batch>,
}

impl Outgoing {
    pub(super) fn string(&mut self, key: &[u8], value: &[u8], place: Place) {
        self.push(key, value, Content::String(place));
    }

    pub(super) fn collection(&mut self, key: &[u8], value: Collection, place: Place) {
        self.push(key, b"", Content::Collection(Box::new(value), place));
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

    /// The file is read up to `offset`, and what was read is here, unless it is left out.
    ///
    /// # Errors
    /// When there is to be no other.
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

    /// Passes on what has not been.
    ///
    /// # Errors
    /// When the other thread takes no more.
    pub(super) fn pass_on(&mut self) -> Result<(), LoadError> {
        let out_max = if self.len() >= LARGE_BYTES { 0 } else { BATCHES - 1 };
        let offset = self.batch.offset;
        // Also when the other thread takes no more, the next one begins where this one ends.
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

/// Stores what is read.
pub(super) struct Storer<'a, 'k> {
    pub(super) path: &'a Path,
    pub(super) locks: &'a mut ShardLocks<'k>,
    pub(super) progress: Progress<'a>,
}

impl Storer<'_, '_> {
    /// Both ends are dropped behind it, also after an error or a panic: the reader, which may wait for a batch that
    /// never comes back, ends then.
    fn store_all(mut self, full: Receiver<Batch>, back: Sender<Batch>) -> Result<(), LoadError> {
        for mut batch in full {
            self.store(&mut batch)?;
            self.note(batch.offset)?;
            batch.bytes.clear();
            if batch.bytes.capacity() > LARGE_BYTES {
                batch = Batch::default();
            }
            // At the end the reader takes none back.
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
            let places = chunk.iter().filter_map(|item| item.content.place());
            self.locks.prefetch(places.map(|place| (place.db, place.hash)));
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
            // In time: who reads the file decides what has expired. By the clock a key that was in time for the data of
            // a stream's place could be missing here, and in that stream nothing would say so.
            Content::String(place) => {
                let expiry = place.deadline_ms.map_or(Expiry::Never, Expiry::At);
                let mut db = self.locks.db(place.db, place.hash, BEFORE_ALL_MS);
                db.restore_item(keyspace.key(name), value, expiry, place.note)
            }
            Content::Collection(collection, place) => {
                let mut db = self.locks.db(place.db, place.hash, BEFORE_ALL_MS);
                db.put_collection(keyspace.key(name), *collection, place.deadline_ms).map(drop)
            }
        };
        stored.map_err(|error| LoadError::Unsupported {
            path: self.path.to_owned(),
            offset: item.offset,
            what: format!("the key {}: {error}", name.escape_ascii()),
        })?;
        self.progress.keys += 1;
        if self.progress.keys.is_multiple_of(KEYS_PER_LOOK) {
            // Under a guard over all shards they stay locked, and what changes is one record.
            if !self.locks.is_within() {
                self.locks.release();
            }
            self.progress.tell(item.offset);
        }
        self.note(item.offset)
    }

    /// Tells those who wait for the start how far it is.
    fn note(&mut self, offset: u64) -> Result<(), LoadError> {
        let Some(loading) = self.progress.loading else { return Ok(()) };
        if loading.is_slowed() {
            // It may rest.
            self.locks.release();
        }
        Ok(loading.note(offset)?)
    }
}

/// How far a load is.
pub(super) struct Progress<'a> {
    log: &'a Log,
    /// Whom a start tells.
    loading: Option<&'a Loading>,
    total_bytes: u64,
    keys: u64,
    /// When this was last logged.
    reported: Instant,
}

impl<'a> Progress<'a> {
    pub(super) fn new(log: &'a Log, loading: Option<&'a Loading>, total_bytes: u64) -> Self {
        Self { log, loading, total_bytes, keys: 0, reported: Instant::now() }
    }

    /// Tells the operator, now and then.
    fn tell(&mut self, offset: u64) {
        if self.reported.elapsed() < REPORT_EVERY {
            return;
        }
        self.reported = Instant::now();
        let keys = self.keys;
        let Some(loading) = self.loading else {
            let percent = offset as f64 * 100.0 / self.total_bytes.max(1) as f64;
            self.log.notice(format_args!("Loading: {percent:.0} %, {keys} keys"));
            return;
        };
        if let Some(report) = loading.report_for_log() {
            self.log.notice(format_args!("Loading: {report}, {keys} keys"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tierce_config::LogLevel;
    use tierce_keyspace::Options;

    use super::*;

    /// Longer than any load here takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// What becomes of a load that is given up while values of this length are read.
    fn given_up_with_values_of(len: usize) -> Option<Result<(), LoadError>> {
        let (done, outcome) = channel();
        // Not scoped: it would be waited for.
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
                        Place { db: DbIndex::ZERO, hash, deadline_ms: None, note },
                    );
                    if out.note_read((number * len) as u64).is_err() {
                        break;
                    }
                }
                // Also behind an error, as the reader of a file does.
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
