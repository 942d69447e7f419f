//! What is too long to be spilled, and more than is written at once.

use std::sync::Arc;

use tierce_cask::ColdLimits;
use tierce_cask::disk::OsDisk;

use crate::operations::support::TestServer;

const LIMITS: ColdLimits = ColdLimits { value_len_max: 400_000, batch_len_max: 700_000 };

/// Of every sixteen values one is longer than a value on disk may be, and one as long.
fn len(number: usize) -> usize {
    match number % 16 {
        0 => 500_000,
        1 => LIMITS.value_len_max - 1,
        _ => 350_000 + number,
    }
}

#[test]
fn what_is_too_long_stays_in_memory_and_full_batches_end() {
    // The limit is about the memory of the process, which is that of this test.
    let options = "--appendonly no --shards 1 --maxmemory 40mb --maxmemory-policy spill";
    let server = TestServer::limited(Arc::new(OsDisk), options, LIMITS);
    let mut client = server.client();
    let keys = 150;
    // Zeros with the key's number behind.
    for number in 0..keys {
        let (digits, len) = (format!("{number:05}"), len(number));
        let set = format!("SETRANGE k{number} {} {digits}", len - digits.len());
        assert_eq!(client.call(&set), format!(":{len}"), "{number}");
    }
    for number in 0..keys {
        assert_eq!(client.call(&format!("GETRANGE k{number} -5 -1")), format!("{number:05}"));
        assert_eq!(client.call(&format!("STRLEN k{number}")), format!(":{}", len(number)));
    }
    let info = client.call("INFO memory");
    assert!(info.contains("spilled_keys:") && !info.contains("spilled_keys:0\r"), "{info}");
}
