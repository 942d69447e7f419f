//! A connection: its identity, which the service sees, and its state, which the worker keeps.
//!
//! An idle connection owns no buffer. It gets one for an incomplete request ([`Rest`]) or for output that the socket
//! did not take ([`OutputQueue`]), and releases it as soon as that is done.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};

use crate::buffer::rest::Rest;
use crate::buffer::side_buffer::SideBuffer;
use crate::queue::OutputQueue;
use crate::send_barriers::{SendBarriers, Ticket};
use crate::tls::Tls;
use crate::transport::Transport;
use tierce_output::{Output, OutputClass};

/// Size of deferred output from which on a connection's requests wait until some is released. The client did not cause
/// this wait, so its connection must not be closed for it, but the output takes memory.
const HELD_BYTES_MAX: usize = 1024 * 1024;

/// Number of a worker, from 0 to the number of workers less one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u16);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Address of a connection inside the runtime: valid from any thread, and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnKey {
    /// Number of the connection in the runtime, counted from 1 in the order of acceptance.
    pub id: u64,
    /// Worker that owns the connection for all its life.
    pub worker: WorkerId,
    /// Slot in its worker.
    pub slot: u32,
}

/// Tag of the listener that a connection came in by, for the service; chosen when the listener is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ListenerTag(pub u16);

/// Both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoints {
    /// Internet addresses.
    Tcp {
        /// Address of the peer.
        peer: SocketAddr,
        /// Address it connected to.
        local: SocketAddr,
    },
    /// A Unix socket; the peer has no useful address.
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

/// Facts about a connection that never change.
#[derive(Clone, Copy, Debug)]
pub struct ConnInfo {
    /// Its address inside the runtime.
    pub key: ConnKey,
    /// Listener it came in by.
    pub listener: ListenerTag,
    /// Number of its file descriptor, for display only.
    pub fd: RawFd,
    /// Addresses of its ends.
    pub endpoints: Endpoints,
    /// [`Now::monotonic_ms`](crate::Now::monotonic_ms) when it was opened.
    pub opened_ms: u64,
}

/// Action for a suspended session when its peer has sent its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnHangup {
    /// Close it at once: it may wait for something that never comes.
    Close,
    /// Keep it until it is resumed: that is certain to happen, and its requests must be answered.
    Wait,
}

/// Reason why a connection ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer closed its end.
    Peer,
    /// The service asked for it by [`Flow::Close`](crate::Flow::Close) or through a [`Conns`](crate::Conns).
    Service,
    /// Another thread asked for it through the [`Handle`](crate::Handle).
    Requested,
    /// It had more unsent output than its limits allow.
    OutputLimit {
        /// Number of unsent bytes.
        pending: usize,
    },
    /// The socket failed.
    Io(io::Error),
    /// The runtime is shutting down.
    Shutdown,
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Peer and worker agree on keys. There is no session yet.
    Handshaking,
    /// Requests are read and served.
    Open,
    /// The session waits to be resumed; input is kept up to a bound.
    Suspended(OnHangup),
    /// Output is being sent, nothing is read; closed as soon as all is sent.
    Flushing,
    /// All is sent and our end is shut down; input is discarded until the peer closes. Closing with unread input would
    /// make the kernel reset the connection, and the peer would lose our last reply.
    Lingering,
}

/// Readiness of the socket for output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writable {
    /// The socket took everything so far.
    Yes,
    /// The socket is full; the poller tells when it has room.
    WhenPolled,
}

/// Part of a connection that calls to the service may change.
#[derive(Debug)]
pub(crate) struct Control {
    /// Class of the limits on unsent output.
    pub(crate) class: OutputClass,
    /// Time since which the queue has been above the soft limit.
    pub(crate) above_soft_since_ms: Option<u64>,
    /// Ticket that the output of the current call, and all later output, has to wait for.
    pub(crate) hold: Option<Ticket>,
    /// Positions from which on output waits for `ConnMut::release`.
    pub(crate) send_barriers: Option<Box<SendBarriers>>,
    /// True if deferred output was discarded, so that nothing may follow the sent output.
    pub(crate) is_cut: bool,
    /// True if the session is to be called when all output is sent.
    pub(crate) wants_call: bool,
}

impl Control {
    /// Makes the output of the current call wait for one more ticket.
    pub(crate) fn hold_for(&mut self, ticket: Ticket) {
        self.hold = Some(self.hold.map_or(ticket, |before| before.and(ticket)));
    }
}

/// Connection of a worker.
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
    /// The poller has reported that the peer sent its last byte, which it does only once: until that byte is read, the
    /// socket counts as readable.
    pub(crate) hang_up_reported: bool,
    /// The peer sent its last byte, and it was read.
    pub(crate) hung_up: bool,
    /// The session is to be called even if no bytes arrive.
    pub(crate) call_again: bool,
    /// True if listed by the worker as to be served in the next turn.
    pub(crate) in_ready: bool,
    /// True if listed by the worker as to be flushed at the end of this turn.
    pub(crate) in_flush: bool,
    /// Index in the worker's list of outputs deferred until the end of this turn.
    pub(crate) deferred_at: Option<u32>,
    pub(crate) control: Control,
    pub(crate) last_input_ms: u64,
    pub(crate) rest: Rest,
    /// Side buffer for a large part of the input that is not in `rest`.
    pub(crate) side_buffer: Option<Box<SideBuffer>>,
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
                send_barriers: None,
                is_cut: false,
                wants_call: false,
            },
            last_input_ms: info.opened_ms,
            rest: Rest::default(),
            side_buffer: None,
            queue: None,
            session,
            info,
        }
    }

    /// Creates an encrypted one, which begins with a handshake.
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

    /// Returns true if the next bytes belong to a value in the side buffer.
    #[inline]
    pub(crate) fn is_filling_side_buffer(&self) -> bool {
        self.side_buffer.as_ref().is_some_and(|side_buffer| !side_buffer.is_complete())
    }

    /// Returns the number of received bytes that were not consumed.
    pub(crate) fn input_bytes(&self) -> usize {
        self.rest.len()
            + self.side_buffer.as_ref().map_or(0, |side_buffer| side_buffer.bytes().len())
    }

    /// Returns the memory that they occupy.
    pub(crate) fn input_capacity(&self) -> usize {
        let side_buffer =
            self.side_buffer.as_ref().map_or(0, |side_buffer| side_buffer.populated());
        self.rest.capacity() + side_buffer + self.transport.capacities().0
    }

    pub(crate) fn queued_bytes(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.bytes())
    }

    /// Returns the number of queued bytes that wait only for the socket.
    pub(crate) fn sendable_bytes(&self) -> usize {
        let queued = self.queued_bytes();
        self.control
            .send_barriers
            .as_ref()
            .map_or(queued, |send_barriers| send_barriers.sendable(queued))
    }

    /// Returns true if so much output is deferred that requests must wait, too.
    #[inline]
    pub(crate) fn is_stalled(&self) -> bool {
        self.control.send_barriers.is_some()
            && self.queued_bytes() - self.sendable_bytes() > HELD_BYTES_MAX
    }

    /// Notes that a `recv` into `room` bytes returned `count`. If it returned less, the socket is empty, and the poller
    /// will report new bytes.
    #[inline]
    pub(crate) fn received(&mut self, count: usize, room: usize) {
        self.hung_up = count == 0;
        let may_have_more = count == room || self.hang_up_reported || self.transport.has_more();
        self.readable = !self.hung_up && may_have_more;
    }

    /// Returns true if output is unsent.
    pub(crate) fn has_output(&self) -> bool {
        self.queue.is_some() || self.deferred_at.is_some() || self.transport.has_unsent()
    }

    /// Returns true if a call's output may be sent directly: no other output is in front of it, it is not deferred, and
    /// the connection does not end with it.
    #[inline]
    pub(crate) fn may_send_at_once(&self) -> bool {
        let control = &self.control;
        let is_held = control.hold.is_some() || control.send_barriers.is_some() || control.is_cut;
        let has_output = self.queue.is_some() || self.deferred_at.is_some();
        !is_held && !has_output && matches!(self.phase, Phase::Open | Phase::Suspended(_))
    }

    /// Returns true if there is output that may be sent now.
    pub(crate) fn can_flush(&self) -> bool {
        let has_some = self.sendable_bytes() > 0 || self.transport.has_unsent();
        self.writable == Writable::Yes && has_some
    }
}
