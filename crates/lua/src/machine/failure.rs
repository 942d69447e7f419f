//! Errors of scripts, from their origin to the text for the client.

use std::ffi::{CStr, c_int};
use std::mem;

use mlua_sys::{
    LUA_TBOOLEAN, LUA_TNIL, LUA_TTABLE, lua_Debug, lua_State, lua_concat, lua_createtable,
    lua_getinfo, lua_getstack, lua_insert, lua_isstring, lua_pop, lua_pushfstring, lua_pushnumber,
    lua_pushstring_, lua_pushvalue, lua_rawget_, lua_rawset, lua_setfield, lua_settop,
    lua_toboolean, lua_topointer, lua_type, lua_typename,
};

use crate::convert::trim_line_end;
use crate::sandbox::is_protected;
use crate::shared::{enter, is_stopped, leave};
use crate::values::{bytes, push_bytes};

/// The error that a script failed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The text for the client: kind first, no `-`, no line breaks.
    pub text: Vec<u8>,
    /// True if statistics must count it. An error of `redis.call` is counted already.
    pub is_counted: bool,
    /// True if the reply would be nested too deep.
    pub is_too_deep: bool,
}

impl Failure {
    pub(super) fn new(text: impl AsRef<[u8]>) -> Failure {
        let mut text = trim_line_end(text.as_ref()).to_vec();
        for byte in &mut text {
            if matches!(*byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        Failure { text, is_counted: true, is_too_deep: false }
    }
}

/// The error handler, called at the origin of an error: makes a table of the error with its line.
///
/// # Safety
///
/// Lua calls it with the error.
pub(super) unsafe extern "C-unwind" fn on_error(state: *mut lua_State) -> c_int {
    // SAFETY: nothing is owned here. The record is filled by Lua before it is read.
    unsafe {
        if is_stopped(state) {
            return 1;
        }
        let mut location: lua_Debug = mem::zeroed();
        let mut is_known = find_location(state, 1, &mut location);
        if is_known && CStr::from_ptr(location.what) == c"C" {
            // In Redis, a function that was not called by Lua code, except the one that begins executions, has no
            // caller.
            let is_called = lua_getstack(state, 3, &mut location) != 0;
            is_known = find_location(state, 2, &mut location)
                && (is_called || CStr::from_ptr(location.what) != c"C");
        }
        lua_settop(state, 1);
        if lua_type(state, 1) != LUA_TTABLE || is_protected(state, 1) {
            make_table(state);
        }
        if is_known {
            lua_pushstring_(state, c"source".as_ptr());
            lua_pushstring_(state, location.source);
            lua_rawset(state, -3);
            lua_pushstring_(state, c"line".as_ptr());
            lua_pushnumber(state, f64::from(location.currentline));
            lua_rawset(state, -3);
        }
    }
    1
}

unsafe fn find_location(state: *mut lua_State, level: c_int, location: &mut lua_Debug) -> bool {
    // SAFETY: called by `on_error`.
    unsafe {
        lua_getstack(state, level, location) != 0
            && lua_getinfo(state, c"Sl".as_ptr(), location) != 0
    }
}

/// Replaces the error on top, which is not a table, by a table with its text.
unsafe fn make_table(state: *mut lua_State) {
    // SAFETY: called by `on_error`.
    unsafe {
        push_bytes(state, b"ERR ");
        push_text(state);
        lua_concat(state, 2);
        lua_createtable(state, 0, 4);
        lua_insert(state, -2);
        lua_setfield(state, -2, c"err".as_ptr());
    }
}

/// Pushes the text of the value at index 1, as `tostring` gives it.
unsafe fn push_text(state: *mut lua_State) {
    // SAFETY: called by `make_table`.
    unsafe {
        match lua_type(state, 1) {
            _ if lua_isstring(state, 1) != 0 => lua_pushvalue(state, 1),
            LUA_TNIL => push_bytes(state, b"nil"),
            LUA_TBOOLEAN if lua_toboolean(state, 1) != 0 => push_bytes(state, b"true"),
            LUA_TBOOLEAN => push_bytes(state, b"false"),
            kind => {
                let name = lua_typename(state, kind);
                lua_pushfstring(state, c"%s: %p".as_ptr(), name, lua_topointer(state, 1));
            }
        }
    }
}

/// Returns the failure for the error on top of the stack, which stays there.
pub(super) fn of_execution(state: *mut lua_State, name: &[u8]) -> Failure {
    enter(state);
    // SAFETY: the error is on top, and no memory is limited meanwhile.
    let failure = unsafe {
        match (lua_type(state, -1), bytes(state, -1)) {
            (LUA_TTABLE, _) => of_table(state, name),
            (_, text) => {
                let text = text.unwrap_or(b"execution failure");
                Failure::new([b"ERR Error running script ", name, b", ", text].concat())
            }
        }
    };
    let _ = leave(state);
    failure
}

unsafe fn of_table(state: *mut lua_State, name: &[u8]) -> Failure {
    // SAFETY: called by `of_execution`.
    unsafe {
        let mut text = field(state, c"err").unwrap_or_else(|| b"ERR unknown error".to_vec());
        if let (Some(source), Some(line)) = (field(state, c"source"), field(state, c"line")) {
            for part in [&b" script: "[..], name, b", on ", &source, b":", &line, b"."] {
                text.extend_from_slice(part);
            }
        }
        let mut failure = Failure::new(text);
        lua_pushstring_(state, c"ignore_error_stats_update".as_ptr());
        lua_rawget_(state, -2);
        failure.is_counted = lua_toboolean(state, -1) == 0;
        lua_pop(state, 1);
        failure
    }
}

/// Returns the text in a field of the table on top.
unsafe fn field(state: *mut lua_State, name: &CStr) -> Option<Vec<u8>> {
    // SAFETY: the value is pushed and taken.
    unsafe {
        lua_pushstring_(state, name.as_ptr());
        lua_rawget_(state, -2);
        let text = bytes(state, -1).map(<[u8]>::to_vec);
        lua_pop(state, 1);
        text
    }
}

/// Returns the text of the error on top of the stack, kind first; pops the error.
pub(super) fn take_text(state: *mut lua_State) -> Vec<u8> {
    enter(state);
    // SAFETY: the error is on top, and no memory is limited meanwhile.
    let text = unsafe {
        let text = match (lua_type(state, -1), bytes(state, -1)) {
            (LUA_TTABLE, _) => {
                field(state, c"err").unwrap_or_else(|| b"ERR unknown error".to_vec())
            }
            (_, text) => [b"ERR ", text.unwrap_or(b"unknown error")].concat(),
        };
        lua_pop(state, 1);
        text
    };
    let _ = leave(state);
    text
}
