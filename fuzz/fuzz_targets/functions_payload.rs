//! See `tierce_rdb::fuzzing::functions_payload`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_rdb::fuzzing::functions_payload(data));
