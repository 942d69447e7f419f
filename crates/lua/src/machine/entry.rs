//! The functions that begin executions. Everything that may raise an error happens inside of them, in one protected
//! call: they push the arguments, call the program, and write its reply.

use std::ffi::c_int;
use std::mem;

use mlua_sys::{
    LUA_REGISTRYINDEX, lua_State, lua_call, lua_createtable, lua_getmetatable, lua_next, lua_pop,
    lua_pushcclosure, lua_pushnil, lua_pushvalue, lua_rawgeti_, lua_rawset, lua_rawseti_,
    lua_replace, lua_setfield, lua_settop, lua_setupvalue, lua_upvalueindex,
};

use super::failure;
use crate::convert::{Unwritable, write_reply};
use crate::host::Stop;
use crate::sandbox::Globals;
use crate::shared::{NO_ARGUMENTS, Shared, raise_stop};
use crate::values::{push_bytes, raise};

/// Stack positions of a machine's error handler, and of the two functions that begin executions.
pub(super) const ON_ERROR: c_int = 1;
pub(super) const RUN_SCRIPT: c_int = 2;
pub(super) const RUN_FUNCTION: c_int = 3;

/// Upvalues of the function that runs scripts: globals, the names `KEYS` and `ARGV`, and the tables.
const GLOBALS: c_int = 1;
const NAMES: c_int = 2;
const TABLES: c_int = 4;

/// Maximum number of arguments in reused tables; longer lists get a table of their own.
const REUSED_LEN_MAX: usize = 32;

/// Number of scripts that share the tables: slots that a script added and emptied again slow down iteration in the
/// following scripts.
const USES_MAX: u32 = 64;

/// Pushes the functions that a machine keeps on its stack.
///
/// # Safety
///
/// The stack is empty.
pub(super) unsafe fn push_functions(state: *mut lua_State, globals: Option<Globals>) {
    let Some(globals) = globals else { return };
    // SAFETY: the reference is that of a table; the names are kept as upvalues, so they need not be looked up for each
    // execution.
    unsafe {
        lua_pushcclosure(state, failure::on_error, 0);
        lua_rawgeti_(state, LUA_REGISTRYINDEX, globals.behind_scripts);
        push_bytes(state, b"KEYS");
        push_bytes(state, b"ARGV");
        lua_pushnil(state);
        lua_pushnil(state);
        lua_pushcclosure(state, run_script, 5);
        lua_pushcclosure(state, run_function, 0);
    }
}

/// Drops the arguments of the latest script.
///
/// # Safety
///
/// Outside of an execution.
pub(super) unsafe fn clear_arguments(state: *mut lua_State, globals: c_int) {
    Shared::of(state).argument_lens = NO_ARGUMENTS;
    // SAFETY: the names are interned, and fields of the table are only set to nil, so no memory is needed.
    unsafe {
        lua_rawgeti_(state, LUA_REGISTRYINDEX, globals);
        for (name, location) in [(c"KEYS", 0), (c"ARGV", 1)] {
            lua_pushnil(state);
            lua_setupvalue(state, RUN_SCRIPT, TABLES + location);
            lua_pushnil(state);
            lua_setfield(state, -2, name.as_ptr());
        }
        lua_pop(state, 1);
    }
}

/// Called with the compiled script.
unsafe extern "C-unwind" fn run_script(state: *mut lua_State) -> c_int {
    let shared = Shared::of(state);
    // SAFETY: `Machine::execute` has set the call; upvalues are as in `push_functions`.
    unsafe {
        let call = &*shared.call;
        // If filling fails, the tables are not reused.
        let mut lens = mem::replace(&mut shared.argument_lens, NO_ARGUMENTS);
        shared.argument_uses += 1;
        if shared.argument_uses == USES_MAX {
            shared.argument_uses = 0;
            lens = NO_ARGUMENTS;
        }
        for (location, texts, last_len) in [(0, call.keys, lens[0]), (1, call.args, lens[1])] {
            if !fill_again(state, lua_upvalueindex(TABLES + location), texts, last_len) {
                lua_pushvalue(state, lua_upvalueindex(NAMES + location));
                push_array(state, texts);
                lua_pushvalue(state, -1);
                lua_replace(state, lua_upvalueindex(TABLES + location));
                lua_rawset(state, lua_upvalueindex(GLOBALS));
            }
            lua_settop(state, 1);
        }
        Shared::of(state).argument_lens = [call.keys.len(), call.args.len()];
        lua_call(state, 0, 1);
        write(state);
    }
    0
}

/// Fills a table of the last script's arguments with those of the next one. That script cannot have kept a reference,
/// since it cannot change a table that outlives it. `false` if it has changed the table, or if a new one would be
/// cheaper; the caller then removes the values above its own on the stack.
unsafe fn fill_again(
    state: *mut lua_State,
    table: c_int,
    texts: &[&[u8]],
    last_len: usize,
) -> bool {
    let len = texts.len();
    if len > REUSED_LEN_MAX || last_len > REUSED_LEN_MAX {
        return false;
    }
    // SAFETY: the upvalue is a table, as the last length says; elements are pushed and taken.
    unsafe {
        lua_pushvalue(state, table);
        if lua_getmetatable(state, -1) != 0 {
            return false;
        }
        for (text, location) in texts.iter().zip(1..) {
            push_bytes(state, text);
            lua_rawseti_(state, -2, location);
        }
        for location in len..last_len {
            lua_pushnil(state);
            lua_rawseti_(state, -2, location as c_int + 1);
        }
        // It has all of the elements. If it has no more fields than these, it has nothing else. Their order is
        // arbitrary.
        lua_pushnil(state);
        for _ in 0..len {
            lua_next(state, -2);
            lua_pop(state, 1);
        }
        lua_next(state, -2) == 0
    }
}

/// Called with the callback of a function.
unsafe extern "C-unwind" fn run_function(state: *mut lua_State) -> c_int {
    let shared = Shared::of(state);
    // SAFETY: as for scripts.
    unsafe {
        let call = &*shared.call;
        push_array(state, call.keys);
        push_array(state, call.args);
        lua_call(state, 2, 1);
        write(state);
    }
    0
}

unsafe fn push_array(state: *mut lua_State, texts: &[&[u8]]) {
    // SAFETY: each text is taken by the table.
    unsafe {
        lua_createtable(state, texts.len() as c_int, 0);
        for (text, location) in texts.iter().zip(1..) {
            push_bytes(state, text);
            lua_rawseti_(state, -2, location);
        }
    }
}

/// Writes the value on top of the stack.
unsafe fn write(state: *mut lua_State) {
    let shared = Shared::of(state);
    let memory_left = shared.memory.limit.saturating_sub(shared.memory.used);
    // SAFETY: `Machine::execute` has set the destination and the protocol.
    unsafe {
        let (call, out) = (&*shared.call, &mut *shared.out);
        let written = write_reply(state, out, call.proto, shared.proto, memory_left);
        let shared = Shared::of(state);
        match written {
            Ok(is_error) => shared.is_error = is_error,
            Err(Unwritable::TooDeep) => {
                shared.is_too_deep = true;
                raise(state, b"ERR reached lua stack limit")
            }
            Err(Unwritable::TooLong) => {
                shared.stop.get_or_insert(Stop::MemoryLimit);
                raise_stop(state)
            }
            Err(Unwritable::Stopped) => raise_stop(state),
        }
    }
}
