//! `coroutine.resume` and `coroutine.wrap`, which neither catch a stop nor delay looks.
//!
//! Both run Lua's own function in their own frame, so that its errors name it.

use std::ffi::c_int;

use mlua_sys::{
    lua_State, lua_checkstack, lua_gettop, lua_getupvalue, lua_insert, lua_pushcclosure,
    lua_tothread, lua_upvalueindex,
};

use super::original::{call_original, wrap_function};
use crate::memory::WORK_PER_LOOK;
use crate::shared::{enter, is_stopped, leave, raise_stop, runs, work};

/// Every coroutine counts its own instructions. So a look is also due every few resumptions; otherwise a script could
/// run coroutines that all end before their first look.
const WORK_PER_RESUMPTION: usize = WORK_PER_LOOK / 16;

/// Replaces functions of the table `coroutine` on top of the stack.
///
/// # Safety
///
/// See [`values`](crate::values).
pub(super) unsafe fn replace(state: *mut lua_State) {
    // SAFETY: the table stays on top.
    unsafe {
        wrap_function(state, c"resume", resume);
        wrap_function(state, c"wrap", wrap);
    }
}

/// Has Lua's `coroutine.resume` as its upvalue.
unsafe extern "C-unwind" fn resume(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua; nothing is owned here.
    unsafe {
        prepare(state, lua_tothread(state, 1), lua_gettop(state) - 1);
        let count = call_original(state, lua_upvalueindex(1));
        runs(state);
        if is_stopped(state) {
            raise_stop(state);
        }
        count
    }
}

/// Has Lua's `coroutine.wrap` as its upvalue.
unsafe extern "C-unwind" fn wrap(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua. Lua's function has the coroutine as its upvalue; so has its replacement, since it is
    // called in the same frame.
    unsafe {
        call_original(state, lua_upvalueindex(1));
        lua_getupvalue(state, -1, 1);
        lua_insert(state, -2);
        lua_pushcclosure(state, wrapped, 2);
        1
    }
}

/// The function that `coroutine.wrap` returns. Its upvalues are the coroutine and Lua's function, which passes errors
/// on.
unsafe extern "C-unwind" fn wrapped(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua; nothing is owned here.
    unsafe {
        prepare(state, lua_tothread(state, lua_upvalueindex(1)), lua_gettop(state));
        let count = call_original(state, lua_upvalueindex(2));
        runs(state);
        count
    }
}

/// Looks if it is due, marks the coroutine as running, and makes room for its arguments. Lua would make that room
/// outside of a protected call, where exhausted memory ends the process.
unsafe fn prepare(state: *mut lua_State, coroutine: *mut lua_State, arguments: c_int) {
    // SAFETY: called by functions that Lua has called.
    unsafe {
        work(state, WORK_PER_RESUMPTION);
        if !coroutine.is_null() {
            enter(state);
            lua_checkstack(coroutine, arguments);
            if leave(state) {
                raise_stop(state);
            }
            runs(coroutine);
        }
    }
}
