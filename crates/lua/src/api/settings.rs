//! `redis.log`, `redis.setresp`, `redis.set_repl`, and functions that only old scripts call.

use std::ffi::c_int;

use mlua_sys::{lua_State, lua_gettop, lua_isnumber, lua_pushboolean, lua_tonumber};
use tierce_wire::resp::Proto;

use crate::host::{LogLevel, Replication};
use crate::shared::{Shared, enter, leave, look, raise_stop};
use crate::values::{bytes, raise};

pub(super) const REPL_AOF: c_int = 1;
pub(super) const REPL_REPLICA: c_int = 2;

pub(super) unsafe extern "C-unwind" fn log(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua; what is owned is dropped before a stop is raised.
    unsafe {
        let count = lua_gettop(state);
        if count < 2 {
            raise(state, b"ERR redis.log() requires two arguments or more.");
        }
        if lua_isnumber(state, 1) == 0 {
            raise(state, b"ERR First argument must be a number (log level).");
        }
        let level = match lua_tonumber(state, 1) as i32 {
            0 => LogLevel::Debug,
            1 => LogLevel::Verbose,
            2 => LogLevel::Notice,
            3 => LogLevel::Warning,
            _ => raise(state, b"ERR Invalid debug level."),
        };
        enter(state);
        write_log(state, level, count);
        // The logged data may have been too much for the host.
        let is_stopped = look(state).is_err();
        if leave(state) || is_stopped {
            raise_stop(state);
        }
    }
    0
}

/// Passes the arguments after the level to the host, joined with spaces.
unsafe fn write_log(state: *mut lua_State, level: LogLevel, count: c_int) {
    let mut message = Vec::new();
    for index in 2..=count {
        // SAFETY: called by `log` with the number of its arguments.
        let Some(text) = (unsafe { bytes(state, index) }) else { continue };
        if !message.is_empty() {
            message.push(b' ');
        }
        message.extend_from_slice(text);
    }
    if let Some(host) = Shared::of(state).host() {
        host.log(level, &message);
    }
}

pub(super) unsafe extern "C-unwind" fn setresp(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua.
    unsafe {
        if lua_gettop(state) != 1 {
            raise(state, b"ERR redis.setresp() requires one argument.");
        }
        Shared::of(state).proto = match lua_tonumber(state, 1) as i32 {
            2 => Proto::Resp2,
            3 => Proto::Resp3,
            _ => raise(state, b"ERR RESP version must be 2 or 3."),
        };
    }
    0
}

pub(super) unsafe extern "C-unwind" fn set_repl(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua.
    unsafe {
        if lua_gettop(state) != 1 {
            raise(state, b"ERR redis.set_repl() requires two arguments.");
        }
        let flags = lua_tonumber(state, 1) as c_int;
        if flags & !(REPL_AOF | REPL_REPLICA) != 0 {
            raise(state, b"ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.");
        }
        if let Some(host) = Shared::of(state).host() {
            let (log, replicas) = (flags & REPL_AOF != 0, flags & REPL_REPLICA != 0);
            host.set_repl(Replication { log, replicas });
        }
    }
    0
}

/// Always true: effects are always what is logged.
pub(super) unsafe extern "C-unwind" fn replicate_commands(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua.
    unsafe { lua_pushboolean(state, 1) };
    1
}

/// Always false: there is no debugger.
pub(super) unsafe extern "C-unwind" fn breakpoint(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua.
    unsafe { lua_pushboolean(state, 0) };
    1
}

pub(super) unsafe extern "C-unwind" fn debug(_: *mut lua_State) -> c_int {
    0
}
