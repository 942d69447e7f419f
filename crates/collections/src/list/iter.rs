//! Iterators over a list.

use super::nodes::{ListPosition, Nodes};
use crate::packed::{self, Element, Packed};

/// The remaining nodes.
#[derive(Debug, Clone, Copy)]
struct Ahead<'a> {
    nodes: &'a Nodes,
    /// Position of the current node.
    at: ListPosition,
}

/// Elements of a list in their order.
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    block: packed::Iter<'a>,
    ahead: Option<Ahead<'a>>,
}

impl<'a> Iter<'a> {
    pub(super) fn of_packed(packed: &'a Packed, index: usize) -> Self {
        Self { block: packed.iter_from(packed.seek(index)), ahead: None }
    }

    pub(super) fn of_nodes(nodes: &'a Nodes, index: usize) -> Self {
        let Some(at) = nodes.position(index) else {
            return Self { block: packed::Iter::empty(), ahead: None };
        };
        let block = nodes.block(at);
        Self { block: block.iter_from(block.seek(at.offset)), ahead: Some(Ahead { nodes, at }) }
    }

    #[cold]
    fn turn_to_next_block(&mut self) -> Option<Element<'a>> {
        let ahead = self.ahead.as_mut()?;
        ahead.at = ahead.nodes.next(ahead.at)?;
        self.block = ahead.nodes.block(ahead.at).iter();
        self.block.next()
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        match self.block.next() {
            Some(element) => Some(element),
            None => self.turn_to_next_block(),
        }
    }
}

/// Elements of a list in reverse order.
#[derive(Debug, Clone)]
pub struct RevIter<'a> {
    block: packed::Iter<'a>,
    ahead: Option<Ahead<'a>>,
}

impl<'a> RevIter<'a> {
    pub(super) fn of_packed(packed: &'a Packed, index: usize) -> Self {
        Self { block: packed.iter_until(packed.seek(index)), ahead: None }
    }

    pub(super) fn of_nodes(nodes: &'a Nodes, index: usize) -> Self {
        let Some(at) = index.min(nodes.len()).checked_sub(1).and_then(|last| nodes.position(last))
        else {
            return Self { block: packed::Iter::empty(), ahead: None };
        };
        let block = nodes.block(at);
        Self {
            block: block.iter_until(block.seek(at.offset + 1)),
            ahead: Some(Ahead { nodes, at }),
        }
    }

    #[cold]
    fn turn_to_next_block(&mut self) -> Option<Element<'a>> {
        let ahead = self.ahead.as_mut()?;
        ahead.at = ahead.nodes.prev(ahead.at)?;
        self.block = ahead.nodes.block(ahead.at).iter();
        self.block.next_back()
    }
}

impl<'a> Iterator for RevIter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        match self.block.next_back() {
            Some(element) => Some(element),
            None => self.turn_to_next_block(),
        }
    }
}
