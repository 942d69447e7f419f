//! Callbacks may do anything except wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tierce_client::pedrokv::Client;
use tierce_client::testing::FakeServer;
use tierce_client::{Config, Error};

/// Stores a value, and then the next one.
fn put_next(client: Client, left: u32, done: mpsc::Sender<()>) {
    let next = client.clone();
    client.put_with(&left.to_be_bytes(), b"value", move |result| {
        result.unwrap();
        match left {
            0 => done.send(()).unwrap(),
            _ => put_next(next, left - 1, done),
        }
    });
}

#[test]
fn a_callback_has_room_for_a_request_however_small_the_window() {
    let server = FakeServer::pedrokv();
    for max_inflight in [1, 2, 7] {
        let config = Config { max_inflight, ..Config::default() };
        let client = Client::connect(server.address(), config).unwrap();
        let (sender, done) = mpsc::channel();
        for _ in 0..max_inflight {
            put_next(client.clone(), 500, sender.clone());
        }
        for _ in 0..max_inflight {
            done.recv().unwrap();
        }
    }
}

#[test]
fn a_callback_that_asks_for_more_than_there_is_room_for_is_refused() {
    let server = FakeServer::pedrokv();
    let config = Config { max_inflight: 1, ..Config::default() };
    let client = Client::connect(server.address(), config).unwrap();
    let (sender, outcomes) = mpsc::channel();
    let inner = client.clone();
    client.get_with(b"key", move |_| {
        for _ in 0..3 {
            let sender = sender.clone();
            inner.get_with(b"key", move |result| sender.send(result.map(|_| ())).unwrap());
        }
    });
    let outcomes: Vec<_> = outcomes.iter().take(3).collect();
    assert_eq!(outcomes, [Err(Error::WindowFull), Err(Error::WindowFull), Ok(())]);
}

#[test]
fn a_panic_in_a_callback_harms_no_other() {
    let server = FakeServer::pedrokv();
    let client = Client::connect(server.address(), Config::default()).unwrap();
    for _ in 0..10 {
        client.get_with(b"key", |_| std::panic::resume_unwind(Box::new("on purpose")));
    }
    assert_eq!(client.get(b"key").wait(), Ok(None));
}

#[test]
fn values_come_back_exactly_through_callbacks_and_futures() {
    let server = FakeServer::pedrokv();
    let client = Client::connect(server.address(), Config::default()).unwrap();
    let values = [&b""[..], b"12ab", b"007", b"+5", b"\x00\xff\r\n", &[7; 65_000]];
    let seen = Arc::new(AtomicUsize::new(0));
    for value in values {
        client.put(b"key", value).wait().unwrap();
        assert_eq!(client.get(b"key").wait().unwrap().as_deref(), Some(value));
        let counted = Arc::clone(&seen);
        client.get_with(b"key", move |found| {
            assert_eq!(found.unwrap(), Some(value));
            counted.fetch_add(1, Ordering::Relaxed);
        });
    }
    assert_eq!(client.delete(b"key").wait(), Ok(true));
    assert_eq!(client.delete(b"key").wait(), Ok(false));
    assert_eq!(client.get(b"key").wait(), Ok(None));
    assert!(client.finish(Duration::from_secs(60)));
    assert_eq!(seen.load(Ordering::Relaxed), values.len());
}

#[test]
fn what_does_not_fit_the_protocol_is_refused_before_it_is_sent() {
    let server = FakeServer::pedrokv();
    let client = Client::connect(server.address(), Config::default()).unwrap();
    let key = client.put(&[0; 256], b"").wait().unwrap_err();
    let value = client.put(b"key", &[0; 65_525]).wait().unwrap_err();
    assert!(matches!(key, Error::TooLong(_)) && key.is_harmless());
    assert!(matches!(value, Error::TooLong(_)));
    assert_eq!(client.put(&[0; 255], &[1; 65_272]).wait(), Ok(()));
    assert!(client.finish(Duration::from_secs(60)));
    assert_eq!(client.outstanding(), 0);
    assert_eq!(server.requests(), 1);
}
