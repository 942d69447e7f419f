//! HTTP listener.

use super::super::directive::{Directive, row};
use super::super::kind::{Kind, PORT};

/// Maximum number of addresses to listen on, as for `bind`.
const BIND_MAX: usize = 16;
/// Maximum number of host names, and of origins of web pages.
const NAMES_MAX: usize = 64;
/// A day.
const TIMEOUT_SECONDS_MAX: i64 = 86_400;
/// Upper bound of a body's size: a body is in memory as a whole.
const BODY_BYTES_MAX: u64 = 1 << 30;

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    row("http-port", PORT, "0",
        "TCP port for HTTP: commands as JSON, health checks, and metrics. 0: do not listen, and use no thread and no memory.")
        .own("0.1.0"),
    row("http-bind", Kind::List(BIND_MAX), "127.0.0.1 -::1",
        "Addresses for `http-port`, in the form of `bind`. `http-tls` encrypts its connections.")
        .own("0.1.0"),
    row("http-hosts", Kind::List(NAMES_MAX), "",
        "Names besides `localhost` and IP addresses by which clients may reach `http-port` (the Host header, without \
         the port). `*`: any name, which lets web pages in by DNS rebinding.")
        .own("0.1.0"),
    row("http-origins", Kind::List(NAMES_MAX), "",
        "Origins of web pages whose scripts may use `http-port`, such as `https://app.example`. Pages of all others \
         are refused.")
        .own("0.1.0"),
    row("http-tls", Kind::Bool, "no",
        "Encrypt connections to `http-port`, with the certificates and settings of `tls-port`.")
        .own("0.1.0"),
    row("http-metrics-token", Kind::Text, "",
        "Token for `/metrics` alone (`Authorization: Bearer TOKEN`). Without it users with the right to run INFO get \
         them.")
        .own("0.1.0").secret(),
    row("http-maxclients", Kind::Int(1, 65_535), "256",
        "Maximum number of connections to `http-port`, separate from `maxclients`. Further ones get status 503 and are closed.")
        .own("0.1.0"),
    row("http-max-body", Kind::Memory(1 << 10, BODY_BYTES_MAX), "8mb",
        "Maximum bytes of the body of one HTTP request. It is kept in memory until it is complete.")
        .own("0.1.0"),
    row("http-timeout", Kind::Int(1, TIMEOUT_SECONDS_MAX), "30",
        "Seconds that an HTTP client may take to send the head of a request, its body, or to read a part of the \
         reply; also how long a connection may be idle, and a command held back.")
        .own("0.1.0"),
];
