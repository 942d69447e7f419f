//! Starting the threads, and the handle for talking to them.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::acceptor::{Accepted, Acceptor, Adopted, TurnedAway};
use crate::clock::Clock;
use crate::connection::{ConnKey, Endpoints, ListenerTag};
use crate::listener::Listener;
use crate::mailbox::Mailbox;
use crate::metrics::{Metrics, SharedMetrics};
use crate::service::{Service, WorkerId};
use crate::tls::TlsSettings;
use crate::worker::{Worker, WorkerConfig};
use tierce_output::OutputLimits;

/// Most workers of a runtime.
pub const WORKERS_MAX: usize = 1024;

/// How a runtime is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of worker threads, 1 to [`WORKERS_MAX`].
    pub workers: usize,
    /// Size of the buffer each worker receives into; bounds what a connection does in one turn.
    pub input_buffer_bytes: usize,
    /// Input kept for a suspended session; beyond it the peer has to wait.
    pub suspended_input_bytes_max: usize,
    /// Bounds on unsent output.
    pub output_limits: OutputLimits,
    /// Seconds of silence after which a TCP peer is probed; 0 is never.
    pub keepalive_s: u32,
    /// Connections a second that one address may open, at most
    /// [`ARRIVALS_PER_SECOND_MAX`](crate::ARRIVALS_PER_SECOND_MAX); 0 is no limit.
    pub arrivals_per_second: u32,
    /// What clients of a listener are told that is not encrypted, before their connections are closed by the acceptor.
    pub last_words: fn(ListenerTag, TurnedAway) -> &'static [u8],
    /// How connections of listeners with [`Encryption::Tls`](crate::Encryption) are accepted.
    pub tls: Option<TlsSettings>,
    /// What time it is.
    pub clock: Clock,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            workers: std::thread::available_parallelism().map_or(1, |count| count.get()),
            input_buffer_bytes: 64 * 1024,
            suspended_input_bytes_max: 64 * 1024,
            output_limits: OutputLimits::default(),
            keepalive_s: 300,
            arrivals_per_second: 0,
            last_words: |_, _| b"",
            tls: None,
            clock: Clock::start(),
        }
    }
}

/// What a worker finds in its mailbox.
pub(crate) enum Mail<M> {
    Accepted(Accepted),
    Message(M),
    Close(ConnKey),
    Resume(ConnKey),
    OutputLimits(OutputLimits),
    Tls(Option<TlsSettings>),
    Drain { within_ms: u64 },
}

/// What the acceptor finds in its mailbox.
pub(crate) enum AcceptorMail {
    /// Listen on these instead.
    Listen(Vec<Listener>),
    /// Serve this socket like one that was accepted.
    Adopt(Adopted),
    Stop,
}

/// What the threads know of one worker.
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

/// Talks to the threads of a runtime, from any thread. Nothing here waits.
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
    pub(crate) fn new(config: &Config) -> io::Result<Handle<M>> {
        let seat = || -> io::Result<WorkerSeat<M>> {
            let mailbox = Mailbox::new()?;
            let metrics = SharedMetrics::default();
            Ok(WorkerSeat { mailbox, connections: AtomicUsize::new(0), metrics })
        };
        let workers = (0..config.workers).map(|_| seat()).collect::<io::Result<_>>()?;
        let keepalive_s = AtomicU32::new(config.keepalive_s);
        let shared = Shared {
            workers,
            acceptor: Mailbox::new()?,
            keepalive_s,
            arrivals_per_second: AtomicU32::new(config.arrivals_per_second),
            dropped: AtomicU64::new(0),
            too_fast: AtomicU64::new(0),
        };
        Ok(Handle { shared: Arc::new(shared) })
    }

    /// Number of workers.
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

    /// Closes a connection without sending what waits.
    pub fn close(&self, conn: ConnKey) {
        self.mailbox(conn.worker).post(Mail::Close(conn));
    }

    /// Has a suspended session called again.
    pub fn resume(&self, conn: ConnKey) {
        self.mailbox(conn.worker).post(Mail::Resume(conn));
    }

    /// Changes the output limits of connections there are and will be.
    pub fn set_output_limits(&self, limits: OutputLimits) {
        self.broadcast_mail(|| Mail::OutputLimits(limits));
    }

    /// Accepts encrypted connections like this from now on; `None` closes them. Open ones go on.
    pub fn set_tls(&self, settings: Option<&TlsSettings>) {
        self.broadcast_mail(|| Mail::Tls(settings.cloned()));
    }

    /// Changes the keepalive of connections to come; 0 is none.
    pub fn set_keepalive(&self, seconds: u32) {
        self.shared.keepalive_s.store(seconds, Ordering::Relaxed);
    }

    /// Changes how many connections a second one address may open, at most
    /// [`ARRIVALS_PER_SECOND_MAX`](crate::ARRIVALS_PER_SECOND_MAX); 0 is no limit.
    pub fn set_arrivals_per_second(&self, connections: u32) {
        self.shared.arrivals_per_second.store(connections, Ordering::Relaxed);
    }

    /// Listens on these listeners. Present ones that have no clone among them are closed; the others
    /// go on without missing a connection.
    pub fn listen(&self, listeners: Vec<Listener>) {
        self.shared.acceptor.post(AcceptorMail::Listen(listeners));
    }

    /// Serves a connected stream socket as if a listener with this tag had accepted it, for a client that came in
    /// another way. It must be non-blocking. Without a descriptor to spare, or after [`Handle::drain`], its peer finds
    /// it closed.
    pub fn adopt(&self, socket: OwnedFd, endpoints: Endpoints, listener: ListenerTag) {
        self.shared.acceptor.post(AcceptorMail::Adopt(Adopted { socket, endpoints, listener }));
    }

    /// Closes all listeners; connections go on.
    pub fn stop_accepting(&self) {
        self.listen(Vec::new());
    }

    /// Ends the runtime: accepts no more connections or requests, sends waiting output for at
    /// most `within`, then the threads end. [`Runtime::join`] waits for that.
    pub fn drain(&self, within: Duration) {
        self.shared.acceptor.post(AcceptorMail::Stop);
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        self.broadcast_mail(|| Mail::Drain { within_ms });
    }

    /// Sums of the counters of all workers.
    pub fn metrics(&self) -> Metrics {
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        let too_fast = self.shared.too_fast.load(Ordering::Relaxed);
        let mut sum = Metrics { dropped, too_fast, ..Metrics::default() };
        self.shared.workers.iter().for_each(|seat| seat.metrics.add_to(&mut sum));
        sum
    }

    /// Connections each worker has at the moment, including those on their way to it.
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

/// The running threads.
#[derive(Debug)]
pub struct Runtime<M: Send + 'static> {
    handle: Handle<M>,
    /// Until it accepts.
    acceptor: Option<Acceptor<M>>,
    threads: Vec<JoinHandle<()>>,
}

impl<M: Send + 'static> Runtime<M> {
    /// Starts the workers and the acceptor.
    ///
    /// # Errors
    ///
    /// When the system has no descriptors or threads to give.
    ///
    /// # Panics
    ///
    /// As [`Runtime::prepare`].
    pub fn start<S: Service<Message = M>>(
        config: Config,
        listeners: Vec<Listener>,
        service: Arc<S>,
    ) -> io::Result<Runtime<M>> {
        let mut runtime = Self::prepare(config, listeners, service)?;
        runtime.accept_after(|| ())?;
        Ok(runtime)
    }

    /// Starts the workers. Connections wait at the listeners until [`Runtime::accept_after`], so the program
    /// can connect its parts by the [`Handle`] before a client meets them.
    ///
    /// # Errors
    ///
    /// When the system has no descriptors or threads to give.
    ///
    /// # Panics
    ///
    /// If the number of workers or the size of the input buffer makes no sense.
    pub fn prepare<S: Service<Message = M>>(
        config: Config,
        listeners: Vec<Listener>,
        service: Arc<S>,
    ) -> io::Result<Runtime<M>> {
        assert!((1..=WORKERS_MAX).contains(&config.workers), "1 to {WORKERS_MAX} workers");
        assert!(config.input_buffer_bytes >= 8 * 1024, "an input buffer of at least 8 KiB");
        let handle = Handle::new(&config)?;
        // What can fail is made first, so that no thread is left behind.
        let acceptor = Acceptor::new(handle.clone(), listeners, config.last_words)?;
        let pollers = (0..config.workers as u16)
            .map(|number| Worker::<S>::poller(&handle, WorkerId(number)))
            .collect::<io::Result<Vec<_>>>()?;
        let acceptor = Some(acceptor);
        let mut runtime = Runtime { handle: handle.clone(), acceptor, threads: Vec::new() };
        for (number, poller) in pollers.into_iter().enumerate() {
            let (id, service, handle) = (WorkerId(number as u16), service.clone(), handle.clone());
            let config = WorkerConfig {
                input_buffer_bytes: config.input_buffer_bytes,
                suspended_input_bytes_max: config.suspended_input_bytes_max,
                limits: config.output_limits,
                tls: config.tls.clone(),
                clock: config.clock.clone(),
            };
            runtime.spawn(format!("worker-{number}"), move || {
                Worker::new(id, poller, service, handle, config).run();
            })?;
        }
        Ok(runtime)
    }

    /// Accepts connections once `wait` has returned: who connects earlier is in the queue of the listener.
    ///
    /// # Errors
    ///
    /// When the system has no thread to give.
    pub fn accept_after(&mut self, wait: impl FnOnce() + Send + 'static) -> io::Result<()> {
        match self.acceptor.take() {
            Some(acceptor) => self.spawn("acceptor".into(), move || {
                wait();
                acceptor.run();
            }),
            None => Ok(()),
        }
    }

    fn spawn(&mut self, name: String, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        match std::thread::Builder::new().name(name).spawn(run) {
            Ok(thread) => {
                self.threads.push(thread);
                Ok(())
            }
            Err(error) => {
                // The threads there are end by themselves.
                self.handle.drain(Duration::ZERO);
                Err(error)
            }
        }
    }

    /// The handle to all threads.
    pub fn handle(&self) -> &Handle<M> {
        &self.handle
    }

    /// Waits until all threads have ended, which [`Handle::drain`] brings about.
    ///
    /// # Panics
    ///
    /// If a thread has panicked.
    pub fn join(self) {
        for thread in self.threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}
