//! A connection, read one reply at a time.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use socket2::{Domain, Socket, Type};

use crate::patience::{PATIENCE, check_limit};
use crate::{Reply, TlsStream, encode, tls_stream, words};

/// A connection to a server. Any failure on it fails the test.
pub struct Connection {
    stream: Stream,
    /// Received bytes. Those from `taken` on were not asked for yet.
    received: Vec<u8>,
    taken: usize,
}

enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream>),
    Unix(UnixStream),
}

impl Connection {
    /// Connects over TCP.
    ///
    /// # Panics
    /// If there is no answer.
    #[track_caller]
    #[must_use]
    pub fn tcp(address: SocketAddr) -> Self {
        Self::of_tcp(TcpStream::connect(address).unwrap_or_else(|e| panic!("{address}: {e}")))
    }

    /// Connects over TCP from another address of this machine, like a different client.
    ///
    /// # Panics
    /// If there is no answer.
    #[track_caller]
    #[must_use]
    pub fn tcp_from(source: Ipv4Addr, address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from((source, 0)).into()).expect("an address of this machine");
        socket.connect(&address.into()).unwrap_or_else(|e| panic!("{address}: {e}"));
        Self::of_tcp(socket.into())
    }

    fn of_tcp(stream: TcpStream) -> Self {
        // Half a request must be sent at once.
        stream.set_nodelay(true).expect("a socket option");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket option");
        Self { stream: Stream::Tcp(stream), received: Vec::new(), taken: 0 }
    }

    /// Connects over TLS. Nothing is sent before the first request.
    ///
    /// # Panics
    /// If there is no listener.
    #[track_caller]
    #[must_use]
    pub fn tls(address: SocketAddr, config: &Arc<ClientConfig>) -> Self {
        let stream = Stream::Tls(Box::new(tls_stream(address, config)));
        Self { stream, received: Vec::new(), taken: 0 }
    }

    /// Connects over a Unix socket.
    ///
    /// # Panics
    /// If there is no answer.
    #[track_caller]
    #[must_use]
    pub fn unix(path: &Path) -> Self {
        let stream =
            UnixStream::connect(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket option");
        Self { stream: Stream::Unix(stream), received: Vec::new(), taken: 0 }
    }

    /// Returns the address of this end of a TCP connection, as servers show it.
    ///
    /// # Panics
    /// If it is a Unix socket.
    #[must_use]
    pub fn local_address(&self) -> String {
        match &self.stream {
            Stream::Tls(stream) => stream.sock.local_addr().expect("an address").to_string(),
            Stream::Tcp(stream) => stream.local_addr().expect("an address").to_string(),
            Stream::Unix(_) => panic!("a Unix socket has no address"),
        }
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    /// If the server does not accept them.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("the server takes the bytes");
    }

    /// Sends bytes to a server that may have closed the connection.
    ///
    /// # Errors
    /// If the server has closed it, or does not read.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes.as_ref()),
            Stream::Tls(stream) => stream.write_all(bytes.as_ref()).and_then(|()| stream.flush()),
            Stream::Unix(stream) => stream.write_all(bytes.as_ref()),
        }
    }

    /// Sends a request.
    ///
    /// # Panics
    /// If the server does not accept it.
    #[track_caller]
    pub fn request<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        self.send(encode(args));
    }

    /// Sends a request and reads its reply.
    ///
    /// # Panics
    /// If the connection fails.
    #[track_caller]
    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        self.request(args);
        self.reply()
    }

    /// Sends a request given as a line of words, and reads its reply.
    ///
    /// # Panics
    /// If the connection fails.
    #[track_caller]
    pub fn ask(&mut self, line: &str) -> Reply {
        self.call(&words(line))
    }

    /// Sends a request given as a line of words. Its reply must be equal to `expected` in the
    /// notation of [`Reply`].
    ///
    /// # Panics
    /// If the reply is different.
    #[track_caller]
    pub fn check(&mut self, line: &str, expected: &str) {
        let reply = self.ask(line).to_string();
        assert_eq!(reply, expected, "the reply to: {line}");
    }

    /// Reads a reply, which must be equal to `expected`.
    ///
    /// # Panics
    /// If it is different.
    #[track_caller]
    pub fn expect(&mut self, expected: &str) {
        assert_eq!(self.reply().to_string(), expected);
    }

    /// Reads a reply.
    ///
    /// # Panics
    /// If none arrives, or the bytes are no reply.
    #[track_caller]
    pub fn reply(&mut self) -> Reply {
        let (reply, len) = self.decoded();
        drop(self.take(len));
        reply
    }

    /// Reads a reply and returns its bytes.
    ///
    /// # Panics
    /// If none arrives, or the bytes are no reply.
    #[track_caller]
    pub fn reply_bytes(&mut self) -> Vec<u8> {
        let (_, len) = self.decoded();
        self.take(len)
    }

    /// Returns the next reply, without consuming it, and its length.
    #[track_caller]
    fn decoded(&mut self) -> (Reply, usize) {
        loop {
            if let Some(found) = Reply::decode(&self.received[self.taken..]) {
                return found;
            }
            assert!(self.receive(), "closed instead of a reply, after {:?}", self.unread());
        }
    }

    /// Reads exactly this number of bytes.
    ///
    /// # Panics
    /// If fewer arrive.
    #[track_caller]
    pub fn read_exactly(&mut self, len: usize) -> Vec<u8> {
        while self.received.len() - self.taken < len {
            assert!(self.receive(), "closed instead of {len} bytes, after {:?}", self.unread());
        }
        self.take(len)
    }

    /// Reads until the server closes, and returns the bytes.
    ///
    /// # Panics
    /// If the server keeps the connection open.
    #[track_caller]
    pub fn rest(&mut self) -> Vec<u8> {
        while self.receive() {}
        self.take(self.received.len() - self.taken)
    }

    /// Reads a reply or, if the server closes first, the bytes before that.
    ///
    /// # Panics
    /// If the server does neither.
    #[track_caller]
    pub fn reply_or_rest(&mut self) -> Vec<u8> {
        while Reply::decode(&self.received[self.taken..]).is_none() {
            if !self.receive() {
                return self.rest();
            }
        }
        self.reply_bytes()
    }

    /// Requires that the server closes without another byte.
    ///
    /// # Panics
    /// If it does not.
    #[track_caller]
    pub fn expect_closed(&mut self) {
        let rest = self.rest();
        assert!(rest.is_empty(), "{} instead of an end", rest.escape_ascii());
    }

    /// Returns true if nothing arrives for this time. For events that must not happen.
    ///
    /// # Panics
    /// If the connection fails.
    #[track_caller]
    pub fn is_silent_for(&mut self, time: Duration) -> bool {
        if self.taken < self.received.len() {
            return false;
        }
        self.set_read_timeout(time);
        let mut byte = [0];
        let result = self.read(&mut byte);
        self.set_read_timeout(PATIENCE);
        match result {
            Ok(count) => {
                self.received.extend_from_slice(&byte[..count]);
                false
            }
            Err(error) if is_timeout(&error) => true,
            Err(error) => panic!("{error}"),
        }
    }

    /// Closes the sending side.
    ///
    /// # Panics
    /// If the connection is closed.
    pub fn finish_sending(&mut self) {
        match &mut self.stream {
            Stream::Tls(stream) => {
                stream.conn.send_close_notify();
                stream.flush()
            }
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
        .expect("an open connection");
    }

    /// Returns a second handle to the same socket, for a thread that only sends.
    ///
    /// # Panics
    /// If there are no file descriptors left, or it is a Unix socket.
    #[must_use]
    pub fn sender(&self) -> TcpStream {
        match &self.stream {
            Stream::Tcp(stream) => stream.try_clone().expect("a file descriptor"),
            Stream::Tls(_) | Stream::Unix(_) => panic!("only for TCP"),
        }
    }

    fn take(&mut self, len: usize) -> Vec<u8> {
        let bytes = self.received[self.taken..self.taken + len].to_vec();
        self.taken += len;
        if self.taken == self.received.len() {
            self.received.clear();
            self.taken = 0;
        }
        bytes
    }

    fn unread(&self) -> String {
        const SHOWN: usize = 200;
        let unread = &self.received[self.taken..];
        unread[..unread.len().min(SHOWN)].escape_ascii().to_string()
    }

    /// Receives some bytes. Returns false at the end of the connection.
    #[track_caller]
    fn receive(&mut self) -> bool {
        check_limit();
        let mut chunk = [0; 64 << 10];
        match self.read(&mut chunk) {
            Ok(count) => {
                self.received.extend_from_slice(&chunk[..count]);
                count > 0
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) if is_timeout(&error) => {
                panic!("nothing for {PATIENCE:?}, after {:?}", self.unread())
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.read(into),
            Stream::Tls(stream) => stream.read(into),
            Stream::Unix(stream) => stream.read(into),
        }
    }

    fn set_read_timeout(&mut self, time: Duration) {
        match &self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(Some(time)),
            Stream::Tls(stream) => stream.sock.set_read_timeout(Some(time)),
            Stream::Unix(stream) => stream.set_read_timeout(Some(time)),
        }
        .expect("a socket option");
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
