//! A short run of the fuzz target on changed records, for machines without a fuzzer.

use proptest::prelude::*;
use tierce_harness::effort;
use tierce_keyspace::fuzzing::{self, BETWEEN_RECORDS};

/// A record of one *edit* that begins the key `k` anew; see `docs/formats/log-operations.md`.
fn record(edits: &[u8]) -> Vec<u8> {
    [&[0x28, 0, 1, b'k', edits.len() as u8], edits].concat()
}

/// Every edit of every type, and the operations on strings.
fn seeds() -> Vec<Vec<u8>> {
    let score = 1.5_f64.to_le_bytes();
    let deadline = 5_000_i64.to_le_bytes();
    let sorted_set = [b"\x30\x01".as_slice(), &score, b"\x01m\x31", &score, b"\x01n\x32\x01m"];
    let hash = [
        b"\x41\x01\x01f\x01v\x42\x01\x01g\x01v".as_slice(),
        &deadline,
        b"\x43\x01f",
        &deadline,
        b"\x44\x01g",
    ];
    let stream: &[&[u8]] = &[
        b"\x51\x01\x05\x01\x02\x01n\x01v\x01m\x01w",
        b"\x52\x06\x00\x01\x01n\x01v",
        b"\x55\x01g\x05\x01\x02\x57\x01g\x01c\x07\x08",
        b"\x59\x01g\x01c\x07\x01\x01\x05\x01\x5a\x01g\x01\x05\x01",
        b"\x53\x05\x01\x54\x05\x01\x50\x07\x00\x05\x01\x03",
        b"\x58\x01g\x01c\x56\x01g",
    ];
    vec![
        record(b"\x10\x00\x02\x01a\x0212\x12\x01\x01b\x11\x00\x01"),
        record(b"\x10\x00\x01\x01a\x13\x00\x01\x01p\x13\x01\x01\x01q\x14"),
        record(b"\x21\x03\x01a\x011\x0542949\x22\x01a"),
        record(b"\x21\x02\x011\x0270"),
        record(&sorted_set.concat()),
        record(&hash.concat()),
        record(&stream.concat()),
        record(&stream[..4].concat()),
        b"\x01\x00\x01k\x03abc\x05\x00\x01k\x05\x01z\x02\x01\x01n\x0e\x07\x00\x01\x03\x00\x01n"
            .to_vec(),
        [b"\x14\x00\x01k".as_slice(), &deadline, b"\x06\x01"].concat(),
        // Marks, beside flags and alone; a batch of one piece, and of two.
        b"\xc1\x00\x01k\x07\x03\x01v\x0b\x00\x01k\x01\x82\x00\x01n\x02\x0e".to_vec(),
        b"\x3a\x05\x00\x01\x00\x01k\x03abc".to_vec(),
        b"\x1a\x05\x00\x01\x00\x01k\x03a".to_vec(),
        b"\x2a\x05\x01bc".to_vec(),
    ]
}

#[test]
fn what_edits_leave_is_what_a_checkpoint_of_it_leaves() {
    seeds().iter().for_each(|seed| fuzzing::log(seed));
    fuzzing::log(&seeds().join(&BETWEEN_RECORDS[..]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: effort(2_000), ..ProptestConfig::default() })]

    #[test]
    fn any_record_is_replayed_or_refused(
        picked in prop::collection::vec(prop::sample::select(seeds()), 1..4),
        is_one_record in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 0..5),
    ) {
        let between = if is_one_record { &[][..] } else { &BETWEEN_RECORDS };
        let mut record = picked.join(between);
        for (at, byte, how) in changes {
            let at = at.index(record.len() + 1);
            match how {
                0 if at < record.len() => _ = record.remove(at),
                1 => record.insert(at, byte),
                _ if at < record.len() => record[at] = byte,
                _ => record.push(byte),
            }
        }
        fuzzing::log(&record);
    }
}
