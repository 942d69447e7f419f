//! The order of a large sorted set: a counting B+ tree of its members by score and bytes.
//!
//! Every inner node has the entry count below each child, so one descent finds the rank of an entry or the entry of a
//! rank. A range is the ranks between two points. Leaves are not linked: a walk reaches the next leaf by its rank,
//! with one more descent per dozens of entries.
//!
//! Scores are in arrays of their own, in inner nodes and leaves, so a search reads some cache lines of a node and
//! follows a member's handle only for equal scores.
//!
//! Nodes split when full; at the two ends of the tree the old node stays full, since scores often come in order.
//! Neighbours are joined when both together are at most three quarters full.

mod bound;
mod inner;
mod leaf;
mod slots;

pub(super) use bound::{Bound, Side};
use inner::Inner;
pub(super) use leaf::Leaf;

use super::member::{Alias, Member};
use crate::size_class;

/// The first entry of a node.
struct Key {
    score: f64,
    member: Alias,
}

impl Key {
    fn of(score: f64, member: &Member) -> Self {
        // SAFETY: only the nodes above the member's leaf store keys, and each of these updates its key before the
        // member leaves the tree.
        Self { score, member: unsafe { member.alias() } }
    }
}

/// The path to an entry to be removed.
#[derive(Clone, Copy)]
enum Route<'a> {
    Rank(usize),
    Entry {
        score: f64,
        bytes: &'a [u8],
        /// A new score, set instead of removing the entry if its position remains the same.
        new: Option<f64>,
    },
}

/// Says if a node is the first or the last one of its level.
#[derive(Clone, Copy)]
struct Edge {
    first: bool,
    last: bool,
}

impl Edge {
    /// Returns the edge for the child number `at` of `len`.
    fn below(self, at: usize, len: usize) -> Self {
        Self { first: self.first && at == 0, last: self.last && at + 1 == len }
    }

    /// Returns the number of slots that stay in a full node when a new one comes to `at`.
    fn split_at(self, at: usize, capacity: usize) -> usize {
        match at {
            0 if self.first => 0,
            at if at == capacity && self.last => capacity,
            _ => capacity / 2,
        }
    }
}

/// Number of nodes, for memory accounting.
#[derive(Debug, Default)]
struct NodeCounts {
    leaves: usize,
    inners: usize,
}

impl NodeCounts {
    /// Notes that a node is about to be dropped.
    fn forget(&mut self, node: &Node) {
        match node {
            Node::Leaf(_) => self.leaves -= 1,
            Node::Inner(_) => self.inners -= 1,
        }
    }
}

enum Node {
    Leaf(Box<Leaf>),
    Inner(Box<Inner>),
}

impl Node {
    fn first(&self) -> Key {
        match self {
            Node::Leaf(leaf) => leaf.first(),
            Node::Inner(inner) => inner.first(),
        }
    }

    /// Returns the number of entries in and below the node.
    fn count(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.len(),
            Node::Inner(inner) => inner.count(),
        }
    }

    /// Returns the number of slots in use.
    fn len(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.len(),
            Node::Inner(inner) => inner.len(),
        }
    }

    fn capacity(&self) -> usize {
        match self {
            Node::Leaf(_) => leaf::CAPACITY,
            Node::Inner(_) => inner::CAPACITY,
        }
    }

    fn insert(&mut self, member: Member, edge: Edge, nodes: &mut NodeCounts) -> Option<Node> {
        match self {
            Node::Leaf(leaf) => {
                let split = leaf.insert(member, edge)?;
                nodes.leaves += 1;
                Some(Node::Leaf(split))
            }
            Node::Inner(inner) => {
                let split = inner.insert(member, edge, nodes)?;
                nodes.inners += 1;
                Some(Node::Inner(split))
            }
        }
    }

    fn take(&mut self, route: &Route<'_>, nodes: &mut NodeCounts) -> Option<Member> {
        match self {
            Node::Leaf(leaf) => leaf.take(route),
            Node::Inner(inner) => inner.take(route, nodes),
        }
    }

    /// Moves all slots to the end of the node before, which is of the same level and has room.
    fn append_to(&mut self, left: &mut Node) {
        match (self, left) {
            (Node::Leaf(right), Node::Leaf(left)) => right.append_to(left),
            (Node::Inner(right), Node::Inner(left)) => right.append_to(left),
            _ => unreachable!("all leaves are on one level"),
        }
    }
}

pub(super) struct Tree {
    /// `None` if the tree is empty. An inner root has at least two children.
    root: Option<Node>,
    nodes: NodeCounts,
    len: usize,
}

impl Tree {
    pub(super) const fn new() -> Self {
        Self { root: None, nodes: NodeCounts { leaves: 0, inners: 0 }, len: 0 }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the memory of all nodes, without the members.
    pub(super) fn allocated_bytes(&self) -> usize {
        self.nodes.leaves * size_class(size_of::<Leaf>())
            + self.nodes.inners * size_class(size_of::<Inner>())
    }

    /// Adds a member that does not exist.
    pub(super) fn insert(&mut self, member: Member) {
        self.len += 1;
        let Some(root) = &mut self.root else {
            let mut leaf = Leaf::new();
            let whole = leaf.insert(member, Edge { first: true, last: true });
            debug_assert!(whole.is_none(), "a leaf has room for one entry");
            self.root = Some(Node::Leaf(leaf));
            self.nodes.leaves = 1;
            return;
        };
        let edge = Edge { first: true, last: true };
        if let Some(right) = root.insert(member, edge, &mut self.nodes) {
            self.nodes.inners += 1;
            self.root = self.root.take().map(|left| Node::Inner(Inner::above(left, right)));
        }
    }

    /// Removes the member with this score and these bytes, and returns it.
    pub(super) fn take(&mut self, score: f64, bytes: &[u8]) -> Option<Member> {
        self.take_by(&Route::Entry { score, bytes, new: None })
    }

    /// Removes the member of a rank, and returns it.
    pub(super) fn take_at(&mut self, rank: usize) -> Option<Member> {
        self.take_by(&Route::Rank(rank))
    }

    fn take_by(&mut self, route: &Route<'_>) -> Option<Member> {
        let member = self.root.as_mut()?.take(route, &mut self.nodes)?;
        self.len -= 1;
        if self.len == 0 {
            *self = Self::new();
        }
        while let Some(Node::Inner(root)) = &mut self.root
            && let Some(child) = root.only_child()
        {
            self.root = Some(child);
            self.nodes.inners -= 1;
        }
        Some(member)
    }

    /// Changes the score of the member with this score and these bytes.
    pub(super) fn change(&mut self, score: f64, bytes: &[u8], new: f64) {
        let route = Route::Entry { score, bytes, new: Some(new) };
        if let Some(mut member) = self.take_by(&route) {
            member.set_score(new);
            self.insert(member);
        }
    }

    /// Returns the number of entries before a point.
    #[inline]
    pub(super) fn rank(&self, bound: &Bound<'_>) -> usize {
        let Some(mut node) = self.root.as_ref() else { return 0 };
        let mut rank = 0;
        loop {
            match node {
                Node::Leaf(leaf) => return rank + leaf.partition(bound),
                Node::Inner(inner) => {
                    let (at, before) = inner.locate(bound);
                    rank += before;
                    node = inner.child(at);
                }
            }
        }
    }

    /// Returns the leaf that has the entry of a rank, and its index there.
    #[inline]
    pub(super) fn leaf_at(&self, mut rank: usize) -> Option<(&Leaf, usize)> {
        if rank >= self.len {
            return None;
        }
        let mut node = self.root.as_ref()?;
        loop {
            match node {
                Node::Leaf(leaf) => return Some((leaf, rank)),
                Node::Inner(inner) => {
                    let (at, rest) = inner.child_of_rank(rank);
                    (node, rank) = (inner.child(at), rest);
                }
            }
        }
    }
}

#[cfg(test)]
impl Tree {
    /// Checks all invariants of the tree.
    pub(super) fn check(&self) {
        let mut seen = NodeCounts::default();
        let count = self.root.as_ref().map_or(0, |root| check_node(root, &mut seen).1);
        assert_eq!(count, self.len);
        assert_eq!((seen.leaves, seen.inners), (self.nodes.leaves, self.nodes.inners));
        if let Some(Node::Inner(root)) = &self.root {
            assert!(root.len() > 1);
        }
    }
}

/// Checks a node. Returns its depth and the number of entries below it.
#[cfg(test)]
fn check_node(node: &Node, seen: &mut NodeCounts) -> (usize, usize) {
    match node {
        Node::Leaf(leaf) => {
            seen.leaves += 1;
            assert!(leaf.len() > 0);
            for at in 0..leaf.len() {
                let (score, member) = leaf.entry(at);
                assert_eq!(score.to_bits(), member.score().to_bits());
            }
            (0, leaf.len())
        }
        Node::Inner(inner) => {
            seen.inners += 1;
            assert!(inner.len() > 0);
            let below: Vec<_> = (0..inner.len())
                .map(|at| {
                    inner.check_child(at);
                    check_node(inner.child(at), seen)
                })
                .collect();
            assert!(below.iter().all(|(depth, _)| *depth == below[0].0));
            (below[0].0 + 1, below.iter().map(|(_, count)| count).sum())
        }
    }
}
