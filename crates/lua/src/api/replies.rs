//! `redis.error_reply`, `redis.status_reply` and `redis.sha1hex`.

use std::ffi::c_int;

use memchr::memchr;
use mlua_sys::{lua_State, lua_createtable, lua_gettop, lua_pushvalue, lua_setfield};

use crate::convert::trim_line_end;
use crate::memory::WORK_PER_LOOK;
use crate::sha1::sha1_in_pieces;
use crate::shared::{enter, leave, raise_stop, work};
use crate::values::{bytes, push_bytes, push_error, raise, string};

/// Returns the only argument, if it is a string.
unsafe fn only_string<'a>(state: *mut lua_State) -> Option<&'a [u8]> {
    // SAFETY: called by a function that Lua has called.
    unsafe { if lua_gettop(state) == 1 { string(state, 1) } else { None } }
}

pub(super) unsafe extern "C-unwind" fn error_reply(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua; what is owned is dropped before a stop is raised.
    unsafe {
        let Some(text) = only_string(state) else {
            push_error(state, b"ERR wrong number or type of arguments");
            return 1;
        };
        work(state, text.len());
        enter(state);
        push_error(state, &with_kind(text));
        if leave(state) {
            raise_stop(state);
        }
    }
    1
}

/// Returns the text of an error without a leading dash, and with a kind: `ERR` is added to a single word.
fn with_kind(text: &[u8]) -> Vec<u8> {
    let text = trim_lines(text.strip_prefix(b"-").unwrap_or(text));
    match memchr(b' ', text) {
        Some(space) => [&text[..=space], trim_lines(&text[space + 1..])].concat(),
        None => [b"ERR ", text].concat(),
    }
}

/// Trims line ends at both sides.
fn trim_lines(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(text.len());
    trim_line_end(&text[start..])
}

pub(super) unsafe extern "C-unwind" fn status_reply(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua.
    unsafe {
        if only_string(state).is_none() {
            push_error(state, b"ERR wrong number or type of arguments");
            return 1;
        }
        lua_createtable(state, 0, 1);
        lua_pushvalue(state, 1);
        lua_setfield(state, -2, c"ok".as_ptr());
    }
    1
}

pub(super) unsafe extern "C-unwind" fn sha1hex(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua.
    unsafe {
        if lua_gettop(state) != 1 {
            raise(state, b"ERR wrong number of arguments");
        }
        let text = bytes(state, 1).unwrap_or_default();
        let hash = sha1_in_pieces(text, WORK_PER_LOOK, |len| work(state, len));
        push_bytes(state, &hash.to_hex());
    }
    1
}
