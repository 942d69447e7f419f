//! The test as a primary: it reads the commands of its replicas, and sends them copies and the stream.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tierce_harness::{Launch, PATIENCE, Reply, encode, wait_until, words};

use crate::launch;

pub(super) const ID: &str = "0123456789abcdef0123456789abcdef01234567";
pub(super) const OTHER_ID: &str = "fedcba98765432100123456789abcdef01234567";

pub(super) type Encrypted = StreamOwned<ServerConnection, TcpStream>;

/// The test as a primary.
pub(crate) struct Primary(TcpListener);

/// A connected replica.
pub(crate) struct Follower<S = TcpStream> {
    pub(super) stream: S,
    received: Vec<u8>,
}

impl Primary {
    pub(crate) fn new() -> Self {
        Self::at("127.0.0.1")
    }

    pub(super) fn at(host: &str) -> Self {
        Self(TcpListener::bind((host, 0)).expect("a port"))
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.local_addr().expect("an address").port()
    }

    /// Makes a launch of a replica of this primary.
    pub(crate) fn replica(&self) -> Launch {
        let address = self.0.local_addr().expect("an address");
        launch().with("replicaof", &format!("{} {}", address.ip(), address.port()))
    }

    /// Returns true if no replica has connected since the last one.
    pub(super) fn is_left_alone(&self) -> bool {
        self.0.set_nonblocking(true).expect("a socket option");
        self.0.accept().is_err()
    }

    /// Accepts the next connection. A disconnected replica reconnects after a second.
    #[track_caller]
    pub(crate) fn accept(&self) -> Follower {
        self.0.set_nonblocking(true).expect("a socket option");
        let mut accepted = None;
        wait_until("the replica connects", || {
            accepted = self.0.accept().ok();
            accepted.is_some()
        });
        let (stream, _) = accepted.expect("a connection");
        stream.set_nonblocking(false).expect("a socket option");
        stream.set_nodelay(true).expect("a socket option");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        Follower { stream, received: Vec::new() }
    }

    /// Accepts the next connection, and reads up to PSYNC. Returns its arguments, too.
    #[track_caller]
    pub(crate) fn accept_until_psync(&self) -> (Follower, String) {
        let mut follower = self.accept();
        let psync = follower.psync();
        (follower, psync)
    }

    /// Accepts the next connection, and sends these strings as a full copy at `offset`.
    #[track_caller]
    pub(crate) fn give_copy(&self, offset: u64, strings: &[(&str, &str)]) -> Follower {
        let (mut follower, _) = self.accept_until_psync();
        follower.send(format!("+FULLRESYNC {ID} {offset}\r\n"));
        follower.send_file(&file(strings));
        follower
    }
}

impl Follower {
    /// Encrypts the connection from now on.
    pub(super) fn encrypted(self, config: &Arc<ServerConfig>) -> Follower<Encrypted> {
        let session = ServerConnection::new(Arc::clone(config)).expect("a session");
        Follower { stream: StreamOwned::new(session, self.stream), received: self.received }
    }
}

impl<S: Read + Write> Follower<S> {
    /// Reads up to PSYNC, and returns that command.
    #[track_caller]
    pub(crate) fn psync(&mut self) -> String {
        loop {
            let command = self.command();
            match command.split(' ').next().unwrap_or_default() {
                "PSYNC" => return command,
                "PING" => self.send("+PONG\r\n"),
                _ => self.send("+OK\r\n"),
            }
        }
    }

    #[track_caller]
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the replica takes the bytes");
    }

    pub(super) fn send_file(&mut self, file: &[u8]) {
        self.send(format!("${}\r\n", file.len()));
        self.send(file);
    }

    /// Returns the next command of the replica.
    #[track_caller]
    pub(crate) fn command(&mut self) -> String {
        loop {
            // Newlines that keep the link alive while it loads a copy.
            let blank = self.received.iter().take_while(|byte| **byte == b'\n').count();
            self.received.drain(..blank);
            if let Some((reply, len)) = Reply::decode(&self.received) {
                self.received.drain(..len);
                let words: Vec<_> = reply.items().iter().map(Reply::text).collect();
                return words.join(" ");
            }
            let mut chunk = [0; 4096];
            let len = self.stream.read(&mut chunk).expect("a command of the replica");
            assert!(len > 0, "the replica has closed the connection");
            self.received.extend_from_slice(&chunk[..len]);
        }
    }

    /// Waits until the replica has applied the stream up to this offset.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, offset: u64) {
        let expected = format!("REPLCONF ACK {offset}");
        // With a log, it also reports the offset on the device.
        let is_it = |command: &str| command.split(" FACK ").next() == Some(&expected);
        while !is_it(&self.command()) {}
    }

    /// Waits until the replica ends the connection.
    #[track_caller]
    pub(crate) fn wait_for_end(&mut self) {
        let mut chunk = [0; 4096];
        while self.stream.read(&mut chunk).is_ok_and(|len| len > 0) {}
    }
}

/// Makes an RDB file with strings in database 0, and no checksum.
pub(super) fn file(strings: &[(&str, &str)]) -> Vec<u8> {
    let mut file = b"REDIS0010\xfe\x00".to_vec();
    for (key, value) in strings {
        file.push(0);
        for text in [key, value] {
            file.push(u8::try_from(text.len()).expect("a short string"));
            file.extend_from_slice(text.as_bytes());
        }
    }
    file.push(0xff);
    file.extend([0; 8]);
    file
}

/// Like `file`, with these auxiliary fields first.
pub(super) fn file_that_says(remarks: &[(&str, &str)], strings: &[(&str, &str)]) -> Vec<u8> {
    let mut file = file(strings);
    let rest = file.split_off(9);
    for (name, value) in remarks {
        file.push(0xfa);
        for text in [name, value] {
            file.push(u8::try_from(text.len()).expect("a short string"));
            file.extend_from_slice(text.as_bytes());
        }
    }
    file.extend(rest);
    file
}

/// Encodes commands as in a stream.
pub(super) fn stream(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|line| encode(&words(line))).collect()
}
