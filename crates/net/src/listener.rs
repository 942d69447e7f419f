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

/// Why a listener could not be made. The messages name the address.
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

/// The operating system's message as a part of a sentence.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "address already in use".into(),
        io::ErrorKind::AddrNotAvailable => "this machine does not have the address".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}

/// Whether an address must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is an error if the machine does not have it.
    Required,
    /// It is passed over if the machine does not have it.
    Optional,
}

/// An address to bind to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindAddress {
    /// The address.
    pub ip: IpAddr,
    /// Whether it must be there.
    pub presence: Presence,
}

/// Where a listener listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// An address and the port the system chose if 0 was asked for.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// Whether what is sent over connections is encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// Bytes are sent as they are.
    #[default]
    None,
    /// By TLS, as [`TlsSettings`](crate::TlsSettings) say.
    Tls,
}

/// A socket that accepts connections. Clones are the same socket: when the last one is dropped it is
/// closed, and a Unix socket's file is removed.
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
    /// When the address is in use, not there, or not permitted.
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

    /// Listens on all of several addresses with the same port, passing over optional ones that the
    /// machine does not have.
    ///
    /// # Errors
    ///
    /// When one address cannot be had; none is listened on then.
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

    /// Listens on a Unix socket whose file gets the permissions `mode`, or those the process'
    /// umask leaves. A stale socket file, on which no process listens, is replaced.
    ///
    /// # Errors
    ///
    /// When a process listens there, something else is at the path, or it cannot be written.
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

    /// The same with connections that are encrypted like this.
    #[must_use]
    pub fn encrypted(self, encryption: Encryption) -> Listener {
        Listener { encryption, ..self }
    }

    /// Whether connections that come in here are encrypted.
    pub fn encryption(&self) -> Encryption {
        self.encryption
    }

    /// Where it listens.
    pub fn address(&self) -> &ListenAddress {
        &self.listening.address
    }

    /// What connections that come in here are marked with.
    pub fn tag(&self) -> ListenerTag {
        self.tag
    }

    /// Stops listening at once, even if there are clones, so that the address is free for others.
    /// Connections that were accepted go on.
    pub fn stop(&self) {
        // It fails only when it has no effect: the socket does not listen any more.
        let _ = shutdown(self.socket(), Shutdown::Both);
    }

    /// Whether both are clones of one listener.
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
    /// Whether the machine just does not have such an address.
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

/// Removes the file of a socket whose process is gone: one that refuses connections.
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
        // If it cannot be removed, binding says why.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}
