//! A server with another protocol besides Redis', and its clients, which send bytes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};

use crate::{Launch, PATIENCE, Server, free_port};

/// A server with two protocols.
pub struct Both {
    /// The server, with Redis' protocol on its own port.
    pub server: Server,
    /// Port of the other protocol.
    pub port: u16,
}

impl Both {
    /// Starts a server with the other protocol on a free port, to which `port_directive` is set.
    pub fn start(launch: Launch, port_directive: &str) -> Self {
        let port = free_port();
        let server = launch.with(port_directive, &port.to_string()).start();
        Self { server, port }
    }

    /// Opens a connection to the other port.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("a listener");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream
    }

    /// Sends pieces and returns everything that comes back until the server has answered them all and closed its end.
    pub fn talk<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
        let mut stream = self.connect();
        for piece in pieces {
            stream.write_all(piece).expect("sent");
        }
        stream.shutdown(Shutdown::Write).expect("a socket");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("received");
        answer
    }

    /// Sends bytes and expects this answer.
    #[track_caller]
    pub fn check(&self, bytes: &[u8], expected: &[u8]) {
        let answer = self.talk([bytes]);
        assert_eq!(
            answer.escape_ascii().to_string(),
            expected.escape_ascii().to_string(),
            "to {}",
            bytes.escape_ascii()
        );
    }
}
