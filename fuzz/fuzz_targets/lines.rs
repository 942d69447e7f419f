//! See `tierce_transfer::fuzzing::lines`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_transfer::fuzzing::lines(data));
