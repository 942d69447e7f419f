//! Checks the invariants of `bucket`, `segment` and `directory` from the inside after every step of
//! random histories.

use crate::bucket::Origin;
use crate::directory::Directory;
use crate::geometry::{capacity, segment_range};
use crate::segment::Segment;
use crate::table::Table;
use proptest::prelude::*;

/// Hash of an entry, which is a number.
fn hash(number: &u64) -> u64 {
    let first = (number ^ number >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let second = (first ^ first >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    second ^ second >> 32
}

fn crowded_hash(number: &u64) -> u64 {
    hash(&(number % 7))
}

fn check_table(table: &Table<u64>, hash: &impl Fn(&u64) -> u64) {
    let (mut len, mut bytes, mut at) = (0, 0, 0);
    for segment in table.segments() {
        let range = segment_range(at, segment.depth());
        assert_eq!(range.start, at, "segments tile the axis");
        at = range.end;
        check_segment(segment, hash);
        len += segment.len();
        bytes += segment.memory_bytes();
    }
    assert_eq!(len, table.len());
    check_directory(table.directory(), bytes);
}

fn check_directory(directory: &Directory<u64>, segment_bytes: usize) {
    let slots = directory.slots();
    let bits = slots.len().checked_ilog2();
    assert!(slots.is_empty() || slots.len().is_power_of_two());
    let mut first = 0;
    let mut deepest = 0;
    while first < slots.len() {
        let segment = &slots[first];
        let covered = slots.len() >> segment.depth();
        for alias in &slots[first..first + covered] {
            assert!(segment.is_alias(alias), "a slot does not lead to its segment");
        }
        deepest += usize::from(Some(segment.depth()) == bits);
        first += covered;
    }
    assert_eq!(first, slots.len());
    assert!(deepest > 0 || slots.is_empty(), "the directory is larger than needed");
    let slot_bytes = size_of_val(slots);
    assert_eq!(directory.memory_bytes(), slot_bytes + segment_bytes);
}

fn check_segment(segment: &Segment<u64>, hash: &impl Fn(&u64) -> u64) {
    let homes = segment.stash().start;
    let mut len = 0;
    let mut overflowed = vec![0; homes];
    for index in 0..segment.bucket_count() {
        let bucket = segment.bucket_at(index);
        for origin in [Origin::Native, Origin::Displaced] {
            for slot in bucket.occupied_by(origin) {
                let entry = bucket.entry(slot);
                let home = segment.home(hash(entry));
                match (index < homes, origin) {
                    (true, Origin::Native) => assert_eq!(home, index),
                    (true, Origin::Displaced) => assert_eq!((home + 1) % homes, index),
                    (false, Origin::Native) => overflowed[home] += 1,
                    (false, Origin::Displaced) => panic!("a stash knows no neighbours"),
                }
                let found = bucket.find(segment.fingerprint(hash(entry)), origin, |e| e == entry);
                assert_eq!(found, Some((slot, entry)));
                len += 1;
            }
        }
    }
    assert_eq!(len, segment.len());
    assert!(len <= capacity(segment.bucket_count()));
    for (home, overflowed) in overflowed.into_iter().enumerate() {
        let counted = segment.bucket_at(home).overflow();
        assert!(counted == overflowed || counted == 3, "{counted} for {overflowed}");
    }
}

/// Inserts and removes runs of numbers, checking everything after each run.
fn check_history(runs: &[(bool, u64, u64)], hash: impl Fn(&u64) -> u64) {
    let mut table = Table::new();
    for (insert, from, count) in runs {
        for number in *from..from + count {
            let found = table.find(hash(&number), |entry| *entry == number).is_some();
            if *insert && !found {
                table.insert_unique(hash(&number), number, &hash);
            } else if !insert {
                let removed = table.remove(hash(&number), |entry| *entry == number, &hash);
                assert_eq!(removed.is_some(), found);
            }
        }
        check_table(&table, &hash);
    }
}

fn runs(numbers: u64) -> impl Strategy<Value = Vec<(bool, u64, u64)>> {
    let run = (any::<bool>(), 0..numbers, 1..numbers / 2);
    proptest::collection::vec(run, 1..if cfg!(miri) { 6 } else { 40 })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { tierce_harness::effort(60) },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn hold_after_every_run(runs in runs(if cfg!(miri) { 150 } else { 5000 })) {
        check_history(&runs, hash);
    }

    #[test]
    fn hold_with_few_different_hashes(runs in runs(if cfg!(miri) { 150 } else { 600 })) {
        check_history(&runs, crowded_hash);
    }
}

/// Checks the fill that the sizes and the stash were chosen for: see
/// `docs/decisions/0001-index-geometry.md`. Run with `--nocapture` for the table there.
#[test]
fn segments_are_well_filled_when_they_refuse() {
    let trials = if cfg!(miri) { 1 } else { 100 };
    let mut buckets = 1;
    println!("{:>8} {:>6} {:>10} {:>8}", "buckets", "stash", "mean fill", "least");
    loop {
        let fills: Vec<f64> = (0..trials).map(|seed| fill_until_refused(buckets, seed)).collect();
        let mean = fills.iter().sum::<f64>() / f64::from(trials);
        let least = fills.iter().copied().fold(1.0, f64::min);
        let stash = crate::geometry::stash_of(buckets);
        println!("{buckets:>8} {stash:>6} {:>9.1}% {:>7.1}%", mean * 100.0, least * 100.0);
        assert!(mean >= 0.92 || cfg!(miri), "{buckets} buckets refuse at {mean}");
        assert!(least >= 0.70, "{buckets} buckets refuse at {least}");
        match crate::geometry::next_size(buckets) {
            Some(next) if !cfg!(miri) || next < 8 => buckets = next,
            _ => break,
        }
    }
}

/// Returns the fraction of occupied slots when a segment first refuses an entry.
fn fill_until_refused(buckets: usize, seed: u32) -> f64 {
    let mut segment = Segment::new(buckets, 0);
    let numbers = (u64::from(seed) << 32)..;
    let refused = numbers.map(|number| segment.place(hash(&number), number));
    let len = refused.take_while(Result::is_ok).count();
    len as f64 / capacity(buckets) as f64
}
