//! One connection: a batch to send, and replies to receive.
//!
//! Bytes are sent from the worker's ring and received into the worker's buffer. Only two things are copied here:
//! bytes that the socket did not take, and the beginning of an incomplete reply line.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::time::Instant;

use crate::counted::Counted;
use crate::error::Error;
use crate::replies::ReplyCounter;
use crate::socket::Socket;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: Socket,
    /// Number of pending replies.
    pub(super) outstanding: u64,
    /// Requests in flight, oldest first: one batch, or the pieces of a window.
    batches: VecDeque<InFlight>,
    /// Time when the last batch was sent, or was due if the rate is limited.
    pub(super) begun: Instant,
    counter: ReplyCounter,
    /// Incomplete line at the end of the last receive.
    carry: Vec<u8>,
    /// Rest of the current batch, of which `sent` bytes were sent.
    unsent: Vec<u8>,
    sent: usize,
}

/// Requests that were sent together.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    /// Number of pending replies.
    due: u64,
    /// Time when they were sent, or were due if the rate is limited.
    begun: Instant,
}

/// Result of one receive.
pub(super) struct Received {
    pub(super) counted: Counted,
    /// True if there may be more to read at once.
    pub(super) filled: bool,
}

impl Connection {
    pub(super) fn new(socket: Socket, counter: ReplyCounter, now: Instant) -> Self {
        Self {
            socket,
            outstanding: 0,
            batches: VecDeque::new(),
            begun: now,
            counter,
            carry: Vec::new(),
            unsent: Vec::new(),
            sent: 0,
        }
    }

    /// Sends a batch of `count` requests, or as much of it as the socket takes now.
    #[inline]
    pub(super) fn send(&mut self, batch: &[u8], count: usize, begun: Instant) -> Result<(), Error> {
        self.outstanding += count as u64;
        self.batches.push_back(InFlight { due: count as u64, begun });
        self.begun = begun;
        if self.has_unsent() {
            self.unsent.extend_from_slice(batch);
            return Ok(());
        }
        let sent = try_send(&mut self.socket, batch)?;
        if sent < batch.len() {
            self.unsent.extend_from_slice(&batch[sent..]);
        }
        Ok(())
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Continues to send after the socket has become writable.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        while self.sent < self.unsent.len() {
            let sent = try_send(&mut self.socket, &self.unsent[self.sent..])?;
            if sent == 0 {
                return Ok(());
            }
            self.sent += sent;
        }
        self.unsent.clear();
        self.sent = 0;
        Ok(())
    }

    /// Removes `replies` from the requests in flight, oldest first, and calls `tell` for their batches.
    #[inline]
    pub(super) fn settle(&mut self, mut replies: u64, mut tell: impl FnMut(Instant, u64)) {
        while replies > 0
            && let Some(batch) = self.batches.front_mut()
        {
            let of_batch = replies.min(batch.due);
            tell(batch.begun, of_batch);
            batch.due -= of_batch;
            replies -= of_batch;
            if batch.due == 0 {
                self.batches.pop_front();
            }
        }
    }

    /// Receives once into `buffer` and counts. Returns `None` if there was nothing to receive.
    ///
    /// `buffer` is longer than the longest line, so that there is room after a carried line.
    #[inline]
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, Error> {
        let carried = self.carry.len();
        buffer[..carried].copy_from_slice(&self.carry);
        let lost = || Error::ConnectionLost { outstanding: self.outstanding, said: None };
        let received = match self.socket.receive_all(&mut buffer[carried..]) {
            Ok(0) => return Err(lost()),
            Ok(received) => received,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => return Ok(None),
                ErrorKind::ConnectionReset => return Err(lost()),
                _ => return Err(Error::io("receiving replies")(error)),
            },
        };
        let input = &buffer[..carried + received];
        let counted = self.counter.count(input)?;
        self.carry.clear();
        self.carry.extend_from_slice(&input[counted.consumed..]);
        if counted.replies > self.outstanding {
            return Err(Error::Unasked { replies: counted.replies - self.outstanding });
        }
        self.outstanding -= counted.replies;
        Ok(Some(Received { counted, filled: carried + received == buffer.len() }))
    }
}

#[inline]
fn try_send(socket: &mut Socket, bytes: &[u8]) -> Result<usize, Error> {
    match socket.send(bytes) {
        Ok(sent) => Ok(sent),
        // The server sent the reason before it closed. The next read finds it.
        Err(error)
            if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) =>
        {
            Ok(bytes.len())
        }
        Err(error) => Err(Error::io("sending requests")(error)),
    }
}
