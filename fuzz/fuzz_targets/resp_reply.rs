//! See `tierce_wire::fuzzing::resp_reply`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_wire::fuzzing::resp_reply(data));
