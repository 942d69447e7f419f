//! A connection against a rustls client, over real sockets, with the byte stream split anywhere.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use proptest::prelude::*;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, SupportedProtocolVersion,
};
use tierce_harness::effort;

use super::{Buffers, Progress, Tls};

/// More steps than any exchange takes.
const STEPS_MAX: usize = 2_000_000;

fn fixture(name: &str) -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/certificates/");
    std::fs::read(format!("{path}{name}")).expect("a fixture")
}

fn certificate(name: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(&fixture(name)).expect("a certificate")
}

fn server_config(version: &'static SupportedProtocolVersion) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::from_pem_slice(&fixture("server.key")).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_no_client_auth()
        .with_single_cert(vec![certificate("server.crt")], key);
    Arc::new(config.expect("they fit"))
}

fn client_config() -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate("ca.crt")).expect("an authority");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// Both ends of a connection.
struct Ends {
    tls: Tls,
    buffers: Buffers,
    socket: UnixStream,
    peer: ClientConnection,
    peer_socket: UnixStream,
    /// Encrypted bytes that the peer has not sent.
    unsent: Vec<u8>,
}

impl Ends {
    fn new(version: &'static SupportedProtocolVersion) -> Self {
        let (socket, peer_socket) = UnixStream::pair().expect("sockets");
        socket.set_nonblocking(true).expect("an option");
        peer_socket.set_nonblocking(true).expect("an option");
        let session = UnbufferedServerConnection::new(server_config(version)).expect("a session");
        let name = ServerName::try_from("localhost").expect("a name");
        let mut peer = ClientConnection::new(client_config(), name).expect("a session");
        peer.set_buffer_limit(None);
        let (tls, buffers) = (Tls::new(session), Buffers::default());
        Self { tls, buffers, socket, peer, peer_socket, unsent: Vec::new() }
    }

    fn shake_hands(&mut self) -> io::Result<Progress> {
        self.tls.shake_hands(self.socket.as_fd(), &mut self.buffers)
    }

    /// Appends received bytes, at most `room`. Returns false at the end.
    fn receive(&mut self, room: usize, to: &mut Vec<u8>) -> io::Result<bool> {
        let mut bytes = vec![0; room];
        let received =
            self.tls.receive(self.socket.as_fd(), &mut self.buffers, room, |at, some| {
                bytes[at..at + some.len()].copy_from_slice(some);
            });
        match received {
            Ok(count) => {
                to.extend_from_slice(&bytes[..count]);
                Ok(count > 0)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The peer sends at most `count` bytes of its records.
    fn peer_sends(&mut self, count: usize) {
        while self.peer.wants_write() {
            self.peer.write_tls(&mut self.unsent).expect("a vector takes all");
        }
        let count = count.min(self.unsent.len());
        match self.peer_socket.write(&self.unsent[..count]) {
            Ok(sent) => drop(self.unsent.drain(..sent)),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }

    /// The peer receives at most `count` bytes of records.
    fn peer_receives(&mut self, count: usize, to: &mut Vec<u8>) {
        let mut records = vec![0; count];
        match self.peer_socket.read(&mut records) {
            Ok(count) => {
                let mut records = &records[..count];
                while !records.is_empty() {
                    self.peer.read_tls(&mut records).expect("a slice gives all");
                    self.peer.process_new_packets().expect("no error of the protocol");
                    let _ = self.peer.reader().read_to_end(to);
                }
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

fn room() -> impl Strategy<Value = usize> {
    prop_oneof![1..100usize, Just(4096), 16_000..16_500usize, Just(65_536)]
}

fn version() -> impl Strategy<Value = &'static SupportedProtocolVersion> {
    prop_oneof![Just(&TLS12), Just(&TLS13)]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 0 } else { effort(64) },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// For records split anywhere and any amount of room: bytes arrive as they were sent, and nothing is kept when all
    /// have arrived. Requests arrive before the handshake is complete.
    #[test]
    fn bytes_arrive_as_they_were_sent(
        version in version(),
        len in 0..200_000usize,
        pieces in prop::collection::vec(1..40_000usize, 1..8),
        cuts in prop::collection::vec(prop_oneof![1..20usize, 1..5000usize, Just(100_000)], 1..20),
        rooms in prop::collection::vec(room(), 1..10),
    ) {
        let mut ends = Ends::new(version);
        let sent = pattern(len);
        let mut at = 0;
        for piece in pieces.iter().cycle() {
            if at == len {
                break;
            }
            let end = len.min(at + piece);
            ends.peer.writer().write_all(&sent[at..end]).expect("no limit");
            at = end;
        }
        let (mut cuts, mut rooms) = (cuts.into_iter().cycle(), rooms.into_iter().cycle());
        let mut is_complete = false;
        let mut received = Vec::new();
        for step in 0.. {
            prop_assert!(step < STEPS_MAX, "it does not end");
            ends.peer_sends(cuts.next().expect("an endless iterator"));
            ends.peer_receives(100_000, &mut Vec::new());
            if is_complete {
                prop_assert!(ends.receive(rooms.next().expect("endless"), &mut received).unwrap());
            } else {
                is_complete = matches!(ends.shake_hands().unwrap(), Progress::Complete { .. });
            }
            if is_complete && received.len() == len && ends.unsent.is_empty() {
                break;
            }
        }
        prop_assert_eq!(received, sent);
        prop_assert_eq!(ends.tls.input_capacity(), 0);
        prop_assert_eq!(ends.tls.output_capacity(), 0);
        // The end, with the protocol's close_notify.
        ends.peer.send_close_notify();
        ends.peer_sends(usize::MAX);
        prop_assert!(!ends.receive(100, &mut Vec::new()).unwrap());
    }

    /// Tests the other direction. Bytes count as sent when the socket has taken their records, so never more than the
    /// peer could know; the others are passed again, split differently.
    #[test]
    fn bytes_leave_once_and_in_order(
        version in version(),
        len in 0..2_000_000usize,
        slices in prop::collection::vec(prop_oneof![1..50usize, 1..60_000usize], 1..40),
        reads in prop::collection::vec(prop_oneof![1..1000usize, Just(300_000)], 1..10),
    ) {
        let mut ends = Ends::new(version);
        while ends.shake_hands().unwrap() == Progress::Waiting {
            ends.peer_sends(usize::MAX);
            ends.peer_receives(100_000, &mut Vec::new());
        }
        let given = pattern(len);
        let (mut slices, mut reads) = (slices.into_iter().cycle(), reads.into_iter().cycle());
        let (mut sent, mut received) = (0, Vec::new());
        for step in 0.. {
            prop_assert!(step < STEPS_MAX, "it does not end");
            let mut rest = &given[sent..];
            let mut parts = Vec::new();
            while !rest.is_empty() && parts.len() < 64 {
                let (part, behind) = rest.split_at(slices.next().expect("endless").min(rest.len()));
                parts.push(IoSlice::new(part));
                rest = behind;
            }
            let count = ends.tls.send(ends.socket.as_fd(), &mut ends.buffers, &parts).unwrap();
            // If an earlier call encrypted more than this one was given, all of that may have been sent.
            prop_assert!(sent + count <= len);
            sent += count;
            ends.peer_receives(reads.next().expect("endless"), &mut received);
            prop_assert!(received.len() <= len);
            if sent == len && received.len() == len {
                break;
            }
        }
        prop_assert_eq!(received, given);
        prop_assert!(!ends.tls.has_unsent());
        prop_assert_eq!(ends.tls.output_capacity(), 0);
    }

    /// Anything that a peer sends, before or after its handshake, causes an error at most: no panic, and no byte for
    /// the session.
    #[test]
    fn garbage_ends_a_connection(
        version in version(),
        shakes_hands in any::<bool>(),
        garbage in prop::collection::vec(any::<u8>(), 6..2000),
        header in prop::option::of((20..24u8, 0..400u16)),
    ) {
        let mut ends = Ends::new(version);
        if shakes_hands {
            while ends.shake_hands().unwrap() == Progress::Waiting {
                ends.peer_sends(usize::MAX);
                ends.peer_receives(100_000, &mut Vec::new());
            }
        }
        let mut garbage = garbage;
        if let Some((kind, len)) = header {
            garbage[..5].copy_from_slice(&[kind, 3, 3, (len >> 8) as u8, len as u8]);
        }
        ends.peer_socket.write_all(&garbage).expect("there is room");
        ends.peer_socket.shutdown(std::net::Shutdown::Write).expect("an open socket");
        let mut received = Vec::new();
        if shakes_hands {
            while let Ok(true) = ends.receive(4096, &mut received) {}
        } else {
            while let Ok(Progress::Waiting) = ends.shake_hands() {}
        }
        prop_assert!(received.is_empty());
    }
}

/// A message of the protocol arrives in parts while replies are sent.
#[test]
#[cfg_attr(miri, ignore = "there are no sockets")]
fn replies_leave_while_a_record_is_incomplete() {
    let mut ends = Ends::new(&TLS13);
    while ends.shake_hands().unwrap() == Progress::Waiting {
        ends.peer_sends(usize::MAX);
        ends.peer_receives(100_000, &mut Vec::new());
    }
    let (mut received, mut replies) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        ends.peer.refresh_traffic_keys().expect("a handshake that is complete");
        ends.peer.writer().write_all(b"request").expect("no limit");
        while ends.peer.wants_write() || !ends.unsent.is_empty() {
            ends.peer_sends(7);
            assert!(ends.receive(100, &mut received).unwrap());
            let reply = [IoSlice::new(b"reply")];
            let sent = ends.tls.send(ends.socket.as_fd(), &mut ends.buffers, &reply);
            assert_eq!(sent.unwrap(), 5);
            ends.peer_receives(100_000, &mut replies);
        }
    }
    assert_eq!(received, b"request".repeat(50));
    assert!(replies.len() % 5 == 0 && replies == b"reply".repeat(replies.len() / 5));
}
