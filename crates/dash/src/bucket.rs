//! A bucket: 14 entries behind a 16-byte header that is searched in one vector compare.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 14 | one fingerprint for each slot, 0 for a vacant one |
//! | 14 | 2 | `marks`, little-endian: bits 0-13 [`Origin::Displaced`] slots, bits 14-15 overflow count |
//! | 16 | 14 x size of an entry | the slots |
//!
//! With 8-byte entries that makes 128 bytes, two cache lines.
//!
//! Invariants:
//! - A slot is initialized exactly when its fingerprint is not 0.
//! - A displaced bit is set only for an occupied slot.
//! - The overflow count, the number of this bucket's entries in the stash, is exact up to 2; 3 means "three or more"
//!   and never falls again, because a saturated count cannot be decremented. Rebuilding the segment resets it.
//!
//! A bucket does not drop its entries by itself; its owner takes them out.

use crate::geometry::{SLOTS, unit_fingerprint};
use crate::group::{Group, match_byte};
use core::mem::MaybeUninit;

const ALL_SLOTS: u16 = (1 << SLOTS) - 1;
const OVERFLOW_SHIFT: u32 = SLOTS as u32;
const OVERFLOW_MAX: u16 = 3;

/// One byte of an entry's hash, kept in the header; never 0, which marks a vacant slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fingerprint(u8);

impl Fingerprint {
    /// Returns the fingerprint of a hash in a segment at `depth`.
    #[inline(always)]
    pub(crate) fn of(hash: u64, depth: u32) -> Self {
        Self(unit_fingerprint(hash, depth).max(1))
    }

    #[inline(always)]
    pub(crate) fn byte(self) -> u8 {
        self.0
    }
}

/// Says if an entry is in its home bucket or was displaced into the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// The bucket is the entry's home, or it is a stash bucket, where origins do not matter.
    Native,
    /// The bucket before this one is the entry's home.
    Displaced,
}

/// A set of slots, iterated in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotSet(u16);

impl SlotSet {
    /// No slot at all.
    pub(crate) const EMPTY: Self = Self(0);

    #[inline(always)]
    pub(crate) fn first(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize)
    }

    #[inline(always)]
    pub(crate) fn contains(self, slot: usize) -> bool {
        self.0 >> slot & 1 == 1
    }
}

impl Iterator for SlotSet {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let slot = self.first()?;
        self.0 &= self.0 - 1;
        Some(slot)
    }
}

/// A bucket; see the head of this file.
///
/// The header's two parts are separate fields, so that reading the marks is a plain load. As parts of one array they
/// would pass through the stack on their way to the vector register.
#[repr(C, align(64))]
pub(crate) struct Bucket<T> {
    fingerprints: [u8; SLOTS],
    marks: u16,
    slots: [MaybeUninit<T>; SLOTS],
}

const _: () = assert!(
    core::mem::offset_of!(Bucket<u64>, marks) == SLOTS
        && core::mem::offset_of!(Bucket<u64>, slots) == size_of::<Group>()
);

const _: () = assert!(size_of::<Bucket<u64>>() == 128 && align_of::<Bucket<u64>>() == 64);

impl<T> Bucket<T> {
    /// Initializes the memory at `bucket` as a bucket without entries.
    ///
    /// # Safety
    /// `bucket` is valid for writes and aligned for `Bucket<T>`.
    #[inline]
    pub(crate) unsafe fn init(bucket: *mut Self) {
        // SAFETY: the caller guarantees that `bucket` is valid. Writing the header suffices: with all fingerprints 0
        // every slot counts as uninitialized, which `MaybeUninit` permits.
        unsafe { bucket.cast::<Group>().write(Group([0; 16])) };
    }

    /// Returns all slots that hold an entry.
    #[inline]
    pub(crate) fn occupied(&self) -> SlotSet {
        SlotSet(!match_byte(self.header(), 0) & ALL_SLOTS)
    }

    /// Returns all slots that hold an entry of this origin.
    #[inline]
    pub(crate) fn occupied_by(&self, origin: Origin) -> SlotSet {
        SlotSet(self.occupied().0 & self.slots_of(origin))
    }

    /// Returns true if [`Bucket::put`] would refuse.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.vacant() == SlotSet::EMPTY
    }

    /// Returns the first entry of this origin and fingerprint that satisfies `eq`, and its slot.
    #[inline(always)]
    pub(crate) fn find(
        &self,
        fingerprint: Fingerprint,
        origin: Origin,
        mut eq: impl FnMut(&T) -> bool,
    ) -> Option<(usize, &T)> {
        for slot in self.matching(fingerprint, origin) {
            debug_assert!(self.occupied().contains(slot));
            // SAFETY: `matching` yields slots below `SLOTS` whose fingerprint equals `fingerprint`
            // and therefore is not 0; such slots are initialized. `eq` gets a shared reference to
            // the entry and has no way to change this bucket, which is borrowed.
            let entry = unsafe { self.slots.get_unchecked(slot).assume_init_ref() };
            if eq(entry) {
                return Some((slot, entry));
            }
        }
        None
    }

    /// Returns the entry in `slot`.
    ///
    /// # Panics
    /// If the slot is vacant.
    #[inline]
    pub(crate) fn entry(&self, slot: usize) -> &T {
        self.assert_occupied(slot);
        // SAFETY: the slot is occupied, as was just checked, hence initialized.
        unsafe { self.slots[slot].assume_init_ref() }
    }

    /// Returns true if the home of the entry in `slot` is the bucket before this one.
    #[inline]
    pub(crate) fn is_displaced(&self, slot: usize) -> bool {
        SlotSet(self.marks & ALL_SLOTS).contains(slot)
    }

    /// Returns the fingerprint in `slot`, which is 0 if the slot is vacant.
    #[inline]
    pub(crate) fn fingerprint(&self, slot: usize) -> Fingerprint {
        Fingerprint(self.fingerprints[slot])
    }

    /// Returns the entry in `slot`, to change it in place; its hash must stay the same.
    ///
    /// # Panics
    /// If the slot is vacant.
    #[inline]
    pub(crate) fn entry_mut(&mut self, slot: usize) -> &mut T {
        self.assert_occupied(slot);
        // SAFETY: the slot is occupied, as was just checked, hence initialized.
        unsafe { self.slots[slot].assume_init_mut() }
    }

    /// Like [`Bucket::entry_mut`], without the check.
    ///
    /// # Safety
    /// The slot holds an entry.
    #[inline(always)]
    pub(crate) unsafe fn entry_mut_unchecked(&mut self, slot: usize) -> &mut T {
        debug_assert!(self.occupied().contains(slot));
        // SAFETY: the caller guarantees that the slot is occupied, hence below `SLOTS` and initialized.
        unsafe { self.slots.get_unchecked_mut(slot).assume_init_mut() }
    }

    /// Returns all entries, to change them in place; their hashes must stay the same.
    #[inline]
    pub(crate) fn entries_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let occupied = self.occupied();
        let slots = self.slots.iter_mut().enumerate();
        slots.filter(move |(slot, _)| occupied.contains(*slot)).map(|(_, entry)| {
            // SAFETY: the slot is occupied, hence initialized.
            unsafe { entry.assume_init_mut() }
        })
    }

    /// Stores an entry in the first vacant slot and returns the slot, or returns the entry if there is no vacant slot.
    #[inline]
    pub(crate) fn put(
        &mut self,
        fingerprint: Fingerprint,
        origin: Origin,
        entry: T,
    ) -> Result<usize, T> {
        let Some(slot) = self.vacant().first() else { return Err(entry) };
        self.slots[slot].write(entry);
        self.fingerprints[slot] = fingerprint.0;
        if origin == Origin::Displaced {
            self.marks |= 1 << slot;
        }
        Ok(slot)
    }

    /// Stores an entry of this home bucket in a slot that the caller knows to be vacant. For filling a new bucket from
    /// the first slot on: unlike [`Bucket::put`] it does not search.
    ///
    /// # Panics
    /// If the slot is occupied.
    #[inline]
    pub(crate) fn put_at(&mut self, slot: usize, fingerprint: Fingerprint, entry: T) {
        assert!(slot < SLOTS && self.fingerprints[slot] == 0, "slot {slot} is occupied");
        self.slots[slot].write(entry);
        self.fingerprints[slot] = fingerprint.0;
    }

    /// Moves the entry out of `slot`.
    ///
    /// # Panics
    /// If the slot is vacant.
    #[inline]
    pub(crate) fn take(&mut self, slot: usize) -> (Fingerprint, T) {
        self.assert_occupied(slot);
        let fingerprint = Fingerprint(core::mem::take(&mut self.fingerprints[slot]));
        self.marks &= !(1 << slot);
        // SAFETY: the slot was occupied, hence initialized; its fingerprint is 0 now, so that
        // the slot is not read again before it is written.
        (fingerprint, unsafe { self.slots[slot].assume_init_read() })
    }

    /// Returns true if the stash may hold entries whose home is this bucket.
    #[inline(always)]
    pub(crate) fn has_overflowed(&self) -> bool {
        self.marks >> OVERFLOW_SHIFT != 0
    }

    /// Returns the number of this bucket's entries in the stash; 3 means three or more.
    #[cfg(test)]
    pub(crate) fn overflow(&self) -> u16 {
        self.marks >> OVERFLOW_SHIFT
    }

    /// Notes that an entry of this bucket went into the stash.
    pub(crate) fn note_overflow(&mut self) {
        let count = self.marks >> OVERFLOW_SHIFT;
        if count < OVERFLOW_MAX {
            self.marks += 1 << OVERFLOW_SHIFT;
        }
    }

    /// Notes that an entry of this bucket left the stash.
    pub(crate) fn note_overflow_gone(&mut self) {
        let count = self.marks >> OVERFLOW_SHIFT;
        debug_assert_ne!(count, 0, "an entry in the stash was not counted");
        if count < OVERFLOW_MAX {
            self.marks -= 1 << OVERFLOW_SHIFT;
        }
    }

    #[inline(always)]
    fn matching(&self, fingerprint: Fingerprint, origin: Origin) -> SlotSet {
        SlotSet(match_byte(self.header(), fingerprint.0) & self.slots_of(origin))
    }

    /// Returns the slots that hold an entry of this origin if they are occupied.
    #[inline(always)]
    fn slots_of(&self, origin: Origin) -> u16 {
        match origin {
            Origin::Native => ALL_SLOTS & !self.marks,
            Origin::Displaced => ALL_SLOTS & self.marks,
        }
    }

    /// Panics if the slot is vacant. It reads one byte instead of comparing all: a vector load would have to wait for
    /// the byte just stored, because processors forward a store only to a load that it covers.
    #[inline(always)]
    fn assert_occupied(&self, slot: usize) {
        assert!(slot < SLOTS && self.fingerprints[slot] != 0, "slot {slot} is vacant");
    }

    #[inline]
    fn vacant(&self) -> SlotSet {
        SlotSet(match_byte(self.header(), 0) & ALL_SLOTS)
    }

    /// Returns the fingerprints, and after them the marks, which never count as matches.
    #[inline(always)]
    fn header(&self) -> &Group {
        // SAFETY: a bucket begins with 14 bytes of fingerprints and 2 bytes of marks, all of them
        // initialized, and is aligned to more than a group is.
        unsafe { &*core::ptr::from_ref(self).cast::<Group>() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    fn empty<T>() -> Bucket<T> {
        Bucket {
            fingerprints: [0; SLOTS],
            marks: 0,
            slots: [const { MaybeUninit::uninit() }; SLOTS],
        }
    }

    #[test]
    fn fills_from_the_first_slot_on() {
        let mut bucket = empty();
        for number in 0..SLOTS as u64 {
            assert!(!bucket.is_full());
            let slot = bucket.put(Fingerprint::of(number, 0), Origin::Native, number);
            assert_eq!(slot, Ok(number as usize));
        }
        assert!(bucket.is_full());
        assert_eq!(bucket.put(Fingerprint::of(7, 0), Origin::Native, 99), Err(99));
        for slot in bucket.occupied() {
            assert_eq!(bucket.take(slot).1, slot as u64);
        }
        assert_eq!(bucket.occupied(), SlotSet::EMPTY);
    }

    /// The first unit of 256 shares the fingerprint of the second one.
    #[test]
    fn zero_is_no_fingerprint() {
        assert_eq!(Fingerprint::of(0, 0), Fingerprint::of(1 << 51, 0));
        assert_ne!(Fingerprint::of(0, 0), Fingerprint::of(1 << 52, 0));
        let mut bucket = empty();
        bucket.put(Fingerprint::of(0, 0), Origin::Native, 5u64).unwrap();
        assert_eq!(bucket.matching(Fingerprint::of(0, 0), Origin::Native).count(), 1);
    }

    /// The marks are after the fingerprints in the same 16 bytes: they must never count as fingerprints, whatever
    /// their value.
    #[test]
    fn marks_are_not_matched() {
        let mut bucket = empty();
        for number in 0..SLOTS as u64 {
            bucket.put(Fingerprint(0xFF), Origin::Displaced, number).unwrap();
        }
        for _ in 0..5 {
            bucket.note_overflow();
        }
        assert_eq!(bucket.marks, 0xFFFF);
        assert_eq!(bucket.matching(Fingerprint(0xFF), Origin::Displaced).count(), SLOTS);
        assert_eq!(bucket.matching(Fingerprint(0xFF), Origin::Native), SlotSet::EMPTY);
        assert_eq!(bucket.occupied().count(), SLOTS);
    }

    #[test]
    fn origins_are_told_apart_and_leave_with_their_entries() {
        let mut bucket = empty();
        let fingerprint = Fingerprint::of(3, 0);
        let native = bucket.put(fingerprint, Origin::Native, 1).unwrap();
        let displaced = bucket.put(fingerprint, Origin::Displaced, 2).unwrap();
        assert_eq!(bucket.matching(fingerprint, Origin::Native).collect::<Vec<_>>(), [native]);
        assert_eq!(
            bucket.matching(fingerprint, Origin::Displaced).collect::<Vec<_>>(),
            [displaced]
        );
        assert_eq!(bucket.take(displaced), (fingerprint, 2));
        assert_eq!(bucket.put(fingerprint, Origin::Native, 3), Ok(displaced));
        assert_eq!(bucket.matching(fingerprint, Origin::Native).count(), 2);
        assert_eq!(bucket.occupied_by(Origin::Displaced), SlotSet::EMPTY);
    }

    #[test]
    fn overflow_counts_to_two_and_sticks_at_three() {
        let mut bucket = empty::<u64>();
        bucket.note_overflow();
        bucket.note_overflow();
        bucket.note_overflow_gone();
        bucket.note_overflow_gone();
        assert!(!bucket.has_overflowed());
        for _ in 0..3 {
            bucket.note_overflow();
        }
        for _ in 0..3 {
            bucket.note_overflow_gone();
        }
        assert!(bucket.has_overflowed());
    }

    #[test]
    fn an_entry_is_moved_out_once() {
        let counted = Rc::new(());
        let mut bucket = empty();
        let slot = bucket.put(Fingerprint::of(9, 0), Origin::Native, Rc::clone(&counted)).unwrap();
        assert_eq!(Rc::strong_count(&counted), 2);
        drop(bucket.take(slot));
        assert_eq!(Rc::strong_count(&counted), 1);
        assert_eq!(bucket.occupied(), SlotSet::EMPTY);
    }

    #[test]
    #[should_panic(expected = "slot 4 is vacant")]
    fn a_vacant_slot_has_no_entry() {
        empty::<u64>().take(4);
    }

    #[test]
    #[should_panic(expected = "slot 0 is occupied")]
    fn an_occupied_slot_is_not_overwritten() {
        let mut bucket = empty();
        bucket.put_at(0, Fingerprint::of(1, 0), 1);
        bucket.put_at(0, Fingerprint::of(2, 0), 2);
    }
}
