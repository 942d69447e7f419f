//! The narrow point between the client and its socket.
//!
//! Plain sockets only. TLS fits in here by buffers, as it does in the server's event loops: what is
//! received is decrypted on the way to the engine, and what is sent encrypted on the way back.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use crate::address::Address;

/// A socket that does not block.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

impl Socket {
    /// Begins to connect. When the socket becomes writable, [`Socket::finish_connect`] tells whether
    /// it has succeeded. Only the name of a host is looked up in a way that blocks.
    pub(crate) fn connect(address: &Address) -> io::Result<Socket> {
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
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(Socket(socket)),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether connecting has succeeded.
    pub(crate) fn finish_connect(&self) -> io::Result<()> {
        Ok(sockopt::socket_error(&self.0)??)
    }

    /// Receives once. 0 bytes are the end; `WouldBlock` is an error as any other.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::net::recv(&self.0, &mut *buffer, RecvFlags::empty()) {
                Ok((count, _)) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Sends once. Fewer bytes than given means that the socket is full.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn new_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?)
}

/// The first address of a host and port.
pub(crate) fn resolve(address: &str) -> io::Result<SocketAddr> {
    if let Ok(address) = address.parse() {
        return Ok(address);
    }
    address.to_socket_addrs()?.next().ok_or_else(|| io::Error::from(ErrorKind::NotFound))
}
