//! Ends of a list.

use tierce_collections::List;
use tierce_keyspace::{Editor, Event};

use crate::error::CommandError;
use crate::reply::Reply;

/// End of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    /// End with the first element.
    Left,
    /// End with the last element.
    Right,
}

impl Side {
    /// Parses an end.
    pub(super) fn parse(arg: &[u8]) -> Result<Self, CommandError> {
        if arg.eq_ignore_ascii_case(b"left") {
            Ok(Side::Left)
        } else if arg.eq_ignore_ascii_case(b"right") {
            Ok(Side::Right)
        } else {
            Err(CommandError::SYNTAX)
        }
    }

    /// Returns the event of a push to this end.
    pub(super) fn push_event(self) -> Event {
        match self {
            Side::Left => Event::LPush,
            Side::Right => Event::RPush,
        }
    }

    /// Returns the event of a pop from this end.
    pub(super) fn pop_event(self) -> Event {
        match self {
            Side::Left => Event::LPop,
            Side::Right => Event::RPop,
        }
    }

    /// Removes up to `count` elements at this end.
    pub(super) fn pop(self, list: &mut Editor<'_, List>, count: usize) {
        let count = count.min(list.len());
        let start = self.start(list, count);
        list.remove(start, count);
    }

    /// Returns the index of the first of `count` elements at this end.
    pub(super) fn start(self, list: &List, count: usize) -> usize {
        match self {
            Side::Left => 0,
            Side::Right => list.len() - count,
        }
    }

    /// Adds an element at this end.
    pub(super) fn push(self, list: &mut Editor<'_, List>, element: &[u8]) {
        match self {
            Side::Left => list.push_front(std::iter::once(element)),
            Side::Right => list.push_back(std::iter::once(element)),
        }
    }

    /// Adds elements at this end, where they keep their order.
    pub(super) fn push_all(self, list: &mut Editor<'_, List>, elements: &[Vec<u8>]) {
        let elements = elements.iter().map(Vec::as_slice);
        match self {
            Side::Left => list.push_front(elements.rev()),
            Side::Right => list.push_back(elements),
        }
    }

    /// Replies with up to `count` elements from this end on, and removes them.
    pub(super) fn pop_many(self, list: &mut Editor<'_, List>, count: usize, reply: &mut Reply<'_>) {
        let count = count.min(list.len());
        reply.array(count);
        match self {
            Side::Left => reply.elements(list.iter().take(count)),
            Side::Right => reply.elements(list.rev_iter_from(list.len()).take(count)),
        }
        self.pop(list, count);
    }

    /// Replies with the element at this end, and removes it.
    pub(super) fn pop_one(self, list: &mut Editor<'_, List>, reply: &mut Reply<'_>) {
        if let Some(element) = self.peek(list) {
            reply.element(element);
            self.pop(list, 1);
        }
    }

    /// Returns the element at this end.
    pub(super) fn peek(self, list: &List) -> Option<tierce_collections::Element<'_>> {
        let count = list.len().min(1);
        list.get(self.start(list, count))
    }
}
