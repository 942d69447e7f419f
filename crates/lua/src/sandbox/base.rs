//! `pcall` and `xpcall`, which do not catch a stop.

use std::ffi::c_int;

use mlua_sys::{
    LUA_MULTRET, LUA_TTABLE, lua_State, lua_call, lua_getfield_, lua_gettop, lua_insert,
    lua_isstring, lua_pcall, lua_pushboolean, lua_pushcclosure, lua_pushvalue, lua_remove,
    lua_replace, lua_settop, lua_type, lua_upvalueindex, luaL_checkany,
};

use crate::shared::{is_stopped, raise_stop, runs};
use crate::values::{push_bytes, set_function};

/// Replaces functions of the globals on top of the stack.
///
/// # Safety
///
/// See [`values`](crate::values).
pub(super) unsafe fn replace(state: *mut lua_State) {
    // SAFETY: the globals stay on top.
    unsafe {
        set_function(state, c"pcall", pcall);
        set_function(state, c"xpcall", xpcall);
    }
}

unsafe extern "C-unwind" fn pcall(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua; nothing is owned here.
    unsafe {
        let count = lua_gettop(state);
        if count == 0 {
            lua_pushboolean(state, 0);
            push_bytes(state, b"attempt to call a boolean value");
            return 2;
        }
        lua_pushboolean(state, 1);
        lua_insert(state, 1);
        if lua_pcall(state, count - 1, LUA_MULTRET, 0) != 0 {
            runs(state);
            if is_stopped(state) {
                raise_stop(state);
            }
            lua_remove(state, 1);
            reduce_error(state);
            lua_pushboolean(state, 0);
            lua_insert(state, 1);
        }
        lua_gettop(state)
    }
}

/// Replaces an error with the field `err` by that field, as scripts for Redis 6 expect it. For other tables the field,
/// which is nil, stays after the error, as in Redis 7.
unsafe fn reduce_error(state: *mut lua_State) {
    // SAFETY: the error is on top.
    unsafe {
        if lua_type(state, -1) == LUA_TTABLE {
            lua_getfield_(state, -1, c"err".as_ptr());
            if lua_isstring(state, -1) != 0 {
                lua_replace(state, -2);
            }
        }
    }
}

unsafe extern "C-unwind" fn xpcall(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua; nothing is owned here.
    unsafe {
        luaL_checkany(state, 2);
        lua_settop(state, 2);
        lua_pushcclosure(state, handle, 1);
        lua_insert(state, 1);
        let failed = lua_pcall(state, 0, LUA_MULTRET, 1) != 0;
        runs(state);
        if failed && is_stopped(state) {
            raise_stop(state);
        }
        lua_pushboolean(state, c_int::from(!failed));
        lua_replace(state, 1);
        lua_gettop(state)
    }
}

/// Calls the script's error handler, its upvalue, but not for a stop: the hook raises stops, and no hook is called
/// while one runs, so the handler could not be stopped.
unsafe extern "C-unwind" fn handle(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua with the error; nothing is owned here.
    unsafe {
        if !is_stopped(state) {
            lua_pushvalue(state, lua_upvalueindex(1));
            lua_insert(state, 1);
            lua_call(state, 1, 1);
        }
    }
    1
}
