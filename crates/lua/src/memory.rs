//! The memory of a machine, as its allocator counts it, and the resulting time of the next check ("look").

use std::ffi::c_int;

/// Instructions of the virtual machine between two calls of [`Host::look`](crate::Host::look). While there are large
/// strings or tables it is called more often, since one instruction may process a whole string or table.
pub const INSTRUCTIONS_PER_LOOK: u32 = 10_000;

/// Work of native code between two looks, in bytes read or written: some hundred microseconds. Allocations count as
/// work, since hardly any function takes long without allocating.
pub(crate) const WORK_PER_LOOK: usize = 256 * 1024;

/// Upper bound of the bytes that instructions may process between two looks: some tenths of a second at most. One
/// instruction compares, joins or converts whole strings, and no look can interrupt it.
const INSTRUCTION_BYTES_PER_LOOK: usize = 512 * 1024 * 1024;

/// Blocks up to this size are small: `INSTRUCTIONS_PER_LOOK` of them are within the bytes for one look.
const SMALL_MAX: usize = 32 * 1024;
const _: () = assert!(SMALL_MAX * INSTRUCTIONS_PER_LOOK as usize <= INSTRUCTION_BYTES_PER_LOOK);

/// Number of powers of two above [`SMALL_MAX`], up to the address space.
const CLASSES: usize = (usize::BITS - SMALL_MAX.ilog2()) as usize;

/// Number of blocks that are not small, per power of two that bounds their size.
#[derive(Debug)]
struct LargeBlocks([u32; CLASSES]);

impl LargeBlocks {
    /// Returns the class of a block that is not small: its size is at most `SMALL_MAX << (class + 1)`.
    fn class(size: usize) -> usize {
        ((size - 1) / SMALL_MAX).ilog2() as usize
    }

    /// Notes that a block has changed its size; 0 is none.
    fn resize(&mut self, old_size: usize, new_size: usize) {
        if old_size > SMALL_MAX {
            self.0[Self::class(old_size)] -= 1;
        }
        if new_size > SMALL_MAX {
            self.0[Self::class(new_size)] += 1;
        }
    }

    /// Returns the instructions between two looks. Every string is in one block, so none is longer than the largest
    /// block.
    fn instructions_per_look(&self) -> c_int {
        let Some(class) = self.0.iter().rposition(|count| *count > 0) else {
            return INSTRUCTIONS_PER_LOOK as c_int;
        };
        let largest = SMALL_MAX.saturating_mul(2).saturating_mul(1 << class.min(40));
        (INSTRUCTION_BYTES_PER_LOOK / largest).max(1) as c_int
    }
}

/// Allocated memory of a machine, and its limit.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Bytes in use.
    pub(crate) used: usize,
    /// Bytes beyond which allocations fail.
    pub(crate) limit: usize,
    /// Number of running native functions whose allocations do not fail.
    pub(crate) natives: u32,
    /// True if one of them exceeded the limit, or found the script stopped.
    pub(crate) exceeded: bool,
    /// Instructions between two looks.
    pub(crate) instructions_per_look: c_int,
    large: LargeBlocks,
    /// Work since the last look that was due because of it, in bytes.
    work: usize,
}

impl Memory {
    pub(crate) fn new() -> Memory {
        Memory {
            used: 0,
            limit: usize::MAX,
            natives: 0,
            exceeded: false,
            instructions_per_look: INSTRUCTIONS_PER_LOOK as c_int,
            large: LargeBlocks([0; CLASSES]),
            work: 0,
        }
    }

    /// Notes that a block has changed its size; 0 is none. `true` if looks must come sooner from now on.
    #[inline]
    pub(crate) fn resize(&mut self, old_size: usize, new_size: usize) -> bool {
        self.used = self.used - old_size + new_size;
        old_size.max(new_size) > SMALL_MAX && self.resize_large(old_size, new_size)
    }

    #[cold]
    fn resize_large(&mut self, old_size: usize, new_size: usize) -> bool {
        let before = self.instructions_per_look;
        self.large.resize(old_size, new_size);
        self.instructions_per_look = self.large.instructions_per_look();
        self.instructions_per_look < before
    }

    /// Counts work; `true` if a look is due.
    #[inline]
    pub(crate) fn count_work(&mut self, bytes: usize) -> bool {
        self.work = self.work.saturating_add(bytes);
        let is_due = self.work >= WORK_PER_LOOK;
        if is_due {
            self.work = 0;
        }
        is_due
    }
}
