//! Commands are atomic, even those on several keys in different shards, from any connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tierce_harness::{Connection, Random, Reply, encode};

use crate::server;

const CONNECTIONS: usize = 4;

#[test]
fn no_increment_is_lost() {
    const ROUNDS: i64 = 5_000;
    let server = server();
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            let mut c = server.connect();
            scope.spawn(move || {
                let requests = [
                    encode(&["INCR", "hot"]),
                    encode(&["INCRBY", "sum", "3"]),
                    encode(&["APPEND", "text", "x"]),
                    encode(&["INCRBYFLOAT", "float", "0.5"]),
                ];
                let requests = requests.concat().repeat(50);
                for _ in 0..ROUNDS / 50 {
                    c.send(&requests);
                    (0..200).for_each(|_| assert!(!matches!(c.reply(), Reply::Error(_))));
                }
            });
        }
    });
    let mut c = server.connect();
    let all = CONNECTIONS as i64 * ROUNDS;
    c.check("GET hot", &format!("\"{all}\""));
    c.check("GET sum", &format!("\"{}\"", 3 * all));
    c.check("STRLEN text", &format!(":{all}"));
    c.check("GET float", &format!("\"{}\"", all / 2));
}

/// Clients read the number, and set the next one if nobody else has done so meanwhile.
#[test]
fn no_increment_by_comparison_is_lost() {
    const ROUNDS: usize = 500;
    let server = server();
    server.connect().check("SET n 0", "+OK");
    thread::scope(|scope| {
        for client in 0..CONNECTIONS {
            let mut c = server.connect();
            scope.spawn(move || {
                let mut done = 0;
                while done < ROUNDS {
                    let old = c.ask("GET n").text().to_owned();
                    let next = old.parse::<usize>().expect("a number") + 1;
                    let condition = if client % 2 == 0 {
                        format!("IFEQ {old}")
                    } else {
                        let digest = c.ask("DIGEST n");
                        // It may be the digest of a later number.
                        if c.ask("GET n").text() != old {
                            continue;
                        }
                        format!("IFDEQ {}", digest.text())
                    };
                    let reply = c.ask(&format!("SET n {next} {condition}"));
                    done += usize::from(reply.to_string() == "+OK");
                }
            });
        }
    });
    server.connect().check("GET n", &format!("\"{}\"", CONNECTIONS * ROUNDS));
}

/// Every writer sets all keys to one value, so a reader never sees two different ones.
#[test]
fn mset_is_seen_whole_or_not_at_all() {
    let server = server();
    let keys: Vec<String> = (0..20).map(|n| format!("key:{n}")).collect();
    let (done, keys) = (AtomicBool::new(false), &keys);
    set_all(&mut server.connect(), keys, "0");
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let mut c = server.connect();
                scope.spawn(move || {
                    (0..1_500).for_each(|n| set_all(&mut c, keys, &format!("{writer}:{n}")));
                })
            })
            .collect();
        for seed in 0..2 {
            let (mut c, done) = (server.connect(), &done);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                while !done.load(Ordering::Relaxed) {
                    // In a different order than the writers', to detect one-by-one locking.
                    let mut args: Vec<_> = keys.iter().map(String::as_str).collect();
                    (0..args.len()).for_each(|i| args.swap(i, random.below(keys.len())));
                    args.insert(0, "MGET");
                    let reply = c.call(&args);
                    assert!(reply.items().iter().all(|v| v == &reply.items()[0]), "{reply}");
                }
            });
        }
        let results: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.expect("no writer failed"));
    });
}

fn set_all(c: &mut Connection, keys: &[String], value: &str) {
    let pairs = keys.iter().flat_map(|key| [key.as_str(), value]);
    let args: Vec<_> = ["MSET"].into_iter().chain(pairs).collect();
    assert_eq!(c.call(&args).to_string(), "+OK");
}

#[test]
fn msetnx_has_one_winner() {
    has_one_winner(&["MSETNX"], &[]);
    has_one_winner(&["MSETEX", "3"], &["NX", "EX", "1000"]);
}

fn has_one_winner(before: &[&str], after: &[&str]) {
    let server = server();
    for round in 0..200 {
        let keys = [0, 1, 2].map(|n| format!("{round}:{n}"));
        let winners: i64 = thread::scope(|scope| {
            let tasks: Vec<_> = (0..CONNECTIONS)
                .map(|n| {
                    let (mut c, keys) = (server.connect(), &keys);
                    scope.spawn(move || {
                        // Each begins with another key.
                        let mut args: Vec<_> = before.iter().map(|arg| arg.to_string()).collect();
                        for i in 0..3 {
                            args.extend([keys[(n + i) % 3].clone(), n.to_string()]);
                        }
                        args.extend(after.iter().map(|arg| arg.to_string()));
                        c.call(&args).int()
                    })
                })
                .collect();
            tasks.into_iter().map(|task| task.join().expect("an answer")).sum()
        });
        assert_eq!(winners, 1, "round {round}");
        let values = server.connect().call(&["MGET", &keys[0], &keys[1], &keys[2]]);
        assert!(values.items().iter().all(|value| value == &values.items()[0]), "{values}");
    }
}

/// Tokens move between names and databases. Afterwards each one exists exactly once.
#[test]
fn a_renamed_or_moved_key_is_in_one_place() {
    const TOKENS: usize = 8;
    const PLACES: usize = 40;
    let server = server();
    let mut setup = server.connect();
    (0..TOKENS).for_each(|n| setup.check(&format!("SET place:{n} token:{n}"), "+OK"));
    thread::scope(|scope| {
        for seed in 0..CONNECTIONS as u64 {
            let mut c = server.connect();
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for _ in 0..2_000 {
                    let (from, to) = (random.below(PLACES), random.below(PLACES));
                    match random.below(8) {
                        0 => c.ask(&format!("SELECT {}", random.below(2))),
                        1 => c.ask(&format!("MOVE place:{from} {}", random.below(2))),
                        2 => c.ask("SWAPDB 0 1"),
                        _ => c.ask(&format!("RENAMENX place:{from} place:{to}")),
                    };
                }
            });
        }
    });
    let mut found = Vec::new();
    for db in 0..2 {
        setup.ask(&format!("SELECT {db}"));
        for place in 0..PLACES {
            if let Reply::Bulk(token) = setup.ask(&format!("GET place:{place}")) {
                found.push(String::from_utf8(token).expect("a token"));
            }
        }
    }
    found.sort();
    let all: Vec<_> = (0..TOKENS).map(|n| format!("token:{n}")).collect();
    assert_eq!(found, all);
}

/// Two connections that rename in opposite directions need the same two shards.
#[test]
fn opposite_orders_do_not_lock_each_other_out() {
    let server = server();
    server.connect().check("MSET a 1 b 2", "+OK");
    thread::scope(|scope| {
        for n in 0..CONNECTIONS {
            let mut c = server.connect();
            scope.spawn(move || {
                let (x, y) = if n % 2 == 0 { ("a", "b") } else { ("b", "a") };
                for _ in 0..1_000 {
                    c.ask(&format!("COPY {x} {y} REPLACE"));
                    c.ask(&format!("MGET {x} {y} {x}"));
                    c.ask(&format!("RENAME {x} {y}"));
                    c.ask(&format!("MSETNX {y} 1 {x} 2"));
                    c.ask("DBSIZE");
                }
            });
        }
    });
    let mut c = server.connect();
    c.check("PING", "+PONG");
    assert!((1..=2).contains(&c.ask("DBSIZE").int()));
}
