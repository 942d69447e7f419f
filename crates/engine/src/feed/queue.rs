//! What waits for the follower of a feed: items one after the other in blocks of bytes, so appending one is a copy.
//!
//! | bytes | content |
//! |---|---|
//! | 1 | the kind of the item |
//! | 8 | its length, little-endian |
//! | length | its bytes |

use std::mem;

use super::Overrun;

/// Blocks are this long, and longer for a longer item: large enough to be few, and small enough not to be zeroed or copied.
const BLOCK_LEN: usize = 256 << 10;

const HEAD_LEN: usize = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Record,
    Command,
    Mark,
}

/// An item of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fed<'a> {
    /// A record of changes, as in the log.
    Record(&'a [u8]),
    /// A command that changes no data, as RESP.
    Command(&'a [u8]),
    /// A mark.
    Mark(u64),
}

/// Items in the order of the feed.
#[derive(Debug, Default)]
pub struct FedBatch {
    blocks: Vec<Vec<u8>>,
    items: u64,
    /// The position of the feed before the first item.
    before: u64,
}

impl FedBatch {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// The items, each with its position: it is the first one at which [`Feed::position`](super::Feed::position) says
    /// that the item is there.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Fed<'_>)> {
        let items = self.blocks.iter().flat_map(|block| Items { rest: block });
        (self.before + 1..).zip(items)
    }
}

struct Items<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Items<'a> {
    type Item = Fed<'a>;

    fn next(&mut self) -> Option<Fed<'a>> {
        let (kind, rest) = self.rest.split_first()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (bytes, rest) = rest.split_at_checked(u64::from_le_bytes(*len) as usize)?;
        self.rest = rest;
        Some(match *kind {
            kind if kind == Kind::Record as u8 => Fed::Record(bytes),
            kind if kind == Kind::Command as u8 => Fed::Command(bytes),
            _ => Fed::Mark(u64::from_le_bytes(*bytes.first_chunk()?)),
        })
    }
}

#[derive(Debug, Default)]
struct Blocks {
    blocks: Vec<Vec<u8>>,
    items: u64,
    bytes: usize,
}

impl Blocks {
    fn push(&mut self, kind: Kind, bytes: &[u8]) {
        let len = HEAD_LEN + bytes.len();
        let has_room = |block: &Vec<u8>| block.capacity() - block.len() >= len;
        if !self.blocks.last().is_some_and(has_room) {
            self.blocks.push(Vec::with_capacity(BLOCK_LEN.max(len)));
        }
        let block = self.blocks.last_mut().expect("there is one with room");
        block.push(kind as u8);
        block.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        block.extend_from_slice(bytes);
        self.items += 1;
        self.bytes += len;
    }

    fn append(&mut self, mut others: Self) {
        self.blocks.append(&mut others.blocks);
        self.items += others.items;
        self.bytes += others.bytes;
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// There is no follower.
    #[default]
    Closed,
    Open,
    Overrun,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    state: State,
    /// What may be taken.
    free: Blocks,
    /// What follows a change that the log has not taken, with that change; `None` if there is no such change.
    held: Option<Blocks>,
    /// The follower sleeps until there is an item.
    is_awaited: bool,
    /// It is not to sleep, even if there is nothing for it.
    is_called: bool,
}

impl Queue {
    /// Whether it was closed before.
    pub(super) fn open(&mut self) -> bool {
        let was_closed = self.state == State::Closed;
        if was_closed {
            *self = Self { state: State::Open, ..Self::default() };
        }
        was_closed
    }

    pub(super) fn close(&mut self) {
        *self = Self::default();
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    pub(super) fn bytes(&self) -> usize {
        self.free.bytes + self.held.as_ref().map_or(0, |held| held.bytes)
    }

    /// Whether the follower is to be woken.
    pub(super) fn push(
        &mut self,
        kind: Kind,
        bytes: &[u8],
        is_in_log: bool,
        bytes_max: usize,
    ) -> bool {
        if self.bytes() + bytes.len() > bytes_max {
            let is_awaited = self.is_awaited;
            *self = Self { state: State::Overrun, ..Self::default() };
            return is_awaited;
        }
        if !is_in_log {
            self.held.get_or_insert_default();
        }
        match &mut self.held {
            Some(held) => {
                held.push(kind, bytes);
                false
            }
            None => {
                self.free.push(kind, bytes);
                mem::take(&mut self.is_awaited)
            }
        }
    }

    /// Calls the follower, which is to be woken then.
    pub(super) fn call(&mut self) {
        self.is_called = self.is_open();
        self.is_awaited = false;
    }

    pub(super) fn is_called(&self) -> bool {
        self.is_called
    }

    /// Whether the follower was called since it was asked.
    pub(super) fn take_call(&mut self) -> bool {
        mem::take(&mut self.is_called)
    }

    pub(super) fn await_item(&mut self) {
        self.is_awaited = true;
    }

    /// What may be taken, where `position` items were ever pushed.
    pub(super) fn take(
        &mut self,
        position: u64,
        has_write_error: bool,
    ) -> Result<FedBatch, Overrun> {
        self.is_awaited = false;
        if self.state == State::Overrun {
            return Err(Overrun);
        }
        if !has_write_error && let Some(held) = self.held.take() {
            self.free.append(held);
        }
        let Blocks { blocks, items, .. } = mem::take(&mut self.free);
        let held = self.held.as_ref().map_or(0, |held| held.items);
        Ok(FedBatch { blocks, items, before: position - items - held })
    }
}
