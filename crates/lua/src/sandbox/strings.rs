//! Functions of `string` that may run long without a call of the hook. `string.rep` has a limit, too: the function of
//! Lua loops for the whole count, even over an empty string.

use std::ffi::c_int;

use mlua_sys::{
    lua_State, lua_objlen, lua_upvalueindex, luaL_checkinteger, luaL_checklstring, luaL_error,
};

use super::original::{call_original, wrap_function};
use crate::shared::{Shared, enter, leave, raise_stop, work};
use crate::values::{push_bytes, set_function};

/// Maximum length of a string of copies, in bytes: that of the longest value.
const REPEATED_LEN_MAX: usize = 512 * 1024 * 1024;

/// Replaces a function of the table `string` on top of the stack.
///
/// # Safety
///
/// See [`values`](crate::values).
pub(super) unsafe fn replace(state: *mut lua_State) {
    // SAFETY: the table stays on top.
    unsafe {
        set_function(state, c"rep", rep);
        for name in [c"format", c"lower", c"reverse", c"sub", c"upper"] {
            wrap_function(state, name, make);
        }
    }
}

/// Wraps functions of Lua that create a string. A string that already exists is not allocated, so it would not count.
unsafe extern "C-unwind" fn make(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua; the string is on top, and nothing is owned here.
    unsafe {
        let count = call_original(state, lua_upvalueindex(1));
        work(state, lua_objlen(state, -1));
        count
    }
}

unsafe extern "C-unwind" fn rep(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua, with the arguments checked first. The copies are owned between `enter` and `leave` only.
    unsafe {
        let mut len = 0;
        let text = luaL_checklstring(state, 1, &mut len);
        // C's `int`, as in Lua.
        let count = (luaL_checkinteger(state, 2) as i32).max(0) as usize;
        let total = len.saturating_mul(count);
        if total > REPEATED_LEN_MAX {
            return luaL_error(state, c"resulting string too large".as_ptr());
        }
        work(state, total);
        enter(state);
        let memory = &mut Shared::of(state).memory;
        memory.exceeded |= memory.used.saturating_add(total) > memory.limit;
        if !memory.exceeded {
            let text: &[u8] = std::slice::from_raw_parts(text.cast(), len);
            let copies = if total == 0 { Vec::new() } else { text.repeat(count) };
            push_bytes(state, &copies);
        }
        if leave(state) {
            raise_stop(state);
        }
        1
    }
}
