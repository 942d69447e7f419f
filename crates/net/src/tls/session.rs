//! One encrypted connection.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use rustls::HandshakeKind;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, UnbufferedStatus, WriteTraffic};

use super::outgoing::{BATCH_PLAIN_MAX, Outgoing, RECORD_PLAIN_MAX};
use crate::socket;

/// Length of a record's header: type, version, length.
const HEADER_LEN: usize = 5;

/// Maximum length of a record.
const RECORD_MAX: usize = HEADER_LEN + RECORD_PLAIN_MAX + 2048;

/// Maximum number of bytes kept for later: those of a message, which has 64 KiB at most, or of records for which there
/// is no room.
const KEPT_MAX: usize = 64 * 1024 + RECORD_MAX;

/// Maximum number of bytes before the handshake is complete: a few messages with long certificate chains.
const HANDSHAKE_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of bytes received at once.
const RECEIVE_MAX: usize = 64 * 1024;

/// Maximum number of plain bytes received, and sent, in one call: a worker decrypts or encrypts this in a fraction of a
/// millisecond.
const RECEIVE_PLAIN_MAX: usize = 512 * 1024;
const SEND_PLAIN_MAX: usize = 256 * 1024;

/// Buffers of a worker for the connection being served. They are empty before the first encrypted connection.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// Received records, decrypted in place.
    incoming: Vec<u8>,
    /// Records to send.
    outgoing: Outgoing,
    /// Small pieces of output that share a record.
    gathered: Vec<u8>,
}

/// Progress of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It waits for the peer.
    Waiting,
    /// Plain bytes can be exchanged.
    Complete {
        /// True if the peer resumed a session with a ticket.
        resumed: bool,
    },
}

/// State of an encrypted connection.
pub(crate) struct Tls {
    session: UnbufferedServerConnection,
    /// Beginning of an incomplete record, or records for whose plain bytes there was no room.
    arrived: Vec<u8>,
    /// Decrypted bytes for which there was no room.
    surplus: Vec<u8>,
    /// Records that the socket did not take.
    unsent: Outgoing,
    /// Number of bytes received in the handshake.
    handshake_bytes: usize,
    /// True if input may be there that the poller will not report.
    has_more: bool,
    /// True if complete records were kept for lack of room.
    is_backlogged: bool,
    /// True if the peer has broken the protocol: the session must not be used any more.
    has_failed: bool,
    /// True if the peer will send nothing more.
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

    /// Returns true if input may be there that the poller will not report.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Returns true if records wait for room in the socket, which the last call found full.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Discards these records. Nothing can be sent after them, because the peer would miss them.
    pub(crate) fn discard_unsent(&mut self) {
        self.unsent = Outgoing::default();
        self.has_failed = true;
    }

    /// Returns the certificate of the peer, from this handshake or from the one of its ticket.
    pub(crate) fn certificate(&self) -> Option<&[u8]> {
        self.session.peer_certificates()?.first().map(AsRef::as_ref)
    }

    /// Returns the memory owned for input.
    pub(crate) fn input_capacity(&self) -> usize {
        self.arrived.capacity() + self.surplus.capacity()
    }

    /// Returns the memory owned for output.
    pub(crate) fn output_capacity(&self) -> usize {
        self.unsent.capacity()
    }

    /// Continues the handshake with the received bytes.
    ///
    /// # Errors
    /// If the peer has ended the connection, breaks the protocol, or is rejected. An alert tells the peer.
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

    /// Receives at most `room` plain bytes, and passes them to `deliver` with their position. Returns their number.
    /// `Ok(0)` means that the peer has sent its last byte; `WouldBlock`, that no complete record has arrived.
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

    /// Receives until there are plain bytes. Continues until `room` is full if bytes keep coming.
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
                // The end is reported when nothing else is left.
                self.has_more |= is_last && has_some;
                return Ok(delivered);
            }
        }
    }

    /// Puts the kept bytes into the buffer. Receives more behind them unless there are complete records already.
    /// Returns the number of bytes.
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

    /// Limits the bytes that a peer sends without completing its handshake.
    fn note_handshake_bytes(&mut self, count: usize) -> io::Result<()> {
        if self.session.is_handshaking() {
            self.handshake_bytes += count;
            if self.handshake_bytes > HANDSHAKE_BYTES_MAX {
                return Err(failure("the handshake does not end"));
            }
        }
        Ok(())
    }

    /// Decrypts the records in the first `len` bytes of the buffer, and keeps the rest. Sends the protocol's replies,
    /// also after an error.
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
                    // Pending messages of the session are sent with the next bytes in either direction.
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

    /// Ends the session, and encodes the alert for the peer. The session may be called only while it has something to
    /// encode; otherwise it would look for records.
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

    /// Keeps bytes for later, in memory of their size.
    fn keep(&mut self, bytes: &[u8]) {
        self.arrived.clear();
        if self.arrived.capacity() < bytes.len() {
            self.arrived = Vec::with_capacity(bytes.len());
        }
        self.arrived.extend_from_slice(bytes);
    }

    /// Sends once or several times, some [`SEND_PLAIN_MAX`] bytes at most. Returns the number of bytes whose records
    /// were sent completely. The others must come first in the next call, unchanged. If there are any, the socket is
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

    /// Sends pending records. Returns the number of plain bytes of those sent completely.
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

    /// Sends close_notify, if the socket takes it.
    pub(crate) fn close(&mut self, socket: BorrowedFd<'_>, buffers: &mut Buffers) {
        if self.has_unsent() || self.session.is_handshaking() {
            return;
        }
        let outgoing = &mut buffers.outgoing;
        outgoing.clear();
        let closed =
            self.with_traffic(outgoing, |traffic, outgoing| outgoing.close_notify(traffic));
        if closed.is_ok() {
            // The connection ends, even if the peer does not learn of it.
            let _ = socket::send(socket, outgoing.unsent());
        }
    }

    /// Brings the session to the state in which it encrypts. It has to see all received bytes again, because it keeps
    /// positions in them.
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

/// Records in a buffer, with the room for their contents.
struct Records<'a> {
    bytes: &'a mut [u8],
    /// Position of the first record that is not decrypted.
    at: usize,
    room: usize,
    delivered: usize,
}

impl Records<'_> {
    /// Returns true if there may be no room for the next record. If nothing was delivered, there is some.
    fn is_full(&self) -> bool {
        let next = &self.bytes[self.at..];
        let len = record_len(next).unwrap_or(0);
        self.delivered > 0 && len > self.room - self.delivered
    }
}

/// Returns the length of the record that begins here, as far as it is known.
fn record_len(bytes: &[u8]) -> Option<usize> {
    let &[_, _, _, high, low] = bytes.first_chunk::<HEADER_LEN>()?;
    Some(HEADER_LEN + usize::from(u16::from_be_bytes([high, low])))
}

/// Plain bytes to send.
struct Source<'a> {
    slices: &'a [IoSlice<'a>],
    /// Number of bytes of the first slice that are done.
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

    /// Returns the bytes of the next record: from one slice, or from several copied together.
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

/// Returns an error of the protocol.
pub(super) fn failure(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
