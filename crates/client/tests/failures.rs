//! Servers that cannot be reached, refuse, or do not answer.

use std::net::TcpListener;
use std::time::Duration;

use tierce_client::resp::{Client, Login, Pipeline, Value};
use tierce_client::testing::FakeServer;
use tierce_client::{Config, Error, Offline, pedrokv};

/// An address without a listener.
fn dead_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

#[test]
fn connecting_to_nobody_fails_at_once() {
    let error = pedrokv::Client::connect(dead_address(), Config::default()).err().unwrap();
    assert_eq!(error, Error::Unreachable(std::io::ErrorKind::ConnectionRefused));
    let error = Client::connect("unix:/nowhere/at/all", Config::default()).err().unwrap();
    assert!(matches!(error, Error::Unreachable(_)));
}

#[test]
fn without_a_connection_requests_time_out_or_fail_as_configured() {
    let timeout = Some(Duration::from_millis(50));
    let config = Config { timeout, ..Config::default() };
    let client = pedrokv::Client::start(dead_address(), config.clone()).unwrap();
    assert_eq!(client.get(b"key").wait(), Err(Error::TimedOut { sent: false }));
    assert!(client.is_down() && !client.is_connected());

    let config = Config { timeout: None, offline: Offline::Fail, ..config };
    let client = pedrokv::Client::start(dead_address(), config).unwrap();
    assert!(matches!(client.get(b"key").wait(), Err(Error::Unreachable(_))));
    assert!(matches!(client.put(b"key", b"").wait(), Err(Error::Unreachable(_))));
}

#[test]
fn a_request_that_is_not_answered_times_out() {
    let server = FakeServer::resp();
    let config = Config { timeout: Some(Duration::from_millis(50)), ..Config::default() };
    let client = Client::connect(server.address(), config).unwrap();
    assert_eq!(client.command(&["HANG"]).wait(), Err(Error::TimedOut { sent: true }));
    // The connection was closed, as it is unknown which request the next reply would answer.
    assert_eq!(client.command(&["PING"]).wait(), Ok(Value::Simple(b"PONG".to_vec())));
}

#[test]
fn a_login_is_made_with_every_connection() {
    let server = FakeServer::resp();
    let login = |password: &str| Login { password: Some(password.to_owned()), ..Login::default() };
    let client = Client::connect_as(server.address(), Config::default(), &login("secret")).unwrap();
    assert_eq!(client.get(b"key").wait(), Ok(None));
    server.hang_up();
    assert_eq!(client.get(b"key").wait(), Ok(None));
    assert_eq!(server.requests(), 4);

    let error = Client::connect_as(server.address(), Config::default(), &login("guess"));
    assert!(matches!(error.err(), Some(Error::Refused(text)) if text.starts_with("WRONGPASS")));
}

#[test]
fn errors_of_the_server_are_errors_of_one_request() {
    let server = FakeServer::resp();
    let client = Client::connect(server.address(), Config::default()).unwrap();
    let error = client.command(&["NONSENSE"]).wait().unwrap_err();
    assert_eq!(error, Error::Server("ERR unknown command".to_owned()));
    let pipeline = Pipeline::new().command(&["NONSENSE"]).unwrap().command(&["PING"]).unwrap();
    let replies = client.pipeline(&pipeline).wait().unwrap();
    assert!(replies[0].is_error());
    assert_eq!(replies[1], Value::Simple(b"PONG".to_vec()));
    let error = client.pipeline(&Pipeline::new()).wait().unwrap_err();
    assert!(matches!(error, Error::Unsupported(_)));
}
