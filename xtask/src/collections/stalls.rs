//! The slowest request of other clients while a very large collection is deleted, expires, is overwritten, flushed,
//! saved, or saved while it is being written. The others ask for another key and for that collection, so they wait
//! for the shard's lock or for their worker.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tierce_harness::{Connection, Server, encode, wait_until};

use super::load::{add, fill};

/// Upper bound of the numbers of elements.
const ELEMENTS_MAX: usize = 1_000_000_000;

/// Duration of the measurement without any other load.
const QUIET: Duration = Duration::from_secs(2);

pub(super) fn run(servers: &[Server; 2], elements: usize, types: &[String]) {
    println!("Slowest request of another connection in milliseconds, {elements} elements.\n");
    println!("| type | what happens | tierce | redis |\n|---|---|--:|--:|");
    let alone =
        servers.each_ref().map(|server| slowest_during(server, "none", |_| thread::sleep(QUIET)));
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
                let key = format!("{kind}:0");
                slowest_during(server, &key, |connection| act(connection, &key))
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

const ACTS: [(&str, Act); 8] = [
    ("writes", |connection, key| {
        let end = Instant::now() + QUIET;
        while Instant::now() < end {
            write_some(connection, key);
        }
    }),
    ("BGSAVE", |connection, _| save(connection, None)),
    ("BGSAVE and a write", |connection, key| save(connection, Some(key))),
    ("BGSAVE under writes", |connection, key| {
        connection.check("BGSAVE", "+Background saving started");
        while is_saving(connection) {
            write_some(connection, key);
        }
    }),
    ("DEL", |connection, key| connection.check(&format!("DEL {key}"), ":1")),
    ("expiry", |connection, key| {
        connection.check(&format!("PEXPIRE {key} 1"), ":1");
        wait_until("the key expires", || connection.ask("DBSIZE").int() == 0);
    }),
    ("SET", |connection, key| connection.check(&format!("SET {key} x"), "+OK")),
    ("FLUSHALL", |connection, _| connection.check("FLUSHALL", "+OK")),
];

/// Saves all data, and adds an element to the collection as soon as the save has begun.
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
    wait_until("the save ends", || !is_saving(connection));
}

fn is_saving(connection: &mut Connection) -> bool {
    connection.ask("INFO persistence").text().contains("rdb_bgsave_in_progress:1")
}

/// Changes elements in all parts of a collection, one command each.
fn write_some(connection: &mut Connection, key: &str) {
    const COMMANDS: usize = 200;
    // Numbers that repeat late enough, and are spread over all with six digits.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let mut requests = Vec::new();
    for _ in 0..COMMANDS {
        let number = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(611_953) % 1_000_000;
        let element = format!("elem:{number:06}");
        let request: &[&str] = match key.split(':').next() {
            Some("list") if number.is_multiple_of(2) => &["LPUSH", key, &element],
            Some("list") => &["RPOP", key],
            Some("set") if number.is_multiple_of(2) => &["SREM", key, &element],
            Some("set") => &["SADD", key, &format!("new:{number}")],
            Some("zset") => &["ZINCRBY", key, "1", &element],
            Some("hash") => &["HSET", key, &element, "another value"],
            _ => &["XADD", key, "*", "field", &element],
        };
        requests.extend(encode(request));
    }
    connection.send(&requests);
    (0..COMMANDS).for_each(|_| _ = connection.reply());
}

/// Returns the slowest request of a connection that only sends GET and asks for a key, while `act` runs and shortly
/// after.
fn slowest_during(server: &Server, key: &str, act: impl FnOnce(&mut Connection)) -> Duration {
    const AFTERWARDS: Duration = Duration::from_millis(500);
    let (mut loader, mut actor) = (server.connect(), server.connect());
    let is_over = &AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(move || {
            let mut slowest = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                for request in [["GET", "absent"], ["EXISTS", key]] {
                    let begun = Instant::now();
                    loader.call(&request);
                    slowest = slowest.max(begun.elapsed());
                }
            }
            slowest
        });
        act(&mut actor);
        thread::sleep(AFTERWARDS);
        is_over.store(true, Ordering::Relaxed);
        load.join().expect("a load does not panic")
    })
}
