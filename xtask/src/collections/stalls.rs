//! The slowest of other requests while something happens to a very large collection as a whole: it is
//! deleted, expires, is overwritten, flushed, saved, or saved while it is being written.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tierce_harness::{Connection, Server, encode, wait_until};

use super::load::{add, fill};

/// No collection has an element with a higher number.
const ELEMENTS_MAX: usize = 1_000_000_000;

/// How long the load without anything else is watched.
const QUIET: Duration = Duration::from_secs(2);

pub(super) fn run(servers: &[Server; 2], elements: usize, types: &[String]) {
    println!("Slowest GET of another connection in milliseconds, {elements} elements.\n");
    println!("| type | what happens | tierce | redis |\n|---|---|--:|--:|");
    let alone = servers.each_ref().map(|server| slowest_during(server, |_| thread::sleep(QUIET)));
    row("none", "nothing", alone);
    for kind in ["list", "set", "zset", "hash", "stream"] {
        if !types.is_empty() && !types.iter().any(|name| name == kind) {
            continue;
        }
        for (what, act) in ACTS {
            let slowest = servers.each_ref().map(|server| {
                let mut connection = server.connect();
                connection.check("FLUSHALL SYNC", "+OK");
                fill(&mut connection, kind, 1, elements);
                slowest_during(server, |connection| act(connection, &format!("{kind}:0")))
            });
            row(kind, what, slowest);
        }
    }
}

fn row(kind: &str, what: &str, [tierce, redis]: [Duration; 2]) {
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    println!("| {kind} | {what} | {:.1} | {:.1} |", ms(tierce), ms(redis));
}

type Act = fn(&mut Connection, &str);

const ACTS: [(&str, Act); 6] = [
    ("BGSAVE", |connection, _| save(connection, None)),
    ("BGSAVE and a write", |connection, key| save(connection, Some(key))),
    ("DEL", |connection, key| connection.check(&format!("DEL {key}"), ":1")),
    ("expiry", |connection, key| {
        connection.check(&format!("PEXPIRE {key} 1"), ":1");
        wait_until("the key expires", || connection.ask("DBSIZE").int() == 0);
    }),
    ("SET", |connection, key| connection.check(&format!("SET {key} x"), "+OK")),
    ("FLUSHALL", |connection, _| connection.check("FLUSHALL", "+OK")),
];

/// Saves all data, and adds an element to the collection as soon as that has begun.
fn save(connection: &mut Connection, written: Option<&str>) {
    connection.send(encode(&["BGSAVE"]));
    if let Some(key) = written {
        let kind = key.split(':').next().expect("a key begins with its type");
        connection.send(add(kind, key, ELEMENTS_MAX..ELEMENTS_MAX + 1));
    }
    assert_eq!(connection.reply().text(), "Background saving started");
    if written.is_some() {
        connection.reply();
    }
    let in_progress = "rdb_bgsave_in_progress:1";
    wait_until("the save ends", || {
        !connection.ask("INFO persistence").text().contains(in_progress)
    });
}

/// The slowest request of a connection that does nothing but GET while `act` runs, and shortly after.
fn slowest_during(server: &Server, act: impl FnOnce(&mut Connection)) -> Duration {
    const AFTERWARDS: Duration = Duration::from_millis(500);
    let (mut loader, mut actor) = (server.connect(), server.connect());
    let is_over = &AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(move || {
            let mut slowest = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                loader.check("GET absent", "nil");
                slowest = slowest.max(begun.elapsed());
            }
            slowest
        });
        act(&mut actor);
        thread::sleep(AFTERWARDS);
        is_over.store(true, Ordering::Relaxed);
        load.join().expect("a load does not panic")
    })
}
