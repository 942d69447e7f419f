//! Compilation, and errors of loading a library.

use std::ffi::{CStr, c_int};

use mlua_sys::{LUA_REGISTRYINDEX, lua_State, lua_pop, lua_rawgeti_, lua_setfield, luaL_ref};

use super::{Failure, failure};
use crate::host::Stop;
use crate::program::Function;
use crate::sandbox::compile as compile_text;
use crate::shared::{Shared, enter, leave};

/// Compiles code, and returns a reference to it, or the text of the error.
pub(super) fn compile(state: *mut lua_State, code: &[u8], name: &CStr) -> Result<c_int, Vec<u8>> {
    enter(state);
    // SAFETY: compiling is protected; the function or the error is on top, and is popped.
    let result = unsafe {
        match compile_text(state, code, name.as_ptr()) {
            0 => Ok(luaL_ref(state, LUA_REGISTRYINDEX)),
            _ => {
                let text = crate::values::bytes(state, -1).unwrap_or_default().to_vec();
                lua_pop(state, 1);
                Err(text)
            }
        }
    };
    let _ = leave(state);
    Shared::of(state).stop = None;
    result
}

/// Reason why a library was not loaded.
pub(super) enum Unloaded {
    Failed(Failure),
    Stopped(Stop),
}

/// Pops the error from the stack, if there is one.
pub(super) fn result_of(
    state: *mut lua_State,
    status: c_int,
    stop: Option<Stop>,
    functions: &[(Function, c_int)],
) -> Result<(), Unloaded> {
    let error = (status != 0).then(|| failure::take_text(state));
    match (stop, error) {
        (Some(stop), _) => Err(Unloaded::Stopped(stop)),
        (None, Some(text)) => Err(Unloaded::Failed(registering(&text))),
        (None, None) if functions.is_empty() => {
            Err(Unloaded::Failed(Failure::new("ERR No functions registered")))
        }
        (None, None) => Ok(()),
    }
}

fn registering(text: &[u8]) -> Failure {
    Failure::new([b"ERR Error registering functions: ", text].concat())
}

impl Unloaded {
    /// Returns the reply of `FUNCTION LOAD`.
    pub(super) fn into_failure(self) -> Failure {
        match self {
            Unloaded::Failed(failure) => failure,
            Unloaded::Stopped(Stop::TimeLimit) => registering(b"ERR FUNCTION LOAD timeout"),
            Unloaded::Stopped(Stop::MemoryLimit) => registering(b"ERR not enough memory"),
            Unloaded::Stopped(_) => registering(b"ERR FUNCTION LOAD was stopped"),
        }
    }
}

/// Makes the globals of functions read from another table.
pub(super) unsafe fn choose_globals(state: *mut lua_State, metatable: c_int, table: c_int) {
    // SAFETY: both are references to tables; the field exists, so no memory is needed.
    unsafe {
        lua_rawgeti_(state, LUA_REGISTRYINDEX, metatable);
        lua_rawgeti_(state, LUA_REGISTRYINDEX, table);
        lua_setfield(state, -2, c"__index".as_ptr());
        lua_pop(state, 1);
    }
}
