//! Queue of the items that wait for a follower: consecutive in blocks of bytes, so that appending one is a copy.
//! | bytes | content |
//! |---|---|
//! | 1 | the kind of the item |
//! | 8 | its length, little-endian |
//! | length | its bytes |

use std::mem;

use super::{Overrun, Reader};

/// Length of a block; a longer item gets a longer one. It is large enough to need few blocks, which are neither
/// zeroed nor copied.
const BLOCK_LEN: usize = 256 << 10;

/// Number of blocks that are always kept for reuse: a new one costs its writer page faults.
const SPARE_MIN: usize = 4;

/// Maximum number of blocks kept: enough for a second of writes that saturate a processor.
const SPARE_MAX: usize = 256;

const HEAD_LEN: usize = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Record,
    Command,
    ReplicasMark,
    BucketMark,
}

/// An item of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fed<'a> {
    /// A record of changes, as in the log.
    Record(&'a [u8]),
    /// A command that changes no data, as RESP.
    Command(&'a [u8]),
    /// A mark of this reader.
    Mark(Reader, u64),
}

/// Items in the order of the feed.
#[derive(Debug, Default)]
pub struct FedBatch {
    blocks: Vec<Vec<u8>>,
    items: u64,
    /// Position of the feed before the first item.
    before: u64,
}

impl FedBatch {
    /// Returns true if there are no items.
    pub fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Returns the bytes of its items, including their heads.
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(Vec::len).sum()
    }

    /// Returns the items, each with its position. It is the first value of [`Feed::position`](super::Feed::position)
    /// that includes the item.
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
            kind if kind == Kind::ReplicasMark as u8 => mark(Reader::Replicas, bytes)?,
            _ => mark(Reader::Bucket, bytes)?,
        })
    }
}

fn mark(reader: Reader, bytes: &[u8]) -> Option<Fed<'_>> {
    Some(Fed::Mark(reader, u64::from_le_bytes(*bytes.first_chunk()?)))
}

#[derive(Debug, Default)]
struct Blocks {
    blocks: Vec<Vec<u8>>,
    items: u64,
    bytes: usize,
}

/// Empty blocks of [`BLOCK_LEN`].
#[derive(Debug, Default)]
pub(super) struct Spare(Vec<Vec<u8>>);

impl Spare {
    /// Takes over the blocks of a batch that was read. It keeps as many as two such batches need, so that a follower
    /// that rests for long finds enough, and one that gets little keeps little.
    pub(super) fn put(&mut self, batch: FedBatch) {
        let kept = (2 * batch.blocks.len()).clamp(SPARE_MIN, SPARE_MAX);
        self.0.truncate(kept);
        let free = kept - self.0.len();
        let blocks = batch.blocks.into_iter().filter(|block| block.capacity() == BLOCK_LEN);
        self.0.extend(blocks.take(free).map(|mut block| {
            block.clear();
            block
        }));
    }

    fn take(&mut self, len: usize) -> Vec<u8> {
        let spare = if len <= BLOCK_LEN { self.0.pop() } else { None };
        spare.unwrap_or_else(|| Vec::with_capacity(BLOCK_LEN.max(len)))
    }
}

impl Blocks {
    fn push(&mut self, kind: Kind, bytes: &[u8], spare: &mut Spare) {
        let len = HEAD_LEN + bytes.len();
        let has_room = |block: &Vec<u8>| block.capacity() - block.len() >= len;
        if !self.blocks.last().is_some_and(has_room) {
            self.blocks.push(spare.take(len));
        }
        let block = self.blocks.last_mut().expect("there is one with room");
        let mut head = [kind as u8; HEAD_LEN];
        head[1..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        block.extend_from_slice(&head);
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
    /// Upper bound of the bytes that wait.
    bytes_max: usize,
    /// Items that may be taken.
    free: Blocks,
    /// Deferred items: a change that the log has refused, and all later ones. `None` if there is no such change.
    held: Option<Blocks>,
    spare: Spare,
    /// The follower sleeps until there is an item.
    is_awaited: bool,
    /// The follower must not sleep, even if there is nothing for it.
    is_called: bool,
    /// The follower gets nothing for now.
    is_paused: bool,
}

impl Queue {
    /// Opens the queue. Returns true if it was closed before.
    pub(super) fn open(&mut self, bytes_max: usize) -> bool {
        let was_closed = self.state == State::Closed;
        if was_closed {
            *self = Self { state: State::Open, bytes_max, ..Self::default() };
        }
        was_closed
    }

    pub(super) fn close(&mut self) {
        *self = Self::default();
    }

    /// Returns true if the queue has a follower, which may be overrun.
    pub(super) fn is_there(&self) -> bool {
        self.state != State::Closed
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Returns true if changes count for the follower. An overrun one counts too: its next copy will contain them.
    pub(super) fn counts(&self) -> bool {
        self.is_there() && !self.is_paused
    }

    /// Returns true if the queue takes items.
    pub(super) fn collects(&self) -> bool {
        self.is_open() && !self.is_paused
    }

    pub(super) fn raise_limit(&mut self, bytes_max: usize) {
        self.bytes_max = self.bytes_max.max(bytes_max);
    }

    pub(super) fn set_paused(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    pub(super) fn bytes(&self) -> usize {
        self.free.bytes + self.held.as_ref().map_or(0, |held| held.bytes)
    }

    /// Appends an item. Returns true if the follower must be woken.
    pub(super) fn push(&mut self, kind: Kind, bytes: &[u8], is_in_log: bool) -> bool {
        if self.bytes() + bytes.len() > self.bytes_max {
            let is_awaited = self.is_awaited;
            *self = Self { state: State::Overrun, is_paused: self.is_paused, ..Self::default() };
            return is_awaited;
        }
        if !is_in_log {
            self.held.get_or_insert_default();
        }
        match &mut self.held {
            Some(held) => {
                held.push(kind, bytes, &mut self.spare);
                false
            }
            None => {
                self.free.push(kind, bytes, &mut self.spare);
                mem::take(&mut self.is_awaited)
            }
        }
    }

    /// Calls the follower, which must then be woken.
    pub(super) fn call(&mut self) {
        self.is_called = self.is_open();
        self.is_awaited = false;
    }

    pub(super) fn is_called(&self) -> bool {
        self.is_called
    }

    /// Returns true if the follower was called since the last check.
    pub(super) fn take_call(&mut self) -> bool {
        mem::take(&mut self.is_called)
    }

    pub(super) fn await_item(&mut self) {
        self.is_awaited = true;
    }

    /// Exchanges the spare blocks if `spare` has more.
    pub(super) fn refill(&mut self, spare: &mut Spare) {
        if self.spare.0.len() < spare.0.len() {
            mem::swap(&mut self.spare, spare);
        }
    }

    /// Returns the items that may be taken. `position` is the number of items ever pushed.
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
