//! The entries of a stream: blocks in order.

use std::collections::BTreeMap;

use crate::stream::block::{Block, Deleted, Entry, NewFields};
use crate::stream::range::{Ascending, Descending};
use crate::stream::tree_bytes::tree_bytes;
use crate::stream::{StreamId, StreamLimits};

/// Blocks in order.
///
/// Invariants:
/// - There is a tail exactly if there are entries, and it comes after all sealed blocks.
/// - Every block has an entry that is not deleted.
#[derive(Debug, Clone, Default)]
pub(super) struct Blocks {
    /// All blocks but the last one, by their base.
    sealed: BTreeMap<StreamId, Block>,
    /// The last block, kept separately since most additions and many reads are there.
    tail: Option<Block>,
    /// Number of entries that are not deleted.
    len: usize,
    /// Sum over all blocks.
    block_bytes: usize,
}

/// Entries that trimming keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// This many of the newest entries.
    Newest(usize),
    /// The entries that are not before this ID.
    From(StreamId),
}

/// Parameters of trimming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trim {
    /// Entries to keep.
    pub keep: Keep,
    /// Precision of trimming.
    pub precision: TrimPrecision,
}

/// Precision of trimming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimPrecision {
    /// Exactly the entries to be removed.
    Exact,
    /// Whole blocks, without removing any entry that should be kept.
    Blocks {
        /// Maximum number of entries to remove; 0 for no limit.
        limit: usize,
    },
}

/// Result of trimming.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Number of removed entries.
    pub count: usize,
    /// All remaining entries are after this ID; `None` if nothing was trimmed.
    pub through: Option<StreamId>,
}

impl Blocks {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of blocks.
    pub(super) fn count(&self) -> usize {
        self.sealed.len() + usize::from(self.tail.is_some())
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.block_bytes + tree_bytes::<StreamId, Block>(self.sealed.len())
    }

    /// Recomputes the sum behind `allocated_bytes`.
    pub(super) fn recount(&mut self) {
        let blocks = self.sealed.values().chain(&self.tail);
        self.block_bytes = blocks.map(Block::allocated_bytes).sum();
    }

    #[cfg(test)]
    pub(super) fn check_account(&self) {
        let blocks = || self.sealed.values().chain(&self.tail);
        assert_eq!(self.block_bytes, blocks().map(Block::allocated_bytes).sum::<usize>());
        assert_eq!(self.len, blocks().map(Block::live).sum::<usize>());
        assert!(blocks().all(|block| block.live() > 0), "no empty blocks");
    }

    pub(super) fn first(&self) -> Option<Entry<'_>> {
        self.first_block()?.first()
    }

    fn first_block(&self) -> Option<&Block> {
        self.sealed.values().next().or(self.tail.as_ref())
    }

    pub(super) fn ascending(&self, from: StreamId, to: StreamId) -> Ascending<'_> {
        let tail = self.tail.as_ref().filter(|block| block.base() <= to);
        if tail.is_some_and(|block| block.base() <= from) || from > to {
            return Ascending::new(Default::default(), tail, from, to);
        }
        let before = self.sealed.range(..=from).next_back();
        let first = before.map_or(from, |(base, _)| *base);
        Ascending::new(self.sealed.range(first..=to), tail, from, to)
    }

    pub(super) fn descending(&self, from: StreamId, to: StreamId) -> Descending<'_> {
        let tail = self.tail.as_ref().filter(|block| block.base() <= to);
        Descending::new(self.sealed.range(..=to), tail, from, to)
    }

    /// Adds an entry that comes after all others.
    pub(super) fn append<'f>(
        &mut self,
        id: StreamId,
        fields: impl NewFields<'f>,
        limits: StreamLimits,
    ) {
        let entry_bytes = entry_bytes(fields.clone());
        self.len += 1;
        match &mut self.tail {
            Some(block) if block.fits(entry_bytes, limits) => {
                change(block, &mut self.block_bytes, |block| block.append(id, fields));
            }
            tail => {
                let full = tail.replace(Block::new(id, fields));
                self.block_bytes += tail.as_ref().map_or(0, Block::allocated_bytes);
                if let Some(block) = full {
                    self.seal(block);
                }
            }
        }
    }

    /// Adds an entry anywhere. `false` if one with this ID exists, which stays unchanged.
    pub(super) fn insert<'f>(
        &mut self,
        id: StreamId,
        fields: impl NewFields<'f>,
        limits: StreamLimits,
    ) -> bool {
        let Some(tail) = &mut self.tail else {
            self.append(id, fields, limits);
            return true;
        };
        if id > tail.last() {
            self.append(id, fields, limits);
            return true;
        }
        let account = &mut self.block_bytes;
        let inserted = if id >= tail.base() {
            let inserted = change(tail, account, |block| block.insert(id, fields));
            if tail.should_split(limits) {
                let half = split(tail, account);
                let first_half = std::mem::replace(tail, half);
                self.seal(first_half);
            }
            inserted
        } else {
            self.insert_sealed(id, fields, limits)
        };
        self.len += usize::from(inserted);
        inserted
    }

    fn insert_sealed<'f>(
        &mut self,
        id: StreamId,
        fields: impl NewFields<'f>,
        limits: StreamLimits,
    ) -> bool {
        let account = &mut self.block_bytes;
        let fits =
            |block: &Block| id <= block.last() || block.fits(entry_bytes(fields.clone()), limits);
        let block = self.sealed.range_mut(..=id).next_back().map(|(_, block)| block);
        let Some(block) = block.filter(|block| fits(block)) else {
            let mut block = Block::new(id, fields);
            block.seal();
            *account += block.allocated_bytes();
            self.sealed.insert(id, block);
            return true;
        };
        if id > block.last() {
            change(block, account, |block| block.append(id, fields));
            return true;
        }
        let inserted = change(block, account, |block| block.insert(id, fields));
        if block.should_split(limits) {
            let half = split(block, account);
            self.sealed.insert(half.base(), half);
        }
        inserted
    }

    /// Removes the last entry if it has this ID; `false` if it has another one.
    pub(super) fn withdraw(&mut self, id: StreamId) -> bool {
        let Some(tail) = &mut self.tail else { return false };
        match change(tail, &mut self.block_bytes, |block| block.withdraw(id)) {
            Deleted::Absent => return false,
            Deleted::Done => {}
            Deleted::Last => self.drop_block_of(id),
        }
        self.len -= 1;
        true
    }

    /// Removes an entry, after `visit` has seen it. Returns true if it existed.
    pub(super) fn remove(&mut self, id: StreamId, visit: impl FnOnce(&Entry<'_>)) -> bool {
        let account = &mut self.block_bytes;
        let in_tail = self.tail.as_mut().filter(|block| block.base() <= id);
        let deleted = match in_tail {
            Some(block) => change(block, account, |block| block.delete(id, visit)),
            None => match self.sealed.range_mut(..=id).next_back() {
                Some((_, block)) => change(block, account, |block| block.delete(id, visit)),
                None => Deleted::Absent,
            },
        };
        match deleted {
            Deleted::Absent => return false,
            Deleted::Done => {}
            Deleted::Last => self.drop_block_of(id),
        }
        self.len -= 1;
        true
    }

    /// Removes entries from the beginning.
    pub(super) fn trim(&mut self, trim: Trim) -> Trimmed {
        let mut trimmed = Trimmed::default();
        while let Some(block) = self.first_block() {
            if matches!(trim.keep, Keep::Newest(max) if self.len <= max) {
                break;
            }
            let live = block.live();
            if let TrimPrecision::Blocks { limit } = trim.precision
                && limit != 0
                && trimmed.count + live > limit
            {
                break;
            }
            let whole = match trim.keep {
                Keep::Newest(max) => self.len - live >= max,
                Keep::From(id) => block.last() < id,
            };
            if whole {
                let base = block.base();
                trimmed = Trimmed { count: trimmed.count + live, through: Some(block.last()) };
                self.len -= live;
                self.drop_block_of(base);
                continue;
            }
            if trim.precision == TrimPrecision::Exact {
                let (count, through) = self.trim_first_block(trim.keep);
                trimmed.count += count;
                trimmed.through = through.or(trimmed.through);
            }
            break;
        }
        trimmed
    }

    /// Returns the number of entries in the first blocks that are removed as a whole.
    pub(super) fn count_to_trim(&self, keep: Keep, limit: usize) -> usize {
        let mut count = 0;
        for block in self.sealed.values().chain(&self.tail) {
            let live = block.live();
            let goes = match keep {
                Keep::Newest(max) => {
                    let left = self.len - count;
                    left > max && left - live >= max
                }
                Keep::From(id) => block.last() < id,
            };
            if !goes || (limit != 0 && count + live > limit) {
                break;
            }
            count += live;
        }
        count
    }

    /// Removes the first entries of the first block.
    fn trim_first_block(&mut self, keep: Keep) -> (usize, Option<StreamId>) {
        let first = self.sealed.values_mut().next().or(self.tail.as_mut());
        let block = first.expect("there is one to trim");
        let mut len = self.len;
        let (count, through) = change(block, &mut self.block_bytes, |block| {
            block.delete_while(|id| {
                let goes = match keep {
                    Keep::Newest(max) => len > max,
                    Keep::From(first) => id < first,
                };
                len -= usize::from(goes);
                goes
            })
        });
        let (live, base) = (block.live(), block.base());
        self.len -= count;
        if live == 0 {
            // Only deleted entries would remain.
            self.drop_block_of(base);
        }
        (count, through)
    }

    /// Removes the block that contains or contained `id`.
    fn drop_block_of(&mut self, id: StreamId) {
        let dropped = if self.tail.as_ref().is_some_and(|block| block.base() <= id) {
            let last_sealed = self.sealed.pop_last().map(|(_, block)| block);
            std::mem::replace(&mut self.tail, last_sealed)
        } else {
            let base = self.sealed.range(..=id).next_back().map(|(base, _)| *base);
            base.and_then(|base| self.sealed.remove(&base))
        };
        self.block_bytes -= dropped.as_ref().map_or(0, Block::allocated_bytes);
    }

    fn seal(&mut self, mut block: Block) {
        change(&mut block, &mut self.block_bytes, Block::seal);
        self.sealed.insert(block.base(), block);
    }
}

/// Returns the size that Redis compares with the byte limit of a node.
fn entry_bytes<'f>(fields: impl NewFields<'f>) -> usize {
    fields.map(|(name, value)| name.len() + value.len()).sum()
}

fn change<T>(block: &mut Block, account: &mut usize, change: impl FnOnce(&mut Block) -> T) -> T {
    let before = block.allocated_bytes();
    let result = change(block);
    *account = *account - before + block.allocated_bytes();
    result
}

fn split(block: &mut Block, account: &mut usize) -> Block {
    let half = change(block, account, Block::split);
    *account += half.allocated_bytes();
    half
}
