//! A connection that the calling thread itself reads and writes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
#[cfg(feature = "tls")]
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::config::Config;
use crate::engine::{Greeting, Input};
use crate::error::Error;
use crate::framing::{Frame, Framing};
#[cfg(feature = "tls")]
use crate::socket::begin_session;
use crate::socket::resolve;
#[cfg(feature = "tls")]
use crate::tls::TlsSession;
use crate::window::Repeat;

/// A connection with one request at a time. It reconnects after it was lost.
pub(crate) struct Connection<F> {
    address: Address,
    config: Config,
    greeting: Greeting,
    stream: Option<Stream>,
    framing: F,
    input: Input,
    output: Vec<u8>,
    next_id: u32,
    random: u64,
}

/// A blocking socket.
#[derive(Debug)]
struct Stream {
    socket: Socket,
    #[cfg(feature = "tls")]
    tls: Option<Box<TlsSession>>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl<F: Framing + Default> Connection<F> {
    pub(crate) fn new(address: Address, config: Config, greeting: Greeting) -> Connection<F> {
        Connection {
            address,
            config,
            greeting,
            stream: None,
            framing: F::default(),
            input: Input::new(),
            output: Vec::new(),
            next_id: 0,
            random: 1,
        }
    }

    /// Connects, if there is no connection.
    pub(crate) fn connect(&mut self) -> Result<(), Error> {
        if self.stream.is_some() {
            return Ok(());
        }
        let stream = Stream::connect(&self.address, &self.config)
            .map_err(|error| Error::Unreachable(error.kind()))?;
        self.stream = Some(stream);
        self.framing.reset();
        self.input.clear();
        if self.greeting.answers > 0 {
            self.greet().inspect_err(|_| self.stream = None)?;
        }
        Ok(())
    }

    fn greet(&mut self) -> Result<(), Error> {
        let until = Some(Instant::now() + self.config.connect_timeout);
        self.output.clear();
        self.output.extend_from_slice(&self.greeting.bytes);
        self.send()?;
        for _ in 0..self.greeting.answers {
            let frame = self.receive(None, 1, until)?;
            let answer = &self.input.unread()[frame.start..frame.end];
            let refused = self.greeting.refusal.and_then(|refusal| refusal(answer));
            self.input.consume(frame.end);
            if let Some(text) = refused {
                return Err(Error::Refused(text));
            }
        }
        Ok(())
    }

    /// Makes a request, waits for the answer and converts it with `read`. After a failure, repeats the request if
    /// that is allowed, as often as the configuration says.
    pub(crate) fn request<T>(
        &mut self,
        encode: impl Fn(&mut Vec<u8>) -> Result<(), Error>,
        repeat: Repeat,
        replies: usize,
        read: impl Fn(&[u8]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let until = self.config.timeout.map(|timeout| Instant::now() + timeout);
        let mut failures = 0;
        loop {
            match self.attempt(&encode, replies, until) {
                Ok(frame) => {
                    let result = read(&self.input.unread()[frame.start..frame.end]);
                    self.input.consume(frame.end);
                    return result;
                }
                Err(error) => {
                    failures += 1;
                    self.wait_to_repeat(error, failures, repeat, until)?;
                }
            }
        }
    }

    fn attempt(
        &mut self,
        encode: impl Fn(&mut Vec<u8>) -> Result<(), Error>,
        replies: usize,
        until: Option<Instant>,
    ) -> Result<Frame, Error> {
        self.connect()?;
        self.output.clear();
        encode(&mut self.output)?;
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        F::set_id(&mut self.output, id);
        // After a failure, an answer may still arrive that belongs to no later request.
        self.send()
            .and_then(|()| self.receive(Some(id), replies, until))
            .inspect_err(|_| self.stream = None)
    }

    /// Waits before a repetition, or returns the error if the request must not be repeated.
    fn wait_to_repeat(
        &mut self,
        error: Error,
        failures: u32,
        repeat: Repeat,
        until: Option<Instant>,
    ) -> Result<(), Error> {
        let is_transient =
            matches!(error, Error::Unreachable(_) | Error::Disconnected(_) | Error::Protocol(_));
        let may_repeat = repeat == Repeat::Yes || error.is_harmless();
        if !is_transient || !may_repeat || failures > self.config.retries {
            return Err(error);
        }
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let wait = self.config.backoff.wait_ms(failures, self.random >> 33);
        let wait = Duration::from_millis(wait);
        if until.is_some_and(|until| Instant::now() + wait >= until) {
            return Err(error);
        }
        thread::sleep(wait);
        Ok(())
    }

    fn send(&mut self) -> Result<(), Error> {
        let Some(stream) = &mut self.stream else {
            return Err(Error::Unreachable(ErrorKind::NotConnected));
        };
        stream.write_all(&self.output).map_err(lost)
    }

    /// Receives until the answer is complete. If the protocol has ids, it must have this id.
    fn receive(
        &mut self,
        id: Option<u32>,
        replies: usize,
        until: Option<Instant>,
    ) -> Result<Frame, Error> {
        loop {
            if let Some(frame) = self.framing.next(self.input.unread(), replies)? {
                if !F::ORDERED && id.is_some_and(|id| id != frame.id) {
                    return Err(Error::Protocol("the answer to another request".to_owned()));
                }
                return Ok(frame);
            }
            // The socket's timeout bounds the wait for one byte; this check bounds a slow trickle of bytes.
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(Error::TimedOut { sent: true });
            }
            let Some(stream) = &mut self.stream else {
                return Err(Error::Disconnected(ErrorKind::NotConnected));
            };
            match stream.read(self.input.space()) {
                Ok(0) => return Err(Error::Disconnected(ErrorKind::UnexpectedEof)),
                Ok(count) => self.input.received(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(error)),
            }
        }
    }

    /// Closes the connection. The next request reconnects.
    pub(crate) fn disconnect(&mut self) {
        self.stream = None;
    }
}

fn lost(error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::TimedOut { sent: true },
        kind => Error::Disconnected(kind),
    }
}

impl Stream {
    fn connect(address: &Address, config: &Config) -> io::Result<Stream> {
        let stream = Stream {
            socket: Socket::connect(address, config)?,
            #[cfg(feature = "tls")]
            tls: begin_session(address, config)?,
        };
        #[cfg(feature = "tls")]
        let stream = stream.shake_hands(config)?;
        Ok(stream)
    }

    /// Encrypts the connection if the configuration asks for it.
    #[cfg(feature = "tls")]
    fn shake_hands(mut self, config: &Config) -> io::Result<Stream> {
        if let Some(tls) = &mut self.tls {
            self.socket.set_timeout(Some(config.connect_timeout))?;
            tls.shake_hands(self.socket.as_fd())?;
            self.socket.set_timeout(config.timeout)?;
        }
        Ok(self)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            // The socket blocks, so a short write means that the time is over.
            return match tls.send(self.socket.as_fd(), bytes)? {
                sent if sent == bytes.len() => Ok(()),
                _ => Err(ErrorKind::TimedOut.into()),
            };
        }
        match &mut self.socket {
            Socket::Tcp(stream) => stream.write_all(bytes),
            Socket::Unix(stream) => stream.write_all(bytes),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            return tls.receive(self.socket.as_fd(), buffer);
        }
        match &mut self.socket {
            Socket::Tcp(stream) => stream.read(buffer),
            Socket::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Socket {
    fn connect(address: &Address, config: &Config) -> io::Result<Socket> {
        let socket = match address {
            Address::Tcp(address) => {
                let address = resolve(address)?;
                let stream = TcpStream::connect_timeout(&address, config.connect_timeout)?;
                stream.set_nodelay(true)?;
                Socket::Tcp(stream)
            }
            Address::Unix(path) => Socket::Unix(UnixStream::connect(path)?),
        };
        socket.set_timeout(config.timeout)?;
        Ok(socket)
    }

    /// Sets the time limit of a read or a write.
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => {
                stream.set_read_timeout(timeout)?;
                stream.set_write_timeout(timeout)
            }
            Socket::Unix(stream) => {
                stream.set_read_timeout(timeout)?;
                stream.set_write_timeout(timeout)
            }
        }
    }

    #[cfg(feature = "tls")]
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }
}
