//! Operations that belong together, on their way to the log: as one record, or, when they are longer than
//! a piece, as a batch of several; see [`piece`](super::piece).
//!
//! Nothing is kept that is longer than about a piece, however long a value is: pieces are appended as they
//! become full, with the shards still locked, and others append between them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::piece::BatchPiece;
use crate::change::log::encode::{Out, RESTATEMENT};
use crate::change::log::sink::{LogSink, RecordKind, Sizes};
use crate::planted::{self, Fault};

/// A buffer that is larger than this is not kept for the next record.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Where records go, and how long they are.
pub(crate) struct Outlet {
    pub(crate) sink: Arc<dyn LogSink>,
    pub(crate) sizes: Sizes,
    /// The number of the next batch.
    batches: AtomicU64,
    /// What is written again says so.
    marks_restatements: AtomicBool,
}

impl Outlet {
    pub(crate) fn new(sink: Arc<dyn LogSink>, sizes: Sizes) -> Self {
        let (batches, marks_restatements) = Default::default();
        Self { sink, sizes, batches, marks_restatements }
    }

    /// Has what is written again say so from now on.
    pub(crate) fn mark_restatements(&self) {
        self.marks_restatements.store(true, Ordering::Relaxed);
    }

    fn marks(&self, kind: RecordKind) -> bool {
        kind == RecordKind::Restatement && self.marks_restatements.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet").field("sizes", &self.sizes).finish_non_exhaustive()
    }
}

/// Operations that are not in the log yet, or not all of them.
#[derive(Debug, Default)]
pub(crate) struct RecordBatch {
    ops: Vec<u8>,
    /// What is in the log already, if anything is.
    begun: Option<Begun>,
    /// Nothing may go to the log yet.
    is_held: bool,
    kind: RecordKind,
}

#[derive(Debug)]
struct Begun {
    batch: u64,
    pieces: u64,
    bytes: usize,
    /// The last piece.
    record: Vec<u8>,
}

impl RecordBatch {
    pub(crate) fn of(kind: RecordKind) -> Self {
        Self { kind, ..Self::default() }
    }

    #[inline]
    pub(crate) fn ops(&mut self) -> &mut Vec<u8> {
        &mut self.ops
    }

    #[inline]
    pub(crate) fn recorded(&self) -> &Vec<u8> {
        &self.ops
    }

    /// Whether some of it is in the log already.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Appends an operation as a record of its own, of another kind than those before and after it.
    pub(crate) fn append_apart(
        &mut self,
        outlet: &Outlet,
        kind: RecordKind,
        encode: impl FnOnce(&mut Appending<'_>),
    ) {
        debug_assert!(!self.is_held, "what may be taken back is not cut");
        self.finish(outlet);
        let usual = std::mem::replace(&mut self.kind, kind);
        encode(&mut self.to(outlet));
        self.finish(outlet);
        self.kind = usual;
    }

    pub(crate) fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    #[inline]
    pub(crate) fn to<'b>(&'b mut self, outlet: &'b Outlet) -> Appending<'b> {
        Appending { batch: self, outlet }
    }

    /// Appends what is left, after which the whole batch counts, and is empty again. Returns how many
    /// bytes went to the log since it was last empty.
    #[inline]
    pub(crate) fn finish(&mut self, outlet: &Outlet) -> usize {
        if self.begun.is_some() {
            return self.commit(outlet);
        }
        let bytes = self.ops.len();
        if bytes > 0 {
            if outlet.marks(self.kind) {
                self.ops.splice(..0, RESTATEMENT);
            }
            outlet.sink.append(&self.ops, self.kind);
            self.ops.clear();
            if self.ops.capacity() > KEPT_BYTES_MAX {
                self.ops.shrink_to(KEPT_BYTES_MAX);
            }
        }
        bytes
    }

    #[cold]
    fn commit(&mut self, outlet: &Outlet) -> usize {
        let ops = std::mem::take(&mut self.ops);
        self.append(outlet, &ops, true);
        self.begun.take().map_or(0, |begun| begun.bytes)
    }

    /// Appends the buffered changes as pieces.
    #[cold]
    fn append_pieces(&mut self, outlet: &Outlet) {
        let mut ops = std::mem::take(&mut self.ops);
        for piece in ops.chunks(outlet.sizes.piece_len) {
            self.append(outlet, piece, false);
        }
        ops.clear();
        ops.shrink_to(outlet.sizes.piece_len);
        self.ops = ops;
    }

    fn append(&mut self, outlet: &Outlet, ops: &[u8], is_last: bool) {
        if self.begun.is_none() && outlet.marks(self.kind) {
            self.append_piece(outlet, &RESTATEMENT, false);
        }
        self.append_piece(outlet, ops, is_last);
    }

    fn append_piece(&mut self, outlet: &Outlet, ops: &[u8], is_last: bool) {
        let begun = self.begun.get_or_insert_with(|| Begun {
            batch: outlet.batches.fetch_add(1, Ordering::Relaxed),
            pieces: 0,
            bytes: 0,
            record: Vec::new(),
        });
        let piece = BatchPiece { batch: begun.batch, number: begun.pieces, is_last, ops };
        piece.write(&mut begun.record);
        if !planted::is(Fault::LongRecordsAreDropped) {
            outlet.sink.append(&begun.record, self.kind);
        }
        begun.pieces += 1;
        begun.bytes += begun.record.len();
    }
}

/// A batch that is being appended to, with the log it goes to.
pub(crate) struct Appending<'b> {
    batch: &'b mut RecordBatch,
    outlet: &'b Outlet,
}

impl Appending<'_> {
    /// Whether there is so much that the batch had better be finished, where that may be.
    pub(crate) fn is_long(&self) -> bool {
        self.batch.begun.is_some() || self.batch.ops.len() >= self.outlet.sizes.piece_len
    }

    pub(crate) fn finish(&mut self) -> usize {
        self.batch.finish(self.outlet)
    }
}

impl Out for Appending<'_> {
    #[inline]
    fn ops(&mut self) -> &mut Vec<u8> {
        &mut self.batch.ops
    }

    #[cold]
    fn long(&mut self, bytes: &[u8]) {
        let piece_len = self.outlet.sizes.piece_len;
        if self.batch.is_held || self.batch.ops.len() + bytes.len() <= piece_len {
            return self.batch.ops.extend_from_slice(bytes);
        }
        self.batch.append_pieces(self.outlet);
        let mut pieces = bytes.chunks_exact(piece_len);
        for piece in &mut pieces {
            self.batch.append(self.outlet, piece, false);
        }
        self.batch.ops.extend_from_slice(pieces.remainder());
    }

    fn part_len(&self) -> usize {
        self.outlet.sizes.piece_len
    }

    #[inline]
    fn cut(&mut self) {
        if self.batch.ops.len() > self.outlet.sizes.piece_len && !self.batch.is_held {
            self.batch.append_pieces(self.outlet);
        }
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
        let outlet = Outlet::new(sink, Sizes { piece_len: 100, ..Sizes::default() });
        let mut batch = RecordBatch::default();
        for lens in [&[3, 4][..], &[100], &[101], &[30, 250, 7], &[99, 1, 200, 0, 5], &[1000]] {
            let mut expected = Vec::new();
            for (number, len) in lens.iter().enumerate() {
                let bytes = vec![number as u8 + 1; *len];
                let mut out = batch.to(&outlet);
                if len % 2 == 0 {
                    out.long(&bytes);
                } else {
                    out.ops().extend_from_slice(&bytes);
                }
                out.cut();
                expected.extend(bytes);
            }
            let bytes = batch.finish(&outlet);
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
        assert_eq!(batch.finish(&outlet), 0);
        assert!(records.0.lock().is_empty());
    }
}
