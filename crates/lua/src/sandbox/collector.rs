//! `collectgarbage`: the collector settings of a script end with the script.

use std::ffi::{c_char, c_int};
use std::ptr;

use mlua_sys::{
    LUA_GCCOLLECT, LUA_GCCOUNT, LUA_GCCOUNTB, LUA_GCRESTART, LUA_GCSETPAUSE, LUA_GCSETSTEPMUL,
    LUA_GCSTEP, LUA_GCSTOP, lua_State, lua_gc, lua_pushboolean, lua_pushnumber, luaL_checkoption,
    luaL_optinteger,
};

use crate::shared::{COLLECTED_PER_LOOK, Shared, collect, collect_some};
use crate::values::set_function;

/// Default settings of Lua, in percent.
const PAUSE: c_int = 200;
const STEP_MULTIPLIER: c_int = 200;

/// Maximum setting for scripts: with more, a step is a whole collection, which no look can interrupt.
const STEP_MULTIPLIER_MAX: c_int = 10_000;

/// Replaces a function of the globals on top of the stack.
///
/// # Safety
///
/// See [`values`](crate::values).
pub(super) unsafe fn replace(state: *mut lua_State) {
    // SAFETY: the globals stay on top.
    unsafe { set_function(state, c"collectgarbage", collectgarbage) };
}

/// Restores the defaults after a script has changed settings.
///
/// # Safety
///
/// Outside of an execution.
pub(crate) unsafe fn restore(state: *mut lua_State) {
    // SAFETY: these only set numbers.
    unsafe {
        lua_gc(state, LUA_GCRESTART, 0);
        lua_gc(state, LUA_GCSETPAUSE, PAUSE);
        lua_gc(state, LUA_GCSETSTEPMUL, STEP_MULTIPLIER);
    }
}

unsafe extern "C-unwind" fn collectgarbage(state: *mut lua_State) -> c_int {
    let names: [*const c_char; 8] = [
        c"stop".as_ptr(),
        c"restart".as_ptr(),
        c"collect".as_ptr(),
        c"count".as_ptr(),
        c"step".as_ptr(),
        c"setpause".as_ptr(),
        c"setstepmul".as_ptr(),
        ptr::null(),
    ];
    let options = [
        LUA_GCSTOP,
        LUA_GCRESTART,
        LUA_GCCOLLECT,
        LUA_GCCOUNT,
        LUA_GCSTEP,
        LUA_GCSETPAUSE,
        LUA_GCSETSTEPMUL,
    ];
    // SAFETY: called by Lua; the list of names ends with a null.
    unsafe {
        let option = luaL_checkoption(state, 1, c"collect".as_ptr(), names.as_ptr());
        let argument = luaL_optinteger(state, 2, 0) as c_int;
        let option = options[option as usize];
        Shared::of(state).collector_changed |=
            !matches!(option, LUA_GCCOUNT | LUA_GCCOLLECT | LUA_GCSTEP);
        match option {
            LUA_GCCOLLECT => {
                collect(state);
                lua_pushnumber(state, 0.0);
                return 1;
            }
            LUA_GCSTEP => {
                lua_pushboolean(state, step(state, argument).into());
                return 1;
            }
            _ => {}
        }
        let argument = match option {
            LUA_GCSETSTEPMUL => argument.clamp(1, STEP_MULTIPLIER_MAX),
            _ => argument,
        };
        let result = lua_gc(state, option, argument);
        match option {
            LUA_GCCOUNT => {
                let rest = lua_gc(state, LUA_GCCOUNTB, 0);
                lua_pushnumber(state, f64::from(result) + f64::from(rest) / 1024.0);
            }
            _ => lua_pushnumber(state, f64::from(result)),
        }
        1
    }
}

/// Runs a step of this many kilobytes, or to the end of the cycle; `true` at its end.
///
/// # Safety
///
/// Called by Lua, while nothing is owned.
unsafe fn step(state: *mut lua_State, kilobytes: c_int) -> bool {
    // C converts a negative number to a very large one.
    let mut left = if kilobytes < 0 { c_int::MAX } else { kilobytes };
    loop {
        // SAFETY: as the caller guarantees.
        if unsafe { collect_some(state, left.min(COLLECTED_PER_LOOK)) } {
            return true;
        }
        left -= left.min(COLLECTED_PER_LOOK);
        if left == 0 {
            return false;
        }
    }
}
