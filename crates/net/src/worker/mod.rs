//! A worker: one thread, one epoll instance, the connections it owns, and the loop over them.
//!
//! - A connection stays with its worker and is not shared, so nothing is locked.
//! - A turn costs one `epoll_wait`, and one `recv` and one `send` for each ready connection. A `recv` that did not fill
//!   its buffer needs no second one: sockets are edge-triggered, so later bytes are reported again.
//! - A connection with more input than one `recv` takes continues in the next turn, after the others.
//! - A worker without work sleeps until its next timer, if any.
//! - An event for a closed connection never reaches the next one in its slot: events carry the low half of the
//!   connection's id, and ids are not reused.

mod call;
pub(crate) mod conns;
mod handshake;
mod lifecycle;
mod send;
pub(crate) mod service;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};

use crate::clock::{Clock, Now};
use crate::connection::{CloseReason, Conn, ConnInfo, ConnKey, Phase, WorkerId};
use crate::handle::{Handle, Mail};
use crate::io::Io;
use crate::metrics::LocalMetrics;
use crate::slab::Slab;
use crate::timer::{TimerKind, Timers};
use crate::tls::{Handshakes, TlsSettings};
use crate::worker::service::{NextTurn, Service};
use conns::Conns;
use tierce_output::{Output, OutputLimits, Part};

/// Maximum number of events per `epoll_wait`. More ready connections than this are served in several turns.
const EVENTS_MAX: usize = 256;

/// Token of the mailbox's events; no connection has it, because its slot would be the last.
const MAILBOX_TOKEN: u64 = u64::MAX;

/// Token of the service's own descriptor, for which this holds as well.
const WATCHED_TOKEN: u64 = u64::MAX - 1;

/// Name of a connection in the poller and in the worker's lists: slot and low half of the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token(u64);

impl Token {
    fn new(key: ConnKey) -> Token {
        Token((key.id << 32) | u64::from(key.slot))
    }

    fn slot(self) -> u32 {
        self.0 as u32
    }
}

/// Output in the worker's buffer that waits for the end of the turn.
#[derive(Debug)]
struct Deferred {
    token: Token,
    /// `None` if it was moved to the connection's queue meanwhile.
    part: Option<Part>,
}

/// Way to end a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The socket is closed.
    Now,
    /// The session ends; the socket is closed when the peer has read everything.
    Linger,
}

/// Ended connection that the service does not know of yet.
#[derive(Debug)]
struct PendingClose {
    token: Token,
    reason: CloseReason,
    ending: Ending,
}

/// State of a worker without its service: everything that [`Conns`] works on.
pub(crate) struct Core<S> {
    id: WorkerId,
    epoll: OwnedFd,
    conns: Slab<Conn<S>>,
    timers: Timers,
    output: Output,
    now: Now,
    metrics: LocalMetrics,
    /// Connections to serve in the next turn, even if the poller does not report them.
    ready: Vec<Token>,
    /// Connections whose queue is to be sent at the end of the turn.
    flush: Vec<Token>,
    deferred: Vec<Deferred>,
    /// Connections that ended during a call to the service, which is told afterwards.
    pending_closes: Vec<PendingClose>,
    /// Number of connections in [`Phase::Lingering`].
    lingering: usize,
    /// State shared by encrypted connections.
    tls: Handshakes,
    suspended_input_bytes_max: usize,
}

/// Configuration of a worker thread.
pub(crate) struct WorkerConfig {
    pub(crate) input_buffer_bytes: usize,
    pub(crate) suspended_input_bytes_max: usize,
    pub(crate) limits: OutputLimits,
    pub(crate) tls: Option<TlsSettings>,
    pub(crate) clock: Clock,
}

/// Complete state of a worker thread.
pub(crate) struct Worker<S: Service> {
    service: Arc<S>,
    state: S::Worker,
    handle: Handle<S::Message>,
    clock: Clock,
    /// Receive buffer; its contents are valid only while one connection is served.
    scratch: Box<[u8]>,
    core: Core<S::Session>,
    mail: Vec<Mail<S::Message>>,
    next_turn: NextTurn,
    /// True if the poller has the service's own descriptor.
    is_watching: bool,
    /// Set when the runtime drains: time at which everything must be closed.
    drain_until_ms: Option<u64>,
}

impl<S: Service> Worker<S> {
    /// Creates the fallible parts, before any thread is started.
    pub(crate) fn poller(handle: &Handle<S::Message>, id: WorkerId) -> io::Result<OwnedFd> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = handle.mailbox(id).wake_fd();
        epoll::add(&epoll, wake, EventData::new_u64(MAILBOX_TOKEN), EventFlags::IN)?;
        Ok(epoll)
    }

    /// Builds the worker on its own thread.
    pub(crate) fn new(
        id: WorkerId,
        epoll: OwnedFd,
        service: Arc<S>,
        handle: Handle<S::Message>,
        config: WorkerConfig,
    ) -> Worker<S> {
        let state = service.worker(id, &handle);
        let mut output = Output::new();
        output.set_limits(config.limits);
        let core = Core {
            id,
            epoll,
            conns: Slab::new(),
            timers: Timers::default(),
            output,
            now: config.clock.now(),
            metrics: LocalMetrics::default(),
            ready: Vec::new(),
            flush: Vec::new(),
            deferred: Vec::new(),
            pending_closes: Vec::new(),
            lingering: 0,
            tls: Handshakes::with(config.tls),
            suspended_input_bytes_max: config.suspended_input_bytes_max,
        };
        Worker {
            service,
            state,
            handle,
            clock: config.clock,
            scratch: vec![0; config.input_buffer_bytes].into_boxed_slice(),
            core,
            mail: Vec::new(),
            next_turn: NextTurn::WhenReady,
            is_watching: false,
            drain_until_ms: None,
        }
    }

    /// Runs until the runtime is drained.
    pub(crate) fn run(mut self) {
        let mut events =
            vec![Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS_MAX];
        while !self.is_drained() {
            let count = self.wait(&mut events);
            self.turn(&events[..count]);
        }
        self.close_all();
    }

    fn is_drained(&self) -> bool {
        self.drain_until_ms.is_some_and(|until_ms| {
            self.core.conns.len() == 0 || self.core.now.monotonic_ms >= until_ms
        })
    }

    /// Waits for events, if there is nothing else to do.
    fn wait(&mut self, events: &mut [Event]) -> usize {
        self.watch();
        let timeout_ms = self.timeout_ms();
        let mailbox = self.handle.mailbox(self.core.id);
        let sleeps = timeout_ms != Some(0) && mailbox.fall_asleep();
        let timeout_ms = if sleeps { timeout_ms } else { Some(0) };
        #[cfg(feature = "simulation")]
        let timeout_ms = self.clock.wait(timeout_ms);
        let timeout = timeout_ms.map(|ms| Timespec {
            tv_sec: (ms / 1000) as i64,
            tv_nsec: (ms % 1000 * 1_000_000) as i64,
        });
        let result = epoll::wait(&self.core.epoll, &mut *events, timeout.as_ref());
        if sleeps {
            mailbox.wake_up();
        }
        match result {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => 0,
            // The descriptor is ours and open, and the buffer is valid.
            Err(errno) => panic!("epoll_wait failed: {errno}"),
        }
    }

    /// Adds the service's own descriptor to the poller, if it exists now.
    fn watch(&mut self) {
        if self.is_watching {
            return;
        }
        let Some(watched) = self.service.watched(&self.state) else { return };
        let data = EventData::new_u64(WATCHED_TOKEN);
        // This fails only for lack of memory; then the next turn tries again.
        self.is_watching = epoll::add(&self.core.epoll, watched, data, EventFlags::IN).is_ok();
    }

    /// Returns how long the worker may sleep; `None` is forever.
    fn timeout_ms(&self) -> Option<u64> {
        if !self.core.ready.is_empty() {
            return Some(0);
        }
        let service_ms = match self.next_turn {
            NextTurn::Immediately => return Some(0),
            NextTurn::At(at_ms) => Some(at_ms),
            NextTurn::WhenReady => None,
        };
        let or_never = |at_ms: Option<u64>| at_ms.unwrap_or(u64::MAX);
        let earliest_ms = or_never(service_ms)
            .min(or_never(self.core.timers.next_ms()))
            .min(or_never(self.drain_until_ms));
        if earliest_ms == u64::MAX {
            return None;
        }
        // A time that passed since the turn began gives 0. The bound keeps distant deadlines inside the range of the
        // system call.
        let now_ms = self.core.now.monotonic_ms;
        Some(earliest_ms.saturating_sub(now_ms).min(24 * 3600 * 1000))
    }

    fn turn(&mut self, events: &[Event]) {
        self.core.now = self.clock.now();
        self.core.tls.begin_turn();
        self.service.turn_start(&mut self.state, self.core.now);
        // The list is taken first: connections that become ready during this turn are served in the next.
        let ready = std::mem::take(&mut self.core.ready);
        self.read_mail();
        for event in events {
            let (flags, token) = (event.flags, event.data.u64());
            if token == MAILBOX_TOKEN {
                self.handle.mailbox(self.core.id).reset_wake_fd();
            } else if token != WATCHED_TOKEN {
                self.on_event(Token(token), flags);
            }
        }
        self.serve_ready(ready);
        self.fire_timers();
        self.end_turn();
        self.core.metrics.turns += 1;
        self.core.metrics.publish(self.handle.metrics_of(self.core.id));
    }

    fn end_turn(&mut self) {
        let now = self.core.now;
        let mut conns = Conns::new(&mut self.core);
        self.next_turn = self.service.turn_end(&mut self.state, &mut conns, now);
        self.run_pending_closes();
        self.send_deferred();
        self.flush_queues();
        self.run_pending_closes();
        self.core.output.reset();
    }

    fn read_mail(&mut self) {
        if !self.handle.mailbox(self.core.id).has_mail() {
            return;
        }
        let mut mail = std::mem::take(&mut self.mail);
        self.handle.mailbox(self.core.id).take(&mut mail);
        for mail in mail.drain(..) {
            match mail {
                Mail::Accepted(accepted) => self.open(accepted),
                Mail::Message(message) => {
                    let mut conns = Conns::new(&mut self.core);
                    self.service.message(&mut self.state, message, &mut conns);
                }
                Mail::Close(key) => {
                    self.core.schedule_close(Token::new(key), CloseReason::Requested);
                }
                Mail::Resume(key) => self.core.resume(key),
                Mail::OutputLimits(limits) => self.core.output.set_limits(limits),
                Mail::Tls(settings) => self.core.tls.set(settings),
                Mail::Drain { within_ms } => self.drain(within_ms),
            }
            self.run_pending_closes();
        }
        self.mail = mail;
    }

    fn serve_ready(&mut self, mut ready: Vec<Token>) {
        for &token in &ready {
            if let Some(conn) = self.core.conn(token) {
                conn.in_ready = false;
                self.serve(token);
            }
        }
        ready.clear();
        // Keeps the capacity unless there are new entries.
        if self.core.ready.is_empty() {
            self.core.ready = ready;
        }
    }

    fn fire_timers(&mut self) {
        let now_ms = self.core.now.monotonic_ms;
        while let Some((slot, kind)) = self.core.timers.pop_due(now_ms) {
            match kind {
                TimerKind::Session => self.on_session_timer(slot),
                TimerKind::Worker => self.on_worker_timer(slot),
            }
        }
    }

    fn on_session_timer(&mut self, slot: u32) {
        let core = &mut self.core;
        let Some(conn) = core.conns.get_mut(slot) else { return };
        conn.begin_output(&mut core.output);
        let Some(session) = conn.session.as_mut() else { return };
        if !matches!(conn.phase, Phase::Open | Phase::Suspended(_)) {
            return;
        }
        let token = Token::new(conn.info.key);
        let (output, control, info) = (&mut core.output, &mut conn.control, &conn.info);
        let (side_buffer, timers) = (&mut conn.side_buffer, &mut core.timers);
        let mut io = Io::without_input(output, control, info, side_buffer, timers, core.now);
        let flow = self.service.timer(&mut self.state, session, &mut io);
        self.after_call(token, flow);
    }
}

impl<S> Core<S> {
    /// Returns the connection, unless its slot was reused.
    #[inline]
    fn conn(&mut self, token: Token) -> Option<&mut Conn<S>> {
        self.conns.get_mut(token.slot()).filter(|conn| Token::new(conn.info.key) == token)
    }

    /// Begins the output of a call for a connection.
    fn begin_output(&mut self, token: Token) {
        if let Some(conn) = self.conns.get(token.slot()) {
            conn.begin_output(&mut self.output);
        }
    }

    /// Serves the connection in the next turn.
    fn make_ready(&mut self, token: Token) {
        if let Some(conn) = self.conns.get_mut(token.slot())
            && !conn.in_ready
        {
            conn.in_ready = true;
            self.ready.push(token);
        }
    }
}

/// Publishes the number of connections, by which the acceptor chooses a worker.
fn count_down<M: Send>(handle: &Handle<M>, info: &ConnInfo) {
    handle.connections(info.key.worker).fetch_sub(1, Ordering::Relaxed);
}
