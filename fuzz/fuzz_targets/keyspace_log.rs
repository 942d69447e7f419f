//! See `tierce_keyspace::fuzzing::log`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_keyspace::fuzzing::log(data));
