//! See `tierce_rdb::fuzzing::dump_payload`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_rdb::fuzzing::dump_payload(data));
