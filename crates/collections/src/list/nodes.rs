//! A large list: blocks of elements in groups.
//!
//! A node is a [`Packed`] of up to a few kilobytes with its element count, a group an array of up to
//! [`GROUP_NODES_MAX`] nodes with their element count, and the list a deque of groups. An index is found by adding up
//! counts from the nearer end, first of groups, then of nodes in one group, and then walking through one block. Ten
//! million short elements make at worst some hundred groups; a tree would save little and cost memory and code.
//! Nothing moved as a whole is larger than a group (2 KiB), a block, or the deque of groups.
//!
//! The first node is kept small if elements come and go at the beginning, see `head`.
//!
//! **Invariants:**
//! - No node and no group is empty; element counts are the sums of those below.
//! - `bytes` is the sum of the allocations of all blocks, groups and the deque.
//! - A node is within the limits, or has a single element, or was made under other limits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::snapshot::{ListSnapshot, Taken};
use crate::limits::ListLimits;
use crate::packed::{Element, Packed, Position};
use crate::size_class;

/// Maximum nodes of a group. Shifting half of them for a new node costs less than the node.
const GROUP_NODES_MAX: usize = 128;

/// Overhead of a block: a full one then fits a size class exactly.
pub(super) const BLOCK_FRAME: usize = 8;

#[derive(Debug)]
pub(super) struct Nodes {
    groups: VecDeque<Group>,
    len: usize,
    bytes: usize,
    visited_prefix: VisitedPrefix,
    /// Set while the list is being saved.
    pub(super) snapshot: Option<Box<ListSnapshot>>,
}

#[derive(Debug)]
struct Group {
    nodes: Vec<Node>,
    len: usize,
}

#[derive(Debug)]
struct Node {
    block: Packed,
    /// Element count, stored next to the block, so that finding an index reads no other memory.
    len: u32,
}

/// Number of first elements that a snapshot has seen, and its identity. Atomic, since readers set it; a thread that
/// edits holds the list exclusively.
#[derive(Debug, Default)]
pub(super) struct VisitedPrefix {
    owner: AtomicU64,
    len: AtomicUsize,
}

/// Position of an element.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListPosition {
    group: usize,
    node: usize,
    /// Index of the element in its block.
    pub(super) offset: usize,
}

/// An end of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

impl End {
    /// Returns the element of a block that is nearest to this end.
    #[inline]
    fn of_block(self, block: &Packed) -> Position {
        match self {
            End::Front => block.start(),
            End::Back => block.last().unwrap_or(block.start()),
        }
    }
}

impl VisitedPrefix {
    /// Returns owner and length, if they were set.
    pub(super) fn noted(&self) -> Option<(u64, usize)> {
        let owner = self.owner.load(Relaxed);
        (owner != 0).then(|| (owner, self.len.load(Relaxed)))
    }

    pub(super) fn get(&self, owner: u64) -> Option<usize> {
        (self.owner.load(Relaxed) == owner).then(|| self.len.load(Relaxed))
    }

    pub(super) fn set(&self, owner: u64, len: usize) {
        self.owner.store(owner, Relaxed);
        self.len.store(len, Relaxed);
    }

    fn inserted(&mut self, index: usize) {
        let len = self.len.get_mut();
        *len += usize::from(index < *len);
    }

    fn removed(&mut self, index: usize, count: usize) {
        let len = self.len.get_mut();
        *len -= (*len).saturating_sub(index).min(count);
    }
}

impl Node {
    fn new(block: Packed) -> Self {
        let len = block.len() as u32;
        Self { block, len }
    }
}

impl Group {
    fn new(nodes: Vec<Node>) -> Self {
        let len = nodes.iter().map(|node| node.len as usize).sum();
        Self { nodes, len }
    }

    /// Returns the bytes of the array of nodes.
    fn array_bytes(&self) -> usize {
        array_bytes::<Node>(self.nodes.capacity())
    }

    fn block_bytes(&self) -> usize {
        self.nodes.iter().map(|node| node.block.allocated_bytes()).sum()
    }
}

fn array_bytes<T>(capacity: usize) -> usize {
    if capacity == 0 { 0 } else { size_class(capacity * size_of::<T>()) }
}

/// Returns which of `lens` contains number `index`, and its number there. Adds up from the nearer end; `len` is the
/// sum of all. An `index` of `len` is after the last element.
fn find(
    mut lens: impl DoubleEndedIterator<Item = usize> + ExactSizeIterator,
    len: usize,
    index: usize,
) -> (usize, usize) {
    let count = lens.len();
    if index < len / 2 {
        let mut rest = index;
        for at in 0..count {
            let len = lens.next().unwrap_or(0);
            if rest < len {
                return (at, rest);
            }
            rest -= len;
        }
    } else {
        let mut begin = len;
        for at in (0..count).rev() {
            begin -= lens.next_back().unwrap_or(0);
            if begin <= index {
                return (at, index - begin);
            }
        }
    }
    unreachable!("numbers of elements add up")
}

impl Nodes {
    /// Creates a list from the elements of one block.
    pub(super) fn of(block: Packed) -> Self {
        let mut nodes = Self {
            groups: VecDeque::new(),
            len: 0,
            bytes: 0,
            visited_prefix: VisitedPrefix::default(),
            snapshot: None,
        };
        if !block.is_empty() {
            nodes.len = block.len();
            nodes.bytes = block.allocated_bytes();
            nodes.insert_group(0, Group::new(vec![Node::new(block)]));
        }
        nodes
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn allocated_bytes(&self) -> usize {
        size_class(size_of::<Self>()) + self.bytes
    }

    pub(super) fn visited_prefix(&self) -> &VisitedPrefix {
        &self.visited_prefix
    }

    /// Returns the block, if it is the only one.
    pub(super) fn single(&self) -> Option<&Packed> {
        match self.groups.front() {
            Some(group) if self.groups.len() == 1 && group.nodes.len() == 1 => {
                Some(&group.nodes[0].block)
            }
            _ => None,
        }
    }

    /// Takes the only block out.
    pub(super) fn take_single(&mut self) -> Option<Packed> {
        self.groups.pop_front()?.nodes.pop().map(|node| node.block)
    }

    /// Returns the position of element number `index`; `len` is after the last one.
    ///
    /// # Panics
    ///
    /// If the list is empty.
    fn find(&self, index: usize) -> ListPosition {
        let (group, rest) = find(self.groups.iter().map(|group| group.len), self.len, index);
        let nodes = &self.groups[group].nodes;
        let lens = nodes.iter().map(|node| node.len as usize);
        let (node, offset) = find(lens, self.groups[group].len, rest);
        ListPosition { group, node, offset }
    }

    /// Returns the position of element number `index`; `None` at the end.
    pub(super) fn position(&self, index: usize) -> Option<ListPosition> {
        (index < self.len).then(|| self.find(index))
    }

    pub(super) fn block(&self, at: ListPosition) -> &Packed {
        &self.groups[at.group].nodes[at.node].block
    }

    /// Returns the position of the first element of the next block.
    pub(super) fn next(&self, at: ListPosition) -> Option<ListPosition> {
        if at.node + 1 < self.groups[at.group].nodes.len() {
            return Some(ListPosition { node: at.node + 1, offset: 0, ..at });
        }
        (at.group + 1 < self.groups.len()).then_some(ListPosition {
            group: at.group + 1,
            node: 0,
            offset: 0,
        })
    }

    /// Returns the position after the last element of the block before.
    pub(super) fn prev(&self, at: ListPosition) -> Option<ListPosition> {
        let (group, node) = match at.node.checked_sub(1) {
            Some(node) => (at.group, node),
            None => {
                let group = at.group.checked_sub(1)?;
                (group, self.groups[group].nodes.len() - 1)
            }
        };
        let offset = self.groups[group].nodes[node].len as usize;
        Some(ListPosition { group, node, offset })
    }

    pub(super) fn get(&self, index: usize) -> Element<'_> {
        if let Some(end) = self.end_of(index) {
            let block = &self.node_at(end).block;
            return block.get(end.of_block(block));
        }
        let at = self.find(index);
        let block = self.block(at);
        block.get(block.seek(at.offset))
    }

    /// Returns the end of the list that element number `index` is at, if any.
    #[inline]
    fn end_of(&self, index: usize) -> Option<End> {
        match index {
            0 => Some(End::Front),
            _ if index + 1 == self.len => Some(End::Back),
            _ => None,
        }
    }

    /// Returns the group and the node at an end.
    ///
    /// # Panics
    ///
    /// If the list is empty.
    #[inline]
    fn position_at(&self, end: End) -> ListPosition {
        match end {
            End::Front => ListPosition { group: 0, node: 0, offset: 0 },
            End::Back => {
                let group = self.groups.len() - 1;
                ListPosition { group, node: self.groups[group].nodes.len() - 1, offset: 0 }
            }
        }
    }

    #[inline]
    fn node_at(&self, end: End) -> &Node {
        let ListPosition { group, node, .. } = self.position_at(end);
        &self.groups[group].nodes[node]
    }

    /// Changes a block, and updates the counts.
    #[inline]
    pub(super) fn change<R>(
        &mut self,
        at: ListPosition,
        change: impl FnOnce(&mut Packed) -> R,
    ) -> R {
        let group = &mut self.groups[at.group];
        let node = &mut group.nodes[at.node];
        let (len, class) = (node.block.len(), node.block.class());
        let result = change(&mut node.block);
        let len_then = node.block.len();
        node.len = len_then as u32;
        group.len = group.len - len + len_then;
        self.len = self.len - len + len_then;
        // Computing the bytes costs more than the comparison.
        if node.block.class() != class {
            self.bytes = self.bytes - Packed::bytes_of_class(class) + node.block.allocated_bytes();
        }
        result
    }

    /// Inserts an element before number `index`, or at the end.
    pub(super) fn insert(&mut self, index: usize, element: Element<'_>, limits: ListLimits) {
        self.visited_prefix.inserted(index);
        if self.snapshot.is_some() {
            self.save_before_insert(index);
        }
        if index == 0 {
            self.push_front(element, limits);
        } else if index < self.len || !self.push_back_within(element, limits) {
            self.put(index, element, limits);
        }
    }

    /// Appends an element if the last block has room for it.
    #[inline]
    fn push_back_within(&mut self, element: Element<'_>, limits: ListLimits) -> bool {
        if self.len == 0 {
            return false;
        }
        let bytes_max = limits.bytes_max.saturating_sub(BLOCK_FRAME);
        self.change(self.position_at(End::Back), |block| {
            block.len() < limits.entries_max && block.insert_within(block.end(), element, bytes_max)
        })
    }

    /// Returns the position of the first element.
    #[inline]
    pub(super) fn first(&self) -> Option<ListPosition> {
        (self.len > 0).then(|| self.position_at(End::Front))
    }

    /// Inserts a block before all others.
    pub(super) fn insert_first(&mut self, block: Packed) {
        if self.groups.is_empty() {
            *self = Self { snapshot: self.snapshot.take(), ..Self::of(block) };
        } else {
            self.insert_node(ListPosition { group: 0, node: 0, offset: 0 }, block);
        }
    }

    /// Takes out the first block, which is not the only one.
    pub(super) fn take_first(&mut self) -> Packed {
        let first = self.position_at(End::Front);
        let block = self.change(first, std::mem::take);
        self.groups[first.group].nodes.remove(first.node);
        self.tidy_group(first.group);
        block
    }

    pub(super) fn put(&mut self, index: usize, element: Element<'_>, limits: ListLimits) {
        if self.len == 0 {
            let mut block = Packed::new();
            block.push_back(element);
            return self.insert_first(block);
        }
        let at = self.find(index.min(self.len));
        let bytes = Packed::bytes_of(element);
        if self.has_room(at, bytes, limits) {
            return self.change(at, |block| block.insert(block.seek(at.offset), element));
        }
        let before = if at.offset == 0 { self.prev(at) } else { None };
        if let Some(before) = before
            && self.has_room(before, bytes, limits)
        {
            return self.change(before, |block| block.push_back(element));
        }
        let at = self.split(at);
        if let Some(before) = self.prev(at)
            && self.has_room(before, bytes, limits)
        {
            return self.change(before, |block| block.push_back(element));
        }
        let mut block = Packed::new();
        block.push_back(element);
        self.insert_node(at, block);
    }

    fn has_room(&self, at: ListPosition, bytes: usize, limits: ListLimits) -> bool {
        let block = self.block(at);
        BLOCK_FRAME + block.bytes_len() + bytes <= limits.bytes_max
            && block.len() < limits.entries_max
    }

    /// Splits the node at `at`, and returns the position for a node between the two halves.
    fn split(&mut self, at: ListPosition) -> ListPosition {
        if at.offset == 0 {
            return at;
        }
        let behind = ListPosition { node: at.node + 1, offset: 0, ..at };
        if at.offset < self.block(at).len() {
            let cut = self.change(at, |block| block.split_off(block.seek(at.offset)));
            return self.insert_node(behind, cut);
        }
        behind
    }

    /// Inserts a node before the one at `at`, which may be after the last one of its group. Returns its position.
    fn insert_node(&mut self, at: ListPosition, block: Packed) -> ListPosition {
        let at = self.make_node_room(at);
        let node = Node::new(block);
        self.len += node.len as usize;
        self.bytes += node.block.allocated_bytes();
        let group = &mut self.groups[at.group];
        self.bytes -= group.array_bytes();
        group.len += node.len as usize;
        group.nodes.insert(at.node, node);
        self.bytes += group.array_bytes();
        at
    }

    /// Makes sure that the group of `at` is not full, and returns the new position of `at`. A full group is split at
    /// `at` if that is at one of its ends, as when a list grows, and otherwise in the middle.
    fn make_node_room(&mut self, at: ListPosition) -> ListPosition {
        let nodes = &mut self.groups[at.group].nodes;
        if nodes.len() < GROUP_NODES_MAX {
            return at;
        }
        let first = ListPosition { group: at.group + 1, node: 0, offset: 0 };
        if at.node == nodes.len() {
            self.insert_group(first.group, Group::new(Vec::new()));
            return first;
        }
        if at.node == 0 {
            self.insert_group(at.group, Group::new(Vec::new()));
            return at;
        }
        let half = nodes.len() / 2;
        let behind = Group::new(nodes.split_off(half));
        self.groups[at.group].len -= behind.len;
        self.insert_group(first.group, behind);
        if at.node <= half { at } else { ListPosition { node: at.node - half, ..first } }
    }

    /// Inserts a group, whose nodes are counted already, before number `at`.
    fn insert_group(&mut self, at: usize, group: Group) {
        self.bytes += group.array_bytes();
        self.bytes -= self.deque_bytes();
        self.groups.insert(at, group);
        self.bytes += self.deque_bytes();
    }

    fn deque_bytes(&self) -> usize {
        array_bytes::<Group>(self.groups.capacity())
    }

    /// Replaces the existing element number `index`, which `visit` sees.
    pub(super) fn set(
        &mut self,
        index: usize,
        element: Element<'_>,
        limits: ListLimits,
        visit: impl FnOnce(Element<'_>),
    ) {
        if self.snapshot.is_some() {
            self.copy_span(index);
            self.save_before_set(index);
        }
        let at = self.find(index);
        let block = self.block(at);
        let position = block.seek(at.offset);
        let old = block.get(position);
        visit(old);
        let before = Packed::bytes_of(old);
        let bytes = BLOCK_FRAME + block.bytes_len() - before + Packed::bytes_of(element);
        if bytes <= limits.bytes_max || block.len() == 1 {
            self.change(at, |block| block.replace(position, element));
        } else {
            self.take(index, 1, None);
            self.put(index, element, limits);
        }
        self.merge_around(index, limits);
    }

    /// Removes `count` elements from number `index` on, which all exist.
    pub(super) fn remove(&mut self, index: usize, count: usize, limits: ListLimits) {
        self.visited_prefix.removed(index, count);
        if self.snapshot.is_some() {
            self.copy_span(index);
        }
        if count == 1
            && let Some(end) = self.end_of(index)
        {
            let taken = self.snapshot.is_some().then(|| self.copy_of(index));
            self.pop(end, limits);
            return taken.into_iter().for_each(|taken| self.save_removed(index, taken));
        }
        let mut taken = self.snapshot.is_some().then(Taken::default);
        self.take(index, count, taken.as_mut());
        self.merge_around(index, limits);
        if let Some(taken) = taken {
            self.save_removed(index, taken);
        }
    }

    /// Removes the element at an end. Only the first or last block becomes sparse by that, so there is nothing to join
    /// while there are others.
    fn pop(&mut self, end: End, limits: ListLimits) {
        let is_long = self.groups.len() > 1 || self.groups[0].nodes.len() > 2;
        if end == End::Front && is_long {
            self.shorten_head(limits);
        }
        let at = self.position_at(end);
        if self.groups[at.group].nodes[at.node].len > 1 {
            self.change(at, |block| block.remove(end.of_block(block), 1));
        } else {
            self.remove_nodes(at, 1, drop);
        }
        // The last two nodes may become a small list again.
        if self.groups.len() == 1 && self.groups[0].nodes.len() == 2 {
            self.merge_around(0, limits);
        }
    }

    /// Removes elements, and moves them to `kept` if it is given.
    fn take(&mut self, index: usize, count: usize, mut kept: Option<&mut Taken>) {
        let mut left = count;
        while left > 0 {
            let at = self.find(index);
            let len = self.block(at).len();
            left -= if at.offset == 0 && left >= len {
                self.remove_nodes(at, left, |block| {
                    if let Some(kept) = kept.as_deref_mut() {
                        kept.push(block);
                    }
                })
            } else {
                let removed = left.min(len - at.offset);
                if let Some(kept) = kept.as_deref_mut() {
                    let block = self.block(at);
                    let mut copy = Packed::new();
                    let elements = block.iter_from(block.seek(at.offset)).take(removed);
                    elements.for_each(|element| copy.push_back(element));
                    kept.push(copy);
                }
                self.change(at, |block| block.remove(block.seek(at.offset), removed));
                removed
            };
        }
    }

    /// Removes the nodes from `at` to the end of their group that together have at most `left` elements, passes their
    /// blocks to `give`, and returns their number of elements.
    fn remove_nodes(&mut self, at: ListPosition, left: usize, give: impl FnMut(Packed)) -> usize {
        let group = &mut self.groups[at.group];
        let (mut end, mut removed) = (at.node, 0);
        while let Some(node) = group.nodes.get(end)
            && removed + node.len as usize <= left
        {
            removed += node.len as usize;
            self.bytes -= node.block.allocated_bytes();
            end += 1;
        }
        group.nodes.drain(at.node..end).map(|node| node.block).for_each(give);
        group.len -= removed;
        self.len -= removed;
        self.tidy_group(at.group);
        removed
    }

    /// Removes a group if it is empty, and joins it with its neighbour if both are small.
    fn tidy_group(&mut self, at: usize) {
        if self.groups[at].nodes.is_empty() {
            return self.remove_group(at);
        }
        let nodes =
            |at: usize| self.groups.get(at).map_or(GROUP_NODES_MAX, |group| group.nodes.len());
        if nodes(at) + nodes(at + 1) <= GROUP_NODES_MAX / 2 {
            let behind = std::mem::take(&mut self.groups[at + 1].nodes);
            let array_bytes = array_bytes::<Node>(behind.capacity());
            self.bytes -= array_bytes;
            self.remove_group(at + 1);
            let group = &mut self.groups[at];
            self.bytes -= group.array_bytes();
            group.len += behind.iter().map(|node| node.len as usize).sum::<usize>();
            group.nodes.extend(behind);
            self.bytes += group.array_bytes();
        }
    }

    /// Removes an empty group.
    fn remove_group(&mut self, at: usize) {
        self.bytes -= self.deque_bytes();
        if let Some(group) = self.groups.remove(at) {
            self.bytes -= group.array_bytes();
        }
        if self.groups.len() < self.groups.capacity() / 4 {
            self.groups.shrink_to(2 * self.groups.len());
        }
        self.bytes += self.deque_bytes();
    }

    /// Joins the node of number `index` with its neighbours if both together are within half the limits. So a list
    /// that lost most of its elements in many places does not keep nearly empty blocks.
    fn merge_around(&mut self, index: usize, limits: ListLimits) {
        let Some(last) = self.len.checked_sub(1) else { return };
        let at = self.find(index.min(last));
        // The next node first: that keeps `at` valid.
        if let Some(next) = self.next(at) {
            self.merge(at, next, limits);
        }
        if let Some(prev) = self.prev(at) {
            self.merge(prev, at, limits);
        }
    }

    fn merge(&mut self, at: ListPosition, next: ListPosition, limits: ListLimits) {
        let (a, b) = (self.block(at), self.block(next));
        let bytes = BLOCK_FRAME + a.bytes_len() + b.bytes_len();
        if bytes > limits.bytes_max / 2 || a.len() + b.len() > limits.entries_max / 2 {
            return;
        }
        let behind = self.change(next, std::mem::take);
        self.change(at, |block| block.append(&behind));
        self.groups[next.group].nodes.remove(next.node);
        self.tidy_group(next.group);
    }

    pub(super) fn duplicate(&self) -> Self {
        let duplicate = |group: &Group| {
            Group::new(group.nodes.iter().map(|node| Node::new(node.block.duplicate())).collect())
        };
        let groups: VecDeque<_> = self.groups.iter().map(duplicate).collect();
        let visited_prefix = VisitedPrefix::default();
        let mut copy = Self { groups, len: self.len, bytes: 0, visited_prefix, snapshot: None };
        copy.bytes = copy.counted_bytes();
        copy
    }

    /// Returns the expected value of `bytes`.
    pub(super) fn counted_bytes(&self) -> usize {
        let groups = self.groups.iter();
        self.deque_bytes()
            + groups.map(|group| group.array_bytes() + group.block_bytes()).sum::<usize>()
    }

    /// Panics if an invariant does not hold.
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert_eq!(self.bytes, self.counted_bytes());
        assert_eq!(self.len, self.groups.iter().map(|group| group.len).sum::<usize>());
        for group in &self.groups {
            assert!((1..=GROUP_NODES_MAX).contains(&group.nodes.len()));
            assert_eq!(group.len, group.nodes.iter().map(|node| node.len as usize).sum::<usize>());
            for node in &group.nodes {
                assert!(node.len > 0 && node.len as usize == node.block.len());
            }
        }
    }
}
