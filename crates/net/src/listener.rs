//! Sockets that wait for connections: TCP over v4 and v6, and Unix sockets.
//!
//! Addresses are written as in `redis.conf`: a leading `-` makes an address optional, `*` stands
//! for all v4 addresses and `::*` for all v6 addresses. v6 sockets take v6 connections only, so
//! `* ::*` listens on both without one being in the way of the other.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::net::sockopt::{set_ipv6_v6only, set_socket_reuseaddr};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, getsockname, listen,
    socket_with,
};

use crate::connection::ListenerTag;

/// Why a listener could not be made. The messages name the address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address is not written as one.
    #[error("{text:?} is not an address to listen on")]
    BadAddress {
        /// As it was given.
        text: String,
    },
    /// The operating system refused.
    #[error("could not listen on {address}: {}", plain(source))]
    Refused {
        /// Address and port, or path.
        address: String,
        /// Its reason.
        source: io::Error,
    },
    /// Something that is no socket stands at the path of a Unix socket.
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

/// An address to bind to, as in `redis.conf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindAddress {
    /// The address.
    pub ip: IpAddr,
    /// Whether it must be there.
    pub presence: Presence,
}

impl FromStr for BindAddress {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<BindAddress, ListenError> {
        let (presence, address) = match text.strip_prefix('-') {
            Some(address) => (Presence::Optional, address),
            None => (Presence::Required, text),
        };
        let ip = match address {
            "*" => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            "::*" => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
            _ => address.parse().map_err(|_| ListenError::BadAddress { text: text.into() })?,
        };
        Ok(BindAddress { ip, presence })
    }
}

/// Where a listener listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// An address and the port the system chose if 0 was asked for.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// A socket that accepts connections. Dropping it closes it; a Unix socket's file is removed.
#[derive(Debug)]
pub struct Listener {
    pub(crate) socket: OwnedFd,
    pub(crate) tag: ListenerTag,
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
        Ok(Listener { socket, tag, address: ListenAddress::Tcp(bound.unwrap_or(address)) })
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
    /// umask leaves. A socket file that nobody listens on any more is replaced.
    ///
    /// # Errors
    ///
    /// When somebody listens there, something else is at the path, or it cannot be written.
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
        let listener = Listener { socket, tag, address };
        if let Some(mode) = mode {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
                .map_err(refused)?;
        }
        // Only now, so that nobody connects before the permissions are right.
        listen(&listener.socket, backlog_argument(backlog)).map_err(|e| refused(e.into()))?;
        Ok(listener)
    }

    /// Where it listens.
    pub fn address(&self) -> &ListenAddress {
        &self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let ListenAddress::Unix(path) = &self.address {
            // If it is gone already, somebody else has tidied up.
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
