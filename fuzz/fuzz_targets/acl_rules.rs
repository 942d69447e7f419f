//! See `tierce_commands::acl::fuzzing::acl_rules`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_commands::acl::fuzzing::acl_rules(data));
