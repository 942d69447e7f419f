//! See `tierce_gateway::fuzzing::http_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_gateway::fuzzing::http_request(data));
