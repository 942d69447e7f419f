//! `redis.call` and `redis.pcall`.

use std::ffi::c_int;
use std::slice;

use mlua_sys::{
    LUA_TNUMBER, LUA_TSTRING, lua_State, lua_error, lua_gettop, lua_replace, lua_tolstring,
    lua_tonumber, lua_type,
};
use tierce_wire::resp::Proto;

use crate::convert::push_reply;
use crate::host::{Host, Stop};
use crate::number::format_general;
use crate::shared::{Shared, enter, leave, raise_stop, work};
use crate::values::{push_bytes, push_error};

pub(super) unsafe extern "C-unwind" fn call(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua.
    unsafe {
        match run(state) {
            Reply::Value => 1,
            Reply::Error => lua_error(state),
        }
    }
}

pub(super) unsafe extern "C-unwind" fn pcall(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua.
    unsafe { run(state) };
    1
}

/// The value on top of the stack.
enum Reply {
    Value,
    Error,
}

/// Runs the command on the stack, and pushes its reply. It raises only a stop, and Lua's error of exhausted memory; so
/// nothing is owned here.
unsafe fn run(state: *mut lua_State) -> Reply {
    // SAFETY: called by a function that Lua has called, with the command as arguments.
    unsafe {
        if let Err(text) = read_args(state) {
            push_error(state, text.as_bytes());
            return Reply::Error;
        }
        let shared = Shared::of(state);
        shared.reply.clear();
        if let Err(stop) = run_on_host(shared) {
            Shared::of(state).stop = Some(stop);
            raise_stop(state);
        }
        // The bytes do not move while they are converted: only this function writes to the buffer.
        let bytes = slice::from_raw_parts(shared.reply.as_ptr(), shared.reply.len());
        let is_error = bytes.first() == Some(&b'-');
        work(state, bytes.len());
        push_reply(state, bytes);
        Shared::of(state).drop_large_reply();
        if is_error { Reply::Error } else { Reply::Value }
    }
}

/// Runs the command of `args`, unless the script is being stopped.
fn run_on_host(shared: &mut Shared) -> Result<(), Stop> {
    if let Some(stop) = shared.stop {
        return Err(stop);
    }
    let Some(mut host) = shared.host else {
        shared.reply.extend_from_slice(b"-ERR there is no script\r\n");
        return Ok(());
    };
    // SAFETY: set during an execution from a reference that outlives it.
    let host: &mut dyn Host = unsafe { host.as_mut() };
    let proto: Proto = shared.proto;
    host.call(&shared.args, proto, &mut shared.reply)
}

/// Collects the arguments on the stack in `args`. They live as long as the caller's frame.
///
/// # Safety
///
/// Called by a function that Lua has called.
pub(super) unsafe fn read_args(state: *mut lua_State) -> Result<(), &'static str> {
    // SAFETY: the indexes are those of arguments.
    unsafe {
        let count = lua_gettop(state);
        if count == 0 {
            return Err("ERR Please specify at least one argument for this redis lib call");
        }
        Shared::of(state).args.clear();
        let mut total = 0;
        for index in 1..=count {
            match lua_type(state, index) {
                LUA_TSTRING => {}
                LUA_TNUMBER => write_number(state, index),
                _ => return Err("ERR Lua redis lib command arguments must be strings or integers"),
            }
            let mut len = 0;
            let start = lua_tolstring(state, index, &mut len);
            Shared::of(state).args.push(slice::from_raw_parts(start.cast(), len));
            total += len;
        }
        work(state, total);
        Ok(())
    }
}

/// Replaces the number at `index` by its text, in all its digits.
unsafe fn write_number(state: *mut lua_State, index: c_int) {
    // SAFETY: the index is that of a number; what is owned is dropped before a stop is raised.
    unsafe {
        let number = lua_tonumber(state, index);
        enter(state);
        if number == number.trunc()
            && number.abs() < 1e15
            && (number != 0.0 || number.is_sign_positive())
        {
            push_bytes(state, itoa::Buffer::new().format(number as i64).as_bytes());
        } else {
            let text = format_general(number, 17);
            push_bytes(state, &text);
        }
        lua_replace(state, index);
        if leave(state) {
            raise_stop(state);
        }
    }
}
