//! The memory of a machine: counted, and limited while a script runs.
//!
//! Lua reports a failed allocation by a long jump, which must not cross a Rust frame that owns something. So what is
//! written in Rust and owns memory does its work between [`enter`] and [`leave`]: there, the limit does not make
//! allocations fail, but is noted, and the function raises the stop when it has dropped what it owned.

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::ffi::{c_int, c_void};
use std::ptr;

use mlua_sys::lua_State;

use super::INSTRUCTIONS_PER_LOOK;
use super::shared::Shared;
use crate::host::Stop;

/// What every type of Lua is content with: doubles and pointers.
const ALIGN: usize = 8;

/// Work of native code between two looks, in bytes that it reads or writes: some hundred microseconds. What is
/// allocated counts, for there is hardly a function that takes long without allocating.
pub(crate) const WORK_PER_LOOK: usize = 256 * 1024;

/// Bytes that instructions may go through between two looks: some tenths of a second at most. One instruction compares,
/// joins or converts whole strings, and no look can interrupt it.
const INSTRUCTION_BYTES_PER_LOOK: usize = 512 * 1024 * 1024;

/// Blocks up to this size are small: `INSTRUCTIONS_PER_LOOK` of them are within the bytes for one look.
const SMALL_MAX: usize = 32 * 1024;
const _: () = assert!(SMALL_MAX * INSTRUCTIONS_PER_LOOK as usize <= INSTRUCTION_BYTES_PER_LOOK);

/// Powers of two above [`SMALL_MAX`], up to what can be addressed.
const CLASSES: usize = (usize::BITS - SMALL_MAX.ilog2()) as usize;

/// Blocks that are not small, counted by the power of two that they are not larger than.
#[derive(Debug)]
struct LargeBlocks([u32; CLASSES]);

impl LargeBlocks {
    /// The class of a block that is not small: its size is at most `SMALL_MAX << (class + 1)`.
    fn class(size: usize) -> usize {
        ((size - 1) / SMALL_MAX).ilog2() as usize
    }

    /// A block has got another size; 0 is none.
    fn resize(&mut self, old_size: usize, new_size: usize) {
        if old_size > SMALL_MAX {
            self.0[Self::class(old_size)] -= 1;
        }
        if new_size > SMALL_MAX {
            self.0[Self::class(new_size)] += 1;
        }
    }

    /// Instructions between two looks. Every string is in one block, so none is longer than the largest block.
    fn instructions_per_look(&self) -> c_int {
        let Some(class) = self.0.iter().rposition(|count| *count > 0) else {
            return INSTRUCTIONS_PER_LOOK as c_int;
        };
        let largest = SMALL_MAX.saturating_mul(2).saturating_mul(1 << class.min(40));
        (INSTRUCTION_BYTES_PER_LOOK / largest).max(1) as c_int
    }
}

/// What a machine has allocated, and may.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Bytes in use.
    pub(crate) used: usize,
    /// Bytes beyond which allocations fail.
    pub(crate) limit: usize,
    /// How many native functions are being executed whose allocations do not fail.
    pub(crate) natives: u32,
    /// Whether one of them went beyond the limit, or found the script stopped.
    pub(crate) exceeded: bool,
    /// Instructions between two looks.
    pub(super) instructions_per_look: c_int,
    large: LargeBlocks,
    /// Work since the last look that was due for it, in bytes.
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

    /// A block has got another size; 0 is none. `true` if looks are to come sooner from now on.
    #[inline]
    fn resize(&mut self, old_size: usize, new_size: usize) -> bool {
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
    pub(super) fn count_work(&mut self, bytes: usize) -> bool {
        self.work = self.work.saturating_add(bytes);
        let is_due = self.work >= WORK_PER_LOOK;
        if is_due {
            self.work = 0;
        }
        is_due
    }
}

/// Begins code that owns memory: until [`leave`], allocations of the machine do not fail.
pub(crate) fn enter(state: *mut lua_State) {
    Shared::of(state).memory.natives += 1;
}

/// Ends it. `true` if it went beyond the limit: the caller drops what it owns and raises the stop.
#[must_use]
pub(crate) fn leave(state: *mut lua_State) -> bool {
    let shared = Shared::of(state);
    shared.memory.natives -= 1;
    let exceeded = shared.memory.exceeded && shared.memory.natives == 0;
    if exceeded {
        shared.memory.exceeded = false;
        shared.stop.get_or_insert(Stop::MemoryLimit);
    }
    exceeded
}

/// The allocator of a machine.
///
/// # Safety
///
/// `shared` points to the [`Shared`] of the machine, and the block is one of its own, with its size.
pub(super) unsafe extern "C" fn allocate(
    shared: *mut c_void,
    block: *mut c_void,
    old_size: usize,
    new_size: usize,
) -> *mut c_void {
    let shared = shared.cast::<Shared>();
    // SAFETY: as below; the reference ends here.
    if new_size > old_size && unsafe { (*shared).is_stopped_by(new_size) } {
        return ptr::null_mut();
    }
    // SAFETY: it is alive as long as its machine, and nothing refers to its memory across a call of Lua.
    let memory = unsafe { &mut (*shared).memory };
    // SAFETY: the sizes are those that the block was requested with, which were valid then.
    let layout = |size| unsafe { Layout::from_size_align_unchecked(size, ALIGN) };
    if new_size == 0 {
        if !block.is_null() {
            memory.resize(old_size, 0);
            // SAFETY: allocated below with this layout.
            unsafe { dealloc(block.cast(), layout(old_size)) };
        }
        return ptr::null_mut();
    }
    let used = memory.used - old_size + new_size;
    if used > memory.limit && new_size > old_size {
        memory.exceeded = true;
        if memory.natives == 0 {
            // SAFETY: as above.
            unsafe { (*shared).stop.get_or_insert(Stop::MemoryLimit) };
            return ptr::null_mut();
        }
    }
    if Layout::from_size_align(new_size, ALIGN).is_err() {
        return ptr::null_mut();
    }
    // SAFETY: a size above zero, and the block was allocated here with its old size.
    let new = unsafe {
        match block.is_null() {
            true => alloc(layout(new_size)),
            false => realloc(block.cast(), layout(old_size), new_size),
        }
    };
    if !new.is_null() && memory.resize(old_size, new_size) {
        // SAFETY: as above; setting a hook needs no memory.
        unsafe { (*shared).look_sooner() };
    }
    new.cast()
}
