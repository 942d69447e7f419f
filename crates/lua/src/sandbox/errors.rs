//! Errors of the sandbox.

use std::ffi::c_int;

use mlua_sys::{lua_State, lua_pushvalue, lua_replace, lua_tolstring, luaL_error};

use crate::values::bytes;

/// The `__index` of globals: reading a missing global is an error.
///
/// # Safety
///
/// Lua calls it.
pub(super) unsafe extern "C-unwind" fn nonexistent(state: *mut lua_State) -> c_int {
    // SAFETY: called with a table and a key; the message is put together by Lua, and nothing is owned here.
    unsafe {
        lua_pushvalue(state, 2);
        if bytes(state, -1).is_none() {
            return luaL_error(
                state,
                c"Second argument to luaProtectedTableError must be a string or number".as_ptr(),
            );
        }
        lua_replace(state, 2);
        let name = lua_tolstring(state, 2, std::ptr::null_mut());
        luaL_error(
            state,
            c"Script attempted to access nonexistent global variable '%s'".as_ptr(),
            name,
        )
    }
}

/// The `__newindex` of protected tables.
///
/// # Safety
///
/// Lua calls it.
pub(super) unsafe extern "C-unwind" fn readonly(state: *mut lua_State) -> c_int {
    // SAFETY: nothing is owned here.
    unsafe { luaL_error(state, c"Attempt to modify a readonly table".as_ptr()) }
}
