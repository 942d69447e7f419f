//! See `tierce_wire::fuzzing::glob`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_wire::fuzzing::glob(data));
