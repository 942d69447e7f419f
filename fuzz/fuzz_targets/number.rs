//! See `tierce_wire::fuzzing::number`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_wire::fuzzing::number(data));
