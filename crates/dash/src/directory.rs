//! The directory: an array of `2^bits` slots that maps the leading bits of a hash to a segment.
//!
//! A segment of depth `d` covers `2^(bits - d)` neighbouring slots. A slot is not a pointer to the segment's
//! description but a copy of it, 16 bytes, so that a lookup goes from the slot straight to the bucket.
//!
//! Invariants:
//! - There are `2^bits` slots, or none at all.
//! - Slots that a segment covers are aliases of the first of them. Only the first one's `len` is kept up to date, and
//!   the segment is changed, moved out or dropped only through the first one. When it changes in anything but its
//!   entries and `len`, the aliases are rewritten.
//! - `deepest` is the number of segments with depth `bits`; it is 0 only when there are no slots.
//! - `segment_bytes` is the sum of the segments' allocations.

use crate::segment::Segment;
use core::mem::ManuallyDrop;

/// Minimum number of entries per directory slot when the directory is doubled, so that it never costs more than a byte
/// per entry. Evenly distributed hashes give 300 and more; skewed ones would otherwise let the directory grow without
/// limit.
const ENTRIES_PER_SLOT_MIN: usize = 16;

pub(crate) struct Directory<T> {
    slots: Vec<ManuallyDrop<Segment<T>>>,
    bits: u32,
    deepest: u32,
    segment_bytes: usize,
}

/// The first of the slots that a segment covers; valid until the directory is changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FirstSlot(usize);

impl<T> Directory<T> {
    /// Creates a directory without a segment, which allocates nothing.
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), bits: 0, deepest: 0, segment_bytes: 0 }
    }

    /// Returns the segment of a hash, for lookups only: its `len` may be out of date.
    #[inline(always)]
    pub(crate) fn get(&self, hash: u64) -> Option<&Segment<T>> {
        // The bounds check also covers the case of no segment at all.
        self.slots.get(self.slot_of(hash)).map(|slot| &**slot)
    }

    /// As [`Directory::get`], to change an entry in place: any slot of a segment gives its buckets.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, hash: u64) -> Option<&mut Segment<T>> {
        let slot = self.slot_of(hash);
        self.slots.get_mut(slot).map(|slot| &mut **slot)
    }

    /// Returns the first slot of the segment of a hash.
    #[inline]
    pub(crate) fn first_slot(&self, hash: u64) -> Option<FirstSlot> {
        let index = self.slot_of(hash);
        let covered = self.covered_by(self.slots.get(index)?);
        Some(FirstSlot(index & !(covered - 1)))
    }

    /// Returns the segment that begins at `first`.
    #[inline]
    pub(crate) fn segment(&self, first: FirstSlot) -> &Segment<T> {
        &self.slots[first.0]
    }

    /// Returns the segment that begins at `first`, to change its entries; its allocation stays the same. See
    /// [`Directory::replace`] for other changes.
    #[inline]
    pub(crate) fn entries_mut(&mut self, first: FirstSlot) -> &mut Segment<T> {
        &mut self.slots[first.0]
    }

    /// Replaces the segment that begins at `first` by the result of `change`, a segment of the same depth. A panic in
    /// `change` aborts the process.
    pub(crate) fn replace(
        &mut self,
        first: FirstSlot,
        change: impl FnOnce(Segment<T>) -> Segment<T>,
    ) {
        let depth = self.segment(first).depth();
        let abort_on_panic = AbortOnPanic;
        let changed = change(self.take(first));
        assert_eq!(changed.depth(), depth);
        self.put(first, changed);
        core::mem::forget(abort_on_panic);
    }

    /// Puts the first segment into an empty directory.
    pub(crate) fn begin(&mut self, segment: Segment<T>) {
        assert!(self.slots.is_empty() && segment.depth() == 0);
        self.slots.reserve_exact(1);
        self.segment_bytes = segment.memory_bytes();
        self.slots.push(ManuallyDrop::new(segment));
        self.deepest = 1;
    }

    /// Returns true if the segment that begins at `first` can be split, in a table of `len` entries.
    pub(crate) fn may_split(&self, first: FirstSlot, len: usize) -> bool {
        self.segment(first).depth() < self.bits
            || self.slots.len() * 2 * ENTRIES_PER_SLOT_MIN <= len
    }

    /// Replaces the segment that begins at `first` by the results of `split`: two segments that are one deeper. A
    /// panic in `split` aborts the process.
    pub(crate) fn split(
        &mut self,
        first: FirstSlot,
        split: impl FnOnce(Segment<T>) -> [Segment<T>; 2],
    ) {
        let mut first = first.0;
        let depth = self.slots[first].depth();
        if depth == self.bits {
            self.double();
            first *= 2;
        }
        let covered = 1 << (self.bits - depth);
        let abort_on_panic = AbortOnPanic;
        let halves = split(self.take(FirstSlot(first)));
        for (half, place) in halves.into_iter().zip([first, first + covered / 2]) {
            assert_eq!(half.depth(), depth + 1);
            self.deepest += u32::from(half.depth() == self.bits);
            self.put(FirstSlot(place), half);
        }
        core::mem::forget(abort_on_panic);
    }

    /// Returns the segment that begins at `first` and its sibling, which differs only in the last bit of the prefix,
    /// in the order of the axis; `None` if that half is not a single segment.
    pub(crate) fn siblings(&self, first: FirstSlot) -> Option<[FirstSlot; 2]> {
        let segment = self.segment(first);
        let covered = self.covered_by(segment);
        let siblings = [FirstSlot(first.0 & !covered), FirstSlot(first.0 | covered)];
        let are_single = segment.depth() > 0
            && siblings.iter().all(|sibling| self.segment(*sibling).depth() == segment.depth());
        are_single.then_some(siblings)
    }

    /// Replaces two [`Directory::siblings`] by the result of `merge`: a segment of one less depth. Returns its first
    /// slot. A panic in `merge` aborts the process.
    pub(crate) fn merge(
        &mut self,
        siblings: [FirstSlot; 2],
        merge: impl FnOnce([Segment<T>; 2]) -> Segment<T>,
    ) -> FirstSlot {
        assert_eq!(self.siblings(siblings[0]), Some(siblings));
        let first = siblings[0];
        let depth = self.segment(first).depth();
        let abort_on_panic = AbortOnPanic;
        let merged = merge(siblings.map(|sibling| self.take(sibling)));
        assert_eq!(merged.depth() + 1, depth);
        self.put(first, merged);
        core::mem::forget(abort_on_panic);
        if depth == self.bits {
            self.deepest -= 2;
        }
        FirstSlot(first.0 >> self.halve_while_possible())
    }

    /// Returns all segments in the order of the axis.
    pub(crate) fn segments(&self) -> Segments<'_, T> {
        Segments { directory: self, next: 0 }
    }

    /// Moves all segments out and frees the directory.
    pub(crate) fn take_segments(&mut self) -> Vec<Segment<T>> {
        let mut slots = core::mem::take(&mut self.slots);
        let bits = core::mem::take(&mut self.bits);
        self.deepest = 0;
        self.segment_bytes = 0;
        let mut segments = Vec::new();
        let mut index = 0;
        while index < slots.len() {
            let covered = 1 << (bits - slots[index].depth());
            // SAFETY: `index` steps from first slot to first slot, through which a segment may be
            // moved out; each is visited once, and `slots` drops nothing.
            segments.push(unsafe { ManuallyDrop::take(&mut slots[index]) });
            index += covered;
        }
        segments
    }

    /// Returns the bare slots, for checks.
    #[cfg(test)]
    pub(crate) fn slots(&self) -> &[ManuallyDrop<Segment<T>>] {
        &self.slots
    }

    /// Returns the bytes of slots and segments.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Segment<T>>() + self.segment_bytes
    }

    #[inline(always)]
    fn slot_of(&self, hash: u64) -> usize {
        // In two steps, because `bits` may be 0 and a shift by 64 is invalid.
        (hash >> 1 >> (63 - self.bits)) as usize
    }

    #[inline(always)]
    fn covered_by(&self, segment: &Segment<T>) -> usize {
        1 << (self.bits - segment.depth())
    }

    /// Moves a segment out. Its slots must not be read before one or several others are put there, which
    /// [`AbortOnPanic`] has to ensure.
    fn take(&mut self, first: FirstSlot) -> Segment<T> {
        self.segment_bytes -= self.segment(first).memory_bytes();
        // SAFETY: `first` is the first slot of its segment, through which it may be moved out. The
        // callers write all its slots before they return, and do not unwind in between.
        unsafe { ManuallyDrop::take(&mut self.slots[first.0]) }
    }

    /// Puts a segment into all the slots that it covers, from which the old one was taken.
    fn put(&mut self, first: FirstSlot, segment: Segment<T>) {
        self.segment_bytes += segment.memory_bytes();
        let covered = self.covered_by(&segment);
        self.slots[first.0] = ManuallyDrop::new(segment);
        for slot in first.0 + 1..first.0 + covered {
            // SAFETY: an alias for a slot that the segment covers. The invariants of the directory satisfy the
            // contract of `alias`, and access to slots follows access to the directory.
            self.slots[slot] = unsafe { self.slots[first.0].alias() };
        }
    }

    fn double(&mut self) {
        let mut doubled = Vec::with_capacity(self.slots.len() * 2);
        for segment in self.slots.drain(..) {
            // SAFETY: as in `put`. The first of a segment's slots becomes the first of twice as many.
            let alias = unsafe { segment.alias() };
            doubled.push(segment);
            doubled.push(alias);
        }
        self.slots = doubled;
        self.bits += 1;
        self.deepest = 0;
    }

    /// Halves the directory as long as no segment needs its last bit. Returns the number of halvings.
    fn halve_while_possible(&mut self) -> u32 {
        let bits_before = self.bits;
        while self.deepest == 0 && self.bits > 0 {
            self.bits -= 1;
            // An even slot is the first of its segment if either of the pair is: each segment covers at least two
            // slots.
            let mut index = 0;
            self.slots.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            let deepest = |segment: &&Segment<T>| segment.depth() == self.bits;
            self.deepest = self.segments().filter(deepest).count() as u32;
        }
        self.slots.shrink_to_fit();
        bits_before - self.bits
    }
}

/// Iterator over the segments of a directory.
pub(crate) struct Segments<'a, T> {
    directory: &'a Directory<T>,
    next: usize,
}

impl<'a, T> Iterator for Segments<'a, T> {
    type Item = &'a Segment<T>;

    fn next(&mut self) -> Option<&'a Segment<T>> {
        let segment = &**self.directory.slots.get(self.next)?;
        self.next += self.directory.covered_by(segment);
        Some(segment)
    }
}

impl<T> Drop for Directory<T> {
    fn drop(&mut self) {
        drop(self.take_segments());
    }
}

/// Turns a panic into an abort while a segment is moved out of its slot: unwinding would let a reader see the slot.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}
