//! Notifies systemd, for units with `Type=notify`.
//!
//! The protocol is one datagram per message, to the socket that `$NOTIFY_SOCKET` names: a path, or a name behind `@` in
//! the abstract namespace. There is no answer. A message that cannot be sent is logged, because systemd would wait for
//! it, and then kill the server.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::config::{DirectiveId, Settings};
use crate::log::Log;

const VARIABLE: &str = "NOTIFY_SOCKET";

/// Service manager that has started the server and expects notifications.
#[derive(Debug, Default)]
pub struct Supervisor {
    /// Name of the socket; `None` without a service manager.
    socket: Option<OsString>,
}

impl Supervisor {
    /// Returns the service manager that `supervised` selects.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let socket = std::env::var_os(VARIABLE).filter(|name| !name.is_empty());
        Self { socket: socket.filter(|_| mode(settings) != "no") }
    }

    /// Reports that the server is ready.
    pub fn ready(&self, log: &Log) {
        self.send("STATUS=Ready to accept connections\nREADY=1\n", log);
    }

    /// Reports that the server is shutting down.
    pub fn stopping(&self, log: &Log) {
        self.send("STATUS=Ending\nSTOPPING=1\n", log);
    }

    fn send(&self, message: &str, log: &Log) {
        let Some(name) = &self.socket else { return };
        if let Err(error) = send(name, message) {
            log.warning(format_args!(
                "{VARIABLE}={}: could not tell the service manager: {error}",
                name.display()
            ));
        }
    }
}

/// Returns the name of the service manager, as Redis calls it.
#[must_use]
pub fn name(settings: &Settings) -> &'static str {
    if Supervisor::of(settings).socket.is_some() { "systemd" } else { "no" }
}

/// Logs a warning if `supervised` is set but there is no service manager.
pub fn warn_if_alone(settings: &Settings, log: &Log) {
    if mode(settings) == "systemd" && std::env::var_os(VARIABLE).is_none() {
        log.warning(format_args!(
            "supervised systemd: {VARIABLE} is not set, so systemd is not notified when the server is ready. \
             Set Type=notify in the unit"
        ));
    }
}

/// Returns true if the program should daemonize. As in Redis, not under a service manager, which would lose track of
/// it.
#[must_use]
pub fn wants_background(settings: &Settings) -> bool {
    const DAEMONIZE: DirectiveId = DirectiveId::of("daemonize");
    let is_supervised = mode(settings) != "no" && std::env::var_os(VARIABLE).is_some();
    settings.is_on(DAEMONIZE) && !is_supervised
}

fn mode(settings: &Settings) -> &'static str {
    const SUPERVISED: DirectiveId = DirectiveId::of("supervised");
    settings.word(SUPERVISED)
}

fn send(name: &OsStr, message: &str) -> io::Result<()> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierce_harness::TempDir;

    fn check(name: &OsStr, socket: &UnixDatagram) {
        send(name, "READY=1\n").unwrap();
        let mut buffer = [0; 64];
        let len = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"READY=1\n");
    }

    #[test]
    fn sockets_have_paths_or_abstract_names() {
        let dir = TempDir::new();
        let path = dir.path().join("socket");
        check(path.as_os_str(), &UnixDatagram::bind(&path).unwrap());
        let name = format!("tierce-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        check(OsStr::new(&format!("@{name}")), &UnixDatagram::bind_addr(&address).unwrap());
        send(dir.path().join("nobody").as_os_str(), "READY=1\n").unwrap_err();
    }
}
