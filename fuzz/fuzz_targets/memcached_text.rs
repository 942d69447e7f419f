//! See `tierce_wire::fuzzing::memcached_text`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_wire::fuzzing::memcached_text(data));
