//! See `tierce_lua::fuzzing::lua_source`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_lua::fuzzing::lua_source(data));
