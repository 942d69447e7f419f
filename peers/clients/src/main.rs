//! What a request costs the asynchronous clients: tierce-client, with futures and with callbacks, and the
//! multiplexed connection of the redis crate.
//!
//! ```text
//! redis-server --port 7602 --save '' &
//! cargo run --release --manifest-path peers/clients/Cargo.toml -- 127.0.0.1:7602 1000000
//! ```
//!
//! Each makes so many GETs of 100 bytes over one connection, with 1024 in flight: futures in 1024 tasks of
//! one runtime with one thread, each of which makes one request after the other. What counts is the
//! processor time of this process. Without arguments a small server in this process answers a few
//! requests, whose time then counts as well: that only shows that everything works.
//!
//! A third argument chooses clients by a part of their name, for instance to count instructions, which
//! depend less on what else runs on the machine:
//!
//! ```text
//! valgrind --tool=callgrind target/release/tierce-clients 127.0.0.1:7602 61440 futures
//! ```

use std::fs;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tierce_client::testing::FakeServer;
use tierce_client::{Config, resp};
use tokio::runtime::Builder;
use tokio::task::LocalSet;

/// Requests in flight, and tasks.
const WINDOW: u64 = 1024;

/// Keys that are read.
const KEYS: u64 = 1024;

/// Rounds; the best one counts, as others disturb on a shared machine.
const ROUNDS: usize = 3;

fn main() {
    let mut args = std::env::args().skip(1);
    let server = FakeServer::resp();
    let address = args.next().unwrap_or_else(|| server.address().to_string());
    let requests = args.next().map_or(20_000, |count| count.parse().expect("a number"));
    let chosen = args.next().unwrap_or_default();
    fill(&address);
    let kinds: [(&str, Run); 3] = [
        ("tierce-client, callbacks", callbacks),
        ("tierce-client, futures", futures),
        ("redis, multiplexed", multiplexed),
    ];
    println!("| client | requests/s | CPU ns/request |\n|---|--:|--:|");
    for (name, run) in kinds.into_iter().filter(|(name, _)| name.contains(&chosen)) {
        let rounds = (0..ROUNDS).map(|_| measure(|| run(&address, requests)));
        let (cpu, elapsed) = rounds.min().expect("there are rounds");
        let rate = requests as f64 / elapsed.as_secs_f64();
        println!("| {name} | {rate:.0} | {} |", cpu.as_nanos() / u128::from(requests));
    }
}

/// Makes so many requests to the server at an address.
type Run = fn(&str, u64);

fn measure(run: impl FnOnce()) -> (Duration, Duration) {
    let (cpu, start) = (cpu_time(), Instant::now());
    run();
    (cpu_time() - cpu, start.elapsed())
}

/// Processor time of this process, in hundredths of a second.
fn cpu_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
    let after_name = &stat[stat.rfind(')').expect("a name") + 2..];
    let ticks =
        after_name.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("ticks"));
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

fn key(n: u64) -> [u8; 16] {
    let mut key = *b"key:0000000000xx";
    key[8..].copy_from_slice(format!("{:08}", n % KEYS).as_bytes());
    key
}

fn connect(address: &str) -> resp::Client {
    let config = Config { max_inflight: WINDOW as usize, ..Config::default() };
    resp::Client::connect(address, config).expect("the server listens")
}

fn fill(address: &str) {
    let client = connect(address);
    let stored: Vec<_> = (0..KEYS).map(|n| client.set(&key(n), &[b'v'; 100])).collect();
    stored.into_iter().for_each(|stored| stored.wait().expect("it is stored"));
}

fn callbacks(address: &str, requests: u64) {
    let client = connect(address);
    let found = Arc::new(AtomicU64::new(0));
    for n in 0..requests {
        let found = Arc::clone(&found);
        client.get_with(&key(n), move |value| {
            let is_found = value.expect("it is answered").is_some();
            // One writer, so that counting costs next to nothing.
            found.store(found.load(Ordering::Relaxed) + u64::from(is_found), Ordering::Relaxed);
        });
    }
    assert!(client.finish(Duration::from_secs(60)));
    assert_eq!(found.load(Ordering::Relaxed), requests);
}

fn futures(address: &str, requests: u64) {
    let client = Rc::new(connect(address));
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let tasks = LocalSet::new();
    for task in 0..WINDOW {
        let client = Rc::clone(&client);
        tasks.spawn_local(async move {
            for n in 0..requests / WINDOW {
                let value = client.get(&key(task + n)).await.expect("it is answered");
                assert!(value.is_some());
            }
        });
    }
    runtime.block_on(tasks);
}

fn multiplexed(address: &str, requests: u64) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let tasks = LocalSet::new();
    runtime.block_on(tasks.run_until(async {
        let client = redis::Client::open(format!("redis://{address}")).expect("an address");
        let connection =
            client.get_multiplexed_async_connection().await.expect("the server listens");
        let running: Vec<_> = (0..WINDOW)
            .map(|task| {
                let mut connection = connection.clone();
                tokio::task::spawn_local(async move {
                    for n in 0..requests / WINDOW {
                        let key = key(task + n);
                        let value: Option<Vec<u8>> = redis::cmd("GET")
                            .arg(&key[..])
                            .query_async(&mut connection)
                            .await
                            .expect("it is answered");
                        assert!(value.is_some());
                    }
                })
            })
            .collect();
        for task in running {
            task.await.expect("the task ends");
        }
    }));
}
