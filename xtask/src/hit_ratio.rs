//! How often a key is found: the same requests to Tierce and to redis-server, by eviction policy.
//!
//! Both servers get GETs in pipelines, and a SET for each key that they did not have. There are two
//! ways to be fair, and both are reported: room for the same number of entries, and the same
//! `maxmemory`. For the former each server is filled with that number first, and asked what it takes.
//! The last two thirds of the requests count.

use std::path::PathBuf;

use tierce_harness::{Connection, Launch, Random, Reply, Server, encode};

use crate::differential::release_build;

/// GETs in a pipeline.
const DEPTH: usize = 50;

/// Keys, and requests, for each entry that there is room for.
const KEYS_PER_ENTRY: usize = 10;
const REQUESTS_PER_ENTRY: usize = 60;

const VALUE_LEN: usize = 100;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Entries that there is room for.
    #[arg(long, default_value_t = 50_000)]
    entries: usize,
    /// The server to test. By default the release build of this workspace.
    #[arg(long)]
    program: Option<PathBuf>,
    /// The server to compare with.
    #[arg(long, default_value = "redis-server")]
    reference: PathBuf,
}

/// A server that runs, and what it is called.
struct Subject {
    name: &'static str,
    server: Server,
}

/// What came of a run.
struct Outcome {
    hit_percent: f64,
    entries: i64,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let program = options.program.clone().unwrap_or_else(release_build);
    let tierce = Launch::new(program).start();
    let redis = Launch::new(&options.reference).with("save", "").with("daemonize", "no").start();
    let subjects =
        [Subject { name: "tierce", server: tierce }, Subject { name: "redis", server: redis }];
    println!(
        "{:12} {:8} {:>9} {:>12} {:>9} {:>7}",
        "policy", "workload", "server", "maxmemory", "entries", "hits"
    );
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu"] {
        let lifetime = lifetime_under(policy);
        let rooms = subjects.each_ref().map(|subject| room_for(subject, options.entries, lifetime));
        for (workload, one_time_percent) in [("zipf", 0), ("scanning", 33)] {
            let requests = requests(options.entries, one_time_percent);
            // The third run gives Tierce the memory that Redis needs for as many entries.
            for (subject, room) in [(0, rooms[0]), (1, rooms[1]), (0, rooms[1])] {
                let subject = &subjects[subject];
                let outcome = measure(subject, policy, room, &requests);
                println!(
                    "{policy:12} {workload:8} {:>9} {room:>12} {:>9} {:>6.2}%",
                    subject.name, outcome.entries, outcome.hit_percent
                );
            }
        }
    }
    Ok(())
}

/// Options of SET, so that the key may be evicted under this policy.
fn lifetime_under(policy: &str) -> &'static [&'static str] {
    if policy.starts_with("volatile") { &["EX", "100000"] } else { &[] }
}

/// Bytes that count against the limit when there are so many entries.
fn room_for(subject: &Subject, entries: usize, lifetime: &[&str]) -> u64 {
    let mut connection = subject.server.connect();
    connection.check("CONFIG SET maxmemory 0", "+OK");
    connection.check("FLUSHALL SYNC", "+OK");
    let keys: Vec<u64> = (0..entries as u64).collect();
    keys.chunks(DEPTH).for_each(|keys| store(&mut connection, keys, lifetime));
    let info = connection.ask("INFO memory").text().to_owned();
    let field = |name: &str| -> u64 {
        let line = info.lines().find_map(|line| line.strip_prefix(name)).expect("a known field");
        line.trim_start_matches(':').trim().parse().expect("a number")
    };
    field("used_memory:") - field("mem_not_counted_for_evict:")
}

fn measure(subject: &Subject, policy: &str, room: u64, requests: &[u64]) -> Outcome {
    let mut connection = subject.server.connect();
    connection.check("CONFIG SET maxmemory 0", "+OK");
    connection.check("FLUSHALL SYNC", "+OK");
    connection.check(&format!("CONFIG SET maxmemory-policy {policy}"), "+OK");
    connection.check(&format!("CONFIG SET maxmemory {room}"), "+OK");
    let warm = requests.len() / 3;
    let mut hits = 0;
    for (number, keys) in requests.chunks(DEPTH).enumerate() {
        let missing = ask(&mut connection, keys);
        if number * DEPTH >= warm {
            hits += keys.len() - missing.len();
        }
        store(&mut connection, &missing, lifetime_under(policy));
    }
    let hit_percent = hits as f64 * 100.0 / (requests.len() - warm) as f64;
    Outcome { hit_percent, entries: connection.ask("DBSIZE").int() }
}

fn key_name(key: u64) -> String {
    format!("key:{key:012}")
}

/// The keys among these that the server does not have.
fn ask(connection: &mut Connection, keys: &[u64]) -> Vec<u64> {
    let requests = keys.iter().flat_map(|key| encode(&[&b"GET"[..], key_name(*key).as_bytes()]));
    connection.send(requests.collect::<Vec<u8>>());
    let replies: Vec<Reply> = keys.iter().map(|_| connection.reply()).collect();
    let missing = keys.iter().zip(replies).filter(|(_, reply)| *reply == Reply::Nil);
    missing.map(|(key, _)| *key).collect()
}

fn store(connection: &mut Connection, keys: &[u64], lifetime: &[&str]) {
    let value = "v".repeat(VALUE_LEN);
    let requests =
        keys.iter().flat_map(|key| encode(&[&["SET", &key_name(*key), &value], lifetime].concat()));
    connection.send(requests.collect::<Vec<u8>>());
    keys.iter().for_each(|_| connection.expect("+OK"));
}

/// Keys by Zipf's law with exponent 0.99, so many of a hundred replaced by keys that are asked for
/// only once.
fn requests(entries: usize, one_time_percent: usize) -> Vec<u64> {
    const ONE_TIME: u64 = 100_000_000_000;
    let mut sum = 0.0;
    let mut popularity = Vec::with_capacity(entries * KEYS_PER_ENTRY);
    for rank in 1..=entries * KEYS_PER_ENTRY {
        sum += (rank as f64).powf(-0.99);
        popularity.push(sum);
    }
    let mut random = Random::new(42);
    (0..entries * REQUESTS_PER_ENTRY)
        .map(|number| {
            if random.below(100) < one_time_percent {
                return ONE_TIME + number as u64;
            }
            let point = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * sum;
            popularity.partition_point(|partial| *partial < point) as u64
        })
        .collect()
}
