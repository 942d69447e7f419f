//! Addresses that a server can listen on, and its errors for others.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use crate::support::{Client, Event, Server};
use tierce_net::{BindAddress, Config, Endpoints, ListenAddress, Listener, ListenerTag, Presence};

const TAG: ListenerTag = ListenerTag(7);

/// A directory that is removed with its contents.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> TempDir {
        let path = std::env::temp_dir().join(format!("tierce-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Parses an address, optional if it begins with a dash.
fn bind_to(text: &str) -> BindAddress {
    let (presence, ip) = match text.strip_prefix('-') {
        Some(ip) => (Presence::Optional, ip),
        None => (Presence::Required, text),
    };
    BindAddress { ip: ip.parse().unwrap(), presence }
}

#[test]
fn an_address_in_use_is_named() {
    let first = Listener::tcp(([127, 0, 0, 1], 0).into(), 16, TAG).unwrap();
    let ListenAddress::Tcp(address) = *first.address() else { panic!("not TCP") };
    let error = Listener::tcp(address, 16, TAG).unwrap_err();
    let expected = format!("could not listen on {address}: address already in use");
    assert_eq!(error.to_string(), expected);
    drop(first);
    Listener::tcp(address, 16, TAG).expect("free again");
}

#[test]
fn an_absent_address_is_an_error_unless_optional() {
    // An address for documentation, which no machine has.
    let error = Listener::tcp_all(&[bind_to("192.0.2.1")], 0, 16, TAG).unwrap_err();
    let expected = "could not listen on 192.0.2.1:0: this machine does not have the address";
    assert_eq!(error.to_string(), expected);
    let listeners =
        Listener::tcp_all(&[bind_to("127.0.0.1"), bind_to("-192.0.2.1")], 0, 16, TAG).unwrap();
    assert_eq!(listeners.len(), 1);
}

#[test]
fn an_optional_address_in_use_is_still_an_error() {
    let first = Listener::tcp(([127, 0, 0, 1], 0).into(), 16, TAG).unwrap();
    let ListenAddress::Tcp(address) = *first.address() else { panic!("not TCP") };
    assert!(Listener::tcp_all(&[bind_to("-127.0.0.1")], address.port(), 16, TAG).is_err());
}

#[test]
fn v6_is_served_beside_v4_on_the_same_port() {
    let Ok(v6) = Listener::tcp("[::]:0".parse().unwrap(), 16, TAG) else {
        eprintln!("this machine has no v6");
        return;
    };
    let ListenAddress::Tcp(address) = *v6.address() else { panic!("not TCP") };
    // Would be refused if the v6 socket took v4 connections too.
    let v4 = SocketAddr::from(([0, 0, 0, 0], address.port()));
    drop(Listener::tcp(v4, 16, TAG).expect("v4 is free"));
    let server = Server::start_on(Config::default(), v6, 100);
    let target: SocketAddr = format!("[::1]:{}", address.port()).parse().unwrap();
    let mut client = Client::new(TcpStream::connect(target).unwrap());
    client.check("echo six", "six");
    let Event::Opened(info) = server.next_event() else { panic!("not a connection") };
    assert_eq!(info.listener, TAG);
    let peer = client.stream.local_addr().unwrap();
    assert_eq!(info.endpoints, Endpoints::Tcp { peer, local: target });
}

#[test]
fn a_unix_socket_has_its_permissions_and_is_removed() {
    let dir = TempDir::new("unix");
    let path = dir.0.join("socket");
    let listener = Listener::unix(&path, Some(0o700), 16, TAG).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let error = Listener::unix(&path, None, 16, TAG).unwrap_err();
    let expected = format!("could not listen on {}: address already in use", path.display());
    assert_eq!(error.to_string(), expected);

    let server = Server::start_on(Config::default(), listener, 100);
    let mut client = Client::new(UnixStream::connect(&path).unwrap());
    client.check("echo unix", "unix");
    client.send("attach 5000000\nbytes 3000000\necho more\n");
    client.expect_pattern(5_000_000);
    client.expect_pattern(3_000_000);
    client.expect("more");
    let Event::Opened(info) = server.next_event() else { panic!("not a connection") };
    assert_eq!(info.endpoints, Endpoints::Unix);
    client.check("quit", "bye");
    server.stop();
    assert!(!path.exists());
}

#[test]
fn a_stale_socket_file_is_replaced_and_other_files_are_not() {
    let dir = TempDir::new("stale");
    let path = dir.0.join("socket");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "the standard library leaves the file behind");
    drop(Listener::unix(&path, None, 16, TAG).unwrap());
    std::fs::write(&path, "precious").unwrap();
    let error = Listener::unix(&path, None, 16, TAG).unwrap_err();
    let expected =
        format!("could not listen on {}: a file that is no socket is there", path.display());
    assert_eq!(error.to_string(), expected);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn listeners_can_be_exchanged() {
    let server = Server::one_worker();
    let (mut client, _) = server.connect_known();
    let new = Listener::tcp(([127, 0, 0, 1], 0).into(), 16, TAG).unwrap();
    let ListenAddress::Tcp(address) = *new.address() else { panic!("not TCP") };
    server.handle().listen(vec![new]);
    let mut late = Client::new(TcpStream::connect(address).unwrap());
    late.check("echo new", "new");
    client.check("echo old", "old");
    // The old listener was closed before the new one accepted.
    assert!(TcpStream::connect(server.tcp_address()).is_err());
}

/// A socket that no listener has accepted is a connection like any other, with its given addresses.
#[test]
fn a_socket_can_be_adopted() {
    let server = Server::one_worker();
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let endpoints = Endpoints::Tcp {
        peer: "192.0.2.7:7".parse().unwrap(),
        local: "127.0.0.1:80".parse().unwrap(),
    };
    server.handle().adopt(theirs.into(), endpoints, TAG);
    let mut client = Client::new(ours);
    client.check("echo adopted", "adopted");
    let Event::Opened(info) = server.next_event() else { panic!("not a connection") };
    assert_eq!((info.endpoints, info.listener), (endpoints, TAG));
    let (mut other, key) = server.connect_known();
    other.check("echo accepted", "accepted");
    assert_ne!(key, info.key);
    client.check("quit", "bye");
    server.stop();
}

#[test]
fn who_connects_early_is_answered_when_the_wait_is_over() {
    let listener = Listener::tcp(([127, 0, 0, 1], 0).into(), 16, TAG).unwrap();
    let ListenAddress::Tcp(address) = *listener.address() else { panic!("not TCP") };
    let (end_wait, wait) = mpsc::channel::<()>();
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    let server = Server::start_after(Config::default(), listener, 100, move || {
        let _ = wait.recv();
        ends.store(true, Ordering::SeqCst);
    });
    let mut early = TcpStream::connect(address).unwrap();
    early.write_all(b"echo here\n").unwrap();
    let reader = std::thread::spawn(move || {
        let mut answer = [0; 5];
        early.read_exact(&mut answer).unwrap();
        (answer, is_over.load(Ordering::SeqCst))
    });
    end_wait.send(()).unwrap();
    assert_eq!(reader.join().unwrap(), (*b"here\n", true));
    drop(server);
}
