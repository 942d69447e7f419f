//! Where the server listens: at the start, and after CONFIG SET of `bind` and `port`.
//!
//! - A change keeps the listeners that stay as they are; no connection waiting there is lost.
//! - A change is all or nothing: when an address cannot be had, the server listens where it did.

use std::io;

use parking_lot::Mutex;
use tierce_net::{BindAddress, ListenAddress, ListenError, Listener, ListenerTag, Presence};

use crate::config::{self, Settings, Startup};

/// Marks connections that speak RESP.
const RESP: ListenerTag = ListenerTag(0);

/// Why the server cannot listen where it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListeningError {
    /// An address to listen on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A host name of `bind`.
    #[error("could not look up {host}: {error}")]
    UnknownHost {
        /// The name.
        host: String,
        /// The resolver's reason.
        error: io::Error,
    },
    /// Neither a port nor a Unix socket is configured.
    #[error("nothing to listen on: port is 0 and there is no unixsocket")]
    Nowhere,
}

/// The listeners of the server. The acceptor has clones of them.
#[derive(Debug)]
pub struct Listening {
    backlog: u32,
    present: Mutex<Vec<Listener>>,
}

impl Listening {
    /// Listens where `startup` says.
    ///
    /// # Errors
    /// When an address cannot be had, or there is none.
    pub fn start(startup: &Startup) -> Result<Self, ListeningError> {
        let Startup { port, tcp_backlog: backlog, .. } = *startup;
        let addresses = resolve_all(&startup.bind, port)?;
        let mut listeners = Listener::tcp_all(&addresses, port, backlog, RESP)?;
        if let Some(path) = &startup.unixsocket {
            listeners.push(Listener::unix(path, startup.unixsocket_permissions, backlog, RESP)?);
        }
        if listeners.is_empty() {
            return Err(ListeningError::Nowhere);
        }
        Ok(Self { backlog, present: Mutex::new(listeners) })
    }

    /// Listens nowhere: for a server that only executes commands of a file.
    #[must_use]
    pub fn nowhere() -> Self {
        Self { backlog: 0, present: Mutex::default() }
    }

    /// Clones of all listeners.
    #[must_use]
    pub fn listeners(&self) -> Vec<Listener> {
        self.present.lock().clone()
    }

    /// Listens where `settings` say, and has `install` accept from clones of all listeners. Unix
    /// sockets stay.
    ///
    /// # Errors
    /// When an address cannot be had; the server listens where it did then.
    pub fn change(
        &self,
        settings: &Settings,
        install: impl Fn(Vec<Listener>),
    ) -> Result<(), ListeningError> {
        let port = settings.port();
        let wanted = resolve_all(&settings.bind(), port)?;
        let mut present = self.present.lock();
        let stays = |listener: &Listener| match listener.address() {
            ListenAddress::Unix(_) => true,
            ListenAddress::Tcp(is) => {
                is.port() == port && wanted.iter().any(|address| address.ip == is.ip())
            }
        };
        let (kept, leaving): (Vec<_>, Vec<_>) = present.iter().cloned().partition(stays);
        let missing: Vec<_> =
            wanted.iter().copied().filter(|address| !listens(&kept, *address)).collect();
        let opened = match self.open_all(&missing, port) {
            Err(error) if is_in_use(&error) && !leaving.is_empty() => {
                // It may be we ourselves: no one can listen on `*` beside `127.0.0.1`.
                leaving.iter().for_each(Listener::stop);
                self.open_all(&missing, port).inspect_err(|_| {
                    *present = [kept.clone(), self.reopen(&leaving)].concat();
                    install(present.clone());
                })?
            }
            opened => opened?,
        };
        leaving.iter().for_each(Listener::stop);
        *present = [kept, opened].concat();
        install(present.clone());
        Ok(())
    }

    /// Lets go of all listeners; the acceptor has to do the same.
    pub fn close(&self) {
        self.present.lock().clear();
    }

    fn open_all(&self, addresses: &[BindAddress], port: u16) -> Result<Vec<Listener>, ListenError> {
        Listener::tcp_all(addresses, port, self.backlog, RESP)
    }

    /// Listens once more where stopped listeners did, as far as that is possible.
    fn reopen(&self, stopped: &[Listener]) -> Vec<Listener> {
        let reopen = |listener: &Listener| match listener.address() {
            ListenAddress::Tcp(address) => Listener::tcp(*address, self.backlog, RESP).ok(),
            ListenAddress::Unix(_) => None,
        };
        stopped.iter().filter_map(reopen).collect()
    }
}

fn is_in_use(error: &ListenError) -> bool {
    matches!(error, ListenError::Refused { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
}

fn listens(listeners: &[Listener], address: BindAddress) -> bool {
    listeners.iter().any(|listener| match listener.address() {
        ListenAddress::Tcp(is) => is.ip() == address.ip,
        ListenAddress::Unix(_) => false,
    })
}

/// The addresses of `bind`, host names looked up, each once; none when the port is 0.
fn resolve_all(
    bind: &[config::BindAddress],
    port: u16,
) -> Result<Vec<BindAddress>, ListeningError> {
    let mut addresses: Vec<BindAddress> = Vec::new();
    for address in bind.iter().filter(|_| port != 0) {
        let address = resolve(address)?;
        if addresses.iter().all(|there| there.ip != address.ip) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

fn resolve(address: &config::BindAddress) -> Result<BindAddress, ListeningError> {
    let unknown = |error| ListeningError::UnknownHost { host: address.host.to_string(), error };
    let presence = if address.optional { Presence::Optional } else { Presence::Required };
    Ok(BindAddress { ip: address.resolve(0).map_err(unknown)?.ip(), presence })
}

/// Address and port, or path.
#[must_use]
pub fn describe(listener: &Listener) -> String {
    match listener.address() {
        ListenAddress::Tcp(address) => address.to_string(),
        ListenAddress::Unix(path) => path.display().to_string(),
    }
}
