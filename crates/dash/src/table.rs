//! The table as its users see it, and the policy of growing and shrinking.

use crate::directory::{Directory, FirstSlot, Segments};
use crate::geometry;
use crate::hash::EntryHash;
use crate::segment::Segment;

/// An index from 64-bit hashes to entries.
///
/// Entries are found by their hash and a closure that recognizes the right one among those with
/// equal bits. The table does not keep hashes; it gets them with every call, or computes them by an
/// [`EntryHash`] when it rearranges entries.
///
/// # Panics
/// No method panics by itself as long as an entry's hash stays the same, unless 900,000 entries
/// have hashes that agree in their upper 48 bits. A panic of the caller's closures leaves the table
/// as it was before the call or after it.
pub struct Table<T> {
    directory: Directory<T>,
    len: usize,
    segment_bytes: usize,
}

impl<T> Table<T> {
    /// An empty table, which has allocated nothing.
    pub const fn new() -> Self {
        Self { directory: Directory::new(), len: 0, segment_bytes: 0 }
    }

    /// Number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes the table has requested from the allocator, exact at any time; 0 when it is empty.
    /// What entries own elsewhere is not part of it.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        self.segment_bytes + self.directory.memory_bytes()
    }

    /// Begins to fetch what [`Table::find`] will read in the table for this hash. The first stage
    /// for a batch of lookups; [`Table::candidate`] is the second.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Some(segment) = self.directory.get(hash) {
            segment.prefetch(hash);
        }
    }

    /// An entry that is probably the one of this hash: the first whose fingerprint matches. With it
    /// the caller can prefetch what lies behind the entry before it calls [`Table::find`].
    #[inline]
    pub fn candidate(&self, hash: u64) -> Option<&T> {
        self.find(hash, |_| true)
    }

    /// The entry of this hash that satisfies `eq`, which is called for one wrong entry in about
    /// fifteen lookups.
    #[inline]
    pub fn find(&self, hash: u64, eq: impl FnMut(&T) -> bool) -> Option<&T> {
        let (_, entry) = self.directory.get(hash)?.locate(hash, eq)?;
        Some(entry)
    }

    /// Like [`Table::find`], to change the entry in place. Its hash has to stay the same.
    #[inline]
    pub fn find_mut(&mut self, hash: u64, eq: impl FnMut(&T) -> bool) -> Option<&mut T> {
        let first = self.directory.first_slot(hash)?;
        let segment = self.directory.entries_mut(first);
        let (location, _) = segment.locate(hash, eq)?;
        Some(segment.entry_mut(location))
    }

    /// Adds an entry that the caller knows to be absent, and returns it in its place. `hasher` is
    /// asked for other entries' hashes when a segment grows.
    #[inline]
    pub fn insert_unique(&mut self, hash: u64, entry: T, hasher: &impl EntryHash<T>) -> &mut T {
        let mut entry = entry;
        loop {
            let first = match self.directory.first_slot(hash) {
                Some(first) => first,
                None => self.begin(),
            };
            match self.directory.entries_mut(first).place(hash, entry) {
                Ok(location) => {
                    self.len += 1;
                    return self.directory.entries_mut(first).entry_mut(location);
                }
                Err(refused) => entry = refused,
            }
            self.grow(first, hasher);
        }
    }

    /// Removes and returns the entry of this hash that satisfies `eq`. `hasher` is asked for other
    /// entries' hashes when a segment shrinks.
    #[inline]
    pub fn remove(
        &mut self,
        hash: u64,
        eq: impl FnMut(&T) -> bool,
        hasher: &impl EntryHash<T>,
    ) -> Option<T> {
        let first = self.directory.first_slot(hash)?;
        let segment = self.directory.entries_mut(first);
        let entry = segment.remove(hash, eq)?;
        let may_shrink = may_shrink(segment);
        self.len -= 1;
        if self.len == 0 {
            self.clear();
        } else if may_shrink {
            self.shrink(first, hasher);
        }
        Some(entry)
    }

    /// Drops all entries and frees all memory.
    pub fn clear(&mut self) {
        drop(core::mem::take(self));
    }

    /// Some entry, each with about the same probability if `random` is a random number: one of the
    /// segment at that point of the axis, or of a later one when that is empty. `None` only when the
    /// table is empty.
    pub fn sample(&self, random: u64) -> Option<&T> {
        // Segments are about equally full in proportion to the interval that they cover.
        let mut at = geometry::position(random);
        while !self.is_empty() {
            let segment = self.segment_at(at)?;
            if let Some(entry) = segment.sample(random) {
                return Some(entry);
            }
            at = geometry::segment_range(at, segment.depth()).end % geometry::AXIS_END;
        }
        None
    }

    /// The segment of a position, its `len` up to date.
    pub(crate) fn segment_at(&self, position: u64) -> Option<&Segment<T>> {
        let hash = position << (u64::BITS - geometry::POSITION_BITS);
        Some(self.directory.segment(self.directory.first_slot(hash)?))
    }

    /// All segments, in the order of the axis.
    pub(crate) fn segments(&self) -> Segments<'_, T> {
        self.directory.segments()
    }

    /// Takes the table apart.
    pub(crate) fn into_segments(mut self) -> Vec<Segment<T>> {
        self.directory.take_segments()
    }

    #[cold]
    fn begin(&mut self) -> FirstSlot {
        let segment = Segment::new(1, 0);
        self.segment_bytes += segment.memory_bytes();
        self.directory.begin(segment);
        self.directory.first_slot(0).expect("a directory that has begun has a segment")
    }

    /// Makes room in the segment that begins at `first`, which has just refused an entry. One step
    /// may not be enough for the next entry, but each adds buckets, so that it comes to an end.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, first: FirstSlot, hasher: &impl EntryHash<T>) {
        let segment = self.directory.segment(first);
        let buckets = segment.bucket_count();
        if geometry::is_skewed(segment.len(), buckets) {
            self.extend_stash(first);
        } else if let Some(larger) = geometry::next_size(buckets) {
            self.resize(first, larger, hasher);
        } else if self.directory.may_split(first, self.len) {
            self.split(first, hasher);
        } else {
            self.extend_stash(first);
        }
    }

    /// Gives back memory of the segment that begins at `first`, which has become sparse.
    #[cold]
    #[inline(never)]
    fn shrink(&mut self, mut first: FirstSlot, hasher: &impl EntryHash<T>) {
        while self.is_mergeable(first) {
            first = self.merge(first, hasher);
        }
        let segment = self.directory.segment(first);
        let fitting = geometry::size_for(segment.len());
        if fitting < segment.bucket_count() && may_shrink(segment) {
            self.resize(first, fitting, hasher);
        }
    }

    fn is_mergeable(&self, first: FirstSlot) -> bool {
        let Some(sibling) = self.directory.sibling(first) else { return false };
        let len = |first| self.directory.segment(first).len();
        geometry::should_merge(len(first) + len(sibling))
    }

    fn resize(&mut self, first: FirstSlot, buckets: usize, hasher: &impl EntryHash<T>) {
        let segment = self.directory.segment(first);
        let hashes = segment.hashes(hasher);
        let mut resized = Segment::new(buckets, segment.depth());
        self.segment_bytes -= segment.memory_bytes();
        self.directory.update(first, |segment| {
            core::mem::swap(segment, &mut resized);
            move_entries(resized, hashes, |hash, entry| segment.place_extending(hash, entry));
        });
        self.segment_bytes += self.directory.segment(first).memory_bytes();
    }

    fn split(&mut self, first: FirstSlot, hasher: &impl EntryHash<T>) {
        let segment = self.directory.segment(first);
        let (hashes, depth) = (segment.hashes(hasher), segment.depth());
        let is_upper = |hash: u64| (hash << depth) >> 63 == 1;
        let upper = hashes.iter().filter(|hash| is_upper(**hash)).count();
        let mut segment_bytes = self.segment_bytes - segment.memory_bytes();
        self.directory.split(first, |segment| {
            let sizes = [hashes.len() - upper, upper].map(geometry::size_for);
            let mut halves = sizes.map(|size| Segment::new(size, depth + 1));
            move_entries(segment, hashes, |hash, entry| {
                halves[usize::from(is_upper(hash))].place_extending(hash, entry);
            });
            segment_bytes += halves.iter().map(Segment::memory_bytes).sum::<usize>();
            halves
        });
        self.segment_bytes = segment_bytes;
    }

    fn merge(&mut self, first: FirstSlot, hasher: &impl EntryHash<T>) -> FirstSlot {
        let sibling = self.directory.sibling(first).expect("a mergeable segment has a sibling");
        let hashes = |first| self.directory.segment(first).hashes(hasher);
        let depth = self.directory.segment(first).depth();
        let (own, others) = (hashes(first), hashes(sibling));
        let mut hashes = if first < sibling { [own, others] } else { [others, own] };
        let mut segment_bytes = self.segment_bytes;
        let first = self.directory.merge(first, |halves| {
            let len = hashes.iter().map(Vec::len).sum();
            let mut merged = Segment::new(geometry::size_for(len), depth - 1);
            for (half, hashes) in halves.into_iter().zip(&mut hashes) {
                segment_bytes -= half.memory_bytes();
                move_entries(half, core::mem::take(hashes), |hash, entry| {
                    merged.place_extending(hash, entry);
                });
            }
            segment_bytes += merged.memory_bytes();
            merged
        });
        self.segment_bytes = segment_bytes;
        first
    }

    fn extend_stash(&mut self, first: FirstSlot) {
        self.segment_bytes -= self.directory.segment(first).memory_bytes();
        self.directory.update(first, Segment::extend_stash);
        self.segment_bytes += self.directory.segment(first).memory_bytes();
    }
}

/// Whether it is time to consider shrinking a segment after a removal: when it is less than half
/// full, at every eighth removal, lest skewed hashes that keep it from getting smaller cost a
/// rebuild each time.
#[inline]
fn may_shrink<T>(segment: &Segment<T>) -> bool {
    segment.len() * 2 < geometry::capacity(segment.bucket_count())
        && segment.len().is_multiple_of(8)
}

/// Moves all entries of `source` out, each together with its hash; `hashes` come from
/// [`Segment::hashes`] and were computed before, so that none of the caller's code runs meanwhile.
fn move_entries<T>(source: Segment<T>, hashes: Vec<u64>, mut place: impl FnMut(u64, T)) {
    assert_eq!(source.len(), hashes.len());
    source.drain().zip(hashes).for_each(|(entry, hash)| place(hash, entry));
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: core::fmt::Debug> core::fmt::Debug for Table<T> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_set().entries(self).finish()
    }
}
