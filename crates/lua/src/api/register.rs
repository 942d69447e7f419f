//! `redis.register_function`, which exists while a library is loaded.

use std::ffi::c_int;

use mlua_sys::{
    LUA_REGISTRYINDEX, LUA_TFUNCTION, LUA_TTABLE, lua_State, lua_gettop, lua_next, lua_pop,
    lua_pushnil, lua_pushvalue, lua_rawgeti_, lua_settop, lua_type, luaL_ref,
};

use crate::program::{Function, is_name};
use crate::shared::{Shared, enter, leave, raise_stop};
use crate::shebang::Flags;
use crate::values::{bytes, raise};

/// Arguments read so far.
#[derive(Default)]
struct Arguments {
    name: Option<Vec<u8>>,
    description: Option<Vec<u8>>,
    flags: Flags,
    /// A reference in the registry.
    callback: Option<c_int>,
}

pub(super) unsafe extern "C-unwind" fn register_function(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua; what is owned is dropped before anything is raised.
    unsafe {
        enter(state);
        let result = register(state);
        if leave(state) {
            raise_stop(state);
        }
        if let Err(text) = result {
            raise(state, text.as_bytes());
        }
    }
    0
}

unsafe fn register(state: *mut lua_State) -> Result<(), &'static str> {
    // SAFETY: called by `register_function`.
    let arguments = unsafe {
        match lua_gettop(state) {
            1 if lua_type(state, 1) != LUA_TTABLE => {
                return Err(
                    "ERR calling redis.register_function with a single argument is only applicable to Lua \
                            table (representing named arguments).",
                );
            }
            1 => read_named(state)?,
            2 => read_positional(state)?,
            _ => return Err("ERR wrong number of arguments to redis.register_function"),
        }
    };
    let name =
        arguments.name.ok_or("ERR redis.register_function must get a function name argument")?;
    let callback =
        arguments.callback.ok_or("ERR redis.register_function must get a callback argument")?;
    let Some(loading) = &mut Shared::of(state).loading else {
        return Err("ERR redis.register_function can only be called on FUNCTION LOAD command");
    };
    if !is_name(&name) {
        return Err(
            "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least \
                    one character long",
        );
    }
    if loading.functions.iter().any(|(function, _)| function.name == name) {
        return Err("ERR Function already exists in the library");
    }
    let function = Function { name, description: arguments.description, flags: arguments.flags };
    loading.functions.push((function, callback));
    Ok(())
}

unsafe fn read_positional(state: *mut lua_State) -> Result<Arguments, &'static str> {
    // SAFETY: there are two arguments.
    unsafe {
        let name = bytes(state, 1)
            .ok_or("ERR first argument to redis.register_function must be a string")?;
        if lua_type(state, 2) != LUA_TFUNCTION {
            return Err("ERR second argument to redis.register_function must be a function");
        }
        let callback = luaL_ref(state, LUA_REGISTRYINDEX);
        Ok(Arguments {
            name: Some(name.to_vec()),
            callback: Some(callback),
            ..Arguments::default()
        })
    }
}

unsafe fn read_named(state: *mut lua_State) -> Result<Arguments, &'static str> {
    let mut arguments = Arguments::default();
    // SAFETY: there is one argument, a table. Keys are read from copies: reading a number as a string converts it,
    // which would confuse `lua_next`.
    unsafe {
        lua_pushnil(state);
        while lua_next(state, 1) != 0 {
            lua_pushvalue(state, 2);
            let Some(key) = bytes(state, 4) else {
                return Err(
                    "ERR named argument key given to redis.register_function is not a string",
                );
            };
            read_member(state, key, &mut arguments)?;
            lua_settop(state, 2);
        }
    }
    Ok(arguments)
}

/// Reads the value at index 3.
unsafe fn read_member(
    state: *mut lua_State,
    key: &[u8],
    arguments: &mut Arguments,
) -> Result<(), &'static str> {
    // SAFETY: called by `read_named`.
    unsafe {
        match key {
            b"function_name" => {
                let name = bytes(state, 3).ok_or(
                    "ERR function_name argument given to redis.register_function must be a string",
                )?;
                arguments.name = Some(name.to_vec());
            }
            b"description" => {
                let description = bytes(state, 3).ok_or(
                    "ERR description argument given to redis.register_function must be a string",
                )?;
                arguments.description = Some(description.to_vec());
            }
            b"callback" => {
                if lua_type(state, 3) != LUA_TFUNCTION {
                    return Err(
                        "ERR callback argument given to redis.register_function must be a function",
                    );
                }
                lua_pushvalue(state, 3);
                arguments.callback = Some(luaL_ref(state, LUA_REGISTRYINDEX));
            }
            b"flags" => {
                if lua_type(state, 3) != LUA_TTABLE {
                    return Err(
                        "ERR flags argument to redis.register_function must be a table representing \
                                function flags",
                    );
                }
                arguments.flags = read_flags(state)?;
            }
            _ => return Err("ERR unknown argument given to redis.register_function"),
        }
    }
    Ok(())
}

/// Reads the list at index 3, which ends with the first nil.
unsafe fn read_flags(state: *mut lua_State) -> Result<Flags, &'static str> {
    let mut flags = Flags::default();
    for place in 1.. {
        // SAFETY: called by `read_member`; one value is pushed and taken.
        unsafe {
            lua_rawgeti_(state, 3, place);
            if lua_type(state, -1) == mlua_sys::LUA_TNIL {
                break;
            }
            let flag = bytes(state, -1).and_then(Flags::by_name).ok_or("ERR unknown flag given")?;
            flags = flags.with(flag);
            lua_pop(state, 1);
        }
    }
    Ok(flags)
}
