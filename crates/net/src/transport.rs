//! The boundary between a connection and its socket: one function receives, one sends.
//!
//! Worker, session and output queue above see plain bytes, encrypted connection or not.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::net::{SendAncillaryBuffer, SendFlags};

use crate::socket::{receive, receive_uninit, send, would_block_is_zero};
use crate::tls::{Buffers, Tls};

/// Number of slices for one `sendmsg`. The kernel's own bound is 1,024 (`UIO_MAXIOV`); 64 slices of a block or a large
/// value each are more than a socket buffer takes.
pub(crate) const SLICES_MAX: usize = 64;

/// Transport of bytes between the socket and the session.
#[derive(Debug)]
pub(crate) enum Transport {
    /// Unencrypted.
    Plain,
    /// Encrypted.
    Tls(Box<Tls>),
}

impl Transport {
    /// Receives once. `Ok(0)` means the peer has sent its last byte (if `buffer` has any room).
    #[inline]
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        buffer: &mut [u8],
        tls: &mut Buffers,
    ) -> io::Result<usize> {
        match self {
            Transport::Plain => receive(socket, buffer),
            Transport::Tls(session) => {
                let room = buffer.len();
                session.receive(socket, tls, room, |at, bytes| {
                    buffer[at..at + bytes.len()].copy_from_slice(bytes);
                })
            }
        }
    }

    /// Receives once into uninitialized memory. After `Ok(count)` the first `count` bytes are initialized.
    pub(crate) fn receive_uninit(
        &mut self,
        socket: BorrowedFd<'_>,
        buffer: &mut [MaybeUninit<u8>],
        tls: &mut Buffers,
    ) -> io::Result<usize> {
        match self {
            Transport::Plain => receive_uninit(socket, buffer),
            Transport::Tls(session) => {
                let room = buffer.len();
                session.receive(socket, tls, room, |at, bytes| {
                    let places = buffer[at..at + bytes.len()].iter_mut();
                    for (place, &byte) in places.zip(bytes) {
                        place.write(byte);
                    }
                })
            }
        }
    }

    /// Returns the verified certificate of the peer.
    pub(crate) fn certificate(&self) -> Option<&[u8]> {
        match self {
            Transport::Plain => None,
            Transport::Tls(session) => session.certificate(),
        }
    }

    /// Returns true if input may be there that the poller will not report, although the last call did not fill its
    /// buffer.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        match self {
            Transport::Plain => false,
            Transport::Tls(session) => session.has_more(),
        }
    }

    /// Sends once. Unsent bytes have to come first in the next call, unchanged: encrypted ones may have been sent in
    /// part. [`is_full`](Self::is_full) tells if there is room for more.
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        bytes: &[u8],
        tls: &mut Buffers,
    ) -> io::Result<usize> {
        match self {
            Transport::Plain => send(socket, bytes),
            Transport::Tls(session) => session.send(socket, tls, &[IoSlice::new(bytes)]),
        }
    }

    /// Sends several slices at once, like [`send`](Self::send).
    pub(crate) fn send_slices(
        &mut self,
        socket: BorrowedFd<'_>,
        slices: &[IoSlice<'_>],
        tls: &mut Buffers,
    ) -> io::Result<usize> {
        debug_assert!(slices.len() <= SLICES_MAX);
        match self {
            Transport::Plain => would_block_is_zero(|| {
                let mut no_control = SendAncillaryBuffer::default();
                rustix::net::sendmsg(socket, slices, &mut no_control, SendFlags::NOSIGNAL)
            }),
            Transport::Tls(session) => session.send(socket, tls, slices),
        }
    }

    /// Returns true if the socket was full when it took `sent` of the `given` bytes.
    pub(crate) fn is_full(&self, sent: usize, given: usize) -> bool {
        match self {
            Transport::Plain => sent < given,
            Transport::Tls(session) => session.has_unsent(),
        }
    }

    /// Returns true if encrypted output waits for room in the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Transport::Plain => false,
            Transport::Tls(session) => session.has_unsent(),
        }
    }

    /// Discards this output, because the socket has failed.
    pub(crate) fn discard_unsent(&mut self) {
        if let Transport::Tls(session) = self {
            session.discard_unsent();
        }
    }

    /// Tells the peer that nothing follows, if the protocol has a message for that.
    pub(crate) fn close(&mut self, socket: BorrowedFd<'_>, tls: &mut Buffers) {
        if let Transport::Tls(session) = self {
            session.close(socket, tls);
        }
    }

    /// Returns the memory owned for input and for output.
    pub(crate) fn capacities(&self) -> (usize, usize) {
        match self {
            Transport::Plain => (0, 0),
            Transport::Tls(session) => (session.input_capacity(), session.output_capacity()),
        }
    }
}
