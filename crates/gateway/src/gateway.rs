//! The thread of the gateway: startup, listeners that change at run time, shutdown.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, OnceLock, mpsc as std_mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tierce_config::{Config, Settings};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::shared::{Dial, KernelHandle, Shared};
use crate::waiting::{THREADS, Waiting};
use crate::{connection, routes};

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Pause of the listener after an error of accept, such as a lack of file descriptors.
const ACCEPT_RESTS: Duration = Duration::from_millis(100);

/// Reason why the gateway cannot listen on a configured address.
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

/// HTTP, if configured: without a port there is no thread, and nothing is allocated.
pub struct Gateway {
    shared: Arc<Shared>,
    running: Mutex<Option<Running>>,
    /// Threads that no longer listen, and may have commands to complete.
    left: Mutex<Vec<JoinHandle<()>>>,
}

struct Running {
    present: Vec<(SocketAddr, TcpListener)>,
    orders: mpsc::UnboundedSender<Order>,
    thread: JoinHandle<()>,
}

enum Order {
    /// Accept only from these.
    Listen(Vec<TcpListener>),
    /// Take no more requests, and give clients this long to read their replies. Dropping `closed` signals that the
    /// listeners are closed.
    End { within: Duration, closed: std_mpsc::Sender<()> },
}

impl Gateway {
    /// Creates a gateway that does not listen yet.
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

    /// Listens on the addresses in `settings`; new connections are encrypted with `tls`, if it is given. Unchanged
    /// listeners and open connections continue; without a port they are closed. Until [`Gateway::serve`], only the
    /// health of the server is served.
    ///
    /// The caller may be a command of the gateway itself, so this waits for no command. During shutdown it has no
    /// effect.
    ///
    /// # Errors
    /// If an address cannot be bound, or a thread cannot be started; the gateway then keeps its old listeners.
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

    /// Returns the addresses of its listeners.
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

    /// Takes no more requests. Clients have this long to read their replies. Running commands complete, so a command
    /// must not call this.
    pub fn end(&self, within: Duration) {
        self.shared.is_ending.send_replace(true);
        // Not locked during the wait: a command may call `listen`.
        let running = self.running.lock().take();
        let running = running.map(|running| running.leave(within));
        let left = std::mem::take(&mut *self.left.lock());
        for thread in running.into_iter().chain(left) {
            // The panic was reported when it happened.
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
    /// Ends the thread, which no longer listens when this returns. The thread completes the commands that it has begun.
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
    // The second case: the system has no IPv6.
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
        .max_blocking_threads(THREADS)
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

/// Accepts connections from the current listeners, until it is told to end.
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
            let Some(slot) = ConnectionSlot::take(&self.shared) else {
                connection::turn_away(&stream, tls.is_some());
                continue;
            };
            let (shared, is_ending) = (Arc::clone(&self.shared), self.is_ending.clone());
            let (service, open) = (self.service.clone(), self.open.clone());
            tokio::spawn(async move {
                connection::serve(&shared, service, (stream, tls), peer, is_ending).await;
                drop((slot, open));
            });
        }
    }
}

/// Slot of one of the limited connections.
struct ConnectionSlot(Arc<Shared>);

impl ConnectionSlot {
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let max = shared.config.settings().http_maxclients();
        // Only one thread accepts, so nothing comes between.
        if shared.figures.connections() >= max as u64 {
            shared.figures.refuse();
            return None;
        }
        shared.figures.open();
        Some(Self(Arc::clone(shared)))
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.figures.close();
    }
}
