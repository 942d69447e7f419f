//! Measures the cost of a request for this client and a server, in throughput and CPU time.
//!
//! ```text
//! cargo run --release -p tierce-client --example load -- pedrokv 127.0.0.1:1082 get \
//!     requests=4000000 window=1024 producers=1 clients=1 face=callback pid=1234
//! ```
//!
//! `pid` is a server whose CPU time is added. `face` is one of `callback`, `future` and `sync`. Run `put` before
//! `get`, so that the keys exist. Keys have 16 bytes, values 100. If the address is `-`, the small server of the
//! tests answers in this process, and its CPU time counts as well.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tierce_client::testing::FakeServer;
use tierce_client::{Config, Error, Reply, pedrokv, resp};

/// Number of records.
const RECORDS: u64 = 100_000;

const VALUE: [u8; 100] = [b'v'; 100];

type Got = Result<Option<Vec<u8>>, Error>;

/// Operations of a client that are measured.
trait Target: Send + Sync + 'static {
    fn get_with(&self, key: &[u8], done: Arc<AtomicU64>);
    fn put_with(&self, key: &[u8], done: Arc<AtomicU64>);
    fn get(&self, key: &[u8]) -> Reply<Got>;
    fn finish(&self);
}

macro_rules! target {
    ($client:ty, $put_with:ident) => {
        impl Target for $client {
            fn get_with(&self, key: &[u8], done: Arc<AtomicU64>) {
                self.get_with(key, move |found| count(&done, found.map(|value| value.is_some())));
            }

            fn put_with(&self, key: &[u8], done: Arc<AtomicU64>) {
                self.$put_with(key, &VALUE, move |stored| count(&done, stored.map(|()| true)));
            }

            fn get(&self, key: &[u8]) -> Reply<Got> {
                self.get(key)
            }

            fn finish(&self) {
                assert!(self.finish(Duration::from_secs(60)));
            }
        }
    };
}

target!(pedrokv::Client, put_with);
target!(resp::Client, set_with);

/// Counts a completed request. There is only one writer, so counting costs almost nothing.
fn count(done: &AtomicU64, result: Result<bool, Error>) {
    if result.expect("the server answers") {
        done.store(done.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

fn key(n: u64) -> [u8; 16] {
    let mut key = *b"key:000000000000";
    let (mut rest, mut at) = (n % RECORDS, key.len());
    while rest > 0 {
        at -= 1;
        key[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

struct Options {
    protocol: String,
    address: String,
    is_put: bool,
    face: String,
    numbers: HashMap<String, u64>,
}

impl Options {
    fn read() -> Options {
        let mut args = std::env::args().skip(1);
        let mut next = || args.next().expect("protocol, address, get or put, then name=value");
        let (protocol, address, operation) = (next(), next(), next());
        let (mut numbers, mut face) = (HashMap::new(), "callback".to_owned());
        for arg in args {
            match arg.split_once('=').expect("name=value") {
                ("face", value) => face = value.to_owned(),
                (name, value) => {
                    numbers.insert(name.to_owned(), value.parse().expect("a number"));
                }
            }
        }
        Options { protocol, address, is_put: operation == "put", face, numbers }
    }

    fn number(&self, name: &str, default: u64) -> u64 {
        self.numbers.get(name).copied().unwrap_or(default)
    }
}

/// Returns the CPU time of a process in nanoseconds. A tick is a hundredth of a second.
fn cpu_ns(pid: u64) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process lives");
    let fields: Vec<&str> = stat[stat.rfind(')').expect("a name") + 2..].split(' ').collect();
    let ticks: u64 =
        [11, 12].map(|field: usize| fields[field].parse::<u64>().expect("ticks")).iter().sum();
    ticks * 10_000_000
}

fn main() {
    let mut options = Options::read();
    let server = (options.address == "-").then(|| match options.protocol.as_str() {
        "resp" => FakeServer::resp(),
        _ => FakeServer::pedrokv(),
    });
    if let Some(server) = &server {
        options.address = server.address().to_string();
    }
    let (own, peer) = (u64::from(std::process::id()), options.number("pid", 0));
    let before = (cpu_ns(own), if peer > 0 { cpu_ns(peer) } else { 0 });
    let start = Instant::now();
    let requests = match options.face.as_str() {
        "sync" => run_sync(&options),
        _ => run_async(&options),
    };
    let elapsed = start.elapsed();
    let client_ns = (cpu_ns(own) - before.0) / requests;
    let server_ns = if peer > 0 { (cpu_ns(peer) - before.1) / requests } else { 0 };
    println!(
        "{} {} {}: {:.0} requests/s, CPU ns/request: client {client_ns}, server {server_ns}",
        options.protocol,
        if options.is_put { "put" } else { "get" },
        options.face,
        requests as f64 / elapsed.as_secs_f64(),
    );
}

fn run_async(options: &Options) -> u64 {
    let config =
        Config { max_inflight: options.number("window", 1024) as usize, ..Config::default() };
    let clients: Vec<Arc<dyn Target>> = (0..options.number("clients", 1))
        .map(|_| -> Arc<dyn Target> {
            let address = options.address.as_str();
            match options.protocol.as_str() {
                "resp" => Arc::new(resp::Client::connect(address, config.clone()).unwrap()),
                _ => Arc::new(pedrokv::Client::connect(address, config.clone()).unwrap()),
            }
        })
        .collect();
    let producers = options.number("producers", 1);
    let each = options.number("requests", 1_000_000) / producers;
    let done: Vec<Arc<AtomicU64>> = clients.iter().map(|_| Arc::default()).collect();
    thread::scope(|scope| {
        for producer in 0..producers {
            let index = producer as usize % clients.len();
            let (client, done) = (&clients[index], &done[index]);
            scope.spawn(move || match (options.face.as_str(), options.is_put) {
                ("future", _) => get_futures(&**client, each, done),
                (_, true) => {
                    (0..each)
                        .for_each(|n| client.put_with(&key(producer * each + n), done.clone()));
                }
                (_, false) => {
                    (0..each)
                        .for_each(|n| client.get_with(&key(producer * each + n), done.clone()));
                }
            });
        }
    });
    clients.iter().for_each(|client| client.finish());
    let answered: u64 = done.iter().map(|done| done.load(Ordering::Relaxed)).sum();
    assert!(answered > 0, "no key was found: put before get");
    each * producers
}

/// Makes requests with a thousand futures at a time.
fn get_futures(client: &dyn Target, requests: u64, done: &Arc<AtomicU64>) {
    let mut replies = Vec::new();
    for start in (0..requests).step_by(1000) {
        replies.extend((start..start + 1000).map(|n| client.get(&key(n))));
        for reply in replies.drain(..) {
            count(done, reply.wait().map(|value| value.is_some()));
        }
    }
}

fn run_sync(options: &Options) -> u64 {
    let clients = options.number("clients", 1);
    let each = options.number("requests", 100_000) / clients;
    thread::scope(|scope| {
        for client in 0..clients {
            scope.spawn(move || {
                let address = options.address.as_str();
                let keys = (client * each..(client + 1) * each).map(key);
                if options.protocol == "resp" {
                    let login = resp::Login::default();
                    let mut client = resp::SyncClient::new(address, Config::default(), &login);
                    for key in keys {
                        match options.is_put {
                            true => client.set(&key, &VALUE).unwrap(),
                            false => assert!(client.get(&key).unwrap().is_some()),
                        }
                    }
                } else {
                    let mut client = pedrokv::SyncClient::new(address, Config::default());
                    for key in keys {
                        match options.is_put {
                            true => client.put(&key, &VALUE).unwrap(),
                            false => assert!(client.get(&key).unwrap().is_some()),
                        }
                    }
                }
            });
        }
    });
    each * clients
}
