//! The environment of scripts in a machine: the globals of Redis 7.0, none of which they can change.
//!
//! Lua 5.1 has no read-only tables. So scripts see an empty table in place of each, a *proxy*: its metatable reads
//! from the real table and refuses to write. Functions that bypass metatables (`next`, `rawget`, …) are replaced by
//! functions that handle proxies.

mod base;
mod collector;
mod coroutines;
mod errors;
mod loading;
mod numbers;
mod original;
mod protected;
mod strings;
mod tables;

use std::ffi::{CStr, c_int};

use mlua_sys::{
    LUA_GLOBALSINDEX, LUA_REGISTRYINDEX, LUA_TTABLE, lua_CFunction, lua_State, lua_call,
    lua_createtable, lua_getfield_, lua_getmetatable, lua_insert, lua_next, lua_pop,
    lua_pushcclosure, lua_pushnil, lua_pushstring_, lua_pushvalue, lua_rawset, lua_replace,
    lua_setfield, lua_setmetatable, lua_topointer, lua_type, luaL_ref, luaopen_base, luaopen_math,
    luaopen_os, luaopen_string, luaopen_table,
};

use crate::api;
use crate::host::Server;
use crate::libraries::{self, JsonSettings};

pub(crate) use collector::restore as restore_collector;
pub(crate) use loading::compile;
pub(crate) use protected::is_protected;

/// References in the registry to a machine's tables of globals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Globals {
    /// Globals that scripts see.
    pub(crate) of_scripts: c_int,
    /// The table behind it, which gets `KEYS` and `ARGV`.
    pub(crate) behind_scripts: c_int,
    /// Globals that functions see.
    pub(crate) of_functions: c_int,
    /// The metatable of that, and the tables it reads from: while a library is loaded, and later.
    pub(crate) functions_metatable: c_int,
    pub(crate) behind_loading: c_int,
    pub(crate) behind_functions: c_int,
    pub(crate) json: JsonSettings,
}

/// Globals of Lua that scripts do not get.
const REMOVED: [&CStr; 8] =
    [c"print", c"dofile", c"loadfile", c"newproxy", c"getfenv", c"setfenv", c"require", c"module"];

/// Fills a new state.
///
/// # Safety
///
/// In a protected call, since it may run out of memory.
pub(crate) unsafe fn open(state: *mut lua_State, server: &Server) -> Globals {
    // SAFETY: every function leaves the stack as its comment says; the stack has room for some twenty values.
    unsafe {
        open_lua(state);
        let json = libraries::open(state);
        replace_functions(state);
        for name in REMOVED {
            set_nil(state, name);
        }
        protect_strings(state);
        protect_members(state);
        globals(state, server, json)
    }
}

/// Opens the parts of Lua that scripts may use.
unsafe fn open_lua(state: *mut lua_State) {
    let parts: [(&CStr, lua_CFunction); 5] = [
        (c"", luaopen_base),
        (c"table", luaopen_table),
        (c"string", luaopen_string),
        (c"math", luaopen_math),
        (c"os", luaopen_os),
    ];
    for (name, open) in parts {
        // SAFETY: they are opened as by `luaL_openlibs`.
        unsafe {
            lua_pushcclosure(state, open, 0);
            lua_pushstring_(state, name.as_ptr());
            lua_call(state, 1, 0);
        }
    }
}

unsafe fn replace_functions(state: *mut lua_State) {
    // SAFETY: the table whose functions are replaced is pushed before and popped after.
    unsafe {
        lua_pushvalue(state, LUA_GLOBALSINDEX);
        base::replace(state);
        protected::replace(state);
        loading::replace(state);
        collector::replace(state);
        tables::replace_unpack(state);
        for (name, replace) in [
            (c"math", numbers::replace as unsafe fn(*mut lua_State)),
            (c"string", strings::replace),
            (c"table", tables::replace),
            (c"coroutine", coroutines::replace),
        ] {
            lua_getfield_(state, -1, name.as_ptr());
            replace(state);
            lua_pop(state, 1);
        }
        lua_pop(state, 1);
        keep_clock(state);
    }
}

/// Removes everything but `clock` from the table `os`.
unsafe fn keep_clock(state: *mut lua_State) {
    // SAFETY: a table and its function are pushed and taken.
    unsafe {
        lua_createtable(state, 0, 1);
        lua_getfield_(state, LUA_GLOBALSINDEX, c"os".as_ptr());
        lua_getfield_(state, -1, c"clock".as_ptr());
        lua_setfield(state, -3, c"clock".as_ptr());
        lua_pop(state, 1);
        lua_setfield(state, LUA_GLOBALSINDEX, c"os".as_ptr());
    }
}

unsafe fn set_nil(state: *mut lua_State, name: &CStr) {
    // SAFETY: a value is pushed and taken.
    unsafe {
        lua_pushnil(state);
        lua_setfield(state, LUA_GLOBALSINDEX, name.as_ptr());
    }
}

/// Makes `getmetatable("")` return a proxy, while methods of strings read from the real table.
unsafe fn protect_strings(state: *mut lua_State) {
    // SAFETY: the string and its metatable are pushed and taken.
    unsafe {
        lua_pushstring_(state, c"".as_ptr());
        lua_getmetatable(state, -1);
        lua_createtable(state, 0, 1);
        lua_getfield_(state, LUA_GLOBALSINDEX, c"string".as_ptr());
        protected::make_proxy(state);
        lua_setfield(state, -2, c"__index".as_ptr());
        protected::make_proxy(state);
        lua_setfield(state, -2, c"__metatable".as_ptr());
        lua_pop(state, 2);
    }
}

/// Replaces the tables among the globals by proxies.
unsafe fn protect_members(state: *mut lua_State) {
    // SAFETY: assigning to fields that exist does not disturb `lua_next`.
    unsafe {
        set_nil(state, c"_G");
        lua_pushnil(state);
        while lua_next(state, LUA_GLOBALSINDEX) != 0 {
            if lua_type(state, -1) == LUA_TTABLE {
                protected::make_proxy(state);
                lua_pushvalue(state, -2);
                lua_insert(state, -2);
                lua_rawset(state, LUA_GLOBALSINDEX);
            } else {
                lua_pop(state, 1);
            }
        }
    }
}

/// Creates the three tables of globals, and selects that of scripts.
unsafe fn globals(state: *mut lua_State, server: &Server, json: JsonSettings) -> Globals {
    // SAFETY: `luaL_ref` pops the value pushed before it.
    unsafe {
        // With this metatable, reading a missing field is an error.
        lua_createtable(state, 0, 1);
        crate::values::set_function(state, c"__index", errors::nonexistent);
        let metatable = mlua_sys::lua_gettop(state);

        api::push_for_loading(state, server);
        lua_pushvalue(state, metatable);
        lua_setmetatable(state, -2);
        protected::make_proxy(state);
        lua_createtable(state, 0, 2);
        lua_insert(state, -2);
        set_redis(state);
        lua_pushvalue(state, metatable);
        lua_setmetatable(state, -2);
        let behind_loading = luaL_ref(state, LUA_REGISTRYINDEX);

        copy_globals(state);
        api::push_for_functions(state, server);
        let (behind_functions, of_functions, functions_metatable) = finish(state, metatable);
        copy_globals(state);
        api::push_for_scripts(state, server);
        let (behind_scripts, of_scripts, _) = finish(state, metatable);

        mlua_sys::lua_rawgeti_(state, LUA_REGISTRYINDEX, of_scripts);
        lua_replace(state, LUA_GLOBALSINDEX);
        lua_pop(state, 1);
        Globals {
            of_scripts,
            behind_scripts,
            of_functions,
            functions_metatable,
            behind_loading,
            behind_functions,
            json,
        }
    }
}

/// Sets `redis`, and `server` as in Valkey, of the table below the top to the value on top, which it pops.
unsafe fn set_redis(state: *mut lua_State) {
    // SAFETY: the value is pushed once more, and taken twice.
    unsafe {
        lua_pushvalue(state, -1);
        lua_setfield(state, -3, c"redis".as_ptr());
        lua_setfield(state, -2, c"server".as_ptr());
    }
}

/// Pushes a copy of the globals.
unsafe fn copy_globals(state: *mut lua_State) {
    // SAFETY: key and value of each are pushed and taken.
    unsafe {
        lua_createtable(state, 0, 40);
        lua_pushnil(state);
        while lua_next(state, LUA_GLOBALSINDEX) != 0 {
            lua_pushvalue(state, -2);
            lua_insert(state, -2);
            lua_rawset(state, -4);
        }
    }
}

/// Pops globals and their API from the stack. Returns the references to the globals, their proxy and its metatable.
unsafe fn finish(state: *mut lua_State, metatable: c_int) -> (c_int, c_int, c_int) {
    // SAFETY: the values pushed here are popped by references.
    unsafe {
        protected::make_proxy(state);
        set_redis(state);
        lua_pushvalue(state, -1);
        protected::make_proxy(state);
        lua_pushvalue(state, -1);
        lua_setfield(state, -3, c"_G".as_ptr());
        // Globals, proxy.
        lua_pushvalue(state, metatable);
        lua_setmetatable(state, -3);
        lua_getmetatable(state, -1);
        // The value that `getmetatable(_G)` returns.
        lua_pushvalue(state, metatable);
        protected::make_proxy(state);
        lua_setfield(state, -2, c"__metatable".as_ptr());
        debug_assert!(!lua_topointer(state, -1).is_null());
        let of_proxy = luaL_ref(state, LUA_REGISTRYINDEX);
        let proxy = luaL_ref(state, LUA_REGISTRYINDEX);
        let globals = luaL_ref(state, LUA_REGISTRYINDEX);
        (globals, proxy, of_proxy)
    }
}
