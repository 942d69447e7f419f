//! See `tierce_server::fuzzing::lines`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_server::fuzzing::lines(data));
