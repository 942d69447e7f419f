//! State shared by a machine and the functions that scripts call: looks, stops, and memory that is limited while a
//! script runs.
//!
//! Lua reports a failed allocation by a longjmp, which must not cross a Rust frame that owns something. So Rust code
//! that owns memory does its work between [`enter`] and [`leave`]. There, exceeding the limit does not make
//! allocations fail, but is noted, and the function raises the stop after it has dropped its values.

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::time::Instant;

use mlua_sys::{
    LUA_GCSTEP, LUA_MASKCOUNT, lua_Debug, lua_State, lua_error, lua_gc, lua_getallocf,
    lua_gethookcount, lua_pushlightuserdata, lua_sethook,
};
use tierce_wire::resp::Proto;

use crate::host::{Host, Stop};
use crate::memory::Memory;
use crate::program::{Call, Function};
use crate::random::Random;

/// Alignment that suffices for every type of Lua: doubles and pointers.
const ALIGN: usize = 8;

/// Lengths that mean that there are no tables to reuse.
pub(crate) const NO_ARGUMENTS: [usize; 2] = [usize::MAX; 2];

/// Maximum capacity of the reply buffer that is kept for the next reply.
const REPLY_KEPT_BYTES: usize = 1024 * 1024;

/// Kilobytes of a collection between two looks: some hundred microseconds.
pub(crate) const COLLECTED_PER_LOOK: c_int = 256;

/// State shared by a machine and the functions that scripts call. The allocator of the Lua state points to it.
pub(crate) struct Shared {
    pub(crate) memory: Memory,
    /// The running coroutine, which counts its own instructions. Null before the machine is open.
    ///
    /// **Invariant:** it is alive: every function that catches an error or resumes sets it, before anything is
    /// collected.
    running: *mut lua_State,
    /// Memory above which the hook collects garbage, so that garbage does not count against the limit.
    pub(crate) collect_above: usize,
    /// Reason for ending the script; set until the end of the execution.
    pub(crate) stop: Option<Stop>,
    /// Set during an execution.
    pub(crate) host: Option<NonNull<dyn Host>>,
    /// The protocol of replies to `redis.call`.
    pub(crate) proto: Proto,
    /// The current call, and the destination of its reply.
    pub(crate) call: *const Call<'static>,
    pub(crate) out: *mut Vec<u8>,
    /// Numbers of keys and arguments in the tables of the latest script, and number of executions that used these
    /// tables.
    pub(crate) argument_lens: [usize; 2],
    pub(crate) argument_uses: u32,
    /// `true` if the reply is an error.
    pub(crate) is_error: bool,
    /// True if the reply would be nested too deep.
    pub(crate) is_too_deep: bool,
    /// The reply to the latest `redis.call`, and its arguments.
    pub(crate) reply: Vec<u8>,
    pub(crate) args: Vec<&'static [u8]>,
    /// Generator of `math.random`.
    pub(crate) random: Random,
    /// The library being loaded.
    pub(crate) loading: Option<Loading>,
    pub(crate) load_end: Option<Instant>,
    /// Metatables of protected tables.
    pub(crate) protected: Vec<*const c_void>,
    /// True if the script has changed the collector's settings.
    pub(crate) collector_changed: bool,
}

impl Shared {
    pub(crate) fn new() -> Shared {
        Shared {
            memory: Memory::new(),
            running: ptr::null_mut(),
            collect_above: usize::MAX,
            stop: None,
            host: None,
            proto: Proto::Resp2,
            call: ptr::null(),
            out: ptr::null_mut(),
            argument_lens: NO_ARGUMENTS,
            argument_uses: 0,
            is_error: false,
            is_too_deep: false,
            reply: Vec::new(),
            args: Vec::new(),
            random: Random::default(),
            loading: None,
            load_end: None,
            protected: Vec::new(),
            collector_changed: false,
        }
    }

    /// Returns the shared state of the machine that `state` belongs to, which may be a coroutine.
    ///
    /// The reference must end before the next call of Lua that may run other functions of this crate.
    #[inline]
    pub(crate) fn of<'a>(state: *mut lua_State) -> &'a mut Shared {
        let mut shared = ptr::null_mut();
        // SAFETY: every state is created with the allocator that has a `Shared` for its data. No two references are
        // used at a time, since a machine belongs to one thread and functions end theirs before they call.
        unsafe {
            lua_getallocf(state, &mut shared);
            &mut *shared.cast::<Shared>()
        }
    }

    /// Returns the host, during an execution.
    #[inline]
    pub(crate) fn host(&mut self) -> Option<&mut dyn Host> {
        // SAFETY: set during an execution from a reference that outlives it.
        self.host.map(|host| unsafe { &mut *host.as_ptr() })
    }

    /// Counts an allocation as work. `true` if a look was due and found the script stopped, and the allocation may
    /// fail.
    #[inline]
    fn is_stopped_by(&mut self, allocated: usize) -> bool {
        if !self.memory.count_work(allocated) || self.look().is_ok() {
            return false;
        }
        self.memory.exceeded = true;
        self.memory.natives == 0
    }

    /// Makes the next look come as soon as the largest block requires.
    fn look_sooner(&mut self) {
        let count = self.memory.instructions_per_look;
        // SAFETY: null, or alive by the invariant of the field.
        unsafe {
            if !self.running.is_null() && lua_gethookcount(self.running) != count {
                lua_sethook(self.running, Some(hook), LUA_MASKCOUNT, count);
            }
        }
    }

    /// Frees the buffer of an unusually large reply.
    pub(crate) fn drop_large_reply(&mut self) {
        if self.reply.capacity() > REPLY_KEPT_BYTES {
            self.reply = Vec::new();
        }
    }

    /// Asks the host if the script may go on.
    pub(crate) fn look(&mut self) -> Result<(), Stopped> {
        if self.stop.is_none() {
            self.stop = match (self.load_end, self.host()) {
                (Some(end), _) if Instant::now() >= end => Some(Stop::TimeLimit),
                (_, Some(host)) => host.look().err(),
                (_, None) => None,
            };
        }
        match self.stop {
            Some(_) => Err(Stopped),
            None => Ok(()),
        }
    }
}

/// The execution is being stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopped;

/// Notes that `state` runs from now on: the machine itself or one of its coroutines.
pub(crate) fn runs(state: *mut lua_State) {
    let shared = Shared::of(state);
    shared.running = state;
    shared.look_sooner();
}

/// Asks the host if the script may go on. Long native code must call it every few thousand steps.
pub(crate) fn look(state: *mut lua_State) -> Result<(), Stopped> {
    Shared::of(state).look()
}

/// Makes the host count an error in the reply.
pub(crate) fn count_error(state: *mut lua_State, error: &[u8]) {
    if let Some(host) = Shared::of(state).host() {
        host.count_error(error);
    }
}

/// Counts work of native code, in bytes read or written, and raises the stop if a look is due and finds one. Must be
/// called before work that may be long, since the hook only counts instructions of the virtual machine.
///
/// # Safety
///
/// No frame between here and the protected call owns anything.
#[inline]
pub(crate) unsafe fn work(state: *mut lua_State, bytes: usize) {
    let shared = Shared::of(state);
    if shared.memory.count_work(bytes) && shared.look().is_err() {
        // SAFETY: as the caller guarantees.
        unsafe { raise_stop(state) };
    }
}

/// Collects all garbage. Every [`COLLECTED_PER_LOOK`] kilobytes may raise the stop.
///
/// # Safety
///
/// No frame between here and the protected call owns anything.
pub(crate) unsafe fn collect(state: *mut lua_State) {
    // A running cycle may miss garbage that appeared since it began.
    const CYCLES: usize = 2;
    for _ in 0..CYCLES {
        // SAFETY: as the caller guarantees.
        while !unsafe { collect_some(state, COLLECTED_PER_LOOK) } {}
    }
}

/// Continues a cycle of the collector for some kilobytes. `true` at its end.
///
/// # Safety
///
/// No frame between here and the protected call owns anything.
pub(crate) unsafe fn collect_some(state: *mut lua_State, kilobytes: c_int) -> bool {
    // SAFETY: as the caller guarantees.
    unsafe {
        work(state, kilobytes.max(1) as usize * 1024);
        lua_gc(state, LUA_GCSTEP, kilobytes) != 0
    }
}

/// Returns true if the execution is being stopped. Must be checked after a protected call has failed.
#[inline]
pub(crate) fn is_stopped(state: *mut lua_State) -> bool {
    Shared::of(state).stop.is_some()
}

/// Raises the error that ends the script.
///
/// # Safety
///
/// No frame between here and the protected call owns anything.
pub(crate) unsafe fn raise_stop(state: *mut lua_State) -> ! {
    // SAFETY: functions that Lua calls have room for some values; this one needs no memory.
    unsafe {
        lua_pushlightuserdata(state, ptr::null_mut());
        lua_error(state)
    }
}

/// The hook of all coroutines, called every [`INSTRUCTIONS_PER_LOOK`](crate::INSTRUCTIONS_PER_LOOK) instructions, and
/// more often while there are large blocks.
///
/// # Safety
///
/// Lua calls it.
unsafe extern "C-unwind" fn hook(state: *mut lua_State, _: *mut lua_Debug) {
    runs(state);
    if look(state).is_err() {
        // SAFETY: no frame of this crate above the virtual machine owns anything.
        unsafe { raise_stop(state) };
    }
    let shared = Shared::of(state);
    if shared.memory.used > shared.collect_above {
        // SAFETY: a collection may happen at any allocation, and nothing is owned here.
        unsafe { collect(state) };
        let shared = Shared::of(state);
        // Half of the remaining memory: a script that really needs its memory is not collected again and again.
        let (used, limit) = (shared.memory.used, shared.memory.limit);
        shared.collect_above = used + limit.saturating_sub(used) / 2;
    }
}

/// Begins code that owns memory: until [`leave`], allocations of the machine do not fail.
pub(crate) fn enter(state: *mut lua_State) {
    Shared::of(state).memory.natives += 1;
}

/// Ends code that owns memory. `true` if it exceeded the limit: the caller drops its values and raises the stop.
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

/// Allocates, resizes and frees the memory of a machine.
///
/// # Safety
///
/// `shared` points to the [`Shared`] of the machine, and the block is one of its own, with its size.
pub(crate) unsafe extern "C" fn allocate(
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
    // SAFETY: it is alive as long as its machine, and no reference to its memory is kept across a call of Lua.
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

/// A library that is being loaded.
#[derive(Default)]
pub(crate) struct Loading {
    /// Registered functions, with references to the callbacks.
    pub(crate) functions: Vec<(Function, c_int)>,
}
