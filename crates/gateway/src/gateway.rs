//! The thread of the gateway: its start, listeners that change at run time, its end.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc as std_mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::http::StatusCode;
use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tierce_commands::Effort;
use tierce_commands::kernel::Kernel;
use tierce_commands::stats::HttpFigures;
use tierce_config::{Config, Settings};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::connection;
use crate::failure::Failure;
use crate::routes;

/// Threads for commands that take long. More wait for one of these.
const LONG_THREADS: usize = 4;

/// Threads for requests that take little, but wait: for the bucket, the device, memory. So many share a put of the
/// bucket. Threads end when they are idle.
const BRIEF_THREADS: usize = 128;

/// So long a brief request waits for a thread: as long as it would wait for the bucket.
const THREAD_PATIENCE: Duration = Duration::from_secs(10);

/// Threads for requests that need no data. They are there while all others wait.
const THREADS_WITHOUT_DATA: usize = 4;

/// Threads for bodies and replies of more than [`AT_ONCE_BYTES`].
const CONVERTING_THREADS: usize = 4;

/// So many of these convert bodies and replies that are [`LARGE_BYTES`] long or longer.
const CONVERTING_LARGE_THREADS: usize = CONVERTING_THREADS - 1;

/// So many of the others wait without keeping a thread for commands from its use.
const LARGE_WAITING_MAX: usize = 8;

/// Shorter bodies and replies are converted in some milliseconds, and wait for nothing longer.
const LARGE_BYTES: usize = 1 << 20;

/// The runtime's thread parses and encodes so many bytes itself, in less than a millisecond. More would hold up all
/// other requests.
pub(crate) const AT_ONCE_BYTES: usize = 64 * 1024;

/// Which threads that may wait are taken.
pub(crate) struct Waiting {
    long: Threads,
    brief: Threads,
    without_data: Threads,
    converting: Arc<Semaphore>,
    converting_large: Arc<Semaphore>,
    /// Large replies may wait for that without a thread for commands.
    may_wait: Arc<Semaphore>,
}

/// Threads for requests of one kind.
struct Threads {
    free: Arc<Semaphore>,
    /// Requests that wait for one.
    wanted: AtomicUsize,
}

impl Threads {
    fn new(count: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(count)), wanted: AtomicUsize::new(0) }
    }
}

/// Takes itself back when the request has its thread, or is gone.
struct Wanted<'a>(&'a AtomicUsize);

impl<'a> Wanted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The runtime has ended before what was to run.
pub(crate) fn ending() -> Failure {
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, "ERR the server is shutting down")
}

/// No thread came in time.
pub(crate) fn busy() -> Failure {
    let text =
        "TRYAGAIN too many requests run, or wait for keys, the bucket, memory or a slow disk";
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, text)
}

impl Waiting {
    fn new() -> Self {
        Self {
            long: Threads::new(LONG_THREADS),
            brief: Threads::new(BRIEF_THREADS),
            without_data: Threads::new(THREADS_WITHOUT_DATA),
            converting: Arc::new(Semaphore::new(CONVERTING_THREADS)),
            converting_large: Arc::new(Semaphore::new(CONVERTING_LARGE_THREADS)),
            may_wait: Arc::new(Semaphore::new(LARGE_WAITING_MAX)),
        }
    }

    /// Parses or encodes so many bytes: at once if they are few, otherwise on another thread. `convert` waits for
    /// nothing, so its thread is free again soon. `behind` goes back when it is one of a few that wait for that: else
    /// any number of large replies would.
    pub(crate) async fn convert<T: Send + 'static>(
        &self,
        bytes: usize,
        convert: impl FnOnce() -> T + Send + 'static,
        behind: Option<OwnedSemaphorePermit>,
    ) -> Result<T, Failure> {
        if bytes <= AT_ONCE_BYTES {
            return Ok(convert());
        }
        let large = match bytes >= LARGE_BYTES {
            true => {
                let _waits = self.may_wait.acquire().await;
                drop(behind);
                Some(Arc::clone(&self.converting_large).acquire_owned().await)
            }
            false => None,
        };
        let permit = Arc::clone(&self.converting).acquire_owned().await;
        let converted = spawn_blocking(move || {
            let _permits = (permit, large);
            convert()
        });
        converted.await.map_err(|_| ending())
    }

    fn threads(&self, effort: Effort) -> &Threads {
        match effort {
            Effort::NoData => &self.without_data,
            Effort::Little => &self.brief,
            Effort::Long => &self.long,
        }
    }

    /// True if a request waits for a thread that this kind has.
    pub(crate) fn is_thread_wanted(&self, effort: Effort) -> bool {
        self.threads(effort).wanted.load(Ordering::Relaxed) > 0
    }

    /// A thread for a request that takes so much.
    pub(crate) async fn permit(&self, effort: Effort) -> Result<OwnedSemaphorePermit, Failure> {
        let threads = self.threads(effort);
        let _wanted = Wanted::new(&threads.wanted);
        let permit = Arc::clone(&threads.free).acquire_owned();
        let permit = match effort {
            Effort::Long => permit.await,
            _ => timeout(THREAD_PATIENCE, permit).await.map_err(|_| busy())?,
        };
        // They are never closed.
        permit.map_err(|_| busy())
    }
}

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// After an error of accept, as without file descriptors, the listener rests so long.
const ACCEPT_RESTS: Duration = Duration::from_millis(100);

/// What keeps the kernel alive.
pub type KernelHandle = Arc<dyn Deref<Target = Kernel> + Send + Sync>;

/// Makes a connection to the server that speaks RESP, for a client with this address that has connected to the other
/// one.
pub type Dial = Box<dyn Fn(SocketAddr, SocketAddr) -> io::Result<UnixStream> + Send + Sync>;

/// Why the gateway cannot listen where it should.
#[derive(Debug)]
pub struct ListenError {
    address: String,
    error: io::Error,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, error } = self;
        match error.kind() {
            io::ErrorKind::AddrInUse => write!(f, "http-port: {address} is in use"),
            _ => write!(f, "http-port: could not listen on {address}: {error}"),
        }
    }
}

impl std::error::Error for ListenError {}

/// HTTP, where the configuration wants it: without a port there is no thread, and nothing is allocated.
pub struct Gateway {
    shared: Arc<Shared>,
    running: Mutex<Option<Running>>,
    /// Threads that listen no more, and may have commands to bring to their end.
    left: Mutex<Vec<JoinHandle<()>>>,
}

/// What all requests see.
pub(crate) struct Shared {
    pub(crate) config: Arc<Config>,
    kernel: OnceLock<KernelHandle>,
    dial: OnceLock<Dial>,
    is_ending: watch::Sender<bool>,
    pub(crate) figures: Arc<HttpFigures>,
    pub(crate) waiting: Waiting,
    /// What connections are encrypted with, if they are.
    tls: Mutex<Option<TlsAcceptor>>,
}

impl Shared {
    /// The kernel, once the data are loaded.
    pub(crate) fn kernel(&self) -> Option<&KernelHandle> {
        self.kernel.get()
    }

    /// Whether the server ends: nothing is waited for any more.
    pub(crate) fn is_ending(&self) -> bool {
        *self.is_ending.borrow()
    }

    /// Completes when the server ends.
    pub(crate) fn ends(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut is_ending = self.is_ending.subscribe();
        async move {
            let _ = is_ending.wait_for(|is_ending| *is_ending).await;
        }
    }

    /// A connection to the server, once the data are loaded.
    pub(crate) fn dial(&self, peer: SocketAddr, local: SocketAddr) -> io::Result<UnixStream> {
        let dial = self.dial.get().ok_or(io::ErrorKind::NotConnected)?;
        dial(peer, local)
    }
}

struct Running {
    present: Vec<(SocketAddr, TcpListener)>,
    orders: mpsc::UnboundedSender<Order>,
    thread: JoinHandle<()>,
}

enum Order {
    /// Accept from these, and from no others.
    Listen(Vec<TcpListener>),
    /// Take no more requests, and give clients so long to read their replies. What is dropped then tells that the
    /// listeners are closed.
    End { within: Duration, closed: std_mpsc::Sender<()> },
}

impl Gateway {
    /// One that does not listen yet.
    #[must_use]
    pub fn new(config: Arc<Config>) -> Self {
        let shared = Shared {
            config,
            kernel: OnceLock::new(),
            dial: OnceLock::new(),
            is_ending: watch::Sender::new(false),
            figures: Arc::default(),
            waiting: Waiting::new(),
            tls: Mutex::new(None),
        };
        Self { shared: Arc::new(shared), running: Mutex::default(), left: Mutex::default() }
    }

    /// Listens where `settings` say; new connections are encrypted with `tls`, if it is there. Connections of listeners
    /// that stay, and those that are there, go on; without a port they are closed. Until [`Gateway::serve`] only the
    /// health of the server is told.
    ///
    /// The caller may be a command of the gateway itself, so no command is waited for. Once the server ends, this has
    /// no effect.
    ///
    /// # Errors
    /// When an address cannot be had, or a thread; it listens where it did then.
    pub fn listen(
        &self,
        settings: &Settings,
        tls: Option<Arc<ServerConfig>>,
    ) -> Result<(), ListenError> {
        let mut running = self.running.lock();
        if self.shared.is_ending() {
            return Ok(());
        }
        let wanted = addresses(settings)?;
        let present = running.as_ref().map_or(&[][..], |running| &running.present);
        let mut listeners = Vec::new();
        for (address, is_optional) in wanted {
            let there = present.iter().find(|(there, _)| *there == address);
            let opened = match there {
                Some((_, listener)) => listener.try_clone(),
                None => open(address),
            };
            match opened {
                Ok(listener) => listeners.push((address, listener)),
                Err(error) if is_optional && is_absent(&error) => {}
                Err(error) => return Err(ListenError { address: address.to_string(), error }),
            }
        }
        if listeners.is_empty() {
            if let Some(running) = running.take() {
                let mut left = self.left.lock();
                left.retain(|thread| !thread.is_finished());
                left.push(running.leave(Duration::ZERO));
            }
            return Ok(());
        }
        *self.shared.tls.lock() = tls.map(TlsAcceptor::from);
        let failed = |error| ListenError { address: listeners[0].0.to_string(), error };
        let clones: io::Result<Vec<_>> = listeners.iter().map(|(_, it)| it.try_clone()).collect();
        let clones = clones.map_err(failed)?;
        match &mut *running {
            Some(running) => {
                // The thread ends only after it was asked to.
                let _ = running.orders.send(Order::Listen(clones));
                running.present = listeners;
            }
            None => {
                let (orders, thread) = start(&self.shared, clones).map_err(failed)?;
                *running = Some(Running { present: listeners, orders, thread });
            }
        }
        Ok(())
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let running = self.running.lock();
        let present = running.iter().flat_map(|running| &running.present);
        present.map(|(address, _)| *address).collect()
    }

    /// Serves commands from now on. A second call has no effect.
    pub fn serve(&self, kernel: KernelHandle, dial: Dial) {
        let _ = self.shared.dial.set(dial);
        let _ = kernel.http.set(Arc::clone(&self.shared.figures));
        let _ = self.shared.kernel.set(kernel);
    }

    /// Takes no more requests. Clients have so long to read their replies; commands that run come to their end, so this
    /// is not for one of them.
    pub fn end(&self, within: Duration) {
        self.shared.is_ending.send_replace(true);
        // Not locked while it waits: a command may come to `listen`.
        let running = self.running.lock().take();
        let running = running.map(|running| running.leave(within));
        let left = std::mem::take(&mut *self.left.lock());
        for thread in running.into_iter().chain(left) {
            // A panic has been reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

impl Running {
    /// Ends the thread, which listens no more when this returns. It waits for the commands that it has begun.
    fn leave(self, within: Duration) -> JoinHandle<()> {
        drop(self.present);
        let (closed, are_closed) = std_mpsc::channel();
        let _ = self.orders.send(Order::End { within, closed });
        // Nothing is ever sent.
        let _ = are_closed.recv();
        self.thread
    }
}

fn addresses(settings: &Settings) -> Result<Vec<(SocketAddr, bool)>, ListenError> {
    let port = settings.http_port();
    let mut addresses: Vec<(SocketAddr, bool)> = Vec::new();
    for bind in settings.http_bind().iter().filter(|_| port != 0) {
        let unknown = |error| ListenError { address: bind.host.to_string(), error };
        let address = bind.resolve(port).map_err(unknown)?;
        if addresses.iter().all(|(there, _)| *there != address) {
            addresses.push((address, bind.optional));
        }
    }
    Ok(addresses)
}

fn is_absent(error: &io::Error) -> bool {
    // The second: the system has no IPv6.
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(97)
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

type Started = (mpsc::UnboundedSender<Order>, JoinHandle<()>);

fn start(shared: &Arc<Shared>, listeners: Vec<TcpListener>) -> io::Result<Started> {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(
            LONG_THREADS + BRIEF_THREADS + THREADS_WITHOUT_DATA + CONVERTING_THREADS,
        )
        .thread_name("http-waiting")
        .build()?;
    let (orders, received) = mpsc::unbounded_channel();
    let _ = orders.send(Order::Listen(listeners));
    let shared = Arc::clone(shared);
    let run = move || run(&runtime, shared, received);
    let thread = thread::Builder::new().name("http".to_owned()).spawn(run)?;
    Ok((orders, thread))
}

fn run(runtime: &Runtime, shared: Arc<Shared>, orders: mpsc::UnboundedReceiver<Order>) {
    runtime.block_on(obey(shared, orders));
}

/// Accepts connections where it is told to, until it is told to end.
async fn obey(shared: Arc<Shared>, mut orders: mpsc::UnboundedReceiver<Order>) {
    let (ending, is_ending) = watch::channel(false);
    // Each connection has a sender: when all are gone, so are the connections.
    let (open, mut all_closed) = mpsc::channel::<()>(1);
    let accepting =
        Accepting { service: routes::routes(Arc::clone(&shared)), shared, is_ending, open };
    let mut tasks = JoinSet::new();
    let (within, closed) = loop {
        match orders.recv().await {
            Some(Order::Listen(listeners)) => {
                tasks.shutdown().await;
                for listener in listeners {
                    tasks.spawn(accepting.clone().accept_from(listener));
                }
            }
            Some(Order::End { within, closed }) => break (within, Some(closed)),
            None => break (Duration::ZERO, None),
        }
    };
    tasks.shutdown().await;
    drop((accepting, closed));
    let _ = ending.send(true);
    let _ = timeout(within, all_closed.recv()).await;
}

#[derive(Clone)]
struct Accepting {
    shared: Arc<Shared>,
    service: routes::Routes,
    is_ending: watch::Receiver<bool>,
    open: mpsc::Sender<()>,
}

impl Accepting {
    async fn accept_from(self, listener: TcpListener) {
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
        loop {
            let Ok((stream, peer)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_RESTS).await;
                continue;
            };
            let tls = self.shared.tls.lock().clone();
            let Some(place) = Place::take(&self.shared) else {
                connection::turn_away(&stream, tls.is_some());
                continue;
            };
            let (shared, is_ending) = (Arc::clone(&self.shared), self.is_ending.clone());
            let (service, open) = (self.service.clone(), self.open.clone());
            tokio::spawn(async move {
                connection::serve(&shared, service, (stream, tls), peer, is_ending).await;
                drop((place, open));
            });
        }
    }
}

/// One of the connections that may be there at a time.
struct Place(Arc<Shared>);

impl Place {
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let max = shared.config.settings().http_maxclients();
        // One thread accepts, so nothing comes between.
        if shared.figures.connections() >= max as u64 {
            shared.figures.refuse();
            return None;
        }
        shared.figures.open();
        Some(Self(Arc::clone(shared)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.figures.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The thread that is not held up is the one on which `/healthz` is answered.
    #[test]
    fn only_what_is_short_is_converted_on_the_thread_of_the_runtime() {
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let (waiting, here) = (Waiting::new(), thread::current().id());
        for (bytes, is_here) in [(0, true), (AT_ONCE_BYTES, true), (AT_ONCE_BYTES + 1, false)] {
            let converted = waiting.convert(bytes, || thread::current().id(), None);
            let thread = runtime.block_on(converted).expect("a thread");
            assert_eq!(thread == here, is_here, "{bytes}");
        }
    }
    #[test]
    fn long_conversions_leave_a_thread_to_shorter_ones() {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let waiting = Arc::new(Waiting::new());
        let (release, released) = std_mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let converted = runtime.block_on(async {
            let mut long = JoinSet::new();
            for _ in 0..2 * CONVERTING_THREADS {
                let (waiting, released) = (Arc::clone(&waiting), Arc::clone(&released));
                let convert = move || released.lock().recv().is_err();
                long.spawn(async move { waiting.convert(LARGE_BYTES, convert, None).await });
            }
            while waiting.converting_large.available_permits() > 0 {
                tokio::task::yield_now().await;
            }
            let converted =
                timeout(THREAD_PATIENCE, waiting.convert(LARGE_BYTES - 1, || (), None)).await;
            drop(release);
            while let Some(done) = long.join_next().await {
                assert!(done.expect("no panic").expect("a thread"));
            }
            converted
        });
        converted.expect("in time").expect("a thread");
    }
}
