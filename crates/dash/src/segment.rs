//! A segment: home buckets in the order of the axis, followed by a stash.
//!
//! An entry is in its home bucket, or in the bucket after it (the last home's neighbour is the first), or in the
//! stash. It goes to the first of these that has room. If home and neighbour are full, room in the neighbour is made
//! by displacing entries whose home it is by one bucket. So a lookup reads the headers of home and neighbour, and the
//! stash only if the home's count says that one of its entries went there.
//!
//! Invariants:
//! - `buckets` points to `homes + stash` initialized buckets, allocated with the layout of that
//!   array, and belongs to this segment alone (but see [`Segment::alias`]).
//! - `homes` is at least 1 and at most [`SEGMENT_BUCKETS_MAX`].
//! - An entry is `Native` in its home bucket or in any stash bucket, `Displaced` in the bucket after its home, and
//!   nowhere else. Its home counts it if it is in the stash.
//! - `len` is the number of occupied slots.
//!
//! This file allocates and indexes the array; the bucket manages its slots.

use crate::bucket::{Bucket, Fingerprint, Origin, SlotSet};
use crate::geometry::SLOTS;
use crate::geometry::{self, Rehoming, SEGMENT_BUCKETS_MAX, capacity, stash_of};
use crate::hash::EntryHash;
use crate::prefetch::prefetch_read;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Range;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};

/// Maximum number of displacement steps to make room for an entry. A fourth step would raise the load at which a
/// full-size segment splits by less than one percent.
const DISPLACE_STEPS_MAX: usize = 3;

/// Sixteen bytes, so that four directory slots share a cache line and contain everything that a lookup needs to find
/// the bucket.
pub(crate) struct Segment<T> {
    buckets: NonNull<Bucket<T>>,
    len: u32,
    stash: u16,
    homes: u8,
    depth: u8,
    owned: PhantomData<T>,
}

const _: () = assert!(size_of::<Segment<u64>>() == 16);
const _: () = assert!(SEGMENT_BUCKETS_MAX <= u8::MAX as usize);

// SAFETY: a segment owns its buckets and the entries in them, like a `Vec<T>`: sending it sends the entries. The
// contract of `alias` confines its copies.
unsafe impl<T: Send> Send for Segment<T> {}
// SAFETY: `&Segment<T>` returns `&T` only, and changes nothing.
unsafe impl<T: Sync> Sync for Segment<T> {}

/// Location of an entry; valid until its segment is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Location {
    bucket: usize,
    slot: usize,
}

impl<T> Segment<T> {
    /// Creates an empty segment of `buckets` buckets, for the hashes that share `depth` bits.
    pub(crate) fn new(buckets: usize, depth: u32) -> Self {
        assert!((1..=SEGMENT_BUCKETS_MAX).contains(&buckets));
        let stash = stash_of(buckets);
        let layout = Self::layout(buckets);
        // SAFETY: the layout's size is not 0, as there is a bucket and a bucket has a header.
        let memory = unsafe { alloc(layout) };
        let Some(first) = NonNull::new(memory.cast::<Bucket<T>>()) else {
            handle_alloc_error(layout)
        };
        for index in 0..buckets {
            // SAFETY: the allocation has room for `buckets` buckets and is aligned for them.
            unsafe { Bucket::init(first.as_ptr().add(index)) };
        }
        Self {
            buckets: first,
            len: 0,
            stash: stash as u16,
            homes: (buckets - stash) as u8,
            depth: depth as u8,
            owned: PhantomData,
        }
    }

    /// Returns a second handle to the same buckets, for the other directory slots of this segment.
    ///
    /// # Safety
    /// The copy must not be used after this segment has been changed in anything but its entries, nor dropped. Copies
    /// must be used like references to one segment: either any number of them shared, or a single one exclusively.
    pub(crate) unsafe fn alias(&self) -> ManuallyDrop<Self> {
        // SAFETY: a bitwise copy of plain fields; the caller ensures that only one of the two owns.
        ManuallyDrop::new(unsafe { core::ptr::read(self) })
    }

    /// Returns true if the other handle is a copy with the same fields.
    #[cfg(test)]
    pub(crate) fn is_alias(&self, other: &Self) -> bool {
        self.buckets == other.buckets
            && (self.homes, self.stash, self.depth) == (other.homes, other.stash, other.depth)
    }

    /// Returns the number of entries; kept up to date in the handle through which they are changed.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the number of leading bits that the hashes in this segment have in common.
    #[inline(always)]
    pub(crate) fn depth(&self) -> u32 {
        u32::from(self.depth)
    }

    /// Returns the number of home buckets and stash buckets.
    #[inline(always)]
    pub(crate) fn bucket_count(&self) -> usize {
        usize::from(self.homes) + usize::from(self.stash)
    }

    /// Returns the bytes this segment has allocated.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bucket_count() * size_of::<Bucket<T>>()
    }

    /// Prefetches the memory that [`Segment::locate`] will read for this hash: the lines of the home bucket, and the
    /// neighbour's header.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        let home = self.home(hash);
        let bucket: *const u8 = core::ptr::from_ref(self.bucket(home)).cast();
        prefetch_read(bucket);
        prefetch_read(bucket.wrapping_add(64));
        prefetch_read(core::ptr::from_ref(self.bucket(self.after(home))));
    }

    /// Finds the entry of this hash that satisfies `eq`.
    #[inline(always)]
    pub(crate) fn locate(
        &self,
        hash: u64,
        mut eq: impl FnMut(&T) -> bool,
    ) -> Option<(Location, &T)> {
        let fingerprint = self.fingerprint(hash);
        let home = self.home(hash);
        let bucket = self.bucket(home);
        if let Some((slot, entry)) = bucket.find(fingerprint, Origin::Native, &mut eq) {
            return Some((Location { bucket: home, slot }, entry));
        }
        let after = self.after(home);
        if let Some((slot, entry)) =
            self.bucket(after).find(fingerprint, Origin::Displaced, &mut eq)
        {
            return Some((Location { bucket: after, slot }, entry));
        }
        if bucket.has_overflowed() { self.locate_in_stash(fingerprint, eq) } else { None }
    }

    #[cold]
    fn locate_in_stash(
        &self,
        fingerprint: Fingerprint,
        mut eq: impl FnMut(&T) -> bool,
    ) -> Option<(Location, &T)> {
        self.stash().find_map(|bucket| {
            let (slot, entry) = self.bucket(bucket).find(fingerprint, Origin::Native, &mut eq)?;
            Some((Location { bucket, slot }, entry))
        })
    }

    /// As [`Segment::locate`], to change the entry in place. Its hash must stay the same.
    #[inline(always)]
    pub(crate) fn locate_mut(&mut self, hash: u64, eq: impl FnMut(&T) -> bool) -> Option<&mut T> {
        let (location, _) = self.locate(hash, eq)?;
        let bucket = self.bucket_mut(location.bucket);
        // SAFETY: `locate` has just found an entry there.
        Some(unsafe { bucket.entry_mut_unchecked(location.slot) })
    }

    /// Returns the entry at a location that this segment has returned since it was last changed.
    #[inline]
    pub(crate) fn entry_mut(&mut self, location: Location) -> &mut T {
        assert!(location.bucket < self.bucket_count());
        self.bucket_mut(location.bucket).entry_mut(location.slot)
    }

    /// Removes the entry of this hash that satisfies `eq`.
    #[inline]
    pub(crate) fn remove(&mut self, hash: u64, eq: impl FnMut(&T) -> bool) -> Option<T> {
        let (location, _) = self.locate(hash, eq)?;
        let (_, entry) = self.bucket_mut(location.bucket).take(location.slot);
        if location.bucket >= usize::from(self.homes) {
            let home = self.home(hash);
            self.bucket_mut(home).note_overflow_gone();
        }
        self.len -= 1;
        Some(entry)
    }

    /// Stores an entry, or returns it if this segment has no room for it.
    #[inline]
    pub(crate) fn place(&mut self, hash: u64, entry: T) -> Result<Location, T> {
        self.place_at(self.home(hash), self.fingerprint(hash), entry)
    }

    /// As [`Segment::place`], for an entry with known home and fingerprint.
    #[inline]
    fn place_at(&mut self, home: usize, fingerprint: Fingerprint, entry: T) -> Result<Location, T> {
        let placed = match self.bucket_mut(home).put(fingerprint, Origin::Native, entry) {
            Ok(slot) => Ok(Location { bucket: home, slot }),
            Err(entry) => self.place_away(home, fingerprint, entry),
        };
        self.len += u32::from(placed.is_ok());
        placed
    }

    /// Stores an entry whose home bucket is full.
    #[inline(never)]
    fn place_away(
        &mut self,
        home: usize,
        fingerprint: Fingerprint,
        entry: T,
    ) -> Result<Location, T> {
        let after = self.after(home);
        if self.bucket(after).is_full() {
            self.make_room(home);
        }
        let entry = match self.bucket_mut(after).put(fingerprint, Origin::Displaced, entry) {
            Ok(slot) => return Ok(Location { bucket: after, slot }),
            Err(entry) => entry,
        };
        self.place_in_stash(home, fingerprint, entry)
    }

    /// Displaces one native entry from each of a few full buckets, beginning with the one after `home`, into the next
    /// bucket, if the last of them has room.
    fn make_room(&mut self, home: usize) {
        let first = self.after(home);
        // Prefetches all headers that may be needed, so that the misses overlap.
        let mut ahead = first;
        for _ in 0..DISPLACE_STEPS_MAX {
            ahead = self.after(ahead);
            prefetch_read(core::ptr::from_ref(self.bucket(ahead)));
        }
        let mut full = [first; DISPLACE_STEPS_MAX];
        for step in 0..DISPLACE_STEPS_MAX {
            let next = self.after(full[step]);
            let can_push = self.bucket(full[step]).occupied_by(Origin::Native).first().is_some();
            // In a small segment the path leads back to `home`, which is full.
            if !can_push || next == home {
                return;
            }
            if !self.bucket(next).is_full() {
                // From the far end, so that each displacement uses the room that the one before it made.
                full[..=step].iter().rev().for_each(|bucket| self.push_on(*bucket));
                return;
            }
            if step + 1 < DISPLACE_STEPS_MAX {
                full[step + 1] = next;
            }
        }
    }

    /// Moves one native entry of `bucket` into the bucket after it, which has room.
    fn push_on(&mut self, bucket: usize) {
        let after = self.after(bucket);
        let native = self.bucket(bucket).occupied_by(Origin::Native).first();
        let slot = native.expect("a bucket to push from has a native entry");
        let (fingerprint, entry) = self.bucket_mut(bucket).take(slot);
        let put = self.bucket_mut(after).put(fingerprint, Origin::Displaced, entry);
        assert!(put.is_ok(), "the bucket to push into has room");
    }

    fn place_in_stash(
        &mut self,
        home: usize,
        fingerprint: Fingerprint,
        entry: T,
    ) -> Result<Location, T> {
        // Skewed hashes make stashes long; room is likeliest at the end, where `extend_stash` has added it.
        let roomy = self.stash().rev().find(|bucket| !self.bucket(*bucket).is_full());
        let Some(bucket) = roomy else { return Err(entry) };
        let slot = self.bucket_mut(bucket).put(fingerprint, Origin::Native, entry)?;
        self.bucket_mut(home).note_overflow();
        Ok(Location { bucket, slot })
    }

    /// Stores an entry in a slot of its home bucket that the caller knows to be vacant.
    ///
    /// # Panics
    /// If the slot is occupied.
    #[inline]
    pub(crate) fn place_at_home(
        &mut self,
        home: usize,
        slot: usize,
        fingerprint: Fingerprint,
        entry: T,
    ) {
        assert!(home < usize::from(self.homes));
        self.bucket_mut(home).put_at(slot, fingerprint, entry);
        self.len += 1;
    }

    /// Stores an entry, and extends the stash if necessary.
    pub(crate) fn place_extending(&mut self, home: usize, fingerprint: Fingerprint, entry: T) {
        assert!(home < usize::from(self.homes));
        if let Err(entry) = self.place_at(home, fingerprint, entry) {
            self.extend_stash();
            let placed = self.place_at(home, fingerprint, entry);
            assert!(placed.is_ok(), "an extended stash has room");
        }
    }

    /// Extends the stash by at least a bucket. A segment does this for hashes that no number of home buckets could
    /// tell apart: correct for any number of entries, but with a linear search.
    ///
    /// # Panics
    /// If the stash has 65,535 buckets already: 900,000 entries whose hashes agree in 48 bits.
    pub(crate) fn extend_stash(&mut self) {
        let old_count = self.bucket_count();
        let by = (1 + self.stash / 8).min(u16::MAX - self.stash);
        assert!(by > 0, "at most 900,000 entries of a table have hashes that agree in 48 bits");
        let stash = self.stash + by;
        let by = usize::from(by);
        let layout = Self::layout(old_count + by);
        // SAFETY: `buckets` was allocated with the layout of `old_count` buckets, and the new size
        // is not 0. Buckets are moved bitwise, which is how Rust values move.
        let memory = unsafe {
            realloc(self.buckets.as_ptr().cast(), Self::layout(old_count), layout.size())
        };
        let Some(first) = NonNull::new(memory.cast::<Bucket<T>>()) else {
            handle_alloc_error(layout)
        };
        for index in old_count..old_count + by {
            // SAFETY: the new allocation has room for these buckets and keeps the alignment.
            unsafe { Bucket::init(first.as_ptr().add(index)) };
        }
        self.buckets = first;
        self.stash = stash;
    }

    /// Returns the hashes of all entries, in the order in which [`Segment::drain`] moves the entries.
    pub(crate) fn hashes(&self, hasher: &impl EntryHash<T>) -> Vec<u64> {
        let mut hashes = Vec::with_capacity(self.len());
        self.entries_of(0).for_each(|entry| hasher.prefetch(entry));
        for bucket in 0..self.bucket_count() {
            // One bucket ahead: about as many outstanding fetches as a core has fill buffers.
            if bucket + 1 < self.bucket_count() {
                self.entries_of(bucket + 1).for_each(|entry| hasher.prefetch(entry));
            }
            hashes.extend(self.entries_of(bucket).map(|entry| hasher.hash(entry)));
        }
        hashes
    }

    /// Returns the homes of all entries in a segment of the same depth with `homes` home buckets, in the order of
    /// [`Segment::drain`]. Computes the hashes of those few entries whose home and fingerprint do not suffice.
    pub(crate) fn homes_among(&self, homes: usize, hasher: &impl EntryHash<T>) -> Vec<u8> {
        let mut found = Vec::with_capacity(self.len());
        let mut unknown = Vec::new();
        for index in 0..self.bucket_count() {
            let bucket = self.bucket(index);
            let rehoming = self.rehoming(index, homes);
            for slot in bucket.occupied() {
                let fingerprint = bucket.fingerprint(slot).byte();
                let [native, displaced] = &rehoming;
                let rehoming = if bucket.is_displaced(slot) { displaced } else { native };
                let home = rehoming.and_then(|rehoming| rehoming.home(fingerprint));
                if home.is_none() {
                    let entry = bucket.entry(slot);
                    hasher.prefetch(entry);
                    unknown.push((found.len(), entry));
                }
                found.push(home.unwrap_or(0) as u8);
            }
        }
        for (index, entry) in unknown {
            found[index] = geometry::home(hasher.hash(entry), self.depth(), homes as u32) as u8;
        }
        found
    }

    /// Returns the rehoming of the native and of the displaced entries in one bucket: none in the stash.
    fn rehoming(&self, bucket: usize, homes_new: usize) -> [Option<Rehoming>; 2] {
        let homes = usize::from(self.homes);
        if bucket >= homes {
            return [None; 2];
        }
        let before = bucket.checked_sub(1).unwrap_or(homes - 1);
        [bucket, before].map(|home| Some(Rehoming::new(home, homes, homes_new)))
    }

    /// Moves all entries out, bucket by bucket.
    pub(crate) fn drain(self) -> Drain<T> {
        let occupied = self.bucket(0).occupied();
        Drain { segment: self, bucket: 0, occupied }
    }

    /// Returns a bucket by its number; the stash follows the homes.
    #[inline]
    pub(crate) fn bucket_at(&self, index: usize) -> &Bucket<T> {
        assert!(index < self.bucket_count());
        self.bucket(index)
    }

    /// Returns the entries stored in one bucket, whatever their home.
    fn entries_of(&self, bucket: usize) -> impl Iterator<Item = &T> {
        let bucket = self.bucket_at(bucket);
        bucket.occupied().map(|slot| bucket.entry(slot))
    }

    /// Returns the positions of the home bucket of `position`, which is one of this segment's.
    pub(crate) fn home_range(&self, position: u64) -> Range<u64> {
        let segment = geometry::segment_range(position, self.depth());
        let home = self.home(position << (u64::BITS - geometry::POSITION_BITS));
        geometry::home_range(&segment, home, u32::from(self.homes))
    }

    /// Visits the entries with positions in `range`, which lies within one home bucket.
    pub(crate) fn visit_range(
        &self,
        range: &Range<u64>,
        hasher: &impl EntryHash<T>,
        mut visit: impl FnMut(&T),
    ) {
        let home = self.home(range.start << (u64::BITS - geometry::POSITION_BITS));
        let whole = *range == self.home_range(range.start);
        let is_in_range = |entry: &T| range.contains(&geometry::position(hasher.hash(entry)));
        let (bucket, after) = (self.bucket(home), self.bucket(self.after(home)));
        // A walk reads that bucket next.
        after.occupied().for_each(|slot| hasher.prefetch_to_visit(after.entry(slot)));
        let native = bucket.occupied_by(Origin::Native).map(|slot| bucket.entry(slot));
        let displaced = after.occupied_by(Origin::Displaced).map(|slot| after.entry(slot));
        native.chain(displaced).filter(|entry| whole || is_in_range(entry)).for_each(&mut visit);
        if bucket.has_overflowed() {
            let stashed = self.stash().flat_map(|bucket| self.entries_of(bucket));
            stashed.filter(|entry| is_in_range(entry)).for_each(visit);
        }
    }

    /// Visits the entries of one bucket: the bucket for `position` if all buckets, including the stash, shared the
    /// segment's interval in equal parts. Returns the start of the next one's part.
    pub(crate) fn visit_bucket_mut(&mut self, position: u64, visit: impl FnMut(&mut T)) -> u64 {
        let segment = geometry::segment_range(position, self.depth());
        let (hash, buckets) =
            (position << (u64::BITS - geometry::POSITION_BITS), self.bucket_count());
        let index = geometry::home(hash, self.depth(), buckets as u32);
        self.bucket_mut(index).entries_mut().for_each(visit);
        geometry::home_range(&segment, index, buckets as u32).end
    }

    /// Returns a random entry, all about equally likely if `random` is random; `None` if there is none.
    pub(crate) fn sample(&self, mut random: u64) -> Option<&T> {
        if self.len == 0 {
            return None;
        }
        let slots = capacity(self.bucket_count());
        // Slots are tried at random until one is occupied. If half of them are, 16 tries fail once in 65,536 times.
        // Then, or if hardly any slot is occupied, the next occupied slot is taken.
        for _ in 0..16 {
            random = random.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29) ^ random >> 7;
            let slot = (((random >> 32) * slots as u64) >> 32) as usize;
            let bucket = self.bucket(slot / SLOTS);
            if bucket.occupied().contains(slot % SLOTS) {
                return Some(bucket.entry(slot % SLOTS));
            }
        }
        let start = (((random >> 32) * self.bucket_count() as u64) >> 32) as usize;
        let buckets = (start..self.bucket_count()).chain(0..start);
        buckets.flat_map(|bucket| self.entries_of(bucket)).next()
    }

    /// Returns the home bucket of a hash.
    #[inline(always)]
    pub(crate) fn home(&self, hash: u64) -> usize {
        geometry::home(hash, self.depth(), u32::from(self.homes))
    }

    #[inline(always)]
    pub(crate) fn fingerprint(&self, hash: u64) -> Fingerprint {
        Fingerprint::of(hash, self.depth())
    }

    /// Returns the bucket after a home bucket, wrapping around.
    #[inline(always)]
    fn after(&self, home: usize) -> usize {
        if home + 1 == usize::from(self.homes) { 0 } else { home + 1 }
    }

    pub(crate) fn stash(&self) -> Range<usize> {
        usize::from(self.homes)..self.bucket_count()
    }

    #[inline(always)]
    fn bucket(&self, index: usize) -> &Bucket<T> {
        debug_assert!(index < self.bucket_count());
        // SAFETY: see `bucket_mut`; shared access to the segment permits shared access to buckets.
        unsafe { self.buckets.add(index).as_ref() }
    }

    #[inline(always)]
    fn bucket_mut(&mut self, index: usize) -> &mut Bucket<T> {
        debug_assert!(index < self.bucket_count());
        // SAFETY: `index` is below `bucket_count()`, the number of initialized buckets behind `buckets`, because it
        // comes from one of: `home`, which is below `homes`, as is a home that `place_at_home` and `place_extending`
        // have checked; `visit_bucket_mut`, which scales to `bucket_count()`; `after`, which stays below `homes`;
        // `stash()` or a loop up to `bucket_count()`; a `Location`, which contains one of these and is invalid after
        // any change. The segment owns the buckets and is borrowed exclusively, so no other reference to them exists.
        unsafe { self.buckets.add(index).as_mut() }
    }

    fn layout(buckets: usize) -> Layout {
        Layout::array::<Bucket<T>>(buckets).expect("a segment is far smaller than memory")
    }
}

impl<T> Drop for Segment<T> {
    fn drop(&mut self) {
        if core::mem::needs_drop::<T>() && self.len > 0 {
            for index in 0..self.bucket_count() {
                let bucket = self.bucket_mut(index);
                bucket.occupied().for_each(|slot| drop(bucket.take(slot)));
            }
        }
        // SAFETY: `buckets` was allocated with this layout. All entries are gone or need no drop.
        unsafe { dealloc(self.buckets.as_ptr().cast(), Self::layout(self.bucket_count())) };
    }
}

/// Moves the entries out of a segment; the remaining ones are dropped with it.
pub(crate) struct Drain<T> {
    segment: Segment<T>,
    bucket: usize,
    /// Remaining slots of the bucket.
    occupied: SlotSet,
}

impl<T> Iterator for Drain<T> {
    type Item = (Fingerprint, T);

    #[inline]
    fn next(&mut self) -> Option<(Fingerprint, T)> {
        loop {
            if let Some(slot) = self.occupied.next() {
                return Some(self.segment.bucket_mut(self.bucket).take(slot));
            }
            if self.bucket + 1 == self.segment.bucket_count() {
                return None;
            }
            self.bucket += 1;
            self.occupied = self.segment.bucket(self.bucket).occupied();
        }
    }
}
