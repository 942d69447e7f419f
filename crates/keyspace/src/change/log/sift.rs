//! Distinguishes changes from other records in a log: restatements by a checkpoint, locations on disk, replication
//! offsets.
//!
//! Works only if restatements are marked ([`Keyspace::mark_restatements`](crate::Keyspace::mark_restatements)).

use std::collections::HashSet;

use super::op::{Effect, Op};
use super::piece::BatchPiece;
use crate::codec::{Malformed, Reader};

/// Kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sifted {
    /// A change, or a piece of one.
    Change,
    /// A record that changes nothing.
    Other,
    /// A cut with this number.
    Cut(u64),
}

/// Visits the records of a log in order.
#[derive(Debug, Default)]
pub struct Sieve {
    /// Batches that are no changes.
    restated: HashSet<u64>,
}

impl Sieve {
    /// Returns the kind of the next record.
    ///
    /// # Errors
    ///
    /// If it is malformed.
    pub fn sift(&mut self, record: &[u8]) -> Result<Sifted, Malformed> {
        if let Some(piece) = BatchPiece::read(record)? {
            if piece.number == 0 {
                match piece.ops == super::encode::RESTATEMENT {
                    true => self.restated.insert(piece.batch),
                    false => self.restated.remove(&piece.batch),
                };
            }
            let is_restated = self.restated.contains(&piece.batch);
            return Ok(if is_restated || piece.is_gap() { Sifted::Other } else { Sifted::Change });
        }
        let mut ops = Reader::new(record);
        Ok(match ops.next()? {
            None | Some((Op::Restatement, _)) => Sifted::Other,
            Some((Op::Cut(number), _)) => Sifted::Cut(number),
            Some((Op::Position(_), _)) if ops.is_at_end() => Sifted::Other,
            // A value moved to disk. If it gets another key, the record of its old key comes first.
            Some((Op::Key { effect: Effect::Spilled { .. }, .. }, _)) => Sifted::Other,
            Some(_) => Sifted::Change,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::super::batch::{Batch, BatchSink};
    use super::*;
    use crate::change::log::encode::{Out, cut, encode_flush, no_position};
    use crate::change::log::sink::{LogSink, RecordKind, Sizes};
    use crate::db_index::DbIndex;

    #[derive(Default)]
    struct Records(Mutex<Vec<Vec<u8>>>);

    impl LogSink for Records {
        fn append(&self, record: &[u8], _: RecordKind) {
            self.0.lock().push(record.to_vec());
        }
    }

    /// Returns the records of this number of operations.
    fn records(kind: RecordKind, ops: usize) -> Vec<Vec<u8>> {
        let sink = Arc::<Records>::default();
        let sizes = Sizes { piece_len: 10, ..Sizes::default() };
        let log = BatchSink::new(Arc::clone(&sink) as Arc<dyn LogSink>, sizes);
        log.mark_restatements();
        let batch = Batch::new(&log, kind);
        let mut out = batch.writer();
        for _ in 0..ops {
            encode_flush(out.ops(), DbIndex::ZERO);
            out.cut();
        }
        out.finish();
        drop(out);
        std::mem::take(&mut *sink.0.lock())
    }

    #[test]
    fn changes_are_told_from_what_was_written_again() {
        for ops in [1, 4, 40] {
            let mut sieve = Sieve::default();
            // Batches of both kinds have the same number: they are from two runs of a server.
            for round in 0..4 {
                let (kind, expected) = match round % 2 {
                    0 => (RecordKind::Restatement, Sifted::Other),
                    _ => (RecordKind::Change, Sifted::Change),
                };
                let records = records(kind, ops);
                assert_eq!(records.len() > 1, ops == 40, "pieces");
                for record in &records {
                    assert_eq!(sieve.sift(record), Ok(expected), "{record:?}");
                }
            }
            assert_eq!(sieve.sift(&cut(300)), Ok(Sifted::Cut(300)));
            assert_eq!(sieve.sift(&no_position()), Ok(Sifted::Other));
        }
    }
}
