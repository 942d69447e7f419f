//! The boundary between the client and its socket.
//!
//! The engine always sees plain bytes, even if the connection is encrypted.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use crate::address::Address;
use crate::config::Config;
#[cfg(feature = "tls")]
use crate::tls::TlsSession;

/// A non-blocking socket.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    #[cfg(feature = "tls")]
    tls: Option<Box<TlsSession>>,
}

impl Socket {
    /// Begins to connect. When the socket becomes writable, [`Socket::finish_connect`] returns the result. Only the
    /// lookup of a host name blocks.
    pub(crate) fn connect(address: &Address, config: &Config) -> io::Result<Socket> {
        #[cfg(feature = "tls")]
        let tls = begin_session(address, config)?;
        #[cfg(not(feature = "tls"))]
        let _ = config;

        let (socket, started) = match address {
            Address::Tcp(address) => {
                let address = resolve(address)?;
                let family = match address {
                    SocketAddr::V4(_) => AddressFamily::INET,
                    SocketAddr::V6(_) => AddressFamily::INET6,
                };
                let socket = new_socket(family)?;
                sockopt::set_tcp_nodelay(&socket, true)?;
                let started = rustix::net::connect(&socket, &address);
                (socket, started)
            }
            Address::Unix(path) => {
                let socket = new_socket(AddressFamily::UNIX)?;
                let started = rustix::net::connect(&socket, &SocketAddrUnix::new(path.as_path())?);
                (socket, started)
            }
        };
        match started {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(Socket {
                fd: socket,
                #[cfg(feature = "tls")]
                tls,
            }),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns an error if connecting has failed.
    pub(crate) fn finish_connect(&self) -> io::Result<()> {
        Ok(sockopt::socket_error(&self.fd)??)
    }

    /// Receives once. 0 bytes mean the end of the stream; `WouldBlock` is returned as an error.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            return tls.receive_all(self.fd.as_fd(), buffer);
        }
        loop {
            match rustix::net::recv(&self.fd, &mut *buffer, RecvFlags::empty()) {
                Ok((count, _)) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Sends once. A short count means that the socket is full, or that the handshake is in progress.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            return tls.send(self.fd.as_fd(), bytes);
        }
        loop {
            match rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns true while nothing can be sent before something is received.
    pub(crate) fn is_handshaking(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.as_ref().is_some_and(|tls| tls.is_handshaking());
        #[cfg(not(feature = "tls"))]
        false
    }
}

/// Makes the TLS session of a connection that is to be encrypted.
#[cfg(feature = "tls")]
pub(crate) fn begin_session(
    address: &Address,
    config: &Config,
) -> io::Result<Option<Box<TlsSession>>> {
    let (Some(tls), Address::Tcp(address)) = (&config.tls, address) else { return Ok(None) };
    let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let session = tls.session(host);
    let session = session.map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
    Ok(Some(Box::new(session)))
}

fn new_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?)
}

/// Returns the first address of a host and port.
pub(crate) fn resolve(address: &str) -> io::Result<SocketAddr> {
    if let Ok(address) = address.parse() {
        return Ok(address);
    }
    address.to_socket_addrs()?.next().ok_or_else(|| io::Error::from(ErrorKind::NotFound))
}
