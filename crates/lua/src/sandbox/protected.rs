//! Tables that scripts cannot change, and the functions that access the tables behind them.

use std::ffi::c_int;

use mlua_sys::{
    LUA_TNIL, LUA_TNONE, LUA_TTABLE, lua_State, lua_createtable, lua_error, lua_getfield_,
    lua_getmetatable, lua_insert, lua_next, lua_pop, lua_pushcclosure, lua_pushnil, lua_pushvalue,
    lua_rawget_, lua_rawset, lua_remove, lua_replace, lua_setfield, lua_setmetatable, lua_settop,
    lua_topointer, lua_type, luaL_argerror, luaL_checkany, luaL_checktype, luaL_error,
    luaL_getmetafield_,
};

use super::errors;
use crate::shared::Shared;
use crate::values::{push_bytes, set_function};

/// Replaces the table on top of the stack by its proxy.
///
/// # Safety
///
/// See [`values`](crate::values).
pub(super) unsafe fn make_proxy(state: *mut lua_State) {
    // SAFETY: the table is taken into the metatable, and the proxy left.
    unsafe {
        lua_createtable(state, 0, 3);
        lua_insert(state, -2);
        lua_setfield(state, -2, c"__index".as_ptr());
        set_function(state, c"__newindex", errors::readonly);
        Shared::of(state).protected.push(lua_topointer(state, -1));
        lua_createtable(state, 0, 0);
        lua_insert(state, -2);
        lua_setmetatable(state, -2);
    }
}

/// Returns true if the value at `index` is a proxy.
///
/// # Safety
///
/// See [`values`](crate::values).
#[inline]
pub(crate) unsafe fn is_protected(state: *mut lua_State, index: c_int) -> bool {
    // SAFETY: the metatable is pushed and taken.
    unsafe {
        if lua_getmetatable(state, index) == 0 {
            return false;
        }
        let metatable = lua_topointer(state, -1);
        lua_pop(state, 1);
        Shared::of(state).protected.contains(&metatable)
    }
}

/// Replaces the proxy at `index`, if it is one, by the table behind it.
///
/// # Safety
///
/// See [`values`](crate::values). The table must not become reachable for a script.
pub(super) unsafe fn unwrap(state: *mut lua_State, index: c_int) {
    // SAFETY: two values are pushed and taken.
    unsafe {
        if is_protected(state, index) {
            lua_getmetatable(state, index);
            lua_getfield_(state, -1, c"__index".as_ptr());
            lua_replace(state, index);
            lua_pop(state, 1);
        }
    }
}

/// Raises the error for writing to a proxy at `index`, if it is one. The error of functions has no
/// position.
///
/// # Safety
///
/// See [`values`](crate::values).
pub(super) unsafe fn check_writable(state: *mut lua_State, index: c_int) {
    // SAFETY: nothing is owned here.
    unsafe {
        if is_protected(state, index) {
            push_bytes(state, b"Attempt to modify a readonly table");
            lua_error(state);
        }
    }
}

/// Replaces functions of the globals on top of the stack.
///
/// # Safety
///
/// See [`values`](crate::values).
pub(super) unsafe fn replace(state: *mut lua_State) {
    // SAFETY: the globals stay on top.
    unsafe {
        // The function of Lua is faster, and correct for tables that are not protected.
        lua_getfield_(state, -1, c"next".as_ptr());
        lua_pushcclosure(state, next, 0);
        lua_pushvalue(state, -1);
        lua_setfield(state, -4, c"next".as_ptr());
        lua_pushcclosure(state, pairs, 2);
        lua_setfield(state, -2, c"pairs".as_ptr());
        set_function(state, c"rawget", rawget);
        set_function(state, c"rawset", rawset);
        set_function(state, c"getmetatable", getmetatable);
        set_function(state, c"setmetatable", setmetatable);
    }
}

unsafe extern "C-unwind" fn next(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua, with the arguments checked first.
    unsafe {
        luaL_checktype(state, 1, LUA_TTABLE);
        lua_settop(state, 2);
        unwrap(state, 1);
        if lua_next(state, 1) != 0 {
            return 2;
        }
        lua_pushnil(state);
        1
    }
}

unsafe extern "C-unwind" fn pairs(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua, with the argument checked first; both functions are upvalues.
    unsafe {
        luaL_checktype(state, 1, LUA_TTABLE);
        let next = if is_protected(state, 1) { 2 } else { 1 };
        lua_pushvalue(state, mlua_sys::lua_upvalueindex(next));
        lua_pushvalue(state, 1);
        lua_pushnil(state);
        3
    }
}

unsafe extern "C-unwind" fn rawget(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua, with the arguments checked first.
    unsafe {
        luaL_checktype(state, 1, LUA_TTABLE);
        luaL_checkany(state, 2);
        lua_settop(state, 2);
        unwrap(state, 1);
        lua_rawget_(state, 1);
        1
    }
}

unsafe extern "C-unwind" fn rawset(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua, with the arguments checked first.
    unsafe {
        luaL_checktype(state, 1, LUA_TTABLE);
        luaL_checkany(state, 2);
        luaL_checkany(state, 3);
        lua_settop(state, 3);
        check_writable(state, 1);
        lua_rawset(state, 1);
        1
    }
}

unsafe extern "C-unwind" fn getmetatable(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua, with the argument checked first.
    unsafe {
        luaL_checkany(state, 1);
        if lua_getmetatable(state, 1) == 0 {
            lua_pushnil(state);
            return 1;
        }
        if luaL_getmetafield_(state, 1, c"__metatable".as_ptr()) != 0 {
            lua_remove(state, -2);
        } else if is_protected(state, 1) {
            lua_pushnil(state);
        }
        1
    }
}

unsafe extern "C-unwind" fn setmetatable(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua, with the arguments checked first.
    unsafe {
        let kind = lua_type(state, 2);
        luaL_checktype(state, 1, LUA_TTABLE);
        if !matches!(kind, LUA_TNIL | LUA_TTABLE) || kind == LUA_TNONE {
            return luaL_argerror(state, 2, c"nil or table expected".as_ptr());
        }
        check_writable(state, 1);
        if luaL_getmetafield_(state, 1, c"__metatable".as_ptr()) != 0 {
            return luaL_error(state, c"cannot change a protected metatable".as_ptr());
        }
        lua_settop(state, 2);
        lua_setmetatable(state, 1);
        1
    }
}
