//! Pieces: the records of a batch that is too long for one.
//!
//! A batch has the changes of one thread under its locks. If it is longer than a piece, it goes to the log in several
//! records. Each has a run of the batch's operations, split anywhere. The batch takes effect at its last piece, and a
//! batch without a last piece has no effect.
//!
//! | part | bytes | |
//! |---|---|---|
//! | head | 1 | bits 0-3 the code of a piece, bit 4 `FIRST`, bit 5 `COMMIT` |
//! | batch | varint | its number |
//! | piece | varint | number of this piece in the batch, from 0 on |
//! | operations | | rest of the record |

use std::borrow::Cow;
use std::collections::HashMap;

use super::op::CODE_MASK;
use crate::codec::{Malformed, Reader, push_varint};

/// Code of a piece, in place of an operation's code.
pub(crate) const PIECE: u8 = 10;

const FIRST: u8 = 0x10;
const COMMIT: u8 = 0x20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchPiece<'a> {
    pub(crate) batch: u64,
    pub(crate) number: u64,
    /// True if the batch takes effect with it.
    pub(crate) is_last: bool,
    pub(crate) ops: &'a [u8],
}

impl<'a> BatchPiece<'a> {
    /// Replaces the contents of `record` by the piece.
    pub(crate) fn write(&self, record: &mut Vec<u8>) {
        let first = if self.number == 0 { FIRST } else { 0 };
        let commit = if self.is_last { COMMIT } else { 0 };
        record.clear();
        record.push(PIECE | first | commit);
        push_varint(record, self.batch);
        push_varint(record, self.number);
        record.extend_from_slice(self.ops);
    }

    /// Returns true if it only states that a batch is never completed ([`Unfinished::gaps`]).
    pub(crate) fn is_gap(&self) -> bool {
        self.number > 0 && !self.is_last && self.ops.is_empty()
    }

    /// Reverses [`BatchPiece::write`]; `None` if the record has whole operations.
    pub(crate) fn read(record: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let Some(head) = record.first().filter(|head| **head & CODE_MASK == PIECE) else {
            return Ok(None);
        };
        let mut reader = Reader::new(&record[1..]);
        let (batch, number) = (reader.varint()?, reader.varint()?);
        if (number == 0) != (head & FIRST != 0) {
            return Err(reader.malformed("a first piece that is not number 0"));
        }
        Ok(Some(Self { batch, number, is_last: head & COMMIT != 0, ops: reader.rest() }))
    }
}

/// Batches whose last piece has not been read.
///
/// A batch with a missing piece is skipped. There are two causes. Its beginning may have been removed after a
/// complete checkpoint: then its shards were locked from before the checkpoint's mark until its end, and the
/// checkpoint, which visits all shards after its mark, has their keys in the later state. Or the log could not be
/// written for a while: then nothing was acknowledged until a checkpoint was complete.
#[derive(Debug, Default)]
pub struct Unfinished {
    batches: HashMap<u64, Begun>,
}

#[derive(Debug)]
struct Begun {
    pieces: u64,
    ops: Vec<u8>,
}

impl Unfinished {
    /// Returns true if no batch is incomplete.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Returns the operations of a record, or those of the batch of which it is the last piece. `None` for any other
    /// piece.
    ///
    /// # Errors
    ///
    /// If the record begins like a piece but is malformed.
    pub fn operations<'a>(&mut self, record: &'a [u8]) -> Result<Option<Cow<'a, [u8]>>, Malformed> {
        Ok(match BatchPiece::read(record)? {
            Some(piece) => self.add(piece).map(Cow::Owned),
            None => Some(Cow::Borrowed(record)),
        })
    }

    /// Returns records that make each reader drop the incomplete batches, for a log in which the rest never comes:
    /// pieces after a missing one. They are no changes.
    #[must_use]
    pub fn gaps(&self) -> Vec<Vec<u8>> {
        let gap = |(batch, begun): (&u64, &Begun)| {
            let mut record = Vec::new();
            let (batch, number) = (*batch, begun.pieces + 1);
            BatchPiece { batch, number, is_last: false, ops: b"" }.write(&mut record);
            record
        };
        self.batches.iter().map(gap).collect()
    }

    /// Adds a piece. Returns the operations of its batch if it is complete.
    pub(crate) fn add(&mut self, piece: BatchPiece<'_>) -> Option<Vec<u8>> {
        let BatchPiece { batch, number, is_last, ops } = piece;
        if number == 0 {
            // Replaces a batch that an earlier run of the server has not finished.
            self.batches.insert(batch, Begun { pieces: 0, ops: Vec::new() });
        }
        let begun = self.batches.get_mut(&batch)?;
        if begun.pieces != number {
            self.batches.remove(&batch);
            return None;
        }
        begun.pieces += 1;
        begun.ops.extend_from_slice(ops);
        if is_last { self.batches.remove(&batch).map(|begun| begun.ops) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(batch: u64, number: u64, is_last: bool, ops: &[u8]) -> BatchPiece<'_> {
        BatchPiece { batch, number, is_last, ops }
    }

    #[test]
    fn a_piece_is_read_back() {
        let mut record = b"rest of another".to_vec();
        for (batch, number, is_last) in [(0, 0, false), (300, 0, true), (1 << 40, 200, true)] {
            for ops in [&b"abc"[..], b""] {
                let piece = piece(batch, number, is_last, ops);
                piece.write(&mut record);
                assert_eq!(BatchPiece::read(&record), Ok(Some(piece)));
            }
        }
        assert_eq!(BatchPiece::read(b"\x03\x00\x01k"), Ok(None));
        assert_eq!(BatchPiece::read(b""), Ok(None));
        BatchPiece::read(b"\x0a\x01\x00").unwrap_err();
        BatchPiece::read(b"\x1a\x01\x01").unwrap_err();
        BatchPiece::read(b"\x1a\x80").unwrap_err();
    }

    #[test]
    fn a_gap_drops_what_has_begun_and_nothing_else() {
        let mut unfinished = Unfinished::default();
        unfinished.add(piece(1, 0, false, b"a"));
        unfinished.add(piece(1, 1, false, b"b"));
        unfinished.add(piece(300, 0, false, b"x"));
        let gaps = unfinished.gaps();
        assert_eq!(gaps.len(), 2);
        assert_eq!(unfinished.add(piece(2, 0, false, b"c")), None);
        for gap in gaps {
            assert!(BatchPiece::read(&gap).unwrap().unwrap().is_gap());
            assert_eq!(unfinished.operations(&gap), Ok(None));
        }
        assert_eq!(unfinished.add(piece(2, 1, true, b"d")), Some(b"cd".to_vec()));
        assert!(unfinished.is_empty());
    }

    #[test]
    fn a_batch_is_there_when_all_its_pieces_are() {
        let mut unfinished = Unfinished::default();
        assert_eq!(unfinished.add(piece(1, 0, false, b"a")), None);
        assert_eq!(unfinished.add(piece(2, 0, false, b"x")), None);
        assert_eq!(unfinished.add(piece(1, 1, false, b"b")), None);
        assert_eq!(unfinished.add(piece(2, 1, true, b"")), Some(b"x".to_vec()));
        assert_eq!(unfinished.add(piece(1, 2, true, b"c")), Some(b"abc".to_vec()));
    }

    #[test]
    fn a_batch_with_a_gap_is_passed_over() {
        let mut unfinished = Unfinished::default();
        // Its beginning was removed.
        assert_eq!(unfinished.add(piece(7, 3, false, b"d")), None);
        assert_eq!(unfinished.add(piece(7, 4, true, b"e")), None);
        // A piece could not be written.
        assert_eq!(unfinished.add(piece(8, 0, false, b"a")), None);
        assert_eq!(unfinished.add(piece(8, 2, false, b"c")), None);
        assert_eq!(unfinished.add(piece(8, 3, true, b"d")), None);
        // Left by an earlier run, with the same number.
        assert_eq!(unfinished.add(piece(9, 0, false, b"old")), None);
        assert_eq!(unfinished.add(piece(9, 0, false, b"a")), None);
        assert_eq!(unfinished.add(piece(9, 1, true, b"b")), Some(b"ab".to_vec()));
        assert!(unfinished.batches.is_empty());
    }
}
