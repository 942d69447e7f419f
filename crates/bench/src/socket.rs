//! A connected socket, encrypted or not.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use tierce_client::TlsSession;

/// A socket, and its encryption if any.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    tls: Option<Box<TlsSession>>,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Socket {
    /// Makes a socket without encryption.
    pub(crate) fn plain(fd: OwnedFd) -> Self {
        Self { fd, tls: None }
    }

    /// Encrypts the connection from now on. The socket must be blocking.
    pub(crate) fn encrypt(&mut self, mut session: TlsSession) -> io::Result<()> {
        session.shake_hands(self.fd.as_fd())?;
        self.tls = Some(Box::new(session));
        Ok(())
    }

    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(&self.fd, true)?)
    }

    /// Receives once. 0 means the end of the connection.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => receive(&self.fd, buffer),
            Some(tls) => tls.receive(self.fd.as_fd(), buffer),
        }
    }

    /// Receives until `buffer` is full or the socket, which does not block, is empty.
    pub(crate) fn receive_all(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => receive(&self.fd, buffer),
            Some(tls) => tls.receive_all(self.fd.as_fd(), buffer),
        }
    }

    /// Sends once. The next call must begin with the bytes that were not sent.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => match rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL) {
                Err(Errno::AGAIN | Errno::INTR) => Ok(0),
                result => Ok(result?),
            },
            Some(tls) => tls.send(self.fd.as_fd(), bytes),
        }
    }
}

#[inline]
fn receive(fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (_, count) = rustix::net::recv(fd, buffer, RecvFlags::empty())?;
    Ok(count)
}
