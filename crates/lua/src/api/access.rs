//! `redis.acl_check_cmd`.

use std::ffi::c_int;

use mlua_sys::{lua_State, lua_pushboolean};

use super::call::read_args;
use crate::host::Host;
use crate::shared::Shared;
use crate::values::raise;

pub(super) unsafe extern "C-unwind" fn acl_check_cmd(state: *mut lua_State) -> c_int {
    // SAFETY: called by Lua; nothing is owned here.
    unsafe {
        if let Err(text) = read_args(state) {
            raise(state, text.as_bytes());
        }
        let shared = Shared::of(state);
        let allowed = shared.host.map(|mut host| {
            let host: &mut dyn Host = host.as_mut();
            host.acl_check(&shared.args)
        });
        match allowed {
            Some(Ok(allowed)) => lua_pushboolean(state, c_int::from(allowed)),
            _ => raise(state, b"ERR Invalid command passed to redis.acl_check_cmd()"),
        }
    }
    1
}
