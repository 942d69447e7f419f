//! Operations that a thread has done under its locks, before they are appended to the log as one
//! record.

use std::cell::RefCell;

use super::LogSink;
use super::op::{encode_change, encode_flush, encode_swap};
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
        log.append(ops);
        ops.clear();
        if ops.capacity() > KEPT_BYTES_MAX {
            *ops = Vec::new();
        }
        true
    }
}
