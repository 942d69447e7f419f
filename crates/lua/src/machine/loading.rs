//! Compiling, and the loading of libraries.

use std::ffi::{CStr, c_int};
use std::time::{Duration, Instant};

use mlua_sys::{
    LUA_REGISTRYINDEX, lua_State, lua_pcall, lua_pop, lua_rawgeti_, lua_setfield, luaL_ref,
};

use super::{Failure, Machine, enter, failure, leave, runs};
use crate::host::{Host, Stop};
use crate::program::{Function, Library};
use crate::sandbox::compile as compile_text;

/// A library that is being loaded.
#[derive(Default)]
pub(crate) struct Loading {
    /// What it has registered, and references to the callbacks.
    pub(crate) functions: Vec<(Function, c_int)>,
}

/// Whether it may be the name of a function or library.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// Compiles code, and returns a reference to it, or the text of the error.
pub(super) fn compile(state: *mut lua_State, code: &[u8], name: &CStr) -> Result<c_int, Vec<u8>> {
    enter(state);
    // SAFETY: compiling is protected; function or error is on top, and taken.
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
    super::Shared::of(state).stop = None;
    result
}

/// Why a library was not loaded.
pub(super) enum Unloaded {
    Failed(Failure),
    Stopped(Stop),
}

/// Runs the code of a library, for at most `time_max`, and returns what it registers.
pub(super) fn load(
    machine: &mut Machine,
    library: &Library,
    host: &mut dyn Host,
    time_max: Option<Duration>,
) -> Result<Vec<(Function, c_int)>, Unloaded> {
    let state = machine.state.as_ptr();
    let chunk = compile(state, library.body(), c"@user_function").map_err(|text| {
        Unloaded::Failed(Failure::new([b"ERR Error compiling function: ", &*text].concat()))
    })?;
    machine.begin(host);
    let shared = machine.shared();
    shared.loading = Some(Loading::default());
    shared.load_end = time_max.map(|time_max| Instant::now() + time_max);
    // SAFETY: references are those of the tables and of the chunk.
    let status = unsafe {
        choose_globals(state, machine.globals.functions_metatable, machine.globals.behind_loading);
        lua_rawgeti_(state, LUA_REGISTRYINDEX, chunk);
        let status = lua_pcall(state, 0, 0, 0);
        runs(state);
        choose_globals(
            state,
            machine.globals.functions_metatable,
            machine.globals.behind_functions,
        );
        status
    };
    let shared = machine.shared();
    shared.load_end = None;
    let stop = shared.stop;
    let functions = shared.loading.take().map(|loading| loading.functions).unwrap_or_default();
    let result = result_of(state, status, stop, &functions);
    machine.unref(chunk);
    if result.is_err() {
        functions.iter().for_each(|(_, callback)| machine.unref(*callback));
    }
    machine.end(stop == Some(Stop::MemoryLimit));
    result.map(|()| functions)
}

/// Takes the error from the stack, if there is one.
fn result_of(
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
    /// What `FUNCTION LOAD` replies.
    pub(super) fn into_failure(self) -> Failure {
        match self {
            Unloaded::Failed(failure) => failure,
            Unloaded::Stopped(Stop::TimeLimit) => registering(b"ERR FUNCTION LOAD timeout"),
            Unloaded::Stopped(Stop::MemoryLimit) => registering(b"ERR not enough memory"),
            Unloaded::Stopped(_) => registering(b"ERR FUNCTION LOAD was stopped"),
        }
    }
}

/// Has the globals of functions read from another table.
unsafe fn choose_globals(state: *mut lua_State, metatable: c_int, table: c_int) {
    // SAFETY: both are references to tables; the field exists, so no memory is needed.
    unsafe {
        lua_rawgeti_(state, LUA_REGISTRYINDEX, metatable);
        lua_rawgeti_(state, LUA_REGISTRYINDEX, table);
        lua_setfield(state, -2, c"__index".as_ptr());
        lua_pop(state, 1);
    }
}
