//! The handle for sending messages to the threads, and the types of these messages.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::connection::{ConnKey, Endpoints, ListenerTag, WorkerId};
use crate::listener::{Encryption, Listener};
use crate::mailbox::Mailbox;
use crate::metrics::{Metrics, SharedMetrics};
use crate::tls::TlsSettings;
use tierce_output::OutputLimits;

/// Connection on its way to its worker.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) id: u64,
    pub(crate) socket: OwnedFd,
    pub(crate) endpoints: Endpoints,
    pub(crate) listener: ListenerTag,
    pub(crate) encryption: Encryption,
}

/// Socket to be served that no listener has accepted.
#[derive(Debug)]
pub(crate) struct Adopted {
    pub(crate) socket: OwnedFd,
    pub(crate) endpoints: Endpoints,
    pub(crate) listener: ListenerTag,
}

/// Message in a worker's mailbox.
pub(crate) enum Mail<M> {
    Accepted(Accepted),
    Message(M),
    Close(ConnKey),
    Resume(ConnKey),
    OutputLimits(OutputLimits),
    Tls(Option<TlsSettings>),
    Drain { within_ms: u64 },
}

/// Message in the acceptor's mailbox.
pub(crate) enum AcceptorMail {
    /// Replace the listeners by these.
    Listen(Vec<Listener>),
    /// Serve this socket as if it had been accepted.
    Adopt(Adopted),
    Stop,
}

/// State of one worker that the other threads see.
struct WorkerSeat<M> {
    mailbox: Mailbox<Mail<M>>,
    connections: AtomicUsize,
    metrics: SharedMetrics,
}

struct Shared<M> {
    workers: Vec<WorkerSeat<M>>,
    acceptor: Mailbox<AcceptorMail>,
    keepalive_s: AtomicU32,
    arrivals_per_second: AtomicU32,
    dropped: AtomicU64,
    too_fast: AtomicU64,
}

/// Handle to the threads of a runtime, usable from any thread. No method blocks.
pub struct Handle<M> {
    shared: Arc<Shared<M>>,
}

impl<M> Clone for Handle<M> {
    fn clone(&self) -> Handle<M> {
        Handle { shared: Arc::clone(&self.shared) }
    }
}

impl<M> std::fmt::Debug for Handle<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("workers", &self.shared.workers.len()).finish()
    }
}

impl<M: Send> Handle<M> {
    pub(crate) fn new(
        workers: usize,
        keepalive_s: u32,
        arrivals_per_second: u32,
    ) -> io::Result<Handle<M>> {
        let seat = || -> io::Result<WorkerSeat<M>> {
            let mailbox = Mailbox::new()?;
            let metrics = SharedMetrics::default();
            Ok(WorkerSeat { mailbox, connections: AtomicUsize::new(0), metrics })
        };
        let workers = (0..workers).map(|_| seat()).collect::<io::Result<_>>()?;
        let shared = Shared {
            workers,
            acceptor: Mailbox::new()?,
            keepalive_s: AtomicU32::new(keepalive_s),
            arrivals_per_second: AtomicU32::new(arrivals_per_second),
            dropped: AtomicU64::new(0),
            too_fast: AtomicU64::new(0),
        };
        Ok(Handle { shared: Arc::new(shared) })
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.shared.workers.len()
    }

    /// Posts a message to a worker.
    ///
    /// # Panics
    ///
    /// If there is no such worker.
    pub fn post(&self, worker: WorkerId, message: M) {
        self.mailbox(worker).post(Mail::Message(message));
    }

    /// Posts to every worker the message that `make` returns for it.
    pub fn broadcast(&self, mut make: impl FnMut(WorkerId) -> M) {
        for worker in (0..self.workers() as u16).map(WorkerId) {
            self.post(worker, make(worker));
        }
    }

    /// Closes a connection without sending its pending output.
    pub fn close(&self, conn: ConnKey) {
        self.mailbox(conn.worker).post(Mail::Close(conn));
    }

    /// Makes the worker call a suspended session again.
    pub fn resume(&self, conn: ConnKey) {
        self.mailbox(conn.worker).post(Mail::Resume(conn));
    }

    /// Changes the output limits of present and future connections.
    pub fn set_output_limits(&self, limits: OutputLimits) {
        self.broadcast_mail(|| Mail::OutputLimits(limits));
    }

    /// Accepts encrypted connections with these settings from now on; `None` closes new ones. Open ones continue.
    pub fn set_tls(&self, settings: Option<&TlsSettings>) {
        self.broadcast_mail(|| Mail::Tls(settings.cloned()));
    }

    /// Changes the keepalive of future connections; 0 disables it.
    pub fn set_keepalive(&self, seconds: u32) {
        self.shared.keepalive_s.store(seconds, Ordering::Relaxed);
    }

    /// Changes how many connections per second one address may open, at most
    /// [`ARRIVALS_PER_SECOND_MAX`](crate::ARRIVALS_PER_SECOND_MAX); 0 is no limit.
    pub fn set_arrivals_per_second(&self, connections: u32) {
        self.shared.arrivals_per_second.store(connections, Ordering::Relaxed);
    }

    /// Replaces the listeners. Present ones that have no clone among the new ones are closed; the others continue
    /// without missing a connection.
    pub fn listen(&self, listeners: Vec<Listener>) {
        self.shared.acceptor.post(AcceptorMail::Listen(listeners));
    }

    /// Serves a connected stream socket as if a listener with this tag had accepted it, for a client that came in
    /// another way. The socket must be non-blocking. If no descriptor is free, or after [`Handle::drain`], the socket
    /// is closed.
    pub fn adopt(&self, socket: OwnedFd, endpoints: Endpoints, listener: ListenerTag) {
        self.shared.acceptor.post(AcceptorMail::Adopt(Adopted { socket, endpoints, listener }));
    }

    /// Closes all listeners; connections continue.
    pub fn stop_accepting(&self) {
        self.listen(Vec::new());
    }

    /// Ends the runtime: accepts no more connections or requests and sends pending output for at most `within`. Then
    /// the threads end; [`Runtime::join`](crate::Runtime::join) waits for that.
    pub fn drain(&self, within: Duration) {
        self.shared.acceptor.post(AcceptorMail::Stop);
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        self.broadcast_mail(|| Mail::Drain { within_ms });
    }

    /// Returns the sums of the counters of all workers.
    pub fn metrics(&self) -> Metrics {
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        let too_fast = self.shared.too_fast.load(Ordering::Relaxed);
        let mut sum = Metrics { dropped, too_fast, ..Metrics::default() };
        self.shared.workers.iter().for_each(|seat| seat.metrics.add_to(&mut sum));
        sum
    }

    /// Returns the number of connections of each worker, including those on their way to it.
    pub fn connections_by_worker(&self) -> Vec<usize> {
        let load = |seat: &WorkerSeat<M>| seat.connections.load(Ordering::Relaxed);
        self.shared.workers.iter().map(load).collect()
    }

    fn broadcast_mail(&self, make: impl Fn() -> Mail<M>) {
        self.shared.workers.iter().for_each(|seat| seat.mailbox.post(make()));
    }

    pub(crate) fn mailbox(&self, worker: WorkerId) -> &Mailbox<Mail<M>> {
        &self.shared.workers[usize::from(worker.0)].mailbox
    }

    pub(crate) fn connections(&self, worker: WorkerId) -> &AtomicUsize {
        &self.shared.workers[usize::from(worker.0)].connections
    }

    pub(crate) fn metrics_of(&self, worker: WorkerId) -> &SharedMetrics {
        &self.shared.workers[usize::from(worker.0)].metrics
    }

    pub(crate) fn acceptor_mailbox(&self) -> &Mailbox<AcceptorMail> {
        &self.shared.acceptor
    }

    pub(crate) fn keepalive_s(&self) -> u32 {
        self.shared.keepalive_s.load(Ordering::Relaxed)
    }

    pub(crate) fn arrivals_per_second(&self) -> u32 {
        self.shared.arrivals_per_second.load(Ordering::Relaxed)
    }

    pub(crate) fn count_too_fast(&self) {
        self.shared.too_fast.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_dropped(&self) {
        self.shared.dropped.fetch_add(1, Ordering::Relaxed);
    }
}
