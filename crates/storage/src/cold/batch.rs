//! Values about to be written, already in their on-disk form.

use super::location::{ALIGNMENT, RECORD_HEADER_LEN, record_len};
use crate::disk::DIRECT_ALIGNMENT;
use crate::{BATCH_LEN_MAX, VALUE_LEN_MAX};

/// Maximum rest of a page that is skipped: a record that does not fit into such a rest begins the
/// next page, so that one page has to be read for it, not two. So at most an eighth of a segment is
/// padding.
const SKIPPED_LEN_MAX: usize = DIRECT_ALIGNMENT / 8;

/// Limits of a [`ColdBatch`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColdLimits {
    /// Maximum length of a value.
    pub value_len_max: usize,
    /// Maximum length of a batch, beyond which it takes no more values. An empty batch takes one
    /// value of any allowed length.
    pub batch_len_max: usize,
}

impl Default for ColdLimits {
    /// Values of [`VALUE_LEN_MAX`] with a little metadata, in batches of [`BATCH_LEN_MAX`].
    fn default() -> Self {
        ColdLimits { value_len_max: VALUE_LEN_MAX + (1 << 20), batch_len_max: BATCH_LEN_MAX }
    }
}

/// Reason why a [`ColdBatch`] refuses a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ColdRefusal {
    /// No batch takes it.
    #[error("the value is too long to be written")]
    TooLong,
    /// The next batch may take it.
    #[error("the batch is full")]
    Full,
}

/// Values for [`ColdStore::write`](super::ColdStore::write).
#[derive(Default, Debug)]
pub struct ColdBatch {
    /// Records as in the file, without checksums; begins at a page.
    pub(super) bytes: Vec<u8>,
    /// Offset of each record, and the length of its value.
    pub(super) records: Vec<(usize, u32)>,
    limits: ColdLimits,
}

impl ColdBatch {
    /// Creates an empty batch with these limits.
    pub fn with_limits(limits: ColdLimits) -> Self {
        ColdBatch { limits, ..Self::default() }
    }

    /// Returns the limits.
    pub fn limits(&self) -> ColdLimits {
        self.limits
    }

    /// Checks that values of these lengths would be taken, in this order.
    ///
    /// # Errors
    /// The reason why the first refused one would be refused.
    pub fn takes(&self, lens: impl IntoIterator<Item = usize>) -> Result<(), ColdRefusal> {
        let mut end = self.bytes.len();
        for len in lens {
            end += self.takes_behind(end, len)?;
        }
        Ok(())
    }

    /// Returns the maximum number of bytes for a value of this length at `start`, if it is taken.
    fn takes_behind(&self, start: usize, len: usize) -> Result<usize, ColdRefusal> {
        // The format has 32 bits for a length, whatever the limits are.
        let short = u32::try_from(len).map_err(|_| ColdRefusal::TooLong)?;
        if len > self.limits.value_len_max {
            return Err(ColdRefusal::TooLong);
        }
        let stored = record_len(short) as usize + SKIPPED_LEN_MAX;
        if start > 0 && stored > self.limits.batch_len_max.saturating_sub(start) {
            return Err(ColdRefusal::Full);
        }
        Ok(stored)
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns true if there is no value.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the bytes of all values, including the format's overhead.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns a value by its number.
    ///
    /// # Panics
    /// When the number is too high.
    pub fn value(&self, index: usize) -> &[u8] {
        let (start, len) = self.records[index];
        &self.bytes[start + RECORD_HEADER_LEN as usize..][..len as usize]
    }

    /// Adds the value that `write` appends to the vector, whose earlier content must not change.
    ///
    /// # Errors
    /// The reason of the refusal, if [`ColdBatch::takes`] has not reported it before; the batch is
    /// then unchanged.
    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), ColdRefusal> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; RECORD_HEADER_LEN as usize]);
        write(&mut self.bytes);
        let len = self.bytes.len() - start - RECORD_HEADER_LEN as usize;
        if let Err(refusal) = self.takes_behind(start, len) {
            self.bytes.truncate(start);
            return Err(refusal);
        }
        self.finish_record(start, len as u32);
        Ok(())
    }

    /// Completes the record of a value, which is stored after room for a header at `start`.
    fn finish_record(&mut self, start: usize, len: u32) {
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
    }

    /// Removes all values and keeps up to `kept_max` bytes of memory.
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
            batch.push(|out| out.resize(out.len() + 900 + n as usize % 3, n as u8)).unwrap();
        }
        for (index, (start, len)) in batch.records.clone().into_iter().enumerate() {
            let end = start + record_len(len) as usize;
            assert_eq!(start / DIRECT_ALIGNMENT, (end - 1) / DIRECT_ALIGNMENT, "{start} to {end}");
            assert!(batch.value(index).iter().all(|byte| *byte == index as u8));
            assert_eq!(batch.value(index).len(), 900 + index % 3);
        }
        // These records cross pages, because skipping would waste half a page.
        let mut batch = ColdBatch::default();
        for _ in 0..3 {
            batch.push(|out| out.resize(out.len() + 2500, 1)).unwrap();
        }
        assert_eq!(batch.bytes(), 3 * 2512);
        batch.clear(0);
        assert!(batch.is_empty() && batch.bytes() == 0);
    }

    #[test]
    fn a_full_batch_and_a_long_value_are_refused_and_change_nothing() {
        let limits = ColdLimits { value_len_max: 3000, batch_len_max: 8000 };
        let push = |batch: &mut ColdBatch, len: usize| {
            let before = (batch.len(), batch.bytes());
            assert_eq!(batch.takes([len]), batch.push(|out| out.resize(out.len() + len, 7)));
            (batch.len(), batch.bytes()) != before
        };
        let mut batch = ColdBatch::with_limits(limits);
        assert!(!push(&mut batch, 3001));
        assert_eq!(batch.takes([3001]), Err(ColdRefusal::TooLong));
        assert_eq!(batch.takes([3000, 3000]), Ok(()));
        assert_eq!(batch.takes([3000, 3000, 3000]), Err(ColdRefusal::Full));
        assert!(push(&mut batch, 3000) && push(&mut batch, 3000) && !push(&mut batch, 3000));
        assert!(push(&mut batch, 100), "what is shorter still fits");
        assert!(batch.bytes() <= limits.batch_len_max && batch.len() == 3);
        assert!((0..3).all(|index| batch.value(index).iter().all(|byte| *byte == 7)));
        batch.clear(0);
        assert!(push(&mut batch, 3000), "and the next batch takes it");
        // One value fits into an empty batch, whatever the batch limit is.
        let tight = ColdLimits { value_len_max: 3000, batch_len_max: 10 };
        let mut batch = ColdBatch::with_limits(tight);
        assert!(push(&mut batch, 3000) && !push(&mut batch, 1));
    }
}
