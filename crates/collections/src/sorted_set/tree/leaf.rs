//! A leaf: entries in order, with their scores and the handles of the members in two arrays.

use super::bound::{Bound, Side};
use super::{Edge, Key, Route, slots};
use crate::sorted_set::member::Member;

/// Entries of a leaf: with the length they take 1016 bytes, of an allocation of 1024.
pub(super) const CAPACITY: usize = if cfg!(test) { 5 } else { 63 };

/// Entries in the order of score and bytes; `scores[i]` is that of `members[i]`. The first `len` are in use.
pub(in crate::sorted_set) struct Leaf {
    len: usize,
    scores: [f64; CAPACITY],
    members: [Option<Member>; CAPACITY],
}

impl Leaf {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self { len: 0, scores: [0.0; CAPACITY], members: [const { None }; CAPACITY] })
    }

    #[inline]
    pub(in crate::sorted_set) fn len(&self) -> usize {
        self.len
    }

    /// Returns the entry at an index below the length.
    #[inline]
    pub(in crate::sorted_set) fn entry(&self, at: usize) -> (f64, &Member) {
        (self.scores[at], self.member(at))
    }

    #[inline]
    fn member(&self, at: usize) -> &Member {
        self.members[at].as_ref().expect("slots below the length are in use")
    }

    pub(super) fn first(&self) -> Key {
        Key::of(self.scores[0], self.member(0))
    }

    #[inline]
    pub(super) fn partition(&self, bound: &Bound<'_>) -> usize {
        bound.partition(&self.scores[..self.len], |at| self.member(at).bytes())
    }

    /// Adds a member. A full leaf moves entries to a new one, which comes after it.
    pub(super) fn insert(&mut self, member: Member, edge: Edge) -> Option<Box<Leaf>> {
        let at = self.partition(&Bound::Entry(member.score(), member.bytes(), Side::Before));
        if self.len < CAPACITY {
            self.put(at, member);
            return None;
        }
        let split = edge.split_at(at, CAPACITY);
        let mut right = Self::new();
        self.move_tail(split, &mut right);
        if at > split || (at == split && right.len == 0) {
            right.put(at - split, member);
        } else {
            self.put(at, member);
        }
        Some(right)
    }

    fn put(&mut self, at: usize, member: Member) {
        slots::insert_plain(&mut self.scores, self.len, at, member.score());
        slots::insert(&mut self.members, self.len, at, Some(member));
        self.len += 1;
    }

    /// Removes the member of a route, if it exists and is to be removed.
    pub(super) fn take(&mut self, route: &Route<'_>) -> Option<Member> {
        let at = match *route {
            Route::Rank(rank) => rank,
            Route::Entry { score, bytes, .. } => {
                self.partition(&Bound::Entry(score, bytes, Side::Before))
            }
        };
        if at >= self.len {
            return None;
        }
        if let Route::Entry { bytes, new: Some(new), .. } = *route
            && self.stays(at, bytes, new)
        {
            self.scores[at] = new;
            self.members[at].as_mut().expect("a slot in use").set_score(new);
            return None;
        }
        slots::remove_plain(&mut self.scores, self.len, at);
        let member = slots::remove(&mut self.members, self.len, at);
        self.len -= 1;
        member
    }

    /// Returns true if an entry keeps its position with another score, as far as this leaf can tell: at its ends only
    /// one neighbour is known.
    fn stays(&self, at: usize, bytes: &[u8], new: f64) -> bool {
        let point = Bound::Entry(new, bytes, Side::Before);
        let is_behind = |index: usize| {
            let scores = &self.scores[index..=index];
            point.partition(scores, |_| self.member(index).bytes()) == 1
        };
        let follows = if at == 0 { new > self.scores[at] } else { is_behind(at - 1) };
        let next = at + 1;
        follows && if next == self.len { new < self.scores[at] } else { !is_behind(next) }
    }

    /// Moves the entries from `at` on to the end of `to`, which has room for them.
    fn move_tail(&mut self, at: usize, to: &mut Self) {
        slots::move_tail(&mut self.scores, self.len, at, &mut to.scores, to.len);
        slots::move_tail(&mut self.members, self.len, at, &mut to.members, to.len);
        to.len += self.len - at;
        self.len = at;
    }

    /// Moves all entries to the end of the leaf before this one.
    pub(super) fn append_to(&mut self, left: &mut Self) {
        self.move_tail(0, left);
    }
}
