//! See `tierce_replication::fuzzing::replication_link`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_replication::fuzzing::replication_link(data));
