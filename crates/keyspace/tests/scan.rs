//! A scan visits every key that stays exactly once, while keys come and go and tables grow and
//! shrink; going through all keys and drawing random ones see what is there.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use tierce_harness::effort;
use tierce_keyspace::{
    DbIndex, Expiry, Freeing, Keyspace, Options, flush_dbs, for_each_entry, random_key, scan,
};

fn keyspace(shards: usize) -> Keyspace {
    Keyspace::new(Options { shards, ..Options::default() }).expect("good options")
}

fn set(keyspace: &Keyspace, name: &[u8], expiry: Expiry) {
    let key = keyspace.key(name);
    keyspace.locks().db(DbIndex::ZERO, key.hash(), 0).set(key, "v", expiry).unwrap();
}

fn remove(keyspace: &Keyspace, name: &[u8]) {
    let key = keyspace.key(name);
    keyspace.locks().db(DbIndex::ZERO, key.hash(), 0).remove(key);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: effort(20), failure_persistence: None, ..Default::default() })]

    #[test]
    fn keys_that_stay_are_visited_exactly_once(
        shard_bits in 0u32..6,
        staying in 0u32..2000,
        churn in prop::collection::vec((any::<bool>(), 0u32..3000), 0..60),
        count in 1usize..60,
    ) {
        let keyspace = keyspace(1 << shard_bits);
        let stay_name = |number: u32| format!("stay:{number}").into_bytes();
        (0..staying).for_each(|number| set(&keyspace, &stay_name(number), Expiry::Never));
        let mut seen = HashMap::<Vec<u8>, u32>::new();
        let (mut cursor, mut churn) = (0, churn.into_iter());
        loop {
            cursor = scan(&mut keyspace.locks(), DbIndex::ZERO, cursor, count, 0, |entry| {
                *seen.entry(entry.key().to_vec()).or_default() += 1;
            });
            prop_assert!(cursor < 1 << 63);
            if cursor == 0 {
                break;
            }
            if let Some((grow, amount)) = churn.next() {
                for number in 0..amount {
                    let name = format!("come and go:{number}").into_bytes();
                    if grow { set(&keyspace, &name, Expiry::Never) } else { remove(&keyspace, &name) }
                }
            }
        }
        for number in 0..staying {
            prop_assert_eq!(seen.get(&stay_name(number)), Some(&1), "key {}", number);
        }
    }
}

#[test]
fn a_scan_returns_about_as_many_as_asked_for() {
    let keyspace = keyspace(8);
    (0..5000u32).for_each(|number| set(&keyspace, &number.to_be_bytes(), Expiry::Never));
    let (mut cursor, mut total) = (0, 0);
    loop {
        let mut batch = 0;
        cursor = scan(&mut keyspace.locks(), DbIndex::ZERO, cursor, 10, 0, |_| batch += 1);
        total += batch;
        if cursor == 0 {
            break;
        }
        assert!((10..60).contains(&batch), "{batch} keys in one step");
    }
    assert_eq!(total, 5000);
}

#[test]
fn a_cursor_that_was_never_given_out_does_no_harm() {
    let keyspace = keyspace(8);
    (0..100u32).for_each(|number| set(&keyspace, &number.to_be_bytes(), Expiry::Never));
    for cursor in [1, 77, 1 << 48, (7 << 48) + 12345, 8 << 48, (1 << 63) - 1, u64::MAX] {
        let mut visited = 0;
        let next = scan(&mut keyspace.locks(), DbIndex::ZERO, cursor, 1000, 0, |_| visited += 1);
        assert_eq!(next, 0);
        assert!(visited <= 100);
    }
}

#[test]
fn expired_keys_are_not_listed() {
    let keyspace = keyspace(4);
    (0..10u8).for_each(|number| set(&keyspace, &[b's', number], Expiry::Never));
    (0..10u8).for_each(|number| set(&keyspace, &[b'x', number], Expiry::At(50)));
    for (now_ms, expected) in [(49, 20), (50, 10)] {
        let (mut scanned, mut listed) = (0, 0);
        scan(&mut keyspace.locks(), DbIndex::ZERO, 0, 1000, now_ms, |_| scanned += 1);
        for_each_entry(&mut keyspace.locks(), DbIndex::ZERO, now_ms, |_| listed += 1);
        assert_eq!((scanned, listed), (expected, expected), "at {now_ms}");
    }
    for random in 0..100u64 {
        let random = random.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let key =
            random_key(&mut keyspace.locks(), DbIndex::ZERO, random, 50).expect("ten are left");
        assert_eq!(key[0], b's');
    }
}

/// The other server removes them. They are not listed, but count, and one is drawn if there may be no others.
#[test]
fn expired_keys_stay_while_another_server_decides() {
    let keyspace = keyspace(4);
    keyspace.set_following(true);
    (0..10u8).for_each(|number| set(&keyspace, &[b'x', number], Expiry::At(50)));
    let draw = |random| random_key(&mut keyspace.locks(), DbIndex::ZERO, random, 50);
    (0..20).for_each(|random| assert_eq!(draw(random << 59).expect("one of them")[0], b'x'));
    set(&keyspace, b"stays", Expiry::Never);
    (0..20).for_each(|random| assert_eq!(draw(random << 59), Some(b"stays".to_vec())));
    assert_eq!(keyspace.len(DbIndex::ZERO), 11);
    for_each_entry(&mut keyspace.locks(), DbIndex::ZERO, 50, |entry| {
        assert_eq!(entry.key(), b"stays");
    });
}

#[test]
fn every_key_is_drawn_sooner_or_later() {
    let keyspace = keyspace(64);
    assert_eq!(random_key(&mut keyspace.locks(), DbIndex::ZERO, 1, 0), None);
    (0..20u8).for_each(|number| set(&keyspace, &[number], Expiry::Never));
    let mut drawn = HashSet::new();
    for random in 0..2000u64 {
        let random = random.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        drawn.insert(
            random_key(&mut keyspace.locks(), DbIndex::ZERO, random, 0).expect("not empty"),
        );
    }
    assert_eq!(drawn.len(), 20);
}

#[test]
fn flushing_leaves_other_databases_alone_and_takes_no_memory() {
    let keyspace = keyspace(16);
    let second = keyspace.db_index(1).unwrap();
    (0..1000u32).for_each(|number| set(&keyspace, &number.to_be_bytes(), Expiry::At(1000)));
    let kept = keyspace.key(b"kept");
    keyspace.locks().db(second, kept.hash(), 0).set(kept, "v", Expiry::Never).unwrap();
    assert_eq!(flush_dbs(&mut keyspace.locks(), [DbIndex::ZERO], Freeing::Now), 1000);
    assert_eq!((keyspace.len(DbIndex::ZERO), keyspace.len(second)), (0, 1));
    assert_eq!(keyspace.next_deadline_ms(), None);
    assert_eq!(flush_dbs(&mut keyspace.locks(), keyspace.db_indices(), Freeing::Later), 1);
    assert_eq!(keyspace.memory().total(), 0);
}
