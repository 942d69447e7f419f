//! One encrypted connection.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use rustls::HandshakeKind;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, UnbufferedStatus, WriteTraffic};

use super::outgoing::{BATCH_PLAIN_MAX, Outgoing, RECORD_PLAIN_MAX};
use crate::socket;

/// Header of a record: type, version, length.
const HEADER_LEN: usize = 5;

/// Most bytes of a record.
const RECORD_MAX: usize = HEADER_LEN + RECORD_PLAIN_MAX + 2048;

/// Bytes that are kept for later: those of a message, which has 64 KiB at most, or of records for which there is no
/// room.
const KEPT_MAX: usize = 64 * 1024 + RECORD_MAX;

/// Bytes a peer may send before its handshake is complete: a few messages with long chains of certificates.
const HANDSHAKE_BYTES_MAX: usize = 256 * 1024;

/// Bytes received at once.
const RECEIVE_MAX: usize = 64 * 1024;

/// Plain bytes received, and sent, in one call: what a worker decrypts or encrypts in a fraction of a millisecond.
const RECEIVE_PLAIN_MAX: usize = 512 * 1024;
const SEND_PLAIN_MAX: usize = 256 * 1024;

/// A worker's buffers for the connection whose turn it is. There are none before the first encrypted connection.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// Records that have arrived, decrypted in place.
    incoming: Vec<u8>,
    /// Records to send.
    outgoing: Outgoing,
    /// Small pieces of output that share a record.
    gathered: Vec<u8>,
}

/// How far a handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It waits for the peer.
    Waiting,
    /// Plain bytes can be exchanged.
    Complete {
        /// The peer has come back with a ticket.
        resumed: bool,
    },
}

/// The state of an encrypted connection.
pub(crate) struct Tls {
    session: UnbufferedServerConnection,
    /// The beginning of an incomplete record, or records for whose plain bytes there was no room.
    arrived: Vec<u8>,
    /// Decrypted bytes for which there was no room.
    surplus: Vec<u8>,
    /// Records that the socket did not take.
    unsent: Outgoing,
    /// Bytes received in the handshake.
    handshake_bytes: usize,
    /// Bytes may be there that the poller will not report.
    has_more: bool,
    /// Whole records were kept, for want of room.
    is_backlogged: bool,
    /// The session must not be used any more: the peer has broken the protocol.
    has_failed: bool,
    /// The peer will send nothing any more.
    has_ended: bool,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("arrived", &self.arrived.len()).finish_non_exhaustive()
    }
}

impl Tls {
    pub(crate) fn new(session: UnbufferedServerConnection) -> Self {
        Self {
            session,
            arrived: Vec::new(),
            surplus: Vec::new(),
            unsent: Outgoing::default(),
            handshake_bytes: 0,
            has_more: false,
            is_backlogged: false,
            has_failed: false,
            has_ended: false,
        }
    }

    /// Whether input may be there that the poller will not report.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Whether records wait for room in the socket, which the last call has found full.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Throws these records away. Nothing can be sent behind them, for the peer would miss them.
    pub(crate) fn discard_unsent(&mut self) {
        self.unsent = Outgoing::default();
        self.has_failed = true;
    }

    /// The certificate that the peer has shown, in this handshake or in the one that its ticket is from.
    pub(crate) fn certificate(&self) -> Option<&[u8]> {
        self.session.peer_certificates()?.first().map(AsRef::as_ref)
    }

    /// Memory owned for input.
    pub(crate) fn input_capacity(&self) -> usize {
        self.arrived.capacity() + self.surplus.capacity()
    }

    /// Memory owned for output.
    pub(crate) fn output_capacity(&self) -> usize {
        self.unsent.capacity()
    }

    /// Goes on with the handshake, as far as bytes have arrived for it.
    ///
    /// # Errors
    /// When the peer has ended the connection, breaks the protocol, or is not let in. An alert says so to the peer.
    pub(crate) fn shake_hands(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: &mut Buffers,
    ) -> io::Result<Progress> {
        match self.receive_records(socket, buffers, 0, &mut |_, _| {}) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if self.session.is_handshaking() {
            return match self.has_ended {
                true => Err(io::ErrorKind::UnexpectedEof.into()),
                false => Ok(Progress::Waiting),
            };
        }
        // The end may have come with the last message.
        self.has_more |= self.has_ended;
        let resumed = self.session.handshake_kind() == Some(HandshakeKind::Resumed);
        Ok(Progress::Complete { resumed })
    }

    /// Receives plain bytes, at most `room`, and hands them to `deliver` with their place. Returns how many. `Ok(0)`
    /// means that the peer has sent its last byte; `WouldBlock`, that no whole record has arrived.
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: &mut Buffers,
        room: usize,
        mut deliver: impl FnMut(usize, &[u8]),
    ) -> io::Result<usize> {
        if !self.surplus.is_empty() {
            let count = room.min(self.surplus.len());
            deliver(0, &self.surplus[..count]);
            self.surplus.drain(..count);
            if self.surplus.is_empty() {
                self.surplus = Vec::new();
            }
            self.has_more = true;
            return Ok(count);
        }
        if self.has_ended && !self.is_backlogged {
            self.has_more = false;
            return Ok(0);
        }
        self.receive_records(socket, buffers, room.min(RECEIVE_PLAIN_MAX), &mut deliver)
    }

    /// Receives until there are plain bytes, and until `room` is filled if bytes keep coming.
    fn receive_records(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: &mut Buffers,
        room: usize,
        deliver: &mut dyn FnMut(usize, &[u8]),
    ) -> io::Result<usize> {
        if self.has_failed {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let mut delivered = 0;
        loop {
            let len = match self.fill(socket, buffers, room - delivered) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && delivered > 0 => {
                    return Ok(delivered);
                }
                Err(error) => return Err(error),
            };
            delivered = self.decrypt(socket, buffers, len, room, delivered, deliver)?;
            let has_some = delivered > 0 || !self.surplus.is_empty();
            let is_last = self.has_ended && !self.is_backlogged;
            let is_full = self.is_backlogged || room - delivered < RECORD_PLAIN_MAX;
            let is_enough = is_full || !self.has_more;
            if is_last || has_some && is_enough {
                self.has_more |= self.is_backlogged || !self.surplus.is_empty();
                // The end is told when nothing else is left.
                self.has_more |= is_last && has_some;
                return Ok(delivered);
            }
        }
    }

    /// Puts what was kept into the buffer, and what arrives behind it unless there are whole records already. Returns
    /// how much there is.
    fn fill(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: &mut Buffers,
        room: usize,
    ) -> io::Result<usize> {
        let kept = self.arrived.len();
        buffers.incoming.resize(KEPT_MAX + RECEIVE_MAX, 0);
        buffers.incoming[..kept].copy_from_slice(&self.arrived);
        if self.is_backlogged {
            self.has_more = true;
            return Ok(kept);
        }
        self.has_more = false;
        let wanted = room.clamp(RECORD_MAX, RECEIVE_MAX);
        let count = socket::receive(socket, &mut buffers.incoming[kept..kept + wanted])?;
        self.has_more = count == wanted;
        self.has_ended |= count == 0;
        self.note_handshake_bytes(count)?;
        Ok(kept + count)
    }

    /// What a peer sends without completing its handshake has a bound.
    fn note_handshake_bytes(&mut self, count: usize) -> io::Result<()> {
        if self.session.is_handshaking() {
            self.handshake_bytes += count;
            if self.handshake_bytes > HANDSHAKE_BYTES_MAX {
                return Err(failure("the handshake does not end"));
            }
        }
        Ok(())
    }

    /// Decrypts the records in the first `len` bytes of the buffer, and keeps what is left of them. Answers that the
    /// protocol asks for are sent, also after an error.
    fn decrypt(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: &mut Buffers,
        len: usize,
        room: usize,
        delivered: usize,
        deliver: &mut dyn FnMut(usize, &[u8]),
    ) -> io::Result<usize> {
        let Buffers { incoming, outgoing, .. } = buffers;
        outgoing.clear();
        let mut records = Records { bytes: &mut incoming[..len], at: 0, room, delivered };
        let result = self.process(&mut records, outgoing, deliver);
        let (at, delivered) = (records.at, records.delivered);
        if at < len {
            self.keep(&incoming[at..len]);
        } else {
            self.arrived = Vec::new();
        }
        if self.arrived.len() > KEPT_MAX {
            return Err(failure("a message is too long"));
        }
        if !outgoing.is_empty() {
            outgoing.move_to(&mut self.unsent);
            self.flush(socket)?;
        }
        result.map(|()| delivered)
    }

    fn process(
        &mut self,
        records: &mut Records<'_>,
        outgoing: &mut Outgoing,
        deliver: &mut dyn FnMut(usize, &[u8]),
    ) -> io::Result<()> {
        self.is_backlogged = false;
        loop {
            if records.is_full() {
                self.is_backlogged = true;
                break;
            }
            let status = self.session.process_tls_records(&mut records.bytes[records.at..]);
            let UnbufferedStatus { mut discard, state } = status;
            let mut is_idle = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(failure)?;
                        discard += record.discard;
                        let fits = record.payload.len().min(records.room - records.delivered);
                        let (now, later) = record.payload.split_at(fits);
                        if !now.is_empty() {
                            deliver(records.delivered, now);
                        }
                        records.delivered += fits;
                        self.surplus.extend_from_slice(later);
                    }
                    // What the session has to tell is told with the next bytes in either direction.
                    is_idle = records.at + discard == records.bytes.len();
                }
                Ok(ConnectionState::EncodeTlsData(mut message)) => outgoing.encode(&mut message)?,
                Ok(ConnectionState::TransmitTlsData(transmitted)) => transmitted.done(),
                Ok(ConnectionState::PeerClosed) => self.has_ended = true,
                Ok(ConnectionState::Closed) => is_idle = true,
                Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => {
                    is_idle = true;
                }
                Ok(_) => return Err(failure("early data are not accepted")),
                Err(error) => {
                    records.at = records.bytes.len();
                    self.encode_alert(outgoing);
                    return Err(failure(error));
                }
            }
            records.at += discard;
            if is_idle {
                break;
            }
        }
        Ok(())
    }

    /// Gives up the session, and encodes what the peer is told of the error. Only as long as there is something to
    /// encode may the session be asked, as it would look for records otherwise.
    fn encode_alert(&mut self, outgoing: &mut Outgoing) {
        self.has_failed = true;
        while self.session.wants_write() {
            let state = self.session.process_tls_records(&mut []).state;
            let Ok(ConnectionState::EncodeTlsData(mut message)) = state else { return };
            if outgoing.encode(&mut message).is_err() {
                return;
            }
        }
    }

    /// Keeps bytes for which it is too early, in memory of their size.
    fn keep(&mut self, bytes: &[u8]) {
        self.arrived.clear();
        if self.arrived.capacity() < bytes.len() {
            self.arrived = Vec::with_capacity(bytes.len());
        }
        self.arrived.extend_from_slice(bytes);
    }

    /// Sends once or several times, some [`SEND_PLAIN_MAX`] bytes at most. Returns of how many bytes the records were
    /// sent entirely. The others must come first in the next call, as they are now. If there are any, the socket is
    /// full exactly if [`has_unsent`](Self::has_unsent).
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: &mut Buffers,
        slices: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        let mut sent = self.flush(socket)?;
        if self.has_unsent() {
            return Ok(sent);
        }
        let Buffers { outgoing, gathered, .. } = buffers;
        let mut source = Source { slices, skip: 0 };
        source.advance(sent);
        while sent < SEND_PLAIN_MAX && !source.is_empty() {
            outgoing.clear();
            self.encrypt(&mut source, outgoing, gathered)?;
            let count = socket::send(socket, outgoing.unsent())?;
            sent += outgoing.advance(count);
            if !outgoing.is_empty() {
                outgoing.move_to(&mut self.unsent);
                break;
            }
        }
        Ok(sent)
    }

    /// Sends records that wait. Returns the plain bytes of those that are sent entirely.
    fn flush(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        if self.unsent.is_empty() {
            return Ok(0);
        }
        let count = socket::send(socket, self.unsent.unsent())?;
        let plain = self.unsent.advance(count);
        if self.unsent.is_empty() {
            self.unsent = Outgoing::default();
        }
        Ok(plain)
    }

    /// Encrypts up to [`BATCH_PLAIN_MAX`] bytes.
    fn encrypt(
        &mut self,
        source: &mut Source<'_>,
        outgoing: &mut Outgoing,
        gathered: &mut Vec<u8>,
    ) -> io::Result<()> {
        let mut plain = 0;
        while plain < BATCH_PLAIN_MAX && !source.is_empty() {
            let record = source.record(gathered);
            self.with_traffic(outgoing, |traffic, outgoing| outgoing.encrypt(traffic, record))?;
            plain += record.len();
            let len = record.len();
            source.advance(len);
        }
        Ok(())
    }

    /// Tells the peer that nothing follows, if the socket takes it.
    pub(crate) fn close(&mut self, socket: BorrowedFd<'_>, buffers: &mut Buffers) {
        if self.has_unsent() || self.session.is_handshaking() {
            return;
        }
        let outgoing = &mut buffers.outgoing;
        outgoing.clear();
        let closed =
            self.with_traffic(outgoing, |traffic, outgoing| outgoing.close_notify(traffic));
        if closed.is_ok() {
            // The connection ends, whether the peer hears of it or not.
            let _ = socket::send(socket, outgoing.unsent());
        }
    }

    /// Brings the session to where it encrypts. It has to see all that has arrived again, since it keeps places in it.
    fn with_traffic(
        &mut self,
        outgoing: &mut Outgoing,
        mut act: impl FnMut(
            &mut WriteTraffic<'_, ServerConnectionData>,
            &mut Outgoing,
        ) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.has_failed {
            return Err(io::ErrorKind::NotConnected.into());
        }
        loop {
            let status = self.session.process_tls_records(&mut self.arrived);
            let UnbufferedStatus { mut discard, state } = status;
            let mut result = None;
            let state = state.map_err(|error| {
                self.has_failed = true;
                failure(error)
            });
            match state? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    result = Some(act(&mut traffic, outgoing));
                }
                ConnectionState::EncodeTlsData(mut message) => outgoing.encode(&mut message)?,
                ConnectionState::TransmitTlsData(transmitted) => transmitted.done(),
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(failure)?;
                        discard += record.discard;
                        self.surplus.extend_from_slice(record.payload);
                    }
                    self.has_more = true;
                }
                ConnectionState::PeerClosed => {
                    (self.has_ended, self.has_more) = (true, true);
                }
                _ => return Err(io::ErrorKind::NotConnected.into()),
            }
            self.arrived.drain(..discard);
            if let Some(result) = result {
                return result;
            }
        }
    }
}

/// Records in a buffer, and room for what is in them.
struct Records<'a> {
    bytes: &'a mut [u8],
    /// Where the first one begins that is not decrypted.
    at: usize,
    room: usize,
    delivered: usize,
}

impl Records<'_> {
    /// Whether there may be no room for the next record. Where nothing was delivered, some of it is.
    fn is_full(&self) -> bool {
        let next = &self.bytes[self.at..];
        let len = record_len(next).unwrap_or(0);
        self.delivered > 0 && len > self.room - self.delivered
    }
}

/// The length of the record that begins here, as far as it is known.
fn record_len(bytes: &[u8]) -> Option<usize> {
    let &[_, _, _, high, low] = bytes.first_chunk::<HEADER_LEN>()?;
    Some(HEADER_LEN + usize::from(u16::from_be_bytes([high, low])))
}

/// Plain bytes to send.
struct Source<'a> {
    slices: &'a [IoSlice<'a>],
    /// Bytes of the first slice that are done.
    skip: usize,
}

impl<'a> Source<'a> {
    fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    fn advance(&mut self, count: usize) {
        self.skip += count;
        while let Some(first) = self.slices.first()
            && self.skip >= first.len()
        {
            self.skip -= first.len();
            self.slices = &self.slices[1..];
        }
    }

    /// The bytes of the next record: from one slice, or the ends of several copied together.
    fn record<'b>(&self, gathered: &'b mut Vec<u8>) -> &'b [u8]
    where
        'a: 'b,
    {
        let first = &self.slices[0][self.skip..];
        if self.slices.len() == 1 || first.len() >= RECORD_PLAIN_MAX {
            return &first[..first.len().min(RECORD_PLAIN_MAX)];
        }
        gathered.clear();
        gathered.extend_from_slice(first);
        for slice in &self.slices[1..] {
            let left = RECORD_PLAIN_MAX - gathered.len();
            if left == 0 {
                break;
            }
            gathered.extend_from_slice(&slice[..slice.len().min(left)]);
        }
        gathered
    }
}

/// An error of the protocol.
pub(super) fn failure(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
