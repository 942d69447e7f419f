//! Values on the stack of Lua: the few operations that all functions for scripts share.
//!
//! These functions call Lua, which may raise an error by a longjmp: their callers own nothing. Everything here needs
//! room on the stack; Lua guarantees twenty slots to functions that it calls.

use std::ffi::{CStr, c_int};
use std::slice;

use mlua_sys::{
    LUA_TSTRING, lua_CFunction, lua_State, lua_createtable, lua_error, lua_pushboolean,
    lua_pushcclosure, lua_pushlstring_, lua_rawset, lua_setfield, lua_tolstring, lua_type,
};

/// Pushes a string.
///
/// # Safety
///
/// See the head of this file.
#[inline]
pub(crate) unsafe fn push_bytes(state: *mut lua_State, bytes: &[u8]) {
    // SAFETY: the bytes are copied.
    unsafe { lua_pushlstring_(state, bytes.as_ptr().cast(), bytes.len()) };
}

/// Returns the bytes of the string or number at `index`, which becomes a string; `None` for other types. They live as
/// long as the value is on the stack.
///
/// # Safety
///
/// See the head of this file.
#[inline]
pub(crate) unsafe fn bytes<'a>(state: *mut lua_State, index: c_int) -> Option<&'a [u8]> {
    let mut len = 0;
    // SAFETY: Lua returns the address and length of its string.
    unsafe {
        let start = lua_tolstring(state, index, &mut len);
        (!start.is_null()).then(|| slice::from_raw_parts(start.cast(), len))
    }
}

/// Returns the bytes of the string at `index`; `None` for other types.
///
/// # Safety
///
/// See the head of this file.
#[inline]
pub(crate) unsafe fn string<'a>(state: *mut lua_State, index: c_int) -> Option<&'a [u8]> {
    // SAFETY: the index is the caller's.
    unsafe { if lua_type(state, index) == LUA_TSTRING { bytes(state, index) } else { None } }
}

/// Sets a field of the table on top of the stack to a function.
///
/// # Safety
///
/// See the head of this file.
pub(crate) unsafe fn set_function(state: *mut lua_State, name: &CStr, function: lua_CFunction) {
    // SAFETY: there is a table on top.
    unsafe {
        lua_pushcclosure(state, function, 0);
        lua_setfield(state, -2, name.as_ptr());
    }
}

/// Pushes an error in the form for scripts: a table with the text in the field `err`. The kind comes first; texts
/// without one get the kind `ERR`.
///
/// # Safety
///
/// See the head of this file.
pub(crate) unsafe fn push_error(state: *mut lua_State, text: &[u8]) {
    // SAFETY: a table and two values are pushed, and the values taken.
    unsafe {
        lua_createtable(state, 0, 4);
        push_bytes(state, b"err");
        push_bytes(state, text);
        lua_rawset(state, -3);
    }
}

/// Marks the error on top of the stack as one that statistics have counted.
///
/// # Safety
///
/// See the head of this file.
pub(crate) unsafe fn mark_counted(state: *mut lua_State) {
    // SAFETY: the table is on top.
    unsafe {
        push_bytes(state, b"ignore_error_stats_update");
        lua_pushboolean(state, 1);
        lua_rawset(state, -3);
    }
}

/// Raises an error of the API.
///
/// # Safety
///
/// See the head of this file.
pub(crate) unsafe fn raise(state: *mut lua_State, text: &[u8]) -> ! {
    // SAFETY: the error is on top.
    unsafe {
        push_error(state, text);
        lua_error(state)
    }
}
