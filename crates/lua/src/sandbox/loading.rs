//! `load` and `loadstring`, which compile text only: what string.dump returns could crash the machine.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use mlua_sys::{
    LUA_SIGNATURE, LUA_TFUNCTION, LUA_TNIL, lua_State, lua_call, lua_insert, lua_isstring,
    lua_load, lua_pop, lua_pushnil, lua_pushvalue, lua_replace, lua_settop, lua_tolstring,
    lua_type, luaL_checklstring, luaL_checkstack_, luaL_checktype, luaL_error, luaL_optlstring,
};

use crate::machine::{is_stopped, raise_stop};
use crate::values::set_function;

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

/// A text to be compiled, in at most two pieces.
struct Source {
    /// Whether a space is still to be read before: it makes Lua take what looks like compiled code for text.
    has_space: bool,
    text: *const c_char,
    len: usize,
}

/// Compiles a text. Pushes the function, or the error, and returns the status.
///
/// # Safety
///
/// See [`values`](crate::values). The text and the name are alive.
pub(crate) unsafe fn compile(state: *mut lua_State, text: &[u8], name: *const c_char) -> c_int {
    let has_space = text.first() == LUA_SIGNATURE.first();
    let mut source = Source { has_space, text: text.as_ptr().cast(), len: text.len() };
    // SAFETY: the source is alive until the end of the call.
    unsafe { lua_load(state, read_source, ptr::from_mut(&mut source).cast(), name) }
}

unsafe extern "C-unwind" fn read_source(
    _: *mut lua_State,
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
        *len = source.len;
        source.len = 0;
        source.text
    }
}

/// What `load` and `loadstring` return after this status of compiling, which has caught errors of the reader and of
/// memory: a stop goes on.
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
    // SAFETY: called by Lua; the third place of the stack keeps the piece that is being read.
    unsafe {
        let name = luaL_optlstring(state, 2, c"=(load)".as_ptr(), ptr::null_mut());
        luaL_checktype(state, 1, LUA_TFUNCTION);
        lua_settop(state, 3);
        let mut is_first = true;
        let status = lua_load(state, read_pieces, ptr::from_mut(&mut is_first).cast(), name);
        results(state, status)
    }
}

unsafe extern "C-unwind" fn read_pieces(
    state: *mut lua_State,
    is_first: *mut c_void,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: `load` passes its flag, and has the function and a place for the piece on the stack.
    unsafe {
        let is_first = &mut *is_first.cast::<bool>();
        if *is_first {
            *is_first = false;
            *len = 1;
            return c" ".as_ptr();
        }
        luaL_checkstack_(state, 2, c"too many nested functions".as_ptr());
        lua_pushvalue(state, 1);
        lua_call(state, 0, 1);
        if lua_type(state, -1) == LUA_TNIL {
            lua_pop(state, 1);
            *len = 0;
            return ptr::null();
        }
        if lua_isstring(state, -1) == 0 {
            luaL_error(state, c"reader function must return a string".as_ptr());
        }
        lua_replace(state, 3);
        lua_tolstring(state, 3, len)
    }
}
