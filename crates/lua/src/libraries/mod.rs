//! The libraries of scripts: `cjson`, `cmsgpack`, `struct` and `bit` with the results of Redis, and the functions of
//! `string` that match patterns, which can be stopped.

mod bit;
mod cjson;
mod cmsgpack;
mod patterns;
mod structs;

use mlua_sys as ffi;

use crate::native::Stack;

/// The settings of the global `cjson`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonSettings(*mut cjson::Settings);

impl JsonSettings {
    /// Restores the defaults after a script has changed settings.
    ///
    /// # Safety
    ///
    /// The state is open, scripts cannot remove the functions of the library, and none of them runs.
    pub(crate) unsafe fn restore(self) {
        // SAFETY: the functions, which exist as the caller guarantees, keep the settings alive, and nothing refers to
        // them.
        unsafe { *self.0 = cjson::DEFAULTS };
    }
}

/// Adds the libraries to the globals of a machine, and replaces the functions of `string` that match patterns.
///
/// # Safety
///
/// `state` is a state with Lua's own `string`. Either it runs a native function, or nothing above it could catch an
/// error of memory anyway. No frame up to there owns anything that has a destructor.
pub(crate) unsafe fn open(state: *mut ffi::lua_State) -> JsonSettings {
    // SAFETY: as the caller says.
    open_all(unsafe { Stack::new(state) })
}

fn open_all(stack: Stack<'_>) -> JsonSettings {
    let settings = JsonSettings(cjson::push(stack));
    stack.set_field(ffi::LUA_GLOBALSINDEX, c"cjson");
    cmsgpack::push(stack);
    stack.set_field(ffi::LUA_GLOBALSINDEX, c"cmsgpack");
    structs::push(stack);
    stack.set_field(ffi::LUA_GLOBALSINDEX, c"struct");
    bit::push(stack);
    stack.set_field(ffi::LUA_GLOBALSINDEX, c"bit");
    stack.push_bytes(b"string");
    stack.get(ffi::LUA_GLOBALSINDEX);
    patterns::add_to(stack);
    stack.pop(1);
    settings
}
