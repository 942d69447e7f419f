//! The table `redis`, in three forms: for scripts, for functions, and while a library is loaded.

mod access;
mod call;
mod register;
mod replies;
mod settings;

use std::ffi::{CStr, c_int};

use mlua_sys::{lua_CFunction, lua_State, lua_createtable, lua_pushnumber, lua_setfield};

use crate::host::Server;
use crate::values::{push_bytes, set_function};

/// Numbers of `redis.log` and `redis.set_repl`.
const CONSTANTS: [(&CStr, c_int); 9] = [
    (c"LOG_DEBUG", 0),
    (c"LOG_VERBOSE", 1),
    (c"LOG_NOTICE", 2),
    (c"LOG_WARNING", 3),
    (c"REPL_NONE", 0),
    (c"REPL_AOF", settings::REPL_AOF),
    (c"REPL_SLAVE", settings::REPL_REPLICA),
    (c"REPL_REPLICA", settings::REPL_REPLICA),
    (c"REPL_ALL", settings::REPL_AOF | settings::REPL_REPLICA),
];

const OF_FUNCTIONS: [(&CStr, lua_CFunction); 9] = [
    (c"call", call::call),
    (c"pcall", call::pcall),
    (c"error_reply", replies::error_reply),
    (c"status_reply", replies::status_reply),
    (c"sha1hex", replies::sha1hex),
    (c"log", settings::log),
    (c"setresp", settings::setresp),
    (c"set_repl", settings::set_repl),
    (c"acl_check_cmd", access::acl_check_cmd),
];

/// Additional functions for scripts.
const OF_SCRIPTS: [(&CStr, lua_CFunction); 3] = [
    (c"replicate_commands", settings::replicate_commands),
    (c"breakpoint", settings::breakpoint),
    (c"debug", settings::debug),
];

const OF_LOADING: [(&CStr, lua_CFunction); 2] =
    [(c"register_function", register::register_function), (c"log", settings::log)];

/// Pushes the table of scripts.
///
/// # Safety
///
/// See [`values`](crate::values).
pub(crate) unsafe fn push_for_scripts(state: *mut lua_State, server: &Server) {
    // SAFETY: the table stays on top.
    unsafe {
        push_for_functions(state, server);
        for (name, function) in OF_SCRIPTS {
            set_function(state, name, function);
        }
    }
}

/// Pushes the table of functions.
///
/// # Safety
///
/// See [`values`](crate::values).
pub(crate) unsafe fn push_for_functions(state: *mut lua_State, server: &Server) {
    // SAFETY: the table stays on top.
    unsafe {
        push_with_constants(state, server);
        for (name, function) in OF_FUNCTIONS {
            set_function(state, name, function);
        }
    }
}

/// Pushes the table of libraries that are being loaded.
///
/// # Safety
///
/// See [`values`](crate::values).
pub(crate) unsafe fn push_for_loading(state: *mut lua_State, server: &Server) {
    // SAFETY: the table stays on top.
    unsafe {
        push_with_constants(state, server);
        for (name, function) in OF_LOADING {
            set_function(state, name, function);
        }
    }
}

unsafe fn push_with_constants(state: *mut lua_State, server: &Server) {
    let [major, minor, patch] = server.version;
    // SAFETY: the table stays on top, and the text of the version is copied.
    unsafe {
        lua_createtable(state, 0, 32);
        for (name, value) in CONSTANTS {
            lua_pushnumber(state, f64::from(value));
            lua_setfield(state, -2, name.as_ptr());
        }
        let number = u32::from_be_bytes([0, major, minor, patch]);
        lua_pushnumber(state, f64::from(number));
        lua_setfield(state, -2, c"REDIS_VERSION_NUM".as_ptr());
        push_bytes(state, server.version_text().as_bytes());
        lua_setfield(state, -2, c"REDIS_VERSION".as_ptr());
    }
}
