//! The narrow point between a connection and its socket: one function that receives, one that
//! sends.
//!
//! Only plain sockets now. TLS fits in here by buffers: what the socket yields is decrypted on the
//! way into the input, and output is encrypted on the way to the socket; the worker, the session
//! and the output queue above see plain bytes either way.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

/// Slices given to one `sendmsg`. The kernel's own bound is 1,024 (`UIO_MAXIOV`); 64 slices of a
/// block or a large value each are more than a socket buffer takes.
pub(crate) const SLICES_MAX: usize = 64;

/// How bytes get from the socket to the session and back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Transport {
    /// As they are.
    Plain,
}

impl Transport {
    /// Receives once. `Ok(0)` means the peer has sent its last byte (if `buffer` has any room).
    pub(crate) fn receive(self, socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Plain => loop {
                match rustix::net::recv(socket, &mut *buffer, RecvFlags::empty()) {
                    Ok((count, _)) => return Ok(count),
                    Err(rustix::io::Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            },
        }
    }

    /// The same into memory that nothing has been written to. The first `count` bytes have been, when
    /// `Ok(count)` is returned.
    pub(crate) fn receive_uninit(
        self,
        socket: BorrowedFd<'_>,
        buffer: &mut [MaybeUninit<u8>],
    ) -> io::Result<usize> {
        match self {
            Transport::Plain => loop {
                match rustix::net::recv(socket, &mut *buffer, RecvFlags::empty()) {
                    Ok(((received, _), _)) => return Ok(received.len()),
                    Err(rustix::io::Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            },
        }
    }

    /// Sends once; fewer bytes than given means the socket is full.
    pub(crate) fn send(self, socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Transport::Plain => {
                would_block_is_zero(|| rustix::net::send(socket, bytes, SendFlags::NOSIGNAL))
            }
        }
    }

    /// Sends several slices at once; fewer bytes than given means the socket is full.
    pub(crate) fn send_slices(
        self,
        socket: BorrowedFd<'_>,
        slices: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        debug_assert!(slices.len() <= SLICES_MAX);
        match self {
            Transport::Plain => would_block_is_zero(|| {
                let mut no_control = SendAncillaryBuffer::default();
                rustix::net::sendmsg(socket, slices, &mut no_control, SendFlags::NOSIGNAL)
            }),
        }
    }
}

fn would_block_is_zero(mut send: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<usize> {
    loop {
        match send() {
            Ok(count) => return Ok(count),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(0),
            Err(errno) => return Err(errno.into()),
        }
    }
}
