//! Receives from a socket and sends to it, without encryption.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::net::{RecvFlags, SendFlags};

/// Receives once, without decryption.
#[inline]
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::net::recv(socket, &mut *buffer, RecvFlags::empty()) {
            Ok((count, _)) => return Ok(count),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

pub(crate) fn receive_uninit(
    socket: BorrowedFd<'_>,
    buffer: &mut [MaybeUninit<u8>],
) -> io::Result<usize> {
    loop {
        match rustix::net::recv(socket, &mut *buffer, RecvFlags::empty()) {
            Ok(((received, _), _)) => return Ok(received.len()),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Sends once, without encryption; fewer bytes than given means the socket is full.
#[inline]
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    would_block_is_zero(|| rustix::net::send(socket, bytes, SendFlags::NOSIGNAL))
}

#[inline(always)]
pub(crate) fn would_block_is_zero(
    mut send: impl FnMut() -> rustix::io::Result<usize>,
) -> io::Result<usize> {
    loop {
        match send() {
            Ok(count) => return Ok(count),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(0),
            Err(errno) => return Err(errno.into()),
        }
    }
}
