//! Operations of a thread under its locks, on their way to the log: as one record, or as several if they are longer
//! than a piece; see [`piece`](super::piece).
//!
//! However long a value is, at most about a piece is buffered: full pieces are appended with the shards still locked,
//! and other threads append between them.

use std::cell::{RefCell, RefMut};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::piece::BatchPiece;
use crate::change::log::encode::{
    Out, RESTATEMENT, begin_edits, encode_change, encode_code, encode_entry, encode_flush,
    encode_position, encode_swap, end_edits,
};
use crate::change::log::sink::{LogSink, RecordKind, Sizes};
use crate::change::stream_position::StreamPosition;
use crate::change::{Change, Removal};
use crate::data::code::CodeKind;
use crate::data::entry::Entry;
use crate::data::value::BLOB_LEN_MIN;
use crate::db_index::DbIndex;
use crate::planted::{self, Fault};

/// Maximum size of a buffer that is kept for the next record.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Receiver of batches, and sizes at which they are split into records.
pub(crate) struct BatchSink {
    sink: Arc<dyn LogSink>,
    pub(crate) sizes: Sizes,
    /// The number of the next batch.
    batches: AtomicU64,
    /// True if restatements are marked as such.
    marks_restatements: AtomicBool,
    /// Number of [passes](PassUnderway) underway.
    passes: AtomicUsize,
}

impl BatchSink {
    pub(crate) fn new(sink: Arc<dyn LogSink>, sizes: Sizes) -> Self {
        let (batches, marks_restatements, passes) = Default::default();
        Self { sink, sizes, batches, marks_restatements, passes }
    }

    /// Marks restatements as such from now on.
    pub(crate) fn mark_restatements(&self) {
        self.marks_restatements.store(true, Ordering::Relaxed);
    }

    /// Returns true if this value may get another key without being logged again: if it is large, since readers wait
    /// for all shards before such an operation.
    #[cold]
    fn may_move(&self, entry: &Entry) -> bool {
        let is_short = entry.plain_string().is_some_and(|string| string.len() < BLOB_LEN_MIN);
        !is_short
            && entry.location().is_none()
            && entry.allocated_bytes() > self.sizes.large_bytes_min
            && self.passes.load(Ordering::Relaxed) == 0
    }

    fn marks(&self, kind: RecordKind) -> bool {
        kind == RecordKind::Restatement && self.marks_restatements.load(Ordering::Relaxed)
    }
}

/// As long as this exists, each value that gets another key is logged whole. A pass over all keys has one: it may have
/// visited the new key already, and not the old one, so that the part of the log which stays would not have the value.
///
/// A value may get another key without being logged if there was no pass at a time at which the shard of the new key
/// was already locked. A pass that begins afterwards visits that shard later, and finds the value there.
#[derive(Debug)]
pub(crate) struct PassUnderway<'k>(&'k BatchSink);

impl<'k> PassUnderway<'k> {
    pub(crate) fn begin(log: &'k BatchSink) -> Self {
        // The locks of the shards order this before the pass's visits, and the visits before later changes.
        log.passes.fetch_add(1, Ordering::Relaxed);
        Self(log)
    }
}

impl Drop for PassUnderway<'_> {
    fn drop(&mut self) {
        self.0.passes.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for BatchSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchSink").field("sizes", &self.sizes).finish_non_exhaustive()
    }
}

/// Operations that are not, or not completely, in the log yet.
#[derive(Debug)]
pub(crate) struct Batch<'k> {
    log: &'k BatchSink,
    recorded: RefCell<Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    ops: Vec<u8>,
    /// Part that is already in the log, if any.
    begun: Option<Begun>,
    /// True while records are deferred, so that nothing may go to the log.
    is_held: bool,
    kind: RecordKind,
    /// Length of the first operations in `ops` that only state expired keys.
    expired: usize,
    moved: Option<Moved>,
}

/// A large value in memory that gets another key. It is not logged again.
#[derive(Debug, PartialEq, Eq)]
enum Moved {
    /// The entry at this address was taken.
    Taken(usize),
    /// It is about to be stored.
    Given,
}

#[derive(Debug)]
struct Begun {
    batch: u64,
    pieces: u64,
    bytes: usize,
    /// The last piece.
    record: Vec<u8>,
}

/// The length of a batch at a moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BatchMark {
    ops: usize,
    expired: usize,
}

impl<'k> Batch<'k> {
    #[inline]
    pub(crate) fn new(log: &'k BatchSink, kind: RecordKind) -> Self {
        Self { log, recorded: RefCell::new(Recorded { kind, ..Recorded::default() }) }
    }

    /// Returns a writer that appends to the batch. There is one at a time.
    #[inline]
    pub(crate) fn writer(&self) -> BatchWriter<'_> {
        BatchWriter { log: self.log, recorded: self.recorded.borrow_mut() }
    }

    #[inline]
    pub(crate) fn record_change(&self, db: DbIndex, entry: &Entry, change: Change) {
        let mut out = self.writer();
        encode_change(&mut out, db, entry, change);
        out.cut();
    }

    /// Prepares for the storing of an entry that may have been taken before.
    pub(crate) fn prepare_put(&self, entry: &Entry) {
        let moved = &mut self.recorded.borrow_mut().moved;
        let taken = moved.take();
        *moved = taken
            .filter(|moved| *moved == Moved::Taken(entry.address().addr()))
            .map(|_| Moved::Given);
    }

    /// Records that a key has expired; no command has removed it.
    #[cold]
    pub(crate) fn record_expired(&self, db: DbIndex, entry: &Entry) {
        let mut out = self.writer();
        let is_all = out.recorded.ops.len() == out.recorded.expired;
        encode_change(&mut out, db, entry, Change::Removed(Removal::Expired));
        if is_all {
            out.recorded.expired = out.recorded.ops.len();
        }
        out.cut();
    }

    /// Records the location of a key's value on disk, in a record separate from the changes.
    pub(crate) fn record_move(&self, db: DbIndex, entry: &Entry) {
        let mut out = self.writer();
        debug_assert!(!out.recorded.is_held, "what may be taken back is not cut");
        out.finish();
        let usual = std::mem::replace(&mut out.recorded.kind, RecordKind::Move);
        encode_entry(&mut out, db, entry);
        out.finish();
        out.recorded.kind = usual;
    }

    /// Begins an operation on the collection of a key. Its edits go into the result.
    #[inline]
    pub(crate) fn record_edits(&self, db: DbIndex, key: &[u8]) -> Recording<'_> {
        let mut out = self.writer();
        let op = out.recorded.ops.len();
        let edits = begin_edits(out.ops(), db, key, 0, None);
        Recording { out, op, edits }
    }

    pub(crate) fn record_flush(&self, db: DbIndex) {
        encode_flush(self.writer().ops(), db);
    }

    pub(crate) fn record_swap(&self, a: DbIndex, b: DbIndex) {
        encode_swap(self.writer().ops(), a, b);
    }

    pub(crate) fn record_code(&self, kind: CodeKind, name: &[u8], source: Option<&[u8]>) {
        let mut out = self.writer();
        encode_code(&mut out, kind, name, source);
        out.cut();
    }

    pub(crate) fn record_position(&self, position: Option<&StreamPosition>) {
        encode_position(self.writer().ops(), position);
    }

    /// Returns true if only expired keys are recorded.
    pub(crate) fn is_unchanged(&self) -> bool {
        let Recorded { ops, begun, expired, .. } = &*self.recorded.borrow();
        begun.is_none() && ops.len() == *expired
    }

    /// With `is_held`, keeps everything here, however long it is, because it may be rolled back.
    pub(crate) fn hold(&self, is_held: bool) {
        let mut out = self.writer();
        out.recorded.is_held = is_held;
        out.cut();
    }

    /// Returns the position for [`Batch::truncate`].
    pub(crate) fn mark(&self) -> BatchMark {
        let Recorded { ops, expired, .. } = &*self.recorded.borrow();
        BatchMark { ops: ops.len(), expired: *expired }
    }

    /// Forgets everything after a mark, which must have been made since records are deferred.
    pub(crate) fn truncate(&self, to: BatchMark) {
        let mut recorded = self.recorded.borrow_mut();
        recorded.ops.truncate(to.ops);
        recorded.expired = to.expired;
        recorded.moved = None;
    }

    #[cfg(test)]
    pub(crate) fn ops(&self) -> Vec<u8> {
        self.recorded.borrow().ops.clone()
    }

    /// Returns the bytes of operations that are not in the log yet.
    pub(crate) fn len(&self) -> usize {
        self.recorded.borrow().ops.len()
    }

    /// Appends everything, and clears the batch. Returns true if a command's change was recorded. A command that only
    /// found an expired key need not wait until the expiry is durable: until then, the log has the key's deadline.
    #[inline]
    pub(crate) fn append(&self) -> bool {
        let mut out = self.writer();
        let expired = std::mem::take(&mut out.recorded.expired);
        out.finish() > expired
    }
}

/// Appends to a batch.
pub(crate) struct BatchWriter<'b> {
    log: &'b BatchSink,
    recorded: RefMut<'b, Recorded>,
}

impl BatchWriter<'_> {
    /// Returns true if the batch is so long that it should be finished, if that is allowed here.
    pub(crate) fn is_long(&self) -> bool {
        self.recorded.begun.is_some() || self.recorded.ops.len() >= self.log.sizes.piece_len
    }

    /// Appends the rest, which makes the whole batch take effect, and clears the batch. Returns the bytes that went
    /// to the log since the batch was last empty.
    #[inline]
    pub(crate) fn finish(&mut self) -> usize {
        self.recorded.expired = 0;
        self.recorded.moved = None;
        if self.recorded.begun.is_some() {
            return self.finish_pieces();
        }
        let bytes = self.recorded.ops.len();
        if bytes > 0 {
            if self.log.marks(self.recorded.kind) {
                self.recorded.ops.splice(..0, RESTATEMENT);
            }
            self.log.sink.append(&self.recorded.ops, self.recorded.kind);
            self.recorded.ops.clear();
            if self.recorded.ops.capacity() > KEPT_BYTES_MAX {
                self.recorded.ops.shrink_to(KEPT_BYTES_MAX);
            }
        }
        bytes
    }

    #[cold]
    fn finish_pieces(&mut self) -> usize {
        let ops = std::mem::take(&mut self.recorded.ops);
        self.append_part(&ops, true);
        self.recorded.begun.take().map_or(0, |begun| begun.bytes)
    }

    /// Appends the buffered changes as pieces.
    #[cold]
    fn append_pieces(&mut self) {
        let mut ops = std::mem::take(&mut self.recorded.ops);
        for piece in ops.chunks(self.log.sizes.piece_len) {
            self.append_part(piece, false);
        }
        ops.clear();
        ops.shrink_to(self.log.sizes.piece_len);
        self.recorded.ops = ops;
    }

    fn append_part(&mut self, ops: &[u8], is_last: bool) {
        if self.recorded.begun.is_none() && self.log.marks(self.recorded.kind) {
            self.append_piece(&RESTATEMENT, false);
        }
        self.append_piece(ops, is_last);
    }

    fn append_piece(&mut self, ops: &[u8], is_last: bool) {
        let recorded = &mut *self.recorded;
        let begun = recorded.begun.get_or_insert_with(|| Begun {
            batch: self.log.batches.fetch_add(1, Ordering::Relaxed),
            pieces: 0,
            bytes: 0,
            record: Vec::new(),
        });
        let piece = BatchPiece { batch: begun.batch, number: begun.pieces, is_last, ops };
        piece.write(&mut begun.record);
        if !planted::is(Fault::LongRecordsAreDropped) {
            self.log.sink.append(&begun.record, recorded.kind);
        }
        begun.pieces += 1;
        begun.bytes += begun.record.len();
    }
}

impl Out for BatchWriter<'_> {
    fn takes(&mut self, entry: &Entry) -> bool {
        let takes = self.log.may_move(entry);
        if takes {
            self.recorded.moved = Some(Moved::Taken(entry.address().addr()));
        }
        takes
    }

    fn is_given(&mut self) -> bool {
        self.recorded.moved.take_if(|moved| *moved == Moved::Given).is_some()
    }

    #[inline]
    fn ops(&mut self) -> &mut Vec<u8> {
        &mut self.recorded.ops
    }

    #[cold]
    fn long(&mut self, bytes: &[u8]) {
        let piece_len = self.log.sizes.piece_len;
        if self.recorded.is_held || self.recorded.ops.len() + bytes.len() <= piece_len {
            return self.recorded.ops.extend_from_slice(bytes);
        }
        self.append_pieces();
        let mut pieces = bytes.chunks_exact(piece_len);
        for piece in &mut pieces {
            self.append_part(piece, false);
        }
        self.recorded.ops.extend_from_slice(pieces.remainder());
    }

    fn part_len(&self) -> usize {
        self.log.sizes.piece_len
    }

    #[inline]
    fn cut(&mut self) {
        if self.recorded.ops.len() > self.log.sizes.piece_len && !self.recorded.is_held {
            self.append_pieces();
        }
    }
}

/// An operation on the collection of a key while its edits are recorded. Discarded unless it is kept.
pub(crate) struct Recording<'b> {
    out: BatchWriter<'b>,
    /// The position at which the operation begins.
    op: usize,
    /// The position at which its edits begin.
    edits: usize,
}

impl Recording<'_> {
    /// Makes the edits a part of the record.
    #[inline]
    pub(crate) fn keep(mut self) {
        end_edits(self.out.ops(), self.edits);
        self.out.cut();
        self.op = self.out.ops().len();
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        self.out.ops().truncate(self.op);
    }
}

impl Deref for Recording<'_> {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.out.recorded.ops
    }
}

impl DerefMut for Recording<'_> {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        self.out.ops()
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::super::piece::Unfinished;
    use super::*;

    #[derive(Default)]
    struct Records(Mutex<Vec<Vec<u8>>>);

    impl LogSink for Records {
        fn append(&self, record: &[u8], _: RecordKind) {
            self.0.lock().push(record.to_vec());
        }
    }

    #[test]
    fn what_is_longer_than_a_piece_is_cut_and_comes_back_whole() {
        let records = Arc::new(Records::default());
        let sink = Arc::clone(&records) as Arc<dyn LogSink>;
        let log = BatchSink::new(sink, Sizes { piece_len: 100, ..Sizes::default() });
        let batch = Batch::new(&log, RecordKind::Change);
        let mut out = batch.writer();
        for lens in [&[3, 4][..], &[100], &[101], &[30, 250, 7], &[99, 1, 200, 0, 5], &[1000]] {
            let mut expected = Vec::new();
            for (number, len) in lens.iter().enumerate() {
                let bytes = vec![number as u8 + 1; *len];
                if len % 2 == 0 {
                    out.long(&bytes);
                } else {
                    out.ops().extend_from_slice(&bytes);
                }
                out.cut();
                expected.extend(bytes);
            }
            let bytes = out.finish();
            let records = std::mem::take(&mut *records.0.lock());
            assert_eq!(bytes, records.iter().map(Vec::len).sum::<usize>());
            if expected.len() <= 100 {
                assert_eq!(records, [expected]);
                continue;
            }
            let mut unfinished = Unfinished::default();
            let mut whole = None;
            for record in &records {
                assert!(whole.is_none(), "only the last piece makes it whole");
                let piece = BatchPiece::read(record).unwrap().unwrap();
                assert!(piece.ops.len() <= 100);
                whole = unfinished.add(piece);
            }
            assert_eq!(whole, Some(expected));
        }
        assert_eq!(out.finish(), 0);
        assert!(records.0.lock().is_empty());
    }
}
