//! An inner node: its children, with the entry count and the first entry of each.

use super::bound::{Bound, Side};
use super::{Edge, Key, Node, NodeCounts, Route, slots};
use crate::sorted_set::member::{Alias, Member};

/// Children of a node: with the length they take 2048 bytes.
pub(super) const CAPACITY: usize = if cfg!(test) { 5 } else { 51 };

/// The first `len` slots of all arrays are in use. For each child:
/// - `counts` is the number of entries below it,
/// - `scores` and `members` are its first entry, which is alive because these are updated whenever
///   another entry becomes the first.
pub(super) struct Inner {
    len: usize,
    scores: [f64; CAPACITY],
    members: [Option<Alias>; CAPACITY],
    counts: [usize; CAPACITY],
    children: [Option<Node>; CAPACITY],
}

impl Inner {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self {
            len: 0,
            scores: [0.0; CAPACITY],
            members: [None; CAPACITY],
            counts: [0; CAPACITY],
            children: [const { None }; CAPACITY],
        })
    }

    /// Creates a node above two, which becomes the root.
    pub(super) fn above(left: Node, right: Node) -> Box<Self> {
        let mut inner = Self::new();
        inner.put(0, left);
        inner.put(1, right);
        inner
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of entries below this node.
    pub(super) fn count(&self) -> usize {
        self.counts[..self.len].iter().sum()
    }

    pub(super) fn first(&self) -> Key {
        Key { score: self.scores[0], member: self.members[0].expect("a node has children") }
    }

    #[inline]
    pub(super) fn child(&self, at: usize) -> &Node {
        self.children[at].as_ref().expect("slots below the length are in use")
    }

    #[inline]
    fn child_mut(&mut self, at: usize) -> &mut Node {
        self.children[at].as_mut().expect("slots below the length are in use")
    }

    /// Returns the child, if there is only one.
    pub(super) fn only_child(&mut self) -> Option<Node> {
        if self.len == 1 { self.children[0].take() } else { None }
    }

    /// Returns the child that contains a point, and the number of entries in the children before
    /// it.
    ///
    /// A point between two children counts as the end of the first.
    #[inline]
    pub(super) fn locate(&self, bound: &Bound<'_>) -> (usize, usize) {
        let at = self.partition(bound).saturating_sub(1);
        (at, self.counts[..at].iter().sum())
    }

    #[inline]
    fn partition(&self, bound: &Bound<'_>) -> usize {
        bound.partition(&self.scores[..self.len], |at| {
            self.members[at].as_ref().expect("slots below the length are in use").bytes()
        })
    }

    /// Returns the child that contains an entry, or would contain it.
    #[inline]
    fn child_of(&self, score: f64, bytes: &[u8]) -> usize {
        self.partition(&Bound::Entry(score, bytes, Side::After)).saturating_sub(1)
    }

    /// Returns the child that has the entry of a rank, and its rank there. Ranks beyond the end are
    /// in the last child, beyond its end.
    #[inline]
    pub(super) fn child_of_rank(&self, rank: usize) -> (usize, usize) {
        let (mut at, mut rest) = (0, rank);
        while at + 1 < self.len && rest >= self.counts[at] {
            rest -= self.counts[at];
            at += 1;
        }
        (at, rest)
    }

    /// Adds a member. A full node moves children to a new one, which comes after it.
    pub(super) fn insert(
        &mut self,
        member: Member,
        edge: Edge,
        nodes: &mut NodeCounts,
    ) -> Option<Box<Inner>> {
        let at = self.child_of(member.score(), member.bytes());
        let edge_below = edge.below(at, self.len);
        let split = self.child_mut(at).insert(member, edge_below, nodes);
        let Some(new) = split else {
            self.counts[at] += 1;
            self.refresh_first(at);
            return None;
        };
        self.counts[at] = self.child(at).count();
        self.refresh_first(at);
        self.adopt(at + 1, new, edge)
    }

    /// Adds a child, and splits if there is no room.
    fn adopt(&mut self, at: usize, new: Node, edge: Edge) -> Option<Box<Inner>> {
        if self.len < CAPACITY {
            self.put(at, new);
            return None;
        }
        let split = edge.split_at(at, CAPACITY);
        let mut right = Self::new();
        self.move_tail(split, &mut right);
        if at > split || (at == split && right.len == 0) {
            right.put(at - split, new);
        } else {
            self.put(at, new);
        }
        Some(right)
    }

    fn put(&mut self, at: usize, child: Node) {
        let first = child.first();
        slots::insert_plain(&mut self.scores, self.len, at, first.score);
        slots::insert_plain(&mut self.members, self.len, at, Some(first.member));
        slots::insert_plain(&mut self.counts, self.len, at, child.count());
        slots::insert(&mut self.children, self.len, at, Some(child));
        self.len += 1;
    }

    /// Updates the first entry of a child.
    #[inline]
    fn refresh_first(&mut self, at: usize) {
        let first = self.child(at).first();
        self.scores[at] = first.score;
        self.members[at] = Some(first.member);
    }

    /// Removes the member of a route, if it exists and is to be removed.
    pub(super) fn take(&mut self, route: &Route<'_>, nodes: &mut NodeCounts) -> Option<Member> {
        let (at, below) = match *route {
            Route::Rank(rank) => {
                let (at, rest) = self.child_of_rank(rank);
                (at, Route::Rank(rest))
            }
            Route::Entry { score, bytes, .. } => (self.child_of(score, bytes), *route),
        };
        let Some(member) = self.child_mut(at).take(&below, nodes) else {
            // Its score may have changed.
            self.refresh_first(at);
            return None;
        };
        self.counts[at] -= 1;
        if self.counts[at] == 0 {
            if let Some(empty) = self.remove(at) {
                nodes.forget(&empty);
            }
        } else {
            self.refresh_first(at);
            self.merge_around(at, nodes);
        }
        Some(member)
    }

    /// Removes the slot of a child, and returns the child.
    fn remove(&mut self, at: usize) -> Option<Node> {
        slots::remove_plain(&mut self.scores, self.len, at);
        slots::remove_plain(&mut self.members, self.len, at);
        slots::remove_plain(&mut self.counts, self.len, at);
        let child = slots::remove(&mut self.children, self.len, at);
        self.len -= 1;
        // No alias remains of a member that may be dropped.
        self.members[self.len] = None;
        child
    }

    /// Joins a child that has become small with a neighbour, unless the result is full at once.
    fn merge_around(&mut self, at: usize, nodes: &mut NodeCounts) {
        let child = self.child(at);
        if child.len() > child.capacity() / 2 {
            return;
        }
        let most = child.capacity() * 3 / 4;
        let fits = |left: usize| self.child(left).len() + self.child(left + 1).len() <= most;
        let left = if at > 0 && fits(at - 1) {
            at - 1
        } else if at + 1 < self.len && fits(at) {
            at
        } else {
            return;
        };
        self.counts[left] += self.counts[left + 1];
        if let Some(mut right) = self.remove(left + 1) {
            right.append_to(self.child_mut(left));
            nodes.forget(&right);
        }
    }

    /// Moves the children from `at` on to the end of `to`, which has room for them.
    fn move_tail(&mut self, at: usize, to: &mut Self) {
        slots::move_tail(&mut self.scores, self.len, at, &mut to.scores, to.len);
        slots::move_tail(&mut self.members, self.len, at, &mut to.members, to.len);
        slots::move_tail(&mut self.counts, self.len, at, &mut to.counts, to.len);
        slots::move_tail(&mut self.children, self.len, at, &mut to.children, to.len);
        to.len += self.len - at;
        self.len = at;
    }

    /// Moves all children to the end of the node before this one.
    pub(super) fn append_to(&mut self, left: &mut Self) {
        self.move_tail(0, left);
    }
}

#[cfg(test)]
impl Inner {
    /// Checks the stored facts about a child.
    pub(super) fn check_child(&self, at: usize) {
        let (child, first) = (self.child(at), self.child(at).first());
        assert_eq!(self.counts[at], child.count());
        assert_eq!(self.scores[at].to_bits(), first.score.to_bits());
        assert!(self.members[at].is_some_and(|member| member.is(&first.member)));
    }
}
