//! A set of integers: an ascending array in the fewest of 2, 4 or 8 bytes that hold all of them.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | number of integers |
//! | 4 | 4 | bytes of each |
//! | 8 | | the integers |
//!
//! Numbers are in native byte order.
//!
//! Invariants:
//! - `block` is an allocation from [`thin::allocate`] for `HEADER + len * width` bytes, owned exclusively by
//!   this value. Its whole size class is initialized.
//! - The width is that of the widest integer inserted since the array was made.

use std::ptr::NonNull;

use crate::size_class;
use crate::thin;

const HEADER: usize = 8;

/// Integers in ascending order.
#[derive(Debug)]
pub(super) struct Integers {
    block: NonNull<u8>,
}

// SAFETY: the value owns its block alone.
unsafe impl Send for Integers {}
// SAFETY: through a shared reference bytes are only read.
unsafe impl Sync for Integers {}

/// Returns the bytes that an integer needs.
fn width_of(value: i64) -> usize {
    if i16::try_from(value).is_ok() {
        2
    } else if i32::try_from(value).is_ok() {
        4
    } else {
        8
    }
}

impl Integers {
    pub(super) fn new() -> Self {
        Self::with_room(0, 2)
    }

    /// Creates a block for `len` integers of this width, all zero.
    fn with_room(len: usize, width: usize) -> Self {
        let bytes = HEADER + len * width;
        let block = thin::allocate(bytes);
        // SAFETY: a size class was allocated, and 16 bytes at least.
        unsafe {
            block.write_bytes(0, size_class(bytes));
        }
        let mut made = Self { block };
        made.set_header(len, width);
        made
    }

    /// Creates the array from integers in ascending order.
    fn of_sorted(values: impl Iterator<Item = i64>, len: usize, width: usize) -> Self {
        let mut made = Self::with_room(len, width);
        values.enumerate().for_each(|(index, value)| made.write(index, value));
        made
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.header()[0] as usize
    }

    #[inline]
    fn width(&self) -> usize {
        self.header()[1] as usize
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        size_class(HEADER + self.len() * self.width())
    }

    /// Returns the integer at an index, counted in ascending order.
    ///
    /// # Panics
    ///
    /// If the index is not below the length.
    #[inline]
    pub(super) fn get(&self, index: usize) -> i64 {
        let width = self.width();
        let bytes = &self.bytes()[HEADER + index * width..][..width];
        match *bytes {
            [a, b] => i64::from(i16::from_ne_bytes([a, b])),
            [a, b, c, d] => i64::from(i32::from_ne_bytes([a, b, c, d])),
            _ => i64::from_ne_bytes(bytes.try_into().expect("the widths are 2, 4 and 8")),
        }
    }

    fn write(&mut self, index: usize, value: i64) {
        let width = self.width();
        let at = &mut self.bytes_mut()[HEADER + index * width..][..width];
        match width {
            2 => at.copy_from_slice(&(value as i16).to_ne_bytes()),
            4 => at.copy_from_slice(&(value as i32).to_ne_bytes()),
            _ => at.copy_from_slice(&value.to_ne_bytes()),
        }
    }

    /// Returns the index of an integer, or its insertion point.
    pub(super) fn find(&self, value: i64) -> Result<usize, usize> {
        let len = self.len();
        // New members are often the largest so far.
        if len > 0 && value > self.get(len - 1) {
            return Err(len);
        }
        let (mut low, mut high) = (0, len);
        while low < high {
            let middle = (low + high) / 2;
            match self.get(middle).cmp(&value) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// Adds an integer; `false` if it already exists.
    pub(super) fn insert(&mut self, value: i64) -> bool {
        let Err(index) = self.find(value) else { return false };
        let (len, width) = (self.len(), self.width());
        if width_of(value) > width {
            let values = (0..index).map(|at| self.get(at));
            let values = values.chain([value]).chain((index..len).map(|at| self.get(at)));
            *self = Self::of_sorted(values, len + 1, width_of(value));
            return true;
        }
        self.resize(len + 1);
        let from = HEADER + index * width;
        self.bytes_mut().copy_within(from..HEADER + len * width, from + width);
        self.write(index, value);
        true
    }

    /// Removes an integer; `false` if it does not exist.
    pub(super) fn remove(&mut self, value: i64) -> bool {
        let Ok(index) = self.find(value) else { return false };
        let (len, width) = (self.len(), self.width());
        let to = HEADER + index * width;
        self.bytes_mut().copy_within(to + width..HEADER + len * width, to);
        self.resize(len - 1);
        true
    }

    pub(super) fn duplicate(&self) -> Self {
        let mut copy = Self::with_room(self.len(), self.width());
        copy.bytes_mut().copy_from_slice(self.bytes());
        copy
    }

    #[inline]
    pub(super) fn into_raw(self) -> NonNull<u8> {
        std::mem::ManuallyDrop::new(self).block
    }

    /// # Safety
    ///
    /// The pointer must come from `into_raw`, for one value at a time.
    #[inline]
    pub(super) unsafe fn from_raw(block: NonNull<u8>) -> Self {
        Self { block }
    }

    /// Sets the number of integers, keeping the bytes that fit.
    fn resize(&mut self, len: usize) {
        let width = self.width();
        let (old, new) = (HEADER + self.len() * width, HEADER + len * width);
        if size_class(old) == size_class(new) {
            self.set_header(len, width);
            return;
        }
        let mut resized = Self::with_room(len, width);
        let kept = HEADER..old.min(new);
        resized.bytes_mut()[kept.clone()].copy_from_slice(&self.bytes()[kept]);
        *self = resized;
    }

    #[inline]
    fn header(&self) -> [u32; 2] {
        // SAFETY: the block begins with the header, and is aligned to 16 bytes.
        unsafe { self.block.cast::<[u32; 2]>().read() }
    }

    /// Sets number and width of the integers; the size class must be that of the block.
    #[inline]
    fn set_header(&mut self, len: usize, width: usize) {
        // SAFETY: the block begins with the header, and is aligned to 16 bytes.
        unsafe { self.block.cast::<[u32; 2]>().write([len as u32, width as u32]) }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        // SAFETY: the whole size class is initialized, and borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.block.as_ptr(), self.allocated_bytes()) }
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above. Writes through it stay after the header.
        unsafe { std::slice::from_raw_parts_mut(self.block.as_ptr(), self.allocated_bytes()) }
    }
}

impl Drop for Integers {
    fn drop(&mut self) {
        // SAFETY: the block belongs to this value and has this size.
        unsafe { thin::free(self.block, self.allocated_bytes()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use tierce_harness::effort;

    fn value() -> impl Strategy<Value = i64> {
        prop_oneof![
            4 => -20..20i64,
            2 => any::<i16>().prop_map(i64::from),
            1 => any::<i32>().prop_map(i64::from),
            1 => any::<i64>(),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 8 } else { effort(256) },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn behaves_like_an_ordered_set(
            steps in proptest::collection::vec((value(), 0..3u8), 1..if cfg!(miri) { 40 } else { 300 }),
        ) {
            let mut set = Integers::new();
            let mut model = BTreeSet::new();
            for (value, kind) in steps {
                if kind < 2 {
                    prop_assert_eq!(set.insert(value), model.insert(value));
                } else {
                    prop_assert_eq!(set.remove(value), model.remove(&value));
                }
                prop_assert_eq!(set.len(), model.len());
                prop_assert_eq!(set.find(value).is_ok(), model.contains(&value));
            }
            let values = |set: &Integers| (0..set.len()).map(|at| set.get(at)).collect::<Vec<_>>();
            prop_assert_eq!(values(&set), model.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(values(&set.duplicate()), values(&set));
            prop_assert_eq!(set.allocated_bytes(), size_class(8 + set.len() * set.width()));
        }
    }
}
