//! Hit ratio: the same requests to Tierce and to redis-server, by eviction policy.
//!
//! Both servers get GETs in pipelines, and a SET for each missing key. There are two fair comparisons, and both are
//! reported: room for an equal number of entries, and an equal `maxmemory`. For the former, each server is filled
//! with that number first and asked for its memory. The last two thirds of the requests count.

use std::path::PathBuf;

use tierce_harness::{Connection, Launch, Random, Reply, Server, encode};

use crate::differential::release_build;

/// GETs in a pipeline.
const DEPTH: usize = 50;

/// Number of keys, and of requests, for each entry that fits.
const KEYS_PER_ENTRY: usize = 10;
const REQUESTS_PER_ENTRY: usize = 60;

const VALUE_LEN: usize = 100;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of entries that fit.
    #[arg(long, default_value_t = 50_000)]
    entries: usize,
    /// The server to test. By default the release build of this workspace.
    #[arg(long)]
    program: Option<PathBuf>,
    /// The server to compare with.
    #[arg(long, default_value = "redis-server")]
    reference: PathBuf,
}

/// A running server and its name.
struct Subject {
    name: &'static str,
    server: Server,
}

/// Result of a run.
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

/// Returns options of SET that allow the eviction of the key under this policy.
fn lifetime_under(policy: &str) -> &'static [&'static str] {
    if policy.starts_with("volatile") { &["EX", "100000"] } else { &[] }
}

/// Returns the memory that this number of entries needs, as counted against the limit.
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

/// Returns those of the keys that the server does not have.
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

/// Returns keys by Zipf's law with exponent 0.99. This percentage of them is replaced by keys that are requested only
/// once.
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
