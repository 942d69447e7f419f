//! The window is exact, with any mix of callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tierce_client::testing::{FakeServer, block_on};
use tierce_client::{Config, Error, pedrokv, resp};

#[test]
fn many_threads_never_exceed_the_window() {
    let server = FakeServer::pedrokv();
    for max_inflight in [1, 3, 50] {
        let config = Config { max_inflight, ..Config::default() };
        let client = pedrokv::Client::connect(server.address(), config).unwrap();
        let in_flight = Arc::new(AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..500u32 {
                        let counted = Arc::clone(&in_flight);
                        let end = move |_: Result<Option<&[u8]>, Error>| {
                            // Counted before the call returns or at that time, hence the 4 threads.
                            counted.fetch_sub(1, Ordering::SeqCst);
                        };
                        let now = in_flight.fetch_add(1, Ordering::SeqCst) + 1;
                        assert!(now <= max_inflight + 4, "{now} in flight");
                        client.get_with(&n.to_be_bytes(), end);
                        assert!(client.outstanding() <= max_inflight);
                    }
                });
            }
        });
        client.close();
        assert_eq!(in_flight.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn a_full_window_refuses_those_who_do_not_wait() {
    let server = FakeServer::resp();
    let config = Config { max_inflight: 2, timeout: None, ..Config::default() };
    let client = resp::Client::connect(server.address(), config).unwrap();
    let _hanging = [client.command(&["HANG"]), client.command(&["HANG"])];
    assert_eq!(client.outstanding(), 2);
    // Futures wait in line without blocking; dropped ones leave it.
    for _ in 0..10_000 {
        drop(client.get(b"key"));
    }
    let waiting = client.get(b"key");
    assert_eq!(client.outstanding(), 2);
    client.close();
    assert_eq!(waiting.wait(), Err(Error::Closed));

    let server = FakeServer::pedrokv();
    let client = pedrokv::Client::connect(server.address(), Config::default()).unwrap();
    client.close();
    assert!(client.try_get_with(b"key", |_| panic!("it was not accepted")).is_err());
    assert!(client.try_put_with(b"key", b"", |_| panic!("it was not accepted")).is_err());
}

#[test]
fn more_futures_than_the_window_has_room_for_are_all_answered() {
    let server = FakeServer::pedrokv();
    let config = Config { max_inflight: 8, ..Config::default() };
    let client = pedrokv::Client::connect(server.address(), config).unwrap();
    let stored: Vec<_> = (0..2_000u32).map(|n| client.put(&n.to_be_bytes(), b"x")).collect();
    block_on(async {
        client.ready().await.unwrap();
        for stored in stored {
            stored.await.unwrap();
        }
        assert_eq!(client.get(&1_999u32.to_be_bytes()).await.unwrap(), Some(b"x".to_vec()));
    });
    assert_eq!(server.requests(), 2_001);
}
