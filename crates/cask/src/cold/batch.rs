//! Values on their way to the disk, in the form in which they will stand there.

use super::place::{ALIGNMENT, RECORD_HEADER_LEN, record_len};
use crate::disk::DIRECT_ALIGNMENT;
use crate::{BATCH_LEN_MAX, VALUE_LEN_MAX};

/// A record that does not fit into the rest of its page begins the next one if that rest is at most
/// so long: then one page has to be read for it and not two. So at most an eighth of a segment is
/// padding.
const SKIPPED_LEN_MAX: usize = DIRECT_ALIGNMENT / 8;

/// Values for [`ColdStore::write`](super::ColdStore::write).
#[derive(Default, Debug)]
pub struct ColdBatch {
    /// Records as in the file, checksums missing; begins at a page.
    pub(super) bytes: Vec<u8>,
    /// Where each record begins, and the length of its value.
    pub(super) records: Vec<(usize, u32)>,
}

impl ColdBatch {
    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Bytes of all values, with what the format adds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// A value, by its number.
    ///
    /// # Panics
    /// When there are not so many.
    #[must_use]
    pub fn value(&self, index: usize) -> &[u8] {
        let (start, len) = self.records[index];
        &self.bytes[start + RECORD_HEADER_LEN as usize..][..len as usize]
    }

    /// Adds the value that `write` appends to the vector. What is there before stays as it is.
    ///
    /// # Panics
    /// When a value is longer than [`VALUE_LEN_MAX`], with a little for what describes it, or the
    /// batch longer than [`BATCH_LEN_MAX`].
    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; RECORD_HEADER_LEN as usize]);
        write(&mut self.bytes);
        let len = self.bytes.len() - start - RECORD_HEADER_LEN as usize;
        assert!(len <= VALUE_LEN_MAX + (1 << 20), "a value of {len} bytes");
        let len = len as u32;
        let stored = record_len(len) as usize;
        let rest = DIRECT_ALIGNMENT - start % DIRECT_ALIGNMENT;
        let skipped = if rest < stored && rest <= SKIPPED_LEN_MAX { rest } else { 0 };
        self.bytes.resize(start + skipped + stored, 0);
        if skipped > 0 {
            self.bytes.copy_within(
                start..start + RECORD_HEADER_LEN as usize + len as usize,
                start + skipped,
            );
            self.bytes[start..start + skipped].fill(0);
            let end = start + skipped + RECORD_HEADER_LEN as usize + len as usize;
            self.bytes[end..].fill(0);
        }
        let start = start + skipped;
        debug_assert!(start.is_multiple_of(ALIGNMENT as usize));
        self.bytes[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
        self.records.push((start, len));
        assert!(self.bytes.len() <= BATCH_LEN_MAX, "a batch of {} bytes", self.bytes.len());
    }

    /// Forgets all values and keeps up to `kept_max` bytes of memory.
    pub fn clear(&mut self, kept_max: usize) {
        self.bytes.clear();
        self.records.clear();
        self.bytes.shrink_to(kept_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_records_do_not_cross_pages_where_little_is_lost() {
        let mut batch = ColdBatch::default();
        for n in 0..100u32 {
            batch.push(|out| out.resize(out.len() + 900 + n as usize % 3, n as u8));
        }
        for (index, (start, len)) in batch.records.clone().into_iter().enumerate() {
            let end = start + record_len(len) as usize;
            assert_eq!(start / DIRECT_ALIGNMENT, (end - 1) / DIRECT_ALIGNMENT, "{start} to {end}");
            assert!(batch.value(index).iter().all(|byte| *byte == index as u8));
            assert_eq!(batch.value(index).len(), 900 + index % 3);
        }
        // Where half a page would be lost they do.
        let mut batch = ColdBatch::default();
        for _ in 0..3 {
            batch.push(|out| out.resize(out.len() + 2500, 1));
        }
        assert_eq!(batch.bytes(), 3 * 2512);
        batch.clear(0);
        assert!(batch.is_empty() && batch.bytes() == 0);
    }
}
