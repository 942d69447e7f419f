//! A large sorted set: a tree for the order, and a table from a member's bytes to the member.

use super::index::Index;
use super::member::{Alias, Member};
use super::tree::{Bound, Leaf, Side, Tree};
use crate::incremental_snapshot::{CopyOwned, IncrementalSnapshot, SnapshotProgress};
use crate::raw_box;
use crate::seed::hash_bytes;
use std::ops::Range;
use tierce_dash::prefetch_read;

/// A large sorted set; see the head of this file.
///
/// Invariant: the tree owns the members, and the index has exactly these.
pub(super) struct Large {
    tree: Tree,
    index: Index,
    /// Memory of the members, as the allocator counts.
    member_bytes: usize,
    /// Set while the set is being saved.
    pub(super) snapshot: Option<Box<IncrementalSnapshot<Member>>>,
}

impl CopyOwned for Member {
    fn owned_bytes(&self) -> usize {
        self.allocated_bytes()
    }
}

impl Large {
    pub(super) fn new() -> Self {
        Self { tree: Tree::new(), index: Index::new(), member_bytes: 0, snapshot: None }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        debug_assert_eq!(self.tree.len(), self.index.len());
        self.tree.len()
    }

    /// Returns the bytes it owns, including its own box.
    pub(super) fn allocated_bytes(&self) -> usize {
        raw_box::allocated_bytes_of::<Self>()
            + self.tree.allocated_bytes()
            + self.index.memory_bytes()
            + self.member_bytes
    }

    #[inline]
    fn find(&self, member: &[u8]) -> Option<Alias> {
        self.index.find(hash_bytes(member), member)
    }

    #[inline]
    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        Some(self.find(member)?.score())
    }

    /// Returns the rank of a member, and its score.
    pub(super) fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        let score = self.score(member)?;
        Some((self.tree.rank(&Bound::Entry(score, member, Side::Before)), score))
    }

    /// Passes the score of a member to `decide`, and sets the result.
    pub(super) fn update(
        &mut self,
        member: &[u8],
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) {
        let hash = hash_bytes(member);
        let old = self.index.find(hash, member).map(|alias| alias.score());
        match (old, decide(old)) {
            (_, None) => {}
            (None, Some(score)) => self.add(hash, member, score),
            (Some(old), Some(score)) if old == score => {}
            (Some(old), Some(score)) => {
                self.before_change(hash);
                self.tree.change(old, member, score);
            }
        }
    }

    /// Adds a member that does not exist.
    pub(super) fn add_new(&mut self, member: &[u8], score: f64) {
        self.add(hash_bytes(member), member, score);
    }

    fn add(&mut self, hash: u64, member: &[u8], score: f64) {
        self.before_change(hash);
        let member = Member::new(member, score);
        self.member_bytes += member.allocated_bytes();
        // SAFETY: members are removed by `forget` alone, or together with the index.
        unsafe { self.index.insert(hash, &member) };
        self.tree.insert(member);
    }

    /// Removes a member. Returns its score.
    pub(super) fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let score = self.score(member)?;
        let member = self.tree.take(score, member)?;
        self.forget(&member);
        Some(score)
    }

    /// Removes the members of some ranks, which exist. Shows each before its removal.
    pub(super) fn remove_range(&mut self, ranks: Range<usize>, mut visit: impl FnMut(&[u8], f64)) {
        for _ in ranks.clone() {
            let Some(member) = self.tree.take_at(ranks.start) else { return };
            self.forget(&member);
            visit(member.bytes(), member.score());
        }
    }

    /// Notes that a member has left the tree and is about to be dropped.
    fn forget(&mut self, member: &Member) {
        if self.snapshot.is_some() {
            self.before_change(hash_bytes(member.bytes()));
        }
        self.index.remove(member);
        self.member_bytes -= member.allocated_bytes();
    }

    /// Returns the number of members before a point.
    #[inline]
    pub(super) fn rank_of(&self, bound: &Bound<'_>) -> usize {
        self.tree.rank(bound)
    }

    pub(super) fn range(&self, ranks: Range<usize>) -> LargeIter<'_> {
        LargeIter { tree: &self.tree, ranks, front: None, back: None }
    }

    pub(super) fn duplicate(&self) -> Self {
        let mut copy = Self::new();
        self.range(0..self.len()).for_each(|(member, score)| copy.add_new(member, score));
        copy
    }

    /// See [`SortedSet::scan`](super::SortedSet::scan).
    pub(super) fn scan(&self, cursor: u64, mut visit: impl FnMut(&[u8], f64)) -> u64 {
        self.index.scan(cursor, |alias| visit(alias.bytes(), alias.score()))
    }

    /// Must be called before a member with this hash is added or removed, or its score changes.
    #[inline]
    fn before_change(&mut self, hash: u64) {
        if let Some(snapshot) = &mut self.snapshot {
            self.index.save(hash, snapshot);
        }
    }

    pub(super) fn snapshot_slice(
        &mut self,
        bytes_max: usize,
        mut visit: impl FnMut(&[u8], f64) -> usize,
    ) -> SnapshotProgress {
        let Some(snapshot) = &mut self.snapshot else { return SnapshotProgress::Complete };
        let copied = |member: &Member| visit(member.bytes(), member.score());
        let bytes = snapshot.take_copies(bytes_max, copied);
        let present = |alias: &Alias| visit(alias.bytes(), alias.score());
        let saved = self.index.save_on(snapshot, bytes_max - bytes.min(bytes_max), present);
        if saved == SnapshotProgress::Complete {
            self.snapshot = None;
        }
        saved
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        self.tree.check();
        assert_eq!(self.tree.len(), self.index.len());
        let members = (0..self.len()).map(|rank| {
            let (leaf, at) = self.tree.leaf_at(rank).expect("a rank below the length");
            leaf.entry(at).1.allocated_bytes()
        });
        assert_eq!(self.member_bytes, members.sum::<usize>());
    }
}

/// Members of some ranks with their scores, from either end.
#[derive(Clone)]
pub(super) struct LargeIter<'a> {
    tree: &'a Tree,
    ranks: Range<usize>,
    /// The leaf of the next entry from the front, and its index there.
    front: Option<(&'a Leaf, usize)>,
    /// The leaf of the entry that was last returned from the back, and its index there.
    back: Option<(&'a Leaf, usize)>,
}

/// Number of members that are prefetched: they are spread over memory, and a walk that waited for
/// each of them would take several times as long.
const AHEAD: usize = 4;

/// Prefetches the member of an entry, if the leaf has it.
#[inline]
fn prefetch(leaf: &Leaf, at: usize) {
    if at < leaf.len() {
        prefetch_read(leaf.entry(at).1.address());
    }
}

impl<'a> LargeIter<'a> {
    #[inline]
    fn entry(leaf: &'a Leaf, at: usize) -> (&'a [u8], f64) {
        let (score, member) = leaf.entry(at);
        (member.bytes(), score)
    }
}

impl<'a> Iterator for LargeIter<'a> {
    type Item = (&'a [u8], f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rank = self.ranks.next()?;
        let (leaf, at) = match self.front {
            Some((leaf, at)) if at < leaf.len() => (leaf, at),
            _ => {
                let (leaf, at) = self.tree.leaf_at(rank)?;
                (at..at + AHEAD).for_each(|at| prefetch(leaf, at));
                (leaf, at)
            }
        };
        self.front = Some((leaf, at + 1));
        prefetch(leaf, at + AHEAD);
        Some(Self::entry(leaf, at))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.ranks.size_hint()
    }
}

impl DoubleEndedIterator for LargeIter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        let rank = self.ranks.next_back()?;
        let (leaf, at) = match self.back {
            Some((leaf, at)) if at > 0 => (leaf, at - 1),
            _ => {
                let (leaf, at) = self.tree.leaf_at(rank)?;
                (at.saturating_sub(AHEAD)..at).for_each(|at| prefetch(leaf, at));
                (leaf, at)
            }
        };
        self.back = Some((leaf, at));
        // Wraps around to an index that no leaf has.
        prefetch(leaf, at.wrapping_sub(AHEAD));
        Some(Self::entry(leaf, at))
    }
}
