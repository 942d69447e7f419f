//! A soak test: the server closes connections again and again while threads make requests. Every
//! request is completed exactly once, and no caller gets the value of another key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use tierce_client::testing::FakeServer;
use tierce_client::{Backoff, Config, Error, pedrokv, resp};

const THREADS: u32 = 4;
const REQUESTS: u32 = 3_000;

fn config() -> Config {
    let quick = Backoff { first: Duration::from_millis(1), max: Duration::from_millis(5) };
    Config {
        max_inflight: 64,
        timeout: Some(Duration::from_secs(60)),
        retries: u32::MAX,
        backoff: quick,
        reconnect: quick,
        ..Config::default()
    }
}

/// Counts completions; each may be counted once.
struct Ledger(Vec<AtomicU32>);

impl Ledger {
    fn new() -> Arc<Ledger> {
        Arc::new(Ledger((0..THREADS * REQUESTS).map(|_| AtomicU32::new(0)).collect()))
    }

    fn complete(&self, request: u32) {
        self.0[request as usize].fetch_add(1, Ordering::Relaxed);
    }

    #[track_caller]
    fn check(&self) {
        assert!(self.0.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }
}

#[test]
fn pedrokv_through_a_server_that_dies_again_and_again() {
    let server = FakeServer::pedrokv();
    let client = pedrokv::Client::connect(server.address(), config()).unwrap();
    for n in 0..100u32 {
        client.put(&n.to_be_bytes(), &n.to_be_bytes()).wait().unwrap();
    }
    server.die_every(7);
    let ledger = Ledger::new();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (client, ledger) = (&client, &ledger);
            scope.spawn(move || {
                for n in 0..REQUESTS {
                    let (request, key) = (thread * REQUESTS + n, (n % 100).to_be_bytes());
                    let ledger = Arc::clone(ledger);
                    if n % 5 == 0 {
                        client.put_with(&key, &key, move |result| {
                            let is_lost = matches!(result, Err(Error::Disconnected(_)));
                            assert!(result.is_ok() || is_lost, "{result:?}");
                            ledger.complete(request);
                        });
                    } else {
                        client.get_with(&key, move |result| {
                            assert_eq!(result, Ok(Some(&key[..])));
                            ledger.complete(request);
                        });
                    }
                }
            });
        }
    });
    assert!(client.finish(Duration::from_secs(60)));
    ledger.check();
}

#[test]
fn resp_through_a_server_that_dies_again_and_again() {
    let server = FakeServer::resp();
    let client = resp::Client::connect(server.address(), config()).unwrap();
    server.die_every(7);
    let ledger = Ledger::new();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (client, ledger) = (&client, &ledger);
            scope.spawn(move || {
                let mut replies = Vec::new();
                for n in 0..REQUESTS {
                    let text = format!("{thread}:{n}");
                    replies.push((n, text.clone(), client.query(&["ECHO", &text])));
                }
                for (n, text, reply) in replies {
                    assert_eq!(reply.wait().unwrap().as_bytes(), Some(text.as_bytes()));
                    ledger.complete(thread * REQUESTS + n);
                }
            });
        }
    });
    ledger.check();
}
