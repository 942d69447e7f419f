//! Functions of Lua that are written in Rust, without a wrapper around each call.
//!
//! A function gets a [`Stack`], whose first values are its arguments, pushes its results, and returns their number.
//! Errors are strings with the position of the caller before them, as scripts expect them.
//!
//! **Invariant:** a native function, and everything it calls, owns nothing that has a destructor while it uses its
//! stack. Lua raises errors by `longjmp` (when memory is exhausted, when a called function fails, when the hook ends
//! the script), and a jump may only skip frames that have nothing to do at their end. Growing memory is in a
//! [`Buffer`], which belongs to the collector of the state, and so counts against its limit.
//!
//! **Invariant:** a function that pushes more than 20 values (`LUA_MINSTACK`) first reserves room
//! ([`Stack::reserve`]).

mod buffer;
mod error;
mod list;

use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::{ptr, slice};

use mlua_sys as ffi;

pub use buffer::Buffer;
pub use error::{Error, Outcome, truncate};
pub use list::List;

/// Steps of a library function between two calls of the hook: some tens of microseconds.
pub const STEPS_PER_LOOK: u32 = 10_000;

/// Type of a value on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// There is no value at that index.
    None,
    /// `nil`.
    Nil,
    /// `true` or `false`.
    Boolean,
    /// A pointer without an owner, as `cjson.null` is.
    LightUserdata,
    /// A double.
    Number,
    /// Bytes.
    String,
    /// A table.
    Table,
    /// A function of either language.
    Function,
    /// An object of the host.
    Userdata,
    /// A coroutine.
    Thread,
}

impl Type {
    fn of(code: c_int) -> Self {
        match code {
            ffi::LUA_TNIL => Self::Nil,
            ffi::LUA_TBOOLEAN => Self::Boolean,
            ffi::LUA_TLIGHTUSERDATA => Self::LightUserdata,
            ffi::LUA_TNUMBER => Self::Number,
            ffi::LUA_TSTRING => Self::String,
            ffi::LUA_TTABLE => Self::Table,
            ffi::LUA_TFUNCTION => Self::Function,
            ffi::LUA_TUSERDATA => Self::Userdata,
            ffi::LUA_TTHREAD => Self::Thread,
            _ => Self::None,
        }
    }

    /// Returns the name that Lua's `type` gives.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "no value",
            Self::Nil => "nil",
            Self::Boolean => "boolean",
            Self::LightUserdata | Self::Userdata => "userdata",
            Self::Number => "number",
            Self::String => "string",
            Self::Table => "table",
            Self::Function => "function",
            Self::Thread => "thread",
        }
    }
}

/// Returns the index of the `n`-th upvalue of a function, counted from 1.
pub const fn upvalue(n: c_int) -> c_int {
    ffi::lua_upvalueindex(n)
}

/// The values of the running function: arguments from 1 on, then the values it has pushed. Negative indices count from
/// the top. It is valid during one call.
#[derive(Clone, Copy)]
pub struct Stack<'call> {
    state: *mut ffi::lua_State,
    call: PhantomData<&'call ()>,
}

impl<'call> Stack<'call> {
    /// Returns the stack of a running function.
    ///
    /// # Safety
    ///
    /// `state` runs a native function now, and no frame between Lua and the caller owns anything that has a
    /// destructor, for as long as the stack is used.
    pub unsafe fn new(state: *mut ffi::lua_State) -> Self {
        Self { state, call: PhantomData }
    }

    /// Returns the index of the last value.
    pub fn top(self) -> c_int {
        // SAFETY: `state` is alive for the call; reading the height changes nothing.
        unsafe { ffi::lua_gettop(self.state) }
    }

    /// Truncates the stack to `top` values, or fills it with nils.
    pub fn set_top(self, top: c_int) {
        // SAFETY: callers truncate, or fill within the slots that they reserved.
        unsafe { ffi::lua_settop(self.state, top) }
    }

    /// Removes the last `count` values.
    pub fn pop(self, count: c_int) {
        self.set_top(-count - 1);
    }

    /// Returns true if there is room for `count` more values now: a function has at most 8,000.
    #[must_use]
    pub fn reserve(self, count: c_int) -> bool {
        // SAFETY: it may raise an error of memory, which skips frames without destructors only.
        unsafe { ffi::lua_checkstack(self.state, count) != 0 }
    }

    /// As [`Stack::reserve`], with Lua's error if there is no room.
    pub fn reserve_or(self, count: c_int, message: &str) -> Outcome<()> {
        if self.reserve(count) {
            return Ok(());
        }
        Err(self.error(format_args!("stack overflow ({message})")))
    }

    /// Returns the type of the value at `index`.
    pub fn kind(self, index: c_int) -> Type {
        // SAFETY: any index is valid here.
        Type::of(unsafe { ffi::lua_type(self.state, index) })
    }

    /// Returns true if the value at `index` is a number, or a string that reads as one.
    pub fn is_number(self, index: c_int) -> bool {
        // SAFETY: as above.
        unsafe { ffi::lua_isnumber(self.state, index) != 0 }
    }

    /// Returns true if the value counts as true: neither nil nor false.
    pub fn truth(self, index: c_int) -> bool {
        // SAFETY: as above.
        unsafe { ffi::lua_toboolean(self.state, index) != 0 }
    }

    /// Returns the number at `index`; 0 if it is not a number.
    pub fn number(self, index: c_int) -> f64 {
        // SAFETY: as above.
        unsafe { ffi::lua_tonumber(self.state, index) }
    }

    /// Returns the pointer of a light userdata, or of a block of the state.
    pub fn pointer(self, index: c_int) -> *mut c_void {
        // SAFETY: as above.
        unsafe { ffi::lua_touserdata(self.state, index) }
    }

    /// Returns the bytes of a string, or of a number, which becomes a string on the stack. `None` for anything else.
    ///
    /// The bytes are valid as long as the value is on the stack or in a table that does not change: callers do not use
    /// them after they have removed it.
    pub fn bytes(self, index: c_int) -> Option<&'call [u8]> {
        let mut len = 0;
        // SAFETY: a string of Lua never moves, and the collector keeps it while it is referenced. `len` is its length.
        unsafe {
            let start = ffi::lua_tolstring(self.state, index, &raw mut len);
            if start.is_null() { None } else { Some(slice::from_raw_parts(start.cast(), len)) }
        }
    }

    /// Pushes nil.
    pub fn push_nil(self) {
        // SAFETY: callers stay within their slots, here and in all functions that push.
        unsafe { ffi::lua_pushnil(self.state) }
    }

    /// Pushes a boolean.
    pub fn push_boolean(self, value: bool) {
        // SAFETY: see `push_nil`.
        unsafe { ffi::lua_pushboolean(self.state, c_int::from(value)) }
    }

    /// Pushes a number.
    pub fn push_number(self, value: f64) {
        // SAFETY: see `push_nil`.
        unsafe { ffi::lua_pushnumber(self.state, value) }
    }

    /// Pushes an integer, which Lua keeps as a double.
    pub fn push_integer(self, value: i64) {
        self.push_number(value as f64);
    }

    /// Pushes a string.
    pub fn push_bytes(self, bytes: &[u8]) {
        // SAFETY: see `push_nil`; Lua copies the bytes.
        unsafe { ffi::lua_pushlstring_(self.state, bytes.as_ptr().cast(), bytes.len()) }
    }

    /// Pushes the null pointer, which stands for JSON's null.
    pub fn push_null(self) {
        // SAFETY: see `push_nil`.
        unsafe { ffi::lua_pushlightuserdata(self.state, ptr::null_mut()) }
    }

    /// Pushes a copy of the value at `index`.
    pub fn push_copy(self, index: c_int) {
        // SAFETY: see `push_nil`.
        unsafe { ffi::lua_pushvalue(self.state, index) }
    }

    /// Pushes an empty table with room for this many elements and fields.
    pub fn push_table(self, elements: usize, fields: usize) {
        let room = |count: usize| c_int::try_from(count).unwrap_or(0);
        // SAFETY: see `push_nil`.
        unsafe { ffi::lua_createtable(self.state, room(elements), room(fields)) }
    }

    /// Moves the last value to `index`, and those from there on up by one.
    pub fn insert(self, index: c_int) {
        // SAFETY: callers pass an index that exists.
        unsafe { ffi::lua_insert(self.state, index) }
    }

    /// Pops the last value and stores it at `index`.
    pub fn replace(self, index: c_int) {
        // SAFETY: callers pass an index that exists.
        unsafe { ffi::lua_replace(self.state, index) }
    }

    /// Pops a key and pushes the next key of the table at `index` with its value; pushes nothing at its end.
    ///
    /// Callers begin with nil, pass on keys of that same table, and do not change it meanwhile.
    pub fn next(self, index: c_int) -> bool {
        // SAFETY: callers check that it is a table.
        unsafe { ffi::lua_next(self.state, index) != 0 }
    }

    /// Pushes element `n` of the table at `index`, without metamethods.
    pub fn raw_get_element(self, index: c_int, n: c_int) {
        // SAFETY: callers check that it is a table.
        unsafe { ffi::lua_rawgeti_(self.state, index, n) }
    }

    /// Pops a value and makes it element `n` of the table at `index`, without metamethods.
    pub fn raw_set_element(self, index: c_int, n: c_int) {
        // SAFETY: callers have made the table.
        unsafe { ffi::lua_rawseti_(self.state, index, n) }
    }

    /// Pops a value and, below it, its key, and puts both into the table at `index`, without metamethods.
    /// The key is neither nil nor NaN, which would raise Lua's error.
    pub fn raw_set(self, index: c_int) {
        // SAFETY: callers have made the table.
        unsafe { ffi::lua_rawset(self.state, index) }
    }

    /// Replaces the key on top by its value in the table at `index`, with metamethods, which may run any code.
    pub fn get(self, index: c_int) {
        // SAFETY: errors of metamethods skip frames without destructors.
        unsafe { ffi::lua_gettable_(self.state, index) }
    }

    /// Calls the function below its `arguments` last values, and leaves one result instead of them. Its errors are
    /// not caught here.
    pub fn call(self, arguments: c_int) {
        // SAFETY: an error skips frames without destructors.
        unsafe { ffi::lua_call(self.state, arguments, 1) }
    }

    /// Pushes a native function with the last `upvalues` values as its upvalues, which it pops.
    pub fn push_function<F>(self, function: F, upvalues: c_int)
    where
        F: Fn(Stack<'_>) -> Outcome<c_int> + Copy,
    {
        // SAFETY: see `push_nil`.
        unsafe { ffi::lua_pushcclosure(self.state, self::function(function), upvalues) }
    }

    /// Pops a value and stores it in the table at `index` as field `name`.
    pub fn set_field(self, index: c_int, name: &CStr) {
        // SAFETY: callers have made the table, which has no metatable.
        unsafe { ffi::lua_setfield(self.state, index, name.as_ptr()) }
    }

    /// Pushes a block of memory that the collector owns, with a copy of `value` in it. See [`Stack::block`].
    pub fn push_block<T: Copy>(self, value: T) {
        const { assert!(align_of::<T>() <= 8) };
        // SAFETY: the block has the size of `T`, and Lua aligns blocks to 8 bytes.
        unsafe { ffi::lua_newuserdata(self.state, size_of::<T>()).cast::<T>().write(value) }
    }

    /// Returns the block at `index`.
    ///
    /// # Safety
    ///
    /// The value at `index` was pushed by [`Stack::push_block`] with the same `T`, and no other reference to its
    /// content is alive.
    pub unsafe fn block<T: Copy>(self, index: c_int) -> &'call mut T {
        // SAFETY: the caller guarantees that it is a `T`; blocks never move, and this one is referenced from the
        // stack.
        unsafe { &mut *self.pointer(index).cast::<T>() }
    }

    /// Calls the hook that counts instructions, as if that many had been executed: it ends scripts that are killed, or
    /// over a limit, and does not return then.
    pub fn look(self) {
        // SAFETY: the hook gets the same as from Lua: the state and an event. Its error skips frames without
        // destructors. A `lua_Debug` of zeros is valid: it has numbers and pointers only.
        unsafe {
            if let Some(hook) = ffi::lua_gethook(self.state) {
                let mut event: ffi::lua_Debug = std::mem::zeroed();
                event.event = ffi::LUA_HOOKCOUNT;
                event.currentline = -1;
                hook(self.state, &raw mut event);
            }
        }
    }
}

/// Counter of a library function's steps, which calls the hook at intervals.
#[derive(Clone, Copy)]
pub struct Steps {
    left: u32,
}

impl Steps {
    /// Creates a counter at zero.
    pub fn new() -> Self {
        Self { left: STEPS_PER_LOOK }
    }

    /// Counts `steps` more, and calls the hook if it is due.
    pub fn take(&mut self, stack: Stack<'_>, steps: u32) {
        if steps < self.left {
            self.left -= steps;
        } else {
            self.left = STEPS_PER_LOOK;
            stack.look();
        }
    }
}

/// Converts a function of Rust, or a closure without captures, to a function of Lua.
pub fn function<F>(_: F) -> ffi::lua_CFunction
where
    F: Fn(Stack<'_>) -> Outcome<c_int> + Copy,
{
    const { assert!(size_of::<F>() == 0, "a function without captures") };
    unsafe extern "C-unwind" fn enter<F>(state: *mut ffi::lua_State) -> c_int
    where
        F: Fn(Stack<'_>) -> Outcome<c_int> + Copy,
    {
        // SAFETY: `F` has no content, and a value of it existed when `function` was called, so reading it again
        // from anywhere is a copy. `state` runs this function.
        let (function, stack) =
            unsafe { (ptr::NonNull::<F>::dangling().read(), Stack::new(state)) };
        match function(stack) {
            Ok(results) => results,
            // SAFETY: this frame owns nothing.
            Err(error) => unsafe { error.raise(state) },
        }
    }
    enter::<F>
}

/// Adds a native function to the table on top.
pub fn add<F>(stack: Stack<'_>, name: &CStr, function: F)
where
    F: Fn(Stack<'_>) -> Outcome<c_int> + Copy,
{
    stack.push_function(function, 0);
    stack.set_field(-2, name);
}
