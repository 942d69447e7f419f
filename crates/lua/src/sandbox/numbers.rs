//! `math.random` and `math.randomseed` with the generator of Redis.

use std::ffi::c_int;

use mlua_sys::{
    lua_State, lua_gettop, lua_pushnumber, luaL_argerror, luaL_checkinteger, luaL_error,
};

use crate::shared::Shared;
use crate::values::set_function;

/// Replaces functions of the table `math` on top of the stack.
///
/// # Safety
///
/// See [`values`](crate::values).
pub(super) unsafe fn replace(state: *mut lua_State) {
    // SAFETY: the table stays on top.
    unsafe {
        set_function(state, c"random", random);
        set_function(state, c"randomseed", randomseed);
    }
}

/// Returns an argument as C's `int`, as in Redis.
unsafe fn integer(state: *mut lua_State, index: c_int) -> i32 {
    // SAFETY: called by a function that Lua has called.
    unsafe { luaL_checkinteger(state, index) as i32 }
}

unsafe extern "C-unwind" fn random(state: *mut lua_State) -> c_int {
    let drawn = Shared::of(state).random.draw();
    // SAFETY: called by Lua, with the arguments checked first.
    unsafe {
        let number = match lua_gettop(state) {
            0 => drawn,
            1 => {
                let most = integer(state, 1);
                if most < 1 {
                    return luaL_argerror(state, 1, c"interval is empty".as_ptr());
                }
                (drawn * f64::from(most)).floor() + 1.0
            }
            2 => {
                let (least, most) = (integer(state, 1), integer(state, 2));
                if least > most {
                    return luaL_argerror(state, 2, c"interval is empty".as_ptr());
                }
                // In C the width wraps around as well.
                let width = most.wrapping_sub(least).wrapping_add(1);
                (drawn * f64::from(width)).floor() + f64::from(least)
            }
            _ => return luaL_error(state, c"wrong number of arguments".as_ptr()),
        };
        lua_pushnumber(state, number);
    }
    1
}

unsafe extern "C-unwind" fn randomseed(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua, with the argument checked first.
    let seed = unsafe { integer(state, 1) };
    Shared::of(state).random.seed(seed);
    0
}
