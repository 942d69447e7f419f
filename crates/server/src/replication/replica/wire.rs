//! The connection to a primary, encrypted or not.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// Connection to the primary. A timeout of the socket is an error, after which the connection is
/// still usable.
pub(super) enum Wire {
    Plain(TcpStream),
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    /// Creates a connection over this socket, encrypted if `tls` is given.
    ///
    /// # Errors
    /// If the host is neither a name nor an address.
    pub(super) fn new(
        socket: TcpStream,
        host: &str,
        tls: Option<Arc<ClientConfig>>,
    ) -> io::Result<Self> {
        let Some(config) = tls else { return Ok(Self::Plain(socket)) };
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
        Ok(Self::Encrypted(Box::new(StreamOwned::new(session, socket))))
    }

    /// Continues the handshake until the socket times out. Returns true if the handshake is
    /// complete.
    ///
    /// # Errors
    /// If the connection ends, or the peer is not trusted.
    pub(super) fn shake_hands(&mut self) -> io::Result<bool> {
        let Self::Encrypted(stream) = self else { return Ok(true) };
        while stream.conn.is_handshaking() {
            match stream.conn.complete_io(&mut stream.sock) {
                Ok(_) => {}
                Err(error) if super::is_timeout(&error) => return Ok(false),
                Err(error) => return Err(in_words(error)),
            }
        }
        Ok(true)
    }

    /// Sends all bytes.
    ///
    /// # Errors
    /// If the connection ends, or the peer reads nothing until the socket times out.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.write_all(bytes),
            Self::Encrypted(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }

    /// Sets the maximum wait of [`Wire::receive`].
    ///
    /// # Errors
    /// If the system refuses that.
    pub(super) fn wait_at_most(&self, time: Duration) -> io::Result<()> {
        let socket = match self {
            Self::Plain(socket) => socket,
            Self::Encrypted(stream) => &stream.sock,
        };
        // Reading the timeout costs less than a change, which is rare.
        if socket.read_timeout()? != Some(time) {
            socket.set_read_timeout(Some(time))?;
        }
        Ok(())
    }

    /// Receives once. 0 bytes are the end.
    ///
    /// # Errors
    /// If the connection fails, or nothing comes until the socket times out.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Encrypted(stream) => match stream.read(buffer) {
                // Not every peer sends close_notify; a stream and a copy have end marks of their
                // own.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
                received => received,
            },
        }
    }
}

fn in_words(error: io::Error) -> io::Error {
    let of_rustls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    match of_rustls {
        Some(rustls::Error::InvalidMessage(_)) => {
            io::Error::other("what came is not TLS; the port has to be a tls-port of the primary")
        }
        _ if error.kind() == io::ErrorKind::UnexpectedEof => {
            io::Error::other("the primary closed the connection")
        }
        _ => error,
    }
}
