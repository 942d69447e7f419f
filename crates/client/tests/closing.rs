//! After closing, all requests are completed and no new ones accepted.

use std::sync::mpsc;
use std::time::Duration;

use tierce_client::testing::{FakeServer, block_on};
use tierce_client::{Config, Error, pedrokv, resp};

#[test]
fn closing_completes_what_is_in_flight_and_what_waits() {
    let server = FakeServer::resp();
    let config = Config { max_inflight: 2, timeout: None, ..Config::default() };
    let client = resp::Client::connect(server.address(), config).unwrap();
    let hanging: Vec<_> = (0..5).map(|_| client.command(&["HANG"])).collect();
    let blocked = {
        let client = client.clone();
        std::thread::spawn(move || {
            let (sender, outcome) = mpsc::channel();
            client.get_with(b"key", move |result| sender.send(result.map(|_| ())).unwrap());
            outcome.recv().unwrap()
        })
    };
    let ready = client.ready();
    client.close();
    for reply in hanging {
        assert_eq!(reply.wait(), Err(Error::Closed));
    }
    assert_eq!(blocked.join().unwrap(), Err(Error::Closed));
    assert_eq!(ready.wait(), Err(Error::Closed));
    assert_eq!(client.get(b"key").wait(), Err(Error::Closed));
    assert_eq!(client.outstanding(), 0);
}

#[test]
fn dropping_the_client_closes_it() {
    let server = FakeServer::resp();
    let config = Config { timeout: None, ..Config::default() };
    let client = resp::Client::connect(server.address(), config).unwrap();
    let clone = client.clone();
    let reply = clone.command(&["HANG"]);
    drop(client);
    assert!(clone.is_connected());
    drop(clone);
    assert_eq!(block_on(reply), Err(Error::Closed));
}

#[test]
fn a_callback_may_drop_and_close_the_client() {
    let server = FakeServer::pedrokv();
    let client = pedrokv::Client::connect(server.address(), Config::default()).unwrap();
    let (sender, done) = mpsc::channel();
    let inner = client.clone();
    client.get_with(b"key", move |_| {
        inner.close();
        inner.get_with(b"key", move |result| sender.send(result.map(|_| ())).unwrap());
    });
    drop(client);
    assert_eq!(done.recv().unwrap(), Err(Error::Closed));
}

#[test]
fn finishing_waits_for_what_is_in_flight() {
    let server = FakeServer::pedrokv();
    let client = pedrokv::Client::connect(server.address(), Config::default()).unwrap();
    let (sender, outcomes) = mpsc::channel();
    for n in 0..1_000u32 {
        let sender = sender.clone();
        client.put_with(&n.to_be_bytes(), b"", move |result| sender.send(result).unwrap());
    }
    assert!(client.finish(Duration::from_secs(60)));
    drop(sender);
    assert_eq!(outcomes.iter().filter(Result::is_ok).count(), 1_000);

    let server = FakeServer::resp();
    let client = resp::Client::connect(server.address(), Config::default()).unwrap();
    let reply = client.command(&["HANG"]);
    assert!(!client.finish(Duration::ZERO));
    assert_eq!(reply.wait(), Err(Error::Closed));
}
