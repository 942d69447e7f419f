//! The synchronous clients.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::Duration;

use tierce_client::resp::{Login, Pipeline, Value};
use tierce_client::testing::FakeServer;
use tierce_client::{Config, Error, pedrokv, resp};

#[test]
fn a_lost_connection_is_made_again_for_the_next_request() {
    let server = FakeServer::pedrokv();
    let mut client = pedrokv::SyncClient::new(server.address(), Config::default());
    client.put(b"key", b"value").unwrap();
    server.hang_up();
    // Reads are repeated, writes are not.
    assert_eq!(client.get(b"key"), Ok(Some(b"value".to_vec())));
    server.hang_up();
    assert!(matches!(client.put(b"key", b"other"), Err(Error::Disconnected(_))));
    assert_eq!(client.put(b"key", b"other"), Ok(()));
}

/// A server that reads one request and answers with these bytes, then closes.
fn answering(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]).unwrap();
        stream.write_all(answer).unwrap();
    });
    address
}

#[test]
fn ends_and_foreign_answers_are_noticed() {
    let config = Config { retries: 0, ..Config::default() };
    // Half a frame, then the end: the original client waits for ever.
    let mut client = pedrokv::SyncClient::new(answering(b"\x00\x0c\x00\x00"), config.clone());
    assert!(matches!(client.get(b"key"), Err(Error::Disconnected(_))));
    // The id of another request: the original client does not check it.
    let mut client =
        pedrokv::SyncClient::new(answering(b"\x00\x07\x00\x00\x00\x00\x09"), config.clone());
    assert!(matches!(client.get(b"key"), Err(Error::Protocol(_))));
    let mut client = pedrokv::SyncClient::new(answering(b"\x00\x06\x00"), config);
    assert!(matches!(client.get(b"key"), Err(Error::Protocol(_))));
}

#[test]
fn a_request_that_is_not_answered_times_out() {
    let server = FakeServer::resp();
    let config = Config { timeout: Some(Duration::from_millis(50)), ..Config::default() };
    let mut client = resp::SyncClient::new(server.address(), config, &Login::default());
    assert_eq!(client.command(&["HANG"]), Err(Error::TimedOut { sent: true }));
    assert_eq!(client.command(&["PING"]), Ok(Value::Simple(b"PONG".to_vec())));
}

#[test]
fn pipelines_and_logins_work_synchronously() {
    let server = FakeServer::resp();
    let login = Login { password: Some("secret".to_owned()), ..Login::default() };
    let mut client = resp::SyncClient::new(server.address(), Config::default(), &login);
    let pipeline = Pipeline::new().command(&["SET", "a", "1"]).unwrap();
    let pipeline = pipeline.command(&["GET", "a"]).unwrap().command(&["DEL", "a"]).unwrap();
    let replies = client.pipeline(&pipeline).unwrap();
    let expected = [Value::Simple(b"OK".to_vec()), Value::Bulk(b"1".to_vec()), Value::Int(1)];
    assert_eq!(replies, expected);
    assert_eq!(server.requests(), 4);

    let login = Login { password: Some("guess".to_owned()), ..Login::default() };
    let mut client = resp::SyncClient::new(server.address(), Config::default(), &login);
    assert!(matches!(client.connect(), Err(Error::Refused(_))));
}

#[test]
fn unix_sockets_serve_both_kinds_of_clients() {
    let path = std::env::temp_dir().join(format!("tierce-client-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let server = thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 9];
            stream.read_exact(&mut request).unwrap();
            let mut answer = *b"\x00\x08\x00\x00\x00\x00\x00v";
            answer[3..7].copy_from_slice(&request[4..8]);
            stream.write_all(&answer).unwrap();
        }
    });
    let address = format!("unix:{}", path.display());
    let mut client = pedrokv::SyncClient::new(address.as_str(), Config::default());
    assert_eq!(client.get(b"k"), Ok(Some(b"v".to_vec())));
    let client = pedrokv::Client::connect(address.as_str(), Config::default()).unwrap();
    assert_eq!(client.get(b"k").wait(), Ok(Some(b"v".to_vec())));
    server.join().unwrap();
    std::fs::remove_file(path).unwrap();
}
