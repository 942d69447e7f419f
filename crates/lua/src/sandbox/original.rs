//! Wrappers of Lua's own functions, which run in the same frame, so that errors name them.

use std::ffi::{CStr, c_int};

use mlua_sys::{
    lua_CFunction, lua_State, lua_getfield_, lua_pushcclosure, lua_setfield, lua_tocfunction,
};

/// Replaces a function of the table on top of the stack by one with the original as its upvalue.
///
/// # Safety
///
/// See [`values`](crate::values).
pub(super) unsafe fn wrap_function(state: *mut lua_State, name: &CStr, function: lua_CFunction) {
    // SAFETY: the original is pushed, and taken as the upvalue.
    unsafe {
        lua_getfield_(state, -1, name.as_ptr());
        lua_pushcclosure(state, function, 1);
        lua_setfield(state, -2, name.as_ptr());
    }
}

/// Runs the original at `index` in the frame of the caller. Returns the number of its results.
///
/// # Safety
///
/// The index is that of a function in C which needs no other upvalues than the caller has. The caller owns nothing.
pub(super) unsafe fn call_original(state: *mut lua_State, index: c_int) -> c_int {
    // SAFETY: as the caller guarantees.
    unsafe { lua_tocfunction(state, index).map_or(0, |function| function(state)) }
}
