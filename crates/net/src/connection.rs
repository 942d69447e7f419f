//! A connection: its identity, which the service sees, and its state, which the worker keeps.
//!
//! An idle connection owns no buffer. It gets one for an incomplete request ([`Rest`]) or for output that the
//! socket did not take ([`OutputQueue`]), and releases it as soon as that is done.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};

use crate::buffer::apart::Apart;
use crate::buffer::rest::Rest;
use crate::gates::{Gates, Ticket};
use crate::queue::OutputQueue;
use crate::tls::Tls;
use crate::transport::Transport;
use tierce_output::{Output, OutputClass};

/// Held output from which on a connection is served no more requests until some is released: it is not
/// the client's fault that this output waits, so it must not be closed for it, and yet it takes memory.
const HELD_BYTES_MAX: usize = 1024 * 1024;

/// The number of a worker, from 0 to the number of workers less one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u16);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The address of a connection inside the runtime: valid from any thread, and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnKey {
    /// Counts connections of the runtime from 1, in the order they were accepted.
    pub id: u64,
    /// The worker that owns the connection for all its life.
    pub worker: WorkerId,
    /// Where its worker keeps it.
    pub slot: u32,
}

/// Tells the service which listener a connection came in by; chosen when the listener is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ListenerTag(pub u16);

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoints {
    /// Internet addresses.
    Tcp {
        /// The address of the peer.
        peer: SocketAddr,
        /// The address it connected to.
        local: SocketAddr,
    },
    /// A Unix socket; the peer has no address worth telling.
    Unix,
}

impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoints::Tcp { peer, .. } => peer.fmt(f),
            Endpoints::Unix => f.write_str("unix socket"),
        }
    }
}

/// What is known about a connection from the beginning.
#[derive(Clone, Copy, Debug)]
pub struct ConnInfo {
    /// Its address inside the runtime.
    pub key: ConnKey,
    /// The listener it came in by.
    pub listener: ListenerTag,
    /// The number of its file descriptor, for display only.
    pub fd: RawFd,
    /// Where it comes from and goes to.
    pub endpoints: Endpoints,
    /// [`Now::monotonic_ms`](crate::Now::monotonic_ms) when it was opened.
    pub opened_ms: u64,
}

/// What happens to a suspended session when its peer has sent its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnHangup {
    /// Close it at once: it may wait for something that never comes.
    Close,
    /// Keep it until it is resumed: that is certain to happen, and its requests must be answered.
    Wait,
}

/// Why a connection ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer closed its end.
    Peer,
    /// The service asked for it by [`Flow::Close`](crate::Flow::Close) or through a [`Conns`](crate::Conns).
    Service,
    /// Another thread asked for it through the [`Handle`](crate::Handle).
    Requested,
    /// More unsent output than the connection's limits allow.
    OutputLimit {
        /// Bytes that were waiting.
        pending: usize,
    },
    /// The socket failed.
    Io(io::Error),
    /// The runtime is shutting down.
    Shutdown,
}

/// What may happen on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Peer and worker agree on keys. There is no session yet.
    Handshaking,
    /// Requests are read and served.
    Open,
    /// The session waits to be resumed; bytes are kept up to a bound.
    Suspended(OnHangup),
    /// Output is being sent, nothing is read; closed as soon as all is sent.
    Flushing,
    /// All is sent and our end shut; input is thrown away until the peer closes. Closing with
    /// unread input would make the kernel reset the connection, and the peer lose our last words.
    Lingering,
}

/// Whether queued output may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writable {
    /// The socket took everything so far.
    Yes,
    /// The socket is full; the poller tells when it has room.
    WhenPolled,
}

/// The part of a connection that calls to the service may change.
#[derive(Debug)]
pub(crate) struct Control {
    /// Limits that apply to unsent output.
    pub(crate) class: OutputClass,
    /// Since when the queue has been above the soft limit.
    pub(crate) above_soft_since_ms: Option<u64>,
    /// The output of the present call, and all behind it, is to wait for this ticket.
    pub(crate) hold: Option<Ticket>,
    /// Output behind these waits for `ConnMut::release`.
    pub(crate) gates: Option<Box<Gates>>,
    /// What waited was thrown away, and nothing may follow what was sent.
    pub(crate) is_cut: bool,
    /// The session is to be called when all output is sent.
    pub(crate) wants_call: bool,
}

impl Control {
    /// Has the output of the present call wait for one more ticket.
    pub(crate) fn hold_for(&mut self, ticket: Ticket) {
        self.hold = Some(self.hold.map_or(ticket, |before| before.and(ticket)));
    }
}

/// A connection of a worker.
#[derive(Debug)]
pub(crate) struct Conn<S> {
    pub(crate) info: ConnInfo,
    pub(crate) socket: OwnedFd,
    pub(crate) transport: Transport,
    pub(crate) phase: Phase,
    pub(crate) writable: Writable,
    /// The poller watches for room in the socket.
    pub(crate) polled_for_room: bool,
    /// The socket may hold bytes that the poller will not report again.
    pub(crate) readable: bool,
    /// The poller has reported that the peer sent its last byte, which it does only once: until
    /// that byte is read, the socket counts as readable.
    pub(crate) hang_up_reported: bool,
    /// The peer sent its last byte, and it was read.
    pub(crate) hung_up: bool,
    /// The session is to be called even if no bytes arrive.
    pub(crate) call_again: bool,
    /// In the worker's list of connections to serve next turn.
    pub(crate) in_ready: bool,
    /// In the worker's list of connections to flush at the end of this turn.
    pub(crate) in_flush: bool,
    /// In the worker's list of outputs held until the end of this turn, at this index.
    pub(crate) deferred_at: Option<u32>,
    pub(crate) control: Control,
    pub(crate) last_input_ms: u64,
    pub(crate) rest: Rest,
    /// A large part of the input that is kept out of `rest`.
    pub(crate) apart: Option<Box<Apart>>,
    pub(crate) queue: Option<Box<OutputQueue>>,
    /// `None` before `Service::open` and once `Service::close` was called.
    pub(crate) session: Option<S>,
}

impl<S> Conn<S> {
    pub(crate) fn new(info: ConnInfo, socket: OwnedFd, session: Option<S>) -> Conn<S> {
        Conn {
            socket,
            transport: Transport::Plain,
            phase: Phase::Open,
            writable: Writable::Yes,
            polled_for_room: false,
            readable: false,
            hang_up_reported: false,
            hung_up: false,
            call_again: false,
            in_ready: false,
            in_flush: false,
            deferred_at: None,
            control: Control {
                class: OutputClass::default(),
                above_soft_since_ms: None,
                hold: None,
                gates: None,
                is_cut: false,
                wants_call: false,
            },
            last_input_ms: info.opened_ms,
            rest: Rest::default(),
            apart: None,
            queue: None,
            session,
            info,
        }
    }

    /// One that is encrypted, and begins with a handshake.
    pub(crate) fn encrypted(info: ConnInfo, socket: OwnedFd, tls: Tls) -> Conn<S> {
        Conn {
            transport: Transport::Tls(Box::new(tls)),
            phase: Phase::Handshaking,
            ..Conn::new(info, socket, None)
        }
    }

    /// Begins the output of a call for this connection.
    #[inline]
    pub(crate) fn begin_output(&self, output: &mut Output) {
        let (queued, unread) = match &self.queue {
            None => (0, 0),
            Some(queue) => (queue.bytes(), self.sendable_bytes()),
        };
        output.begin(queued, unread, self.control.class);
    }

    /// Whether what arrives next belongs to a value that is received apart.
    #[inline]
    pub(crate) fn is_receiving_apart(&self) -> bool {
        self.apart.as_ref().is_some_and(|apart| !apart.is_complete())
    }

    /// Bytes that have arrived and were not consumed.
    pub(crate) fn input_bytes(&self) -> usize {
        self.rest.len() + self.apart.as_ref().map_or(0, |apart| apart.bytes().len())
    }

    /// The memory that they are in.
    pub(crate) fn input_capacity(&self) -> usize {
        let apart = self.apart.as_ref().map_or(0, |apart| apart.populated());
        self.rest.capacity() + apart + self.transport.capacities().0
    }

    pub(crate) fn queued_bytes(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.bytes())
    }

    /// Queued bytes that wait for nothing but the socket.
    pub(crate) fn sendable_bytes(&self) -> usize {
        let queued = self.queued_bytes();
        self.control.gates.as_ref().map_or(queued, |gates| gates.sendable(queued))
    }

    /// Whether so much output waits to be released that requests must wait, too.
    #[inline]
    pub(crate) fn is_stalled(&self) -> bool {
        self.control.gates.is_some() && self.queued_bytes() - self.sendable_bytes() > HELD_BYTES_MAX
    }

    /// Takes note that a `recv` into `room` bytes brought `count`. Less than there was room for
    /// means that the socket is empty, and that the poller will report what arrives next.
    #[inline]
    pub(crate) fn received(&mut self, count: usize, room: usize) {
        self.hung_up = count == 0;
        let may_have_more = count == room || self.hang_up_reported || self.transport.has_more();
        self.readable = !self.hung_up && may_have_more;
    }

    /// Whether any output has yet to be sent.
    pub(crate) fn has_output(&self) -> bool {
        self.queue.is_some() || self.deferred_at.is_some() || self.transport.has_unsent()
    }

    /// Whether what a call has written may be sent as it is: no other output is in front of it, nothing
    /// holds it back, and the connection does not end with it.
    #[inline]
    pub(crate) fn may_send_at_once(&self) -> bool {
        let control = &self.control;
        let is_held = control.hold.is_some() || control.gates.is_some() || control.is_cut;
        let has_output = self.queue.is_some() || self.deferred_at.is_some();
        !is_held && !has_output && matches!(self.phase, Phase::Open | Phase::Suspended(_))
    }

    /// Whether output exists and nothing forbids to send it now.
    pub(crate) fn can_flush(&self) -> bool {
        let has_some = self.sendable_bytes() > 0 || self.transport.has_unsent();
        self.writable == Writable::Yes && has_some
    }
}
