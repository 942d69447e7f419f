//! Listening and connections.

use super::super::directive::{Directive, row};
use super::super::kind::{COUNT_OR_SIZE, Kind, PORT};

/// Maximum number of addresses to listen on.
const BIND_MAX: usize = 16;

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    row("bind", Kind::List(BIND_MAX), "127.0.0.1 -::1",
        "Addresses to listen on. A minus in front makes an address optional; `*` is every IPv4 \
         address, `::*` every IPv6 address. Empty: no TCP at all.")
        .redis("* -::*"),
    row("port", PORT, "6379",
        "TCP port for the Redis protocol. 0 does not listen on TCP."),
    row("unixsocket", Kind::Text, "",
        "Path of a Unix socket to listen on besides TCP. Empty: none.")
        .before_start(),
    row("unixsocketperm", Kind::Octal, "0",
        "Permissions of the Unix socket. With 0 only its owner may connect.")
        .before_start(),
    row("protected-mode", Kind::Bool, "yes",
        "Refuse clients from other machines as long as no password is set."),
    row("tcp-backlog", COUNT_OR_SIZE, "511",
        "Connections that may wait to be accepted. The kernel caps it at somaxconn.")
        .before_start(),
    row("tcp-keepalive", COUNT_OR_SIZE, "300",
        "Seconds of silence after which the kernel checks whether a client is still there. 0: never."),
    row("timeout", COUNT_OR_SIZE, "0",
        "Close a client after this many seconds without a request. 0: never."),
    row("bind-source-addr", Kind::Text, "",
        "Local IP address for the connection to a primary, if it can be bound. Empty: the kernel's choice."),
    row("socket-mark-id", Kind::Int(0, u32::MAX as i64), "0",
        "Mark that the listening sockets carry for the packet filter. 0: none.")
        .before_start()
        .refused(&[],
            "listening sockets carry no mark; match their ports in the packet filter"),
];
