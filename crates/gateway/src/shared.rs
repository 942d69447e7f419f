//! State shared by all requests.

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tierce_commands::kernel::Kernel;
use tierce_commands::stats::HttpFigures;
use tierce_config::Config;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::waiting::Waiting;

/// Handle that keeps the kernel alive.
pub type KernelHandle = Arc<dyn Deref<Target = Kernel> + Send + Sync>;

/// Function that opens a RESP connection to the server, for a client with the first address that connected to the
/// second one.
pub type Dial = Box<dyn Fn(SocketAddr, SocketAddr) -> io::Result<UnixStream> + Send + Sync>;

/// State shared by all requests.
pub(crate) struct Shared {
    pub(crate) config: Arc<Config>,
    pub(crate) kernel: OnceLock<KernelHandle>,
    pub(crate) dial: OnceLock<Dial>,
    pub(crate) is_ending: watch::Sender<bool>,
    pub(crate) figures: Arc<HttpFigures>,
    pub(crate) waiting: Waiting,
    /// TLS configuration of new connections, if they are encrypted.
    pub(crate) tls: Mutex<Option<TlsAcceptor>>,
}

impl Shared {
    /// Returns the kernel, once the data are loaded.
    pub(crate) fn kernel(&self) -> Option<&KernelHandle> {
        self.kernel.get()
    }

    /// Returns true during shutdown: nothing is waited for any more.
    pub(crate) fn is_ending(&self) -> bool {
        *self.is_ending.borrow()
    }

    /// Completes when the server shuts down.
    pub(crate) fn ends(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut is_ending = self.is_ending.subscribe();
        async move {
            let _ = is_ending.wait_for(|is_ending| *is_ending).await;
        }
    }

    /// Opens a connection to the server, once the data are loaded.
    pub(crate) fn dial(&self, peer: SocketAddr, local: SocketAddr) -> io::Result<UnixStream> {
        let dial = self.dial.get().ok_or(io::ErrorKind::NotConnected)?;
        dial(peer, local)
    }
}
