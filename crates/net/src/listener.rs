//! Listening sockets: TCP over v4 and v6, and Unix sockets.
//!
//! v6 sockets accept v6 connections only, so listening on all v4 and on all v6 addresses does not conflict.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::net::sockopt::{set_ipv6_v6only, set_socket_reuseaddr};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, bind, connect, getsockname,
    listen, shutdown, socket_with,
};

use crate::connection::ListenerTag;

/// Reason why a listener could not be created. The messages name the address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The operating system refused.
    #[error("could not listen on {address}: {}", plain(source))]
    Refused {
        /// Address and port, or path.
        address: String,
        /// Its reason.
        source: io::Error,
    },
    /// Something that is no socket is at the path of a Unix socket.
    #[error("could not listen on {}: a file that is no socket is there", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
}

/// Returns the operating system's message as a part of a sentence.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "address already in use".into(),
        io::ErrorKind::AddrNotAvailable => "this machine does not have the address".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}

/// Necessity of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is an error if the machine does not have it.
    Required,
    /// It is skipped if the machine does not have it.
    Optional,
}

/// An address to bind to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindAddress {
    /// The address.
    pub ip: IpAddr,
    /// Necessity of the address.
    pub presence: Presence,
}

/// Address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// IP address, with the port that the system chose if 0 was requested.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// Encryption of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// Bytes are sent as they are.
    #[default]
    None,
    /// TLS with the [`TlsSettings`](crate::TlsSettings) of the runtime.
    Tls,
}

/// Socket that accepts connections. Clones share it: when the last one is dropped the socket is closed, and a Unix
/// socket's file is removed.
#[derive(Clone, Debug)]
pub struct Listener {
    listening: Arc<Listening>,
    pub(crate) tag: ListenerTag,
    pub(crate) encryption: Encryption,
}

#[derive(Debug)]
struct Listening {
    socket: OwnedFd,
    address: ListenAddress,
}

impl Listener {
    /// Listens on an address and port; port 0 lets the system choose.
    ///
    /// # Errors
    ///
    /// If the address is in use, absent, or not permitted.
    pub fn tcp(
        address: SocketAddr,
        backlog: u32,
        tag: ListenerTag,
    ) -> Result<Listener, ListenError> {
        let socket = bind_tcp(address, backlog).map_err(|errno| ListenError::Refused {
            address: address.to_string(),
            source: errno.into(),
        })?;
        let bound = getsockname(&socket).ok().and_then(|any| SocketAddr::try_from(any).ok());
        Ok(Listener::new(socket, ListenAddress::Tcp(bound.unwrap_or(address)), tag))
    }

    /// Listens on several addresses with one port, skipping optional ones that the machine does not have.
    ///
    /// # Errors
    ///
    /// If one address cannot be bound; it then listens on none.
    pub fn tcp_all(
        addresses: &[BindAddress],
        port: u16,
        backlog: u32,
        tag: ListenerTag,
    ) -> Result<Vec<Listener>, ListenError> {
        let mut listeners = Vec::new();
        for &BindAddress { ip, presence } in addresses {
            match Listener::tcp(SocketAddr::new(ip, port), backlog, tag) {
                Ok(listener) => listeners.push(listener),
                Err(error) if presence == Presence::Optional && error.is_absent() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(listeners)
    }

    /// Listens on a Unix socket whose file gets the permissions `mode`, or those of the process' umask. A stale socket
    /// file, on which no process listens, is replaced.
    ///
    /// # Errors
    ///
    /// If a process listens there, another file is at the path, or it cannot be written.
    pub fn unix(
        path: &Path,
        mode: Option<u32>,
        backlog: u32,
        tag: ListenerTag,
    ) -> Result<Listener, ListenError> {
        let refused = |source: io::Error| ListenError::Refused {
            address: path.display().to_string(),
            source,
        };
        remove_stale_socket(path)?;
        let address = SocketAddrUnix::new(path).map_err(|errno| refused(errno.into()))?;
        let socket = bind_unix(&address).map_err(|errno| refused(errno.into()))?;
        let address = ListenAddress::Unix(path.to_path_buf());
        // From here on dropping the listener removes the file.
        let listener = Listener::new(socket, address, tag);
        if let Some(mode) = mode {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
                .map_err(refused)?;
        }
        // Only now, so that no client connects before the permissions are right.
        listen(listener.socket(), backlog_argument(backlog)).map_err(|e| refused(e.into()))?;
        Ok(listener)
    }

    fn new(socket: OwnedFd, address: ListenAddress, tag: ListenerTag) -> Listener {
        let listening = Arc::new(Listening { socket, address });
        Listener { listening, tag, encryption: Encryption::None }
    }

    /// Returns the listener with this encryption of its connections.
    #[must_use]
    pub fn encrypted(self, encryption: Encryption) -> Listener {
        Listener { encryption, ..self }
    }

    /// Returns the encryption of its connections.
    pub fn encryption(&self) -> Encryption {
        self.encryption
    }

    /// Returns its address.
    pub fn address(&self) -> &ListenAddress {
        &self.listening.address
    }

    /// Returns the tag of its connections.
    pub fn tag(&self) -> ListenerTag {
        self.tag
    }

    /// Stops listening at once, even if there are clones, so that the address is free for others. Accepted connections
    /// continue.
    pub fn stop(&self) {
        // It fails only if the socket does not listen any more.
        let _ = shutdown(self.socket(), Shutdown::Both);
    }

    /// Returns true if both are clones of one listener.
    pub(crate) fn is_clone_of(&self, other: &Listener) -> bool {
        Arc::ptr_eq(&self.listening, &other.listening)
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.listening.socket
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let ListenAddress::Unix(path) = &self.address {
            // If it is gone already, there is nothing to do.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl ListenError {
    /// Returns true if the machine does not have this address.
    fn is_absent(&self) -> bool {
        let ListenError::Refused { source, .. } = self else { return false };
        source.kind() == io::ErrorKind::AddrNotAvailable
            || [rustix::io::Errno::AFNOSUPPORT, rustix::io::Errno::PROTONOSUPPORT]
                .iter()
                .any(|errno| source.raw_os_error() == Some(errno.raw_os_error()))
    }
}

fn backlog_argument(backlog: u32) -> i32 {
    i32::try_from(backlog).unwrap_or(i32::MAX)
}

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

fn bind_tcp(address: SocketAddr, backlog: u32) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, FLAGS, None)?;
    set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        set_ipv6_v6only(&socket, true)?;
    }
    bind(&socket, &address)?;
    listen(&socket, backlog_argument(backlog))?;
    Ok(socket)
}

fn bind_unix(address: &SocketAddrUnix) -> rustix::io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    bind(socket.as_fd(), address)?;
    Ok(socket)
}

/// Removes the file of a socket that refuses connections, because its process is gone.
fn remove_stale_socket(path: &Path) -> Result<(), ListenError> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(ListenError::NotASocket { path: path.to_path_buf() });
    }
    let probe = || -> rustix::io::Result<()> {
        let address = SocketAddrUnix::new(path)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
        connect(socket.as_fd(), &address)
    };
    if probe() == Err(rustix::io::Errno::CONNREFUSED) {
        // If it cannot be removed, the bind reports why.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}
