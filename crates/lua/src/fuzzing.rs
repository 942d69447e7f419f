//! Checks behind the fuzz targets and the tests of the libraries: scripts in a state with Lua's library and ours, and
//! no machine around it. The targets in `fuzz/` pass a fuzzer's input, the test `fuzz_smoke` passes seeded random
//! bytes, so everyone runs the same checks.
//!
//! Each function panics if a guarantee of this crate is broken. Not part of the crate's interface.

use std::ffi::{CStr, c_int};
use std::slice;

use mlua_sys as ffi;
use tierce_wire::resp::Proto;

use crate::host::{Host, LogLevel, NoSuchCommand, Replication, Server, Stop};
use crate::libraries;
use crate::machine::{Machine, Outcome};
use crate::program::{Call, Script};

/// Instructions, and steps of the libraries, between two calls of the hook.
const INSTRUCTIONS_PER_LOOK: c_int = 1000;

/// Calls of the hook that a script may take.
const LOOKS_MAX: i64 = 1000;

/// Field of the registry with the number of calls left.
const LOOKS_LEFT: &CStr = c"looks left";

/// Error of a script that takes too long.
pub const STOPPED: &[u8] = b"stopped";

/// Results of a script, all as strings, or its error.
pub type Results = Result<Vec<Vec<u8>>, Vec<u8>>;

/// A state with Lua's whole library and the libraries of this crate. The global `puc` has the original `string`.
pub struct State(*mut ffi::lua_State);

impl State {
    /// Creates a state.
    ///
    /// # Panics
    ///
    /// If memory is exhausted.
    #[must_use]
    pub fn new() -> Self {
        // SAFETY: a new state, which only this function has. Nothing here fails except for lack of memory, which ends
        // the process as for allocations of Rust.
        unsafe {
            let state = ffi::luaL_newstate();
            assert!(!state.is_null(), "memory");
            ffi::luaL_openlibs(state);
            let new = Self(state);
            new.run("puc = {} for name, value in pairs(string) do puc[name] = value end", &[])
                .expect("a valid script");
            libraries::open(state);
            ffi::lua_sethook(state, Some(look), ffi::LUA_MASKCOUNT, INSTRUCTIONS_PER_LOOK);
            new
        }
    }

    /// Runs a script with these values as `...`.
    ///
    /// # Errors
    ///
    /// The error of the script, as a string.
    pub fn run(&self, script: &str, values: &[&[u8]]) -> Results {
        self.run_bytes(script.as_bytes(), values)
    }

    /// As [`State::run`], for a script that need not be text.
    ///
    /// # Errors
    ///
    /// The error of the script, as a string.
    pub fn run_bytes(&self, script: &[u8], values: &[&[u8]]) -> Results {
        let state = self.0;
        // SAFETY: the script runs in a protected call, and what is read is on the stack.
        unsafe {
            ffi::lua_pushnumber(state, LOOKS_MAX as f64);
            ffi::lua_setfield(state, ffi::LUA_REGISTRYINDEX, LOOKS_LEFT.as_ptr());
            let loaded = ffi::luaL_loadbuffer(
                state,
                script.as_ptr().cast(),
                script.len(),
                c"=user_script".as_ptr(),
            );
            let mut status = loaded;
            if loaded == 0 {
                for value in values {
                    ffi::lua_pushlstring_(state, value.as_ptr().cast(), value.len());
                }
                status = ffi::lua_pcall(state, values.len() as c_int, ffi::LUA_MULTRET, 0);
            }
            let results: Vec<_> =
                (1..=ffi::lua_gettop(state)).map(|index| self.text(index)).collect();
            ffi::lua_settop(state, 0);
            if status == 0 { Ok(results) } else { Err(results.concat()) }
        }
    }

    /// Returns the value at `index` as a string: for other types, the type and the value.
    fn text(&self, index: c_int) -> Vec<u8> {
        // SAFETY: the index is one of the stack, and a string stays alive while it is there.
        unsafe {
            let kind = ffi::lua_type(self.0, index);
            if kind == ffi::LUA_TSTRING || kind == ffi::LUA_TNUMBER {
                let mut len = 0;
                let start = ffi::lua_tolstring(self.0, index, &raw mut len);
                return slice::from_raw_parts(start.cast(), len).to_vec();
            }
            if kind == ffi::LUA_TBOOLEAN {
                return (ffi::lua_toboolean(self.0, index) != 0).to_string().into_bytes();
            }
            CStr::from_ptr(ffi::lua_typename(self.0, kind)).to_bytes().to_vec()
        }
    }

    /// Returns the bytes that the state has allocated.
    #[must_use]
    pub fn memory(&self) -> usize {
        // SAFETY: it only reads.
        unsafe { ffi::lua_gc(self.0, ffi::LUA_GCCOUNT, 0).unsigned_abs() as usize * 1024 }
    }
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // SAFETY: nothing else uses the state.
        unsafe { ffi::lua_close(self.0) }
    }
}

/// Ends a script that has taken too long.
unsafe extern "C-unwind" fn look(state: *mut ffi::lua_State, _: *mut ffi::lua_Debug) {
    // SAFETY: the hook of a state that `State` made; this frame owns nothing.
    unsafe {
        ffi::lua_getfield_(state, ffi::LUA_REGISTRYINDEX, LOOKS_LEFT.as_ptr());
        let left = ffi::lua_tonumber(state, -1) - 1.0;
        ffi::lua_settop(state, -2);
        if left < 0.0 {
            ffi::lua_pushlstring_(state, STOPPED.as_ptr().cast(), STOPPED.len());
            ffi::lua_error(state);
        }
        ffi::lua_pushnumber(state, left);
        ffi::lua_setfield(state, ffi::LUA_REGISTRYINDEX, LOOKS_LEFT.as_ptr());
    }
}

/// Memory that a few bytes of input may cost, per byte, plus a constant.
const BYTES_PER_BYTE: usize = 500;
const BYTES_BESIDES: usize = 1 << 20;

/// Runs a script on the input in a new state, and checks its memory.
fn check(script: &str, values: &[&[u8]]) {
    let state = State::new();
    let before = state.memory();
    if let Err(error) = state.run(script, values) {
        let is_broken = error.starts_with(b"broken");
        assert!(!is_broken, "{}", error.escape_ascii());
    }
    let len: usize = values.iter().map(|value| value.len()).sum();
    let cost = state.memory().saturating_sub(before);
    assert!(cost <= BYTES_BESIDES + BYTES_PER_BYTE * len, "{cost} bytes for {len}");
}

/// Checks that decoded JSON, encoded, decoded and encoded again, keeps its length: fields have no order.
pub fn lua_json(data: &[u8]) {
    check(
        "local value = cjson.decode(...)
         local once = cjson.encode(value)
         if #cjson.encode(cjson.decode(once)) ~= #once then error('broken ' .. once, 0) end",
        &[data],
    );
}

/// Checks that unpacked values, packed, unpacked and packed again, keep their length, except the first time: values
/// nested too deeply are packed as nil, which disappears in a table.
pub fn lua_msgpack(data: &[u8]) {
    check(
        "cmsgpack.unpack_one(..., 1)
         local values = {cmsgpack.unpack(...)}
         local once = cmsgpack.pack(unpack(values))
         local twice = cmsgpack.pack(cmsgpack.unpack(once))
         if #cmsgpack.pack(cmsgpack.unpack(twice)) ~= #twice then error('broken', 0) end",
        &[data],
    );
}

/// Unpacks with a format up to the first zero, and the data after it.
pub fn lua_struct(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (format, rest) = data.split_at(end);
    check(
        "pcall(struct.size, (...))
         local values = {struct.unpack(...)}
         pcall(struct.pack, (...), unpack(values))",
        &[format, rest],
    );
}

/// Matches a pattern up to the first `/` or zero byte with the subject after it: all functions must find the same
/// match. Patterns end at a zero byte, except those that `find` treats as plain text.
pub fn lua_pattern(data: &[u8]) {
    let end = data.iter().position(|byte| b"/\0".contains(byte)).unwrap_or(data.len());
    let (pattern, rest) = data.split_at(end);
    check(
        "local pattern, subject = ...
         local start, stop = subject:find(pattern)
         local replaced, count = subject:gsub(pattern, '<%0>', 1)
         if (start ~= nil) ~= (count == 1) then error('broken', 0) end
         if start and #replaced ~= #subject + 2 then error('broken', 0) end
         for _ in subject:gmatch(pattern) do end
         subject:gsub(pattern, pattern)",
        &[pattern, rest],
    );
}

/// Host that gives its fixed reply to every command, and stops a script after some checks.
struct Replies<'a> {
    reply: &'a [u8],
    looks_left: i64,
}

impl Host for Replies<'_> {
    fn call(&mut self, _: &[&[u8]], _: Proto, reply: &mut Vec<u8>) -> Result<(), Stop> {
        reply.extend_from_slice(self.reply);
        Ok(())
    }

    fn look(&mut self) -> Result<(), Stop> {
        self.looks_left -= 1;
        if self.looks_left < 0 { Err(Stop::TimeLimit) } else { Ok(()) }
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn acl_check(&mut self, _: &[&[u8]]) -> Result<bool, NoSuchCommand> {
        Err(NoSuchCommand)
    }

    fn set_repl(&mut self, _: Replication) {}
}

/// Checks that a command's reply becomes a value, or an error. The reply that the script returns for it is valid, and
/// keeps its length when it is converted again: fields have no order.
pub fn lua_reply(data: &[u8]) {
    let script =
        Script::parse(&b"redis.setresp(3) return redis.pcall('any')"[..]).expect("a script");
    let mut machine = Machine::new(&Server { version: [7, 0, 0] });
    machine.set_memory_limit(BYTES_BESIDES + BYTES_PER_BYTE * data.len());
    let mut pass = |reply: &[u8]| {
        let call = Call { keys: &[], args: &[], proto: Proto::Resp3 };
        let mut out = Vec::new();
        let outcome =
            machine.run(&script, &call, &mut Replies { reply, looks_left: i64::MAX }, &mut out);
        assert!(matches!(outcome, Outcome::Reply { .. }), "{outcome:?}");
        out
    };
    let first = pass(data);
    let second = pass(&first);
    assert_eq!(first.len(), second.len(), "{} and {}", first.escape_ascii(), second.escape_ascii());
}

/// Checks that any script in the sandbox ends, within its memory, and leaves a working machine.
pub fn lua_source(data: &[u8]) {
    let mut machine = Machine::new(&Server { version: [7, 0, 0] });
    machine.set_memory_limit(4 * BYTES_BESIDES);
    for source in [data, b"return 1"] {
        let Ok(script) = Script::parse(source) else { continue };
        let call = Call { keys: &[], args: &[], proto: Proto::Resp3 };
        let mut host = Replies { reply: b"+OK\r\n", looks_left: 100 };
        let outcome = machine.run(&script, &call, &mut host, &mut Vec::new());
        let is_fine = source == data || matches!(outcome, Outcome::Reply { .. });
        assert!(is_fine, "{outcome:?}");
    }
}
