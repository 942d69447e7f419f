//! Iteration over the entries of a stream.

use std::collections::btree_map;
use std::iter::FusedIterator;

use crate::stream::StreamId;
use crate::stream::block::{Block, Entry};

/// Entries in ascending order.
#[derive(Debug, Clone)]
pub struct Ascending<'a> {
    sealed: btree_map::Range<'a, StreamId, Block>,
    tail: Option<&'a Block>,
    /// Block to continue with, and the position in it.
    current: Option<(&'a Block, usize)>,
    to: StreamId,
}

impl<'a> Ascending<'a> {
    pub(super) fn new(
        sealed: btree_map::Range<'a, StreamId, Block>,
        tail: Option<&'a Block>,
        from: StreamId,
        to: StreamId,
    ) -> Self {
        let mut entries = Self { sealed, tail, current: None, to };
        entries.current = entries.next_block().map(|block| (block, block.seek(from)));
        entries
    }

    fn next_block(&mut self) -> Option<&'a Block> {
        self.sealed.next().map(|(_, block)| block).or_else(|| self.tail.take())
    }
}

impl<'a> Iterator for Ascending<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        loop {
            let (block, at) = self.current.as_mut()?;
            if let Some(entry) = block.next(at) {
                if entry.id <= self.to {
                    return Some(entry);
                }
                self.current = None;
                return None;
            }
            self.current = self.next_block().map(|block| (block, block.entries_at()));
        }
    }
}

impl FusedIterator for Ascending<'_> {}

/// Entries in descending order.
#[derive(Debug, Clone)]
pub struct Descending<'a> {
    sealed: btree_map::Range<'a, StreamId, Block>,
    /// Block to continue with, and the position in it.
    current: Option<(&'a Block, usize)>,
    from: StreamId,
}

impl<'a> Descending<'a> {
    pub(super) fn new(
        mut sealed: btree_map::Range<'a, StreamId, Block>,
        tail: Option<&'a Block>,
        from: StreamId,
        to: StreamId,
    ) -> Self {
        let last = tail.or_else(|| sealed.next_back().map(|(_, block)| block));
        Self { sealed, current: last.map(|block| (block, block.seek_end(to))), from }
    }
}

impl<'a> Iterator for Descending<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        loop {
            let (block, at) = self.current.as_mut()?;
            if let Some(entry) = block.previous(at) {
                if entry.id >= self.from {
                    return Some(entry);
                }
                self.current = None;
                return None;
            }
            self.current = self.sealed.next_back().map(|(_, block)| (block, block.end()));
        }
    }
}

impl FusedIterator for Descending<'_> {}
