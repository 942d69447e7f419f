//! `load` and `loadstring`, which compile text only: bytecode from string.dump could crash the machine.
//!
//! Lua's parser trusts its caller in two ways. Its counters are 32 bits wide, so the length of a source is limited
//! here. And it keeps the name of a chunk where the collector does not see it, so the name is kept on the stack.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use mlua_sys::{
    LUA_SIGNATURE, LUA_TFUNCTION, LUA_TNIL, lua_Reader, lua_State, lua_call, lua_insert,
    lua_isstring, lua_load, lua_pop, lua_pushnil, lua_pushstring_, lua_pushvalue, lua_remove,
    lua_replace, lua_settop, lua_tolstring, lua_type, luaL_checklstring, luaL_checkstack_,
    luaL_checktype, luaL_error, luaL_optlstring,
};

use crate::shared::{is_stopped, raise_stop, runs, work};
use crate::values::set_function;

/// Maximum length of a source in bytes: that of the longest value. The lexer counts the levels of a long bracket in an
/// `int`, and subtracts twice their number from the length of a token, so both have to fit.
const SOURCE_LEN_MAX: usize = 512 * 1024 * 1024;
const _: () = assert!(2 * (2 + SOURCE_LEN_MAX) < i32::MAX as usize);

/// Bytes passed to the parser at a time: it looks between two pieces.
const PIECE_LEN: usize = 16 * 1024;

/// Work for each byte of source, in bytes read or written.
const WORK_PER_BYTE: usize = 8;

/// Replaces functions of the globals on top of the stack.
///
/// # Safety
///
/// See [`values`](crate::values).
pub(super) unsafe fn replace(state: *mut lua_State) {
    // SAFETY: the globals stay on top.
    unsafe {
        set_function(state, c"load", load);
        set_function(state, c"loadstring", loadstring);
    }
}

/// Source text to be compiled, in pieces.
struct Source {
    /// True if a space must be read first: it makes Lua take text that looks like compiled code for text.
    has_space: bool,
    text: *const c_char,
    /// Bytes from `text` on.
    len: usize,
    /// Number of bytes read so far.
    read: usize,
}

/// Compiles a text. Pushes the function, or the error, and returns the status.
///
/// # Safety
///
/// See [`values`](crate::values). The text and the name are alive.
pub(crate) unsafe fn compile(state: *mut lua_State, text: &[u8], name: *const c_char) -> c_int {
    let has_space = text.first() == LUA_SIGNATURE.first();
    let mut source = Source { has_space, text: text.as_ptr().cast(), len: text.len(), read: 0 };
    // SAFETY: the source is alive until the end of the call.
    unsafe { parse(state, read_source, &mut source, name) }
}

/// Runs Lua's parser, with the name of the chunk on the stack: the parser creates the same string, which is at first
/// not reachable for the collector.
unsafe fn parse(
    state: *mut lua_State,
    reader: lua_Reader,
    source: &mut Source,
    name: *const c_char,
) -> c_int {
    // SAFETY: the caller keeps name and source; the result is above the name.
    unsafe {
        lua_pushstring_(state, name);
        let status = lua_load(state, reader, ptr::from_mut(source).cast(), name);
        runs(state);
        lua_remove(state, -2);
        status
    }
}

/// Reads the next piece of the text. Called in the protected call of the parser, as [`read_piece`].
unsafe extern "C-unwind" fn read_source(
    state: *mut lua_State,
    source: *mut c_void,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: `compile` passes its source, Lua an address for the length.
    unsafe {
        let source = &mut *source.cast::<Source>();
        if source.has_space {
            source.has_space = false;
            *len = 1;
            return c" ".as_ptr();
        }
        let piece = source.text;
        *len = source.len.min(PIECE_LEN);
        source.text = piece.add(*len);
        source.len -= *len;
        count(state, source, *len);
        piece
    }
}

/// Counts bytes that are about to be parsed, as work and towards the limit.
unsafe fn count(state: *mut lua_State, source: &mut Source, len: usize) {
    source.read = source.read.saturating_add(len);
    // SAFETY: in the protected call of the parser; nothing is owned here.
    unsafe {
        if source.read > SOURCE_LEN_MAX {
            luaL_error(state, c"source too large".as_ptr());
        }
        work(state, len.saturating_mul(WORK_PER_BYTE));
    }
}

/// Returns the results of `load` and `loadstring` for this status of compiling, which has caught errors of the reader
/// and of memory. A stop is raised again.
unsafe fn results(state: *mut lua_State, status: c_int) -> c_int {
    if status == 0 {
        return 1;
    }
    // SAFETY: the error is on top; nothing is owned here.
    unsafe {
        if is_stopped(state) {
            raise_stop(state);
        }
        lua_pushnil(state);
        lua_insert(state, -2);
    }
    2
}

unsafe extern "C-unwind" fn loadstring(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua; the text is on the stack.
    unsafe {
        let mut len = 0;
        let text = luaL_checklstring(state, 1, &mut len);
        let name = luaL_optlstring(state, 2, text, ptr::null_mut());
        let status = compile(state, std::slice::from_raw_parts(text.cast(), len), name);
        results(state, status)
    }
}

unsafe extern "C-unwind" fn load(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua; the third slot of the stack keeps the piece that is being read.
    unsafe {
        let name = luaL_optlstring(state, 2, c"=(load)".as_ptr(), ptr::null_mut());
        luaL_checktype(state, 1, LUA_TFUNCTION);
        lua_settop(state, 3);
        let mut source = Source { has_space: true, text: ptr::null(), len: 0, read: 0 };
        let status = parse(state, read_piece, &mut source, name);
        results(state, status)
    }
}

unsafe extern "C-unwind" fn read_piece(
    state: *mut lua_State,
    source: *mut c_void,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: `load` passes its source, and has the function and a slot for the piece on the stack.
    unsafe {
        let source = &mut *source.cast::<Source>();
        if source.has_space {
            source.has_space = false;
            *len = 1;
            return c" ".as_ptr();
        }
        if source.len == 0 {
            read_string(state, source);
        }
        read_source(state, ptr::from_mut(source).cast(), len)
    }
}

/// Calls the script's function for the next string, which the third slot of the stack keeps. If there is none, the
/// source is at its end.
unsafe fn read_string(state: *mut lua_State, source: &mut Source) {
    // SAFETY: in the protected call of the parser; nothing is owned here.
    unsafe {
        luaL_checkstack_(state, 2, c"too many nested functions".as_ptr());
        lua_pushvalue(state, 1);
        lua_call(state, 0, 1);
        if lua_type(state, -1) == LUA_TNIL {
            lua_pop(state, 1);
            return;
        }
        if lua_isstring(state, -1) == 0 {
            luaL_error(state, c"reader function must return a string".as_ptr());
        }
        lua_replace(state, 3);
        source.text = lua_tolstring(state, 3, &mut source.len);
    }
}
