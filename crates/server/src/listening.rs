//! The addresses and ports that the server listens on: at the start, and after CONFIG SET of `bind` and the ports.
//!
//! - A change keeps unchanged listeners open; no connection waiting there is lost.
//! - A change is all or nothing: if an address cannot be bound, the server keeps its listeners.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;

use parking_lot::Mutex;
use tierce_net::{
    BindAddress, Encryption, Endpoints, Handle, ListenAddress, ListenError, Listener, ListenerTag,
    Presence,
};

use crate::clients::{self, Protocol};
use crate::config::{self, Settings, Startup};
use crate::engine::next_step;

/// Tag of connections that speak RESP.
const RESP: ListenerTag = ListenerTag(0);

/// Tag of connections that speak RESP for a client that reads events over HTTP.
pub const EVENTS: ListenerTag = ListenerTag(3);

/// Tag of connections that speak a memcached protocol.
pub const MEMCACHED: ListenerTag = ListenerTag(1);

/// Tag of connections that speak PedroKV.
pub const PEDROKV: ListenerTag = ListenerTag(2);

/// Returns the protocol of connections with this tag.
pub fn protocol_of(listener: ListenerTag) -> Protocol {
    match listener {
        MEMCACHED => Protocol::Memcached,
        PEDROKV => Protocol::PedroKv,
        _ => Protocol::Resp,
    }
}

/// Reason why the server cannot listen on a configured address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListeningError {
    /// An address cannot be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A host name of `bind` cannot be looked up.
    #[error("could not look up {host}: {error}")]
    UnknownHost {
        /// Host name.
        host: String,
        /// Error of the resolver.
        error: io::Error,
    },
    /// PedroKV, which has no passwords, would be open to other machines.
    #[error(
        "pedrokv-port would be open on {0}, and its protocol knows no passwords: bind loopback addresses only, set \
         pedrokv-port 0, or allow it by pedrokv-remote yes"
    )]
    RemotePedroKv(std::net::IpAddr),
    /// Neither a port nor a Unix socket is configured.
    #[error("nothing to listen on: all ports are 0 and there is no unixsocket")]
    Nowhere,
}

impl ListeningError {
    /// Returns advice for the user, as the end of a message.
    pub(crate) fn next_step(&self) -> &'static str {
        match self {
            Self::Listen(ListenError::Refused { source, .. }) => next_step::of_listening(source),
            Self::Listen(ListenError::NotASocket { .. }) => {
                "; move the file away, or name another path"
            }
            Self::UnknownHost { .. } => "; bind has to name addresses or hosts of this machine",
            _ => "",
        }
    }
}

/// Connects to the server itself over a socket pair, for a client that came in by HTTP. The other end is served like a
/// RESP connection of this client.
pub fn dial<M: Send>(
    handle: &Handle<M>,
    peer: SocketAddr,
    local: SocketAddr,
) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    handle.adopt(theirs.into(), Endpoints::Tcp { peer, local }, EVENTS);
    Ok(ours)
}

/// Listeners of the server. The acceptor has clones of them.
#[derive(Debug)]
pub struct Listening {
    backlog: u32,
    present: Mutex<Vec<Listener>>,
}

/// Address to listen on, with its protocol.
#[derive(Clone, Copy)]
struct Endpoint {
    address: BindAddress,
    port: u16,
    tag: ListenerTag,
    encryption: Encryption,
}

impl Endpoint {
    fn is_of(&self, listener: &Listener) -> bool {
        match listener.address() {
            ListenAddress::Tcp(is) => {
                is.ip() == self.address.ip
                    && is.port() == self.port
                    && listener.tag() == self.tag
                    && listener.encryption() == self.encryption
            }
            ListenAddress::Unix(_) => false,
        }
    }
}

impl Listening {
    /// Returns an instance without listeners.
    #[cfg(test)]
    pub(crate) fn nowhere() -> Self {
        Self { backlog: 0, present: Mutex::default() }
    }

    /// Listens on the addresses in `startup`.
    ///
    /// # Errors
    /// If an address cannot be bound, or there is none.
    pub fn start(startup: &Startup) -> Result<Self, ListeningError> {
        let backlog = startup.tcp_backlog;
        let ports = [
            (startup.port, RESP, Encryption::None),
            (startup.tls_port, RESP, Encryption::Tls),
            (startup.memcached_port, MEMCACHED, Encryption::None),
            (startup.memcached_tls_port, MEMCACHED, Encryption::Tls),
            (startup.pedrokv_port, PEDROKV, Encryption::None),
            (startup.pedrokv_tls_port, PEDROKV, Encryption::Tls),
        ];
        let endpoints = endpoints(&startup.bind, ports)?;
        check_pedrokv(&endpoints, startup.pedrokv_remote)?;
        let mut listeners = open_all(&endpoints, backlog)?;
        let sockets = [
            (&startup.unixsocket, RESP),
            (&startup.memcached_unixsocket, MEMCACHED),
            (&startup.pedrokv_unixsocket, PEDROKV),
        ];
        for (path, tag) in sockets {
            if let Some(path) = path {
                let permissions = startup.unixsocket_permissions;
                listeners.push(Listener::unix(path, permissions, backlog, tag)?);
            }
        }
        if listeners.is_empty() {
            return Err(ListeningError::Nowhere);
        }
        Ok(Self { backlog, present: Mutex::new(listeners) })
    }

    /// Returns clones of all listeners.
    #[must_use]
    pub fn listeners(&self) -> Vec<Listener> {
        self.present.lock().clone()
    }

    /// Listens on the addresses in `settings`, and calls `install` to accept from clones of all listeners. Unix sockets
    /// stay open.
    ///
    /// # Errors
    /// If an address cannot be bound; the server then keeps its old listeners.
    pub fn change(
        &self,
        settings: &Settings,
        install: impl Fn(Vec<Listener>),
    ) -> Result<(), ListeningError> {
        let ports = [
            (settings.port(), RESP, Encryption::None),
            (settings.tls_port(), RESP, Encryption::Tls),
            (settings.memcached_port(), MEMCACHED, Encryption::None),
            (settings.memcached_tls_port(), MEMCACHED, Encryption::Tls),
            (settings.pedrokv_port(), PEDROKV, Encryption::None),
            (settings.pedrokv_tls_port(), PEDROKV, Encryption::Tls),
        ];
        let wanted = endpoints(&settings.bind(), ports)?;
        check_pedrokv(&wanted, settings.pedrokv_remote())?;
        let mut present = self.present.lock();
        let stays = |listener: &Listener| match listener.address() {
            ListenAddress::Unix(_) => true,
            ListenAddress::Tcp(_) => wanted.iter().any(|endpoint| endpoint.is_of(listener)),
        };
        let (kept, leaving): (Vec<_>, Vec<_>) = present.iter().cloned().partition(stays);
        let is_missing =
            |endpoint: &Endpoint| !kept.iter().any(|listener| endpoint.is_of(listener));
        if kept.is_empty() && wanted.is_empty() {
            return Err(ListeningError::Nowhere);
        }
        let missing: Vec<_> = wanted.iter().copied().filter(is_missing).collect();
        let opened = match open_all(&missing, self.backlog) {
            Err(error) if is_in_use(&error) && !leaving.is_empty() => {
                // Our own listener may be in the way: `*` and `127.0.0.1` cannot be bound at the same time.
                leaving.iter().for_each(Listener::stop);
                open_all(&missing, self.backlog).inspect_err(|_| {
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

    /// Returns the protocols that have a listener.
    pub fn protocols(&self) -> clients::Listening {
        let present = self.present.lock();
        let is_present = |tag| present.iter().any(|listener| listener.tag() == tag);
        [RESP, MEMCACHED, PEDROKV].map(is_present)
    }

    /// Drops all listeners; the acceptor has to do this too.
    pub fn close(&self) {
        self.present.lock().clear();
    }

    /// Reopens stopped listeners, as far as possible.
    fn reopen(&self, stopped: &[Listener]) -> Vec<Listener> {
        let reopen = |listener: &Listener| match listener.address() {
            ListenAddress::Tcp(address) => {
                let reopened = Listener::tcp(*address, self.backlog, listener.tag()).ok()?;
                Some(reopened.encrypted(listener.encryption()))
            }
            ListenAddress::Unix(_) => None,
        };
        stopped.iter().filter_map(reopen).collect()
    }
}

fn open_all(endpoints: &[Endpoint], backlog: u32) -> Result<Vec<Listener>, ListenError> {
    let mut listeners = Vec::new();
    for endpoint in endpoints {
        let Endpoint { address, port, tag, encryption } = *endpoint;
        let opened = Listener::tcp_all(&[address], port, backlog, tag)?.into_iter();
        listeners.extend(opened.map(|listener| listener.encrypted(encryption)));
    }
    Ok(listeners)
}

fn is_in_use(error: &ListenError) -> bool {
    matches!(error, ListenError::Refused { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
}

/// Returns the addresses of each protocol.
fn endpoints(
    bind: &[config::BindAddress],
    ports: [(u16, ListenerTag, Encryption); 6],
) -> Result<Vec<Endpoint>, ListeningError> {
    let mut endpoints = Vec::new();
    for (port, tag, encryption) in ports {
        let addresses = resolve_all(bind, port)?;
        let endpoint = |address| Endpoint { address, port, tag, encryption };
        endpoints.extend(addresses.into_iter().map(endpoint));
    }
    Ok(endpoints)
}

/// Refuses remote addresses: any client that reaches PedroKV may read and change everything in its database.
fn check_pedrokv(endpoints: &[Endpoint], may_be_remote: bool) -> Result<(), ListeningError> {
    let is_open = |endpoint: &&Endpoint| {
        endpoint.tag == PEDROKV && !endpoint.address.ip.is_loopback() && !may_be_remote
    };
    match endpoints.iter().find(is_open) {
        Some(endpoint) => Err(ListeningError::RemotePedroKv(endpoint.address.ip)),
        None => Ok(()),
    }
}

/// Returns the addresses of `bind`, host names looked up, each once. Empty if the port is 0.
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

/// Returns address and port, or path.
#[must_use]
pub fn describe(listener: &Listener) -> String {
    match (listener.address(), listener.encryption()) {
        (ListenAddress::Tcp(address), Encryption::None) => address.to_string(),
        (ListenAddress::Tcp(address), Encryption::Tls) => format!("{address} (TLS)"),
        (ListenAddress::Unix(path), _) => path.display().to_string(),
    }
}
