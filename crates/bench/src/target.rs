//! The server under load: its address, login, and plain calls to it.
//!
//! A [`Control`] connection is blocking and answers one call at a time. It is used for calls around a measurement
//! (DBSIZE until a server is up, CONFIG SET) and for the handshake of every connection before the engine gets it.

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use tierce_client::Tls;
use tierce_wire::pedrokv;
use tierce_wire::resp::{Encoder, Proto, ReplyDecoder, Value};

use crate::error::Error;
use crate::protocol::Protocol;
use crate::socket::Socket;

/// Time limit of a call. It is long, because FLUSHALL and similar commands may be slow.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Address on which a server listens.
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

/// A server, and the login for every connection to it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: Address,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u32,
    pub(crate) resp_version: Proto,
    /// Encryption of connections, if any.
    pub(crate) tls: Option<Tls>,
}

impl Target {
    /// Connects and sends AUTH, HELLO and SELECT, each only if asked for.
    pub(crate) fn connect(&self) -> Result<Control, Error> {
        let failed = |source| Error::Connect { address: self.address.to_string(), source };
        let mut socket = Socket::plain(self.open().map_err(failed)?);
        self.encrypt(&mut socket).map_err(failed)?;
        let mut control = Control { socket, address: self.address.to_string() };
        if let Some(password) = &self.password {
            match &self.user {
                Some(user) => control.must(&["AUTH", user, password])?,
                None => control.must(&["AUTH", password])?,
            }
        }
        if self.resp_version == Proto::Resp3 {
            control.must(&["HELLO", "3"])?;
        }
        if self.database != 0 {
            control.must(&["SELECT", &self.database.to_string()])?;
        }
        Ok(control)
    }

    /// Returns an error unless the server serves keys. While it loads, it only answers other requests.
    ///
    /// # Errors
    /// If the server does not serve keys.
    pub(crate) fn serves(&self, protocol: Protocol) -> Result<(), Error> {
        let mut control = self.connect()?;
        match protocol {
            Protocol::Resp => control.must(&["DBSIZE"]),
            Protocol::PedroKv => control.get_of_pedrokv(),
            _ => control.get_of_memcached(),
        }
    }

    fn encrypt(&self, socket: &mut Socket) -> io::Result<()> {
        let (Some(tls), Address::Tcp { host, .. }) = (&self.tls, &self.address) else {
            return Ok(());
        };
        socket.encrypt(tls.session(host).map_err(io::Error::other)?)
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
    socket: Socket,
    address: String,
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Control {
    /// Sends a command and returns its reply.
    pub(crate) fn call(&mut self, words: &[&str]) -> Result<Value, Error> {
        self.begin(words)?;
        self.reply()
    }

    /// Sends a command whose reply is read later.
    pub(crate) fn begin(&mut self, words: &[&str]) -> Result<(), Error> {
        self.send(&encode(words))
    }

    /// Reads the reply to the one command that was begun.
    pub(crate) fn reply(&mut self) -> Result<Value, Error> {
        Ok(self.replies(1)?.swap_remove(0))
    }

    /// Makes a call. An error reply is an error.
    pub(crate) fn must(&mut self, words: &[&str]) -> Result<(), Error> {
        match self.call(words)? {
            Value::Error(text) => Err(self.refused(words, &text)),
            _ => Ok(()),
        }
    }

    /// Sends commands at once, and reads all replies. An error reply is an error.
    pub(crate) fn must_all(&mut self, commands: &[&[&str]]) -> Result<(), Error> {
        self.send(&commands.iter().flat_map(|words| encode(words)).collect::<Vec<_>>())?;
        for (words, reply) in commands.iter().zip(self.replies(commands.len())?) {
            if let Value::Error(text) = reply {
                return Err(self.refused(words, &text));
            }
        }
        Ok(())
    }

    /// Reads so many replies. Skips pushes among them.
    fn replies(&mut self, count: usize) -> Result<Vec<Value>, Error> {
        let mut decoder = ReplyDecoder::new();
        let (mut input, mut replies) = (Vec::new(), Vec::with_capacity(count));
        let mut piece = [0; 4096];
        while replies.len() < count {
            let len = self.receive(&mut piece)?;
            if len == 0 {
                let outstanding = (count - replies.len()) as u64;
                return Err(Error::ConnectionLost { outstanding, said: None });
            }
            input.extend_from_slice(&piece[..len]);
            while let Some((value, len)) = decoder.decode(&input).map_err(Error::Protocol)? {
                input.drain(..len);
                if !matches!(value, Value::Push(_)) {
                    replies.push(value);
                }
            }
        }
        Ok(replies)
    }

    pub(crate) fn refused(&self, words: &[&str], text: &[u8]) -> Error {
        Error::Refused {
            address: self.address.clone(),
            command: words[0].to_owned(),
            reply: String::from_utf8_lossy(text).into_owned(),
        }
    }

    /// Asks for a key, which need not exist. Servers of every memcached protocol understand this text request.
    fn get_of_memcached(&mut self) -> Result<(), Error> {
        self.send(b"get ping\r\n")?;
        let mut piece = [0; 256];
        let len = self.receive(&mut piece)?;
        match &piece[..len] {
            [b'E', b'N', b'D', ..] | [b'V', b'A', b'L', b'U', b'E', ..] => Ok(()),
            answer if answer.starts_with(b"SERVER_ERROR") => Err(Error::Loading),
            _ => Err(Error::NotMemcached),
        }
    }

    /// Asks for a key, which need not exist.
    fn get_of_pedrokv(&mut self) -> Result<(), Error> {
        let mut request = Vec::new();
        let get = pedrokv::Request { kind: pedrokv::Kind::Get, id: 1, key: b"ping", value: b"" };
        get.write(&mut request).expect("it is short");
        self.send(&request)?;
        let mut response = Vec::new();
        loop {
            match pedrokv::Response::read(&response) {
                pedrokv::Step::Frame { frame, .. }
                    if frame.data.ends_with(b"loading the dataset") =>
                {
                    return Err(Error::Loading);
                }
                pedrokv::Step::Frame { .. } => return Ok(()),
                pedrokv::Step::Broken => return Err(Error::NotPedroKv),
                pedrokv::Step::NeedMore { .. } => {}
            }
            let mut piece = [0; 4096];
            let len = self.receive(&mut piece)?;
            if len == 0 {
                return Err(Error::NotPedroKv);
            }
            response.extend_from_slice(&piece[..len]);
        }
    }

    /// Converts the connection for use by an event loop.
    pub(crate) fn into_nonblocking(self) -> Result<Socket, Error> {
        self.socket.set_nonblocking().map_err(Error::io("making a socket non-blocking"))?;
        Ok(self.socket)
    }

    fn receive(&mut self, piece: &mut [u8]) -> Result<usize, Error> {
        self.socket.receive(piece).map_err(Error::io("reading a reply"))
    }

    fn send(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let len = self.socket.send(bytes).map_err(Error::io("sending a command"))?;
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
