//! Keeps the first block of a large list small while elements come and go there.
//!
//! Inserting or removing at the beginning of a block moves the rest of it: kilobytes for each push or pop of a stack
//! or queue. So the first block is kept small: many of its elements move into the next block at once, or it is split
//! off from the next one. At the end of a list nothing moves, so none of this is needed.

use super::nodes::{BLOCK_FRAME, Nodes};
use crate::limits::ListLimits;
use crate::packed::{Element, Packed};

/// Maximum bytes of elements in the first block. Moving that much per element costs less than the rest of a command,
/// and kilobytes move only once in some dozens of commands.
const HEAD_BYTES_MAX: usize = 512 - BLOCK_FRAME;

/// Longer elements are put in any block with room: few of them fit in a block of any size.
const ELEMENT_LEN_MAX: usize = HEAD_BYTES_MAX / 4;

impl Nodes {
    /// Inserts an element at the beginning.
    #[inline]
    pub(super) fn push_front(&mut self, element: Element<'_>, limits: ListLimits) {
        if !has_head(limits) || element.len() > ELEMENT_LEN_MAX {
            self.put(0, element, limits);
        } else if !self.push_within_head(element, limits) {
            self.push_new_head(element, limits);
        }
    }

    #[inline]
    fn push_within_head(&mut self, element: Element<'_>, limits: ListLimits) -> bool {
        let Some(head) = self.first() else { return false };
        self.change(head, |block| {
            block.len() < limits.entries_max
                && block.insert_within(block.start(), element, HEAD_BYTES_MAX)
        })
    }

    #[cold]
    fn push_new_head(&mut self, element: Element<'_>, limits: ListLimits) {
        self.pass_head_on(limits);
        let mut block = Packed::with_capacity(HEAD_BYTES_MAX);
        block.push_front(element);
        self.insert_first(block);
    }

    /// Moves elements of the first block into the next one, as many as fit there.
    fn pass_head_on(&mut self, limits: ListLimits) {
        let Some(head) = self.first() else { return };
        let Some(next) = self.next(head) else { return };
        let (block, behind) = (self.block(head), self.block(next));
        let bytes_max = limits.bytes_max.saturating_sub(BLOCK_FRAME + behind.bytes_len());
        let count_max = limits.entries_max.saturating_sub(behind.len());
        let (mut from, mut count) = (block.start(), block.len());
        while count > count_max || block.bytes_from(from) > bytes_max {
            from = block.next(from);
            count -= 1;
        }
        if count == block.len() {
            let passed = self.take_first();
            let next = self.first().expect("there was a next one");
            self.change(next, |behind| behind.insert_all(behind.start(), &passed));
        } else if count > 0 {
            let passed = self.change(head, |block| block.split_off(from));
            self.change(next, |behind| behind.insert_all(behind.start(), &passed));
        }
    }

    /// Splits the first block if it is large, before an element is taken from its beginning.
    #[inline]
    pub(super) fn shorten_head(&mut self, limits: ListLimits) {
        if let Some(head) = self.first()
            && has_head(limits)
            && self.block(head).bytes_len() > 2 * HEAD_BYTES_MAX
        {
            self.cut_head();
        }
    }

    #[cold]
    fn cut_head(&mut self) {
        let Some(head) = self.first() else { return };
        let block = self.block(head);
        let (mut at, end) = (block.start(), block.end());
        while block.bytes_len() - block.bytes_from(at) < HEAD_BYTES_MAX {
            at = block.next(at);
        }
        if at < end {
            let cut = self.change(head, |block| block.split_front(at));
            self.insert_first(cut);
        }
    }
}

/// Returns true if blocks are large enough to be worth a small one before them.
#[inline]
fn has_head(limits: ListLimits) -> bool {
    limits.bytes_max >= 4 * HEAD_BYTES_MAX
}
