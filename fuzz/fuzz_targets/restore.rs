//! See `tierce_server::fuzzing::restored`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_server::fuzzing::restored(data));
