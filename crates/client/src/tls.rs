//! Encrypted connections, by rustls.
//!
//! A [`TlsSession`] sits between a socket, blocking or not, and plain bytes. As in the server's event loops, bytes
//! count as sent when the socket has taken their records.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// Maximum number of plain bytes that are encrypted before the socket takes them.
const BATCH_BYTES_MAX: usize = 64 * 1024;

/// Options of encrypted connections; the files are in PEM format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Certificates of the trusted authorities.
    pub ca_file: PathBuf,
    /// Certificate and private key of the client, if the server asks for them.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Name in the server's certificate, if it is not the host of the address.
    pub server_name: Option<String>,
    /// True if every connection begins with a full handshake.
    pub never_resume: bool,
}

/// Configuration of encrypted connections. Clones share their sessions, so that later connections begin faster.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

/// Reason why encrypted connections are not possible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read or has invalid contents.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Description of the error.
        reason: String,
    },
    /// The certificates, the key or the name cannot be used.
    #[error("{0}")]
    Refused(String),
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// If a file is missing or invalid.
    pub fn new(options: &TlsOptions) -> Result<Self, TlsError> {
        let refused = |error: rustls::Error| TlsError::Refused(error.to_string());
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&options.ca_file)? {
            roots.add(certificate).map_err(|error| wrong(&options.ca_file, error))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(refused)?
            .with_root_certificates(roots);
        let mut config = match &options.identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let key = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, error))?;
                builder.with_client_auth_cert(certificates(chain)?, key).map_err(refused)?
            }
        };
        if options.never_resume {
            config.resumption = Resumption::disabled();
        }
        let server_name = options.server_name.as_deref().map(parse_name).transpose()?;
        Ok(Self { config: Arc::new(config), server_name })
    }

    /// Begins a session with the server at a host.
    ///
    /// # Errors
    /// If the host is neither a name nor an address, so that no certificate can match it.
    pub fn session(&self, host: &str) -> Result<TlsSession, TlsError> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => parse_name(host)?,
        };
        let connection = ClientConnection::new(Arc::clone(&self.config), name)
            .map_err(|error| TlsError::Refused(error.to_string()))?;
        Ok(TlsSession { connection, sealed: 0 })
    }
}

fn parse_name(name: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(name.to_owned())
        .map_err(|_| TlsError::Refused(format!("{name:?} is no name of a server")))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_file_iter(path).map_err(|error| wrong(path, error))?;
    all.collect::<Result<_, _>>().map_err(|error| wrong(path, error))
}

fn wrong(path: &Path, error: impl std::fmt::Display) -> TlsError {
    TlsError::File { path: path.to_owned(), reason: error.to_string() }
}

/// State of an encrypted connection.
#[derive(Debug)]
pub struct TlsSession {
    connection: ClientConnection,
    /// Number of encrypted plain bytes whose records the socket has not taken entirely.
    sealed: usize,
}

impl TlsSession {
    /// Returns true while the handshake is in progress, so that nothing can be sent.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Continues the handshake; completes it if the socket blocks.
    ///
    /// # Errors
    /// If the socket fails, `WouldBlock` included, or the peer is not trusted.
    pub fn shake_hands(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        while self.connection.is_handshaking() {
            if self.connection.wants_write() {
                self.flush(socket)?;
            } else if !self.receive_records(socket)? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        self.flush(socket)
    }

    /// Receives until there are plain bytes. 0 bytes mean the end of the stream.
    ///
    /// # Errors
    /// If the socket fails, `WouldBlock` included, or the peer violates the protocol.
    pub fn receive(&mut self, socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                result => return result,
            }
            if self.connection.wants_write() {
                self.flush(socket).or_else(|error| match error.kind() {
                    ErrorKind::WouldBlock => Ok(()),
                    _ => Err(error),
                })?;
            }
            self.receive_records(socket)?;
        }
    }

    /// Receives until the buffer is full or the socket, which does not block, is empty.
    ///
    /// # Errors
    /// Same as for [`receive`](Self::receive), if nothing has been received.
    pub fn receive_all(&mut self, socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.receive(socket, &mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(_) if filled > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Sends as much as the socket takes. The next call must begin with the rest, unchanged. Nothing is sent before
    /// the handshake is complete.
    ///
    /// # Errors
    /// If the socket or the handshake fails.
    pub fn send(&mut self, socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
        match self.send_all(socket, bytes) {
            Err((sent, error)) if error.kind() == ErrorKind::WouldBlock => Ok(sent),
            Err((_, error)) => Err(error),
            Ok(()) => Ok(bytes.len()),
        }
    }

    fn send_all(&mut self, socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        let mut sent = 0;
        if self.connection.is_handshaking() {
            self.shake_hands(socket).map_err(|error| (sent, error))?;
        }
        loop {
            self.flush(socket).map_err(|error| (sent, error))?;
            sent += std::mem::take(&mut self.sealed);
            let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) else {
                return Ok(());
            };
            let batch = &rest[..rest.len().min(BATCH_BYTES_MAX)];
            let sealed = self.connection.writer().write(batch);
            self.sealed = sealed.map_err(|error| (sent, error))?;
        }
    }

    /// Sends records until none is left.
    fn flush(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut Wire(socket))?;
        }
        Ok(())
    }

    /// Receives once and decrypts. Returns `false` if the peer has sent its last byte.
    fn receive_records(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        let count = self.connection.read_tls(&mut Wire(socket))?;
        if let Err(error) = self.connection.process_new_packets() {
            // The peer may read the reason. The connection ends in any case.
            let _ = self.flush(socket);
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        Ok(count > 0)
    }
}

/// Adapter of a socket for rustls.
struct Wire<'a>(BorrowedFd<'a>);

impl Read for Wire<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::net::recv(self.0, &mut *buffer, RecvFlags::empty()) {
                Ok((count, _)) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::net::send(self.0, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
