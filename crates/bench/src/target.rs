//! The server under load: its address, how to log in, and plain calls to it.
//!
//! A [`Control`] connection is blocking and answers one call at a time. It serves what happens
//! around a measurement (PING until a server is up, DBSIZE, CONFIG SET) and the handshake of every
//! connection that is then handed to the engine.

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags, recv, send};
use tierce_wire::pedrokv;
use tierce_wire::resp::{Encoder, Proto, ReplyDecoder, Value};

use crate::dialect::Dialect;
use crate::error::Error;

/// A call that takes longer than this has failed. Generous, since FLUSHALL and the like may be slow.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(out, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(out, "{host}:{port}"),
            Self::Unix(path) => write!(out, "{}", path.display()),
        }
    }
}

/// A server and how every connection to it begins.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: Address,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u32,
    pub(crate) protocol: Proto,
}

impl Target {
    /// Connects and shakes hands: AUTH, HELLO, SELECT, each only if asked for.
    pub(crate) fn connect(&self) -> Result<Control, Error> {
        let fd = self
            .open()
            .map_err(|source| Error::Connect { address: self.address.to_string(), source })?;
        let mut control = Control { fd, address: self.address.to_string() };
        if let Some(password) = &self.password {
            match &self.user {
                Some(user) => control.must(&["AUTH", user, password])?,
                None => control.must(&["AUTH", password])?,
            }
        }
        if self.protocol == Proto::Resp3 {
            control.must(&["HELLO", "3"])?;
        }
        if self.database != 0 {
            control.must(&["SELECT", &self.database.to_string()])?;
        }
        Ok(control)
    }

    /// Whether the server answers.
    ///
    /// # Errors
    /// When it does not.
    pub(crate) fn ping(&self, dialect: Dialect) -> Result<(), Error> {
        let mut control = self.connect()?;
        match dialect {
            Dialect::Resp => control.must(&["PING"]),
            Dialect::PedroKv => control.get_of_pedrokv(),
            _ => control.version_of_memcached(),
        }
    }

    fn open(&self) -> io::Result<OwnedFd> {
        match &self.address {
            Address::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port))?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(CALL_TIMEOUT))?;
                Ok(stream.into())
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(CALL_TIMEOUT))?;
                Ok(stream.into())
            }
        }
    }
}

/// A blocking connection.
#[derive(Debug)]
pub(crate) struct Control {
    fd: OwnedFd,
    address: String,
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Control {
    /// Sends a command and returns its reply. Pushes that come before it are passed over.
    pub(crate) fn call(&mut self, words: &[&str]) -> Result<Value, Error> {
        self.send(&encode(words))?;
        let mut decoder = ReplyDecoder::new();
        let mut input = Vec::new();
        loop {
            let mut piece = [0; 4096];
            let (_, len) = recv(&self.fd, &mut piece[..], RecvFlags::empty())
                .map_err(Error::io("reading a reply"))?;
            if len == 0 {
                return Err(Error::ConnectionLost { outstanding: 1, said: None });
            }
            input.extend_from_slice(&piece[..len]);
            while let Some((value, len)) = decoder.decode(&input).map_err(Error::Protocol)? {
                if !matches!(value, Value::Push(_)) {
                    return Ok(value);
                }
                input.drain(..len);
            }
        }
    }

    /// A call whose error reply is an error.
    pub(crate) fn must(&mut self, words: &[&str]) -> Result<(), Error> {
        match self.call(words)? {
            Value::Error(text) => Err(Error::Refused {
                address: self.address.clone(),
                command: words[0].to_owned(),
                reply: String::from_utf8_lossy(&text).into_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Asks for the version in text, which servers of every protocol of memcached understand.
    fn version_of_memcached(&mut self) -> Result<(), Error> {
        self.send(b"version\r\n")?;
        let mut piece = [0; 256];
        let (_, len) = recv(&self.fd, &mut piece[..], RecvFlags::empty())
            .map_err(Error::io("reading a reply"))?;
        if piece[..len].starts_with(b"VERSION") { Ok(()) } else { Err(Error::NotMemcached) }
    }

    /// Asks for a key, which need not be there.
    fn get_of_pedrokv(&mut self) -> Result<(), Error> {
        let mut request = Vec::new();
        let get = pedrokv::Request { kind: pedrokv::Kind::Get, id: 1, key: b"ping", value: b"" };
        get.write(&mut request).expect("it is short");
        self.send(&request)?;
        let mut response = Vec::new();
        loop {
            match pedrokv::Response::read(&response) {
                pedrokv::Step::Frame { .. } => return Ok(()),
                pedrokv::Step::Broken => return Err(Error::NotPedroKv),
                pedrokv::Step::NeedMore { .. } => {}
            }
            let mut piece = [0; 4096];
            let (_, len) = recv(&self.fd, &mut piece[..], RecvFlags::empty())
                .map_err(Error::io("reading a reply"))?;
            if len == 0 {
                return Err(Error::NotPedroKv);
            }
            response.extend_from_slice(&piece[..len]);
        }
    }

    /// Gives up the connection for use by an event loop.
    pub(crate) fn into_nonblocking(self) -> Result<OwnedFd, Error> {
        rustix::io::ioctl_fionbio(&self.fd, true)
            .map_err(Error::io("making a socket non-blocking"))?;
        Ok(self.fd)
    }

    fn send(&self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let len = send(&self.fd, bytes, SendFlags::NOSIGNAL)
                .map_err(Error::io("sending a command"))?;
            bytes = &bytes[len..];
        }
        Ok(())
    }
}

fn encode(words: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, Proto::Resp2);
    encoder.array(words.len());
    words.iter().for_each(|word| encoder.bulk(word.as_bytes()));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_printed_as_one_writes_them() {
        let tcp = |host: &str| Address::Tcp { host: host.into(), port: 6379 };
        assert_eq!(tcp("127.0.0.1").to_string(), "127.0.0.1:6379");
        assert_eq!(tcp("::1").to_string(), "[::1]:6379");
    }
}
