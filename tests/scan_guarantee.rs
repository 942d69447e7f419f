//! A full SCAN returns every key that existed from beginning to end, with any changes meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use tierce_harness::{Connection, Random, Server, effort, encode, takes_up_to_seconds};

use crate::server;

fn fill(c: &mut Connection, prefix: &str, range: std::ops::Range<usize>) {
    let len = range.len();
    let requests: Vec<_> = range.map(|n| encode(&["SET", &format!("{prefix}:{n}"), "v"])).collect();
    c.send(requests.concat());
    (0..len).for_each(|_| c.expect("+OK"));
}

fn remove(c: &mut Connection, prefix: &str, range: std::ops::Range<usize>) {
    let len = range.len();
    c.send(range.map(|n| encode(&["DEL", &format!("{prefix}:{n}")])).collect::<Vec<_>>().concat());
    (0..len).for_each(|_| drop(c.reply()));
}

/// Returns all keys of a full iteration, each with its number of returns. `between` runs between
/// two calls.
fn scan(
    c: &mut Connection,
    options: &str,
    mut between: impl FnMut(usize),
) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let mut cursor = "0".to_owned();
    for call in 0.. {
        let reply = c.ask(&format!("SCAN {cursor} {options}"));
        for key in reply.items()[1].items() {
            *found.entry(key.text().to_owned()).or_default() += 1;
        }
        reply.items()[0].text().clone_into(&mut cursor);
        if cursor == "0" {
            break;
        }
        between(call);
    }
    found
}

fn check_stable(found: &BTreeMap<String, usize>, count: usize) {
    let missing: Vec<_> =
        (0..count).map(|n| format!("stable:{n}")).filter(|key| !found.contains_key(key)).collect();
    assert!(missing.is_empty(), "{} keys were not returned: {missing:?}", missing.len());
}

#[test]
fn without_changes_every_key_comes_once() {
    let server = server();
    let mut c = server.connect();
    for count in [0, 1, 10, 1000, 20_000] {
        c.ask("FLUSHALL");
        fill(&mut c, "stable", 0..count);
        for options in ["", "COUNT 1", "COUNT 1000", "COUNT 1000000"] {
            if options == "COUNT 1" && count > 1000 {
                continue;
            }
            let found = scan(&mut c, options, |_| ());
            assert_eq!(found.len(), count, "{options}");
            assert!(found.values().all(|times| *times == 1), "{options}");
        }
    }
}

#[test]
fn while_the_table_grows() {
    let server = server();
    let (mut c, mut other) = (server.connect(), server.connect());
    fill(&mut c, "stable", 0..3_000);
    let mut added = 0;
    let found = scan(&mut c, "COUNT 20", |_| {
        if added < 60_000 {
            fill(&mut other, "new", added..added + 600);
            added += 600;
        }
    });
    assert!(added >= 30_000, "the iteration ended before the table could grow");
    check_stable(&found, 3_000);
}

#[test]
fn while_the_table_shrinks() {
    let server = server();
    let (mut c, mut other) = (server.connect(), server.connect());
    fill(&mut c, "stable", 0..3_000);
    fill(&mut c, "old", 0..60_000);
    let mut removed = 0;
    let found = scan(&mut c, "COUNT 50", |_| {
        if removed < 60_000 {
            remove(&mut other, "old", removed..removed + 600);
            removed += 600;
        }
    });
    assert!(removed >= 30_000, "the iteration ended before the table could shrink");
    check_stable(&found, 3_000);
}

#[test]
fn while_keys_come_and_go_at_random() {
    takes_up_to_seconds(180);
    let server = server();
    let (mut c, mut other) = (server.connect(), server.connect());
    fill(&mut c, "stable", 0..2_000);
    for seed in 0..effort(2) {
        let mut random = Random::new(seed);
        let found = scan(&mut c, "COUNT 30", |_| {
            let start = random.below(20_000);
            if random.one_in(2) {
                fill(&mut other, "some", start..start + random.below(1_000));
            } else {
                remove(&mut other, "some", start..start + random.below(3_000));
            }
        });
        check_stable(&found, 2_000);
    }
}

/// A key that was deleted before the iteration began is not returned.
#[test]
fn keys_that_are_gone_stay_gone() {
    let server = server();
    let mut c = server.connect();
    fill(&mut c, "stable", 0..1_000);
    fill(&mut c, "gone", 0..1_000);
    remove(&mut c, "gone", 0..1_000);
    let found = scan(&mut c, "", |_| ());
    assert!(found.keys().all(|key| key.starts_with("stable:")), "{found:?}");
}

#[test]
fn each_database_has_its_own_keys() {
    let server = server();
    let mut c = server.connect();
    fill(&mut c, "zero", 0..300);
    c.check("SELECT 3", "+OK");
    fill(&mut c, "three", 0..200);
    let found = scan(&mut c, "COUNT 7", |_| ());
    assert!(found.len() == 200 && found.keys().all(|key| key.starts_with("three:")));
}

#[test]
fn options() {
    let server = server();
    let mut c = server.connect();
    fill(&mut c, "user", 0..200);
    fill(&mut c, "item", 0..100);
    let count = |server: &Server, options: &str| scan(&mut server.connect(), options, |_| ()).len();
    assert_eq!(count(&server, "MATCH user:*"), 200);
    assert_eq!(count(&server, "MATCH user:1? COUNT 50"), 10);
    assert_eq!(count(&server, "MATCH *"), 300);
    assert_eq!(count(&server, "TYPE string MATCH item:[0-4]"), 5);
    assert_eq!(count(&server, "TYPE list"), 0);
    c.check("SCAN x", "-ERR invalid cursor");
    c.check("SCAN 0 COUNT", "-ERR syntax error");
    c.check("SCAN 0 COUNT 0", "-ERR syntax error");
    c.check("SCAN 0 COUNT x", "-ERR value is not an integer or out of range");
    c.check("SCAN 0 NOSUCH 5", "-ERR syntax error");
}

/// A cursor that SCAN has not returned does no harm.
#[test]
fn invented_cursors() {
    let server = server();
    let mut c = server.connect();
    fill(&mut c, "stable", 0..1_000);
    for cursor in [1, 7, 1 << 20, 1 << 47, 1 << 48, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
        let reply = c.ask(&format!("SCAN {cursor}"));
        let keys: BTreeSet<_> = reply.items()[1].items().iter().collect();
        assert!(keys.len() <= 1_000);
        let next: u64 = reply.items()[0].text().parse().expect("a cursor");
        assert_ne!((next, cursor), (1, 1), "it goes on");
    }
    c.check("PING", "+PONG");
}
