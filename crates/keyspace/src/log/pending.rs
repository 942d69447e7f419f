//! Operations that a thread has done under its locks, before they are appended to the log as one
//! record.

use std::cell::{RefCell, RefMut};
use std::ops::{Deref, DerefMut};

use super::op::{Reader, begin_edits, encode_change, encode_flush, encode_swap, end_edits};
use super::{LogSink, RECORD_BYTES_MAX};
use crate::change::Change;
use crate::entry::Entry;
use crate::keyspace::DbIndex;

/// A buffer that is larger than this is not kept for the next record.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// The operations of one record.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    ops: RefCell<Vec<u8>>,
}

impl Pending {
    #[inline]
    pub(crate) fn push_change(&self, db: DbIndex, entry: &Entry, change: Change) {
        encode_change(&mut self.ops.borrow_mut(), db, entry, change);
    }

    /// Begins an operation on the collection of a key, whose edits go into what is returned.
    #[inline]
    pub(crate) fn record_edits(&self, db: DbIndex, key: &[u8]) -> Recording<'_> {
        let mut ops = self.ops.borrow_mut();
        let op = ops.len();
        let edits = begin_edits(&mut ops, db, key, 0, None);
        Recording { ops, op, edits }
    }

    pub(crate) fn push_flush(&self, db: DbIndex) {
        encode_flush(&mut self.ops.borrow_mut(), db);
    }

    pub(crate) fn push_swap(&self, a: DbIndex, b: DbIndex) {
        encode_swap(&mut self.ops.borrow_mut(), a, b);
    }

    /// Appends what there is, and is empty again. Whether there was anything.
    #[inline]
    pub(crate) fn append_to(&mut self, log: &dyn LogSink) -> bool {
        let ops = self.ops.get_mut();
        if ops.is_empty() {
            return false;
        }
        if ops.len() <= RECORD_BYTES_MAX {
            log.append(ops);
        } else {
            append_in_parts(ops, log, RECORD_BYTES_MAX);
        }
        ops.clear();
        if ops.capacity() > KEPT_BYTES_MAX {
            *ops = Vec::new();
        }
        true
    }
}

/// An operation on a collection while its edits are recorded. Forgotten unless it is kept.
pub(crate) struct Recording<'a> {
    ops: RefMut<'a, Vec<u8>>,
    /// Where the operation begins.
    op: usize,
    /// Where its edits begin.
    edits: usize,
}

impl Recording<'_> {
    /// Makes the edits a part of the record.
    #[inline]
    pub(crate) fn keep(mut self) {
        end_edits(&mut self.ops, self.edits);
        self.op = self.ops.len();
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        self.ops.truncate(self.op);
    }
}

impl Deref for Recording<'_> {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.ops
    }
}

impl DerefMut for Recording<'_> {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.ops
    }
}

/// Appends operations as records of at most `bytes_max`, or of one operation that is longer.
#[cold]
fn append_in_parts(ops: &[u8], log: &dyn LogSink, bytes_max: usize) {
    let (mut reader, mut start, mut end) = (Reader::new(ops), 0, 0);
    // What was encoded here decodes, so the loop ends with the last operation.
    while let Ok(Some((_, op))) = reader.next() {
        if end > start && end + op.len() - start > bytes_max {
            log.append(&ops[start..end]);
            start = end;
        }
        end += op.len();
    }
    log.append(&ops[start..end]);
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::entry::Content;
    use crate::usage::Access;

    #[derive(Default)]
    struct Records(Mutex<Vec<Vec<u8>>>);

    impl LogSink for Records {
        fn append(&self, record: &[u8]) {
            self.0.lock().push(record.to_vec());
        }
    }

    #[test]
    fn parts_are_whole_operations_and_lose_none() {
        let mut ops = Vec::new();
        for len in [10, 20, 300, 5, 5, 5, 90] {
            let value = vec![b'v'; len];
            let entry = Entry::new(b"key", Content::of_string(&value), None, Access::default());
            encode_change(&mut ops, DbIndex::ZERO, &entry, Change::Stored);
        }
        for bytes_max in [1, 30, 100, 1000] {
            let records = Records::default();
            append_in_parts(&ops, &records, bytes_max);
            let records = records.0.into_inner();
            assert_eq!(records.concat(), ops);
            for record in records {
                let mut reader = Reader::new(&record);
                let mut count = 0;
                while reader.next().unwrap().is_some() {
                    count += 1;
                }
                assert!(count == 1 || record.len() <= bytes_max);
            }
        }
    }
}
