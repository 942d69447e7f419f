//! See `tierce_json::fuzzing::http_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_json::fuzzing::http_request(data));
