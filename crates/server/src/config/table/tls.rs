//! Encrypted connections.

use super::super::directive::{Directive, row};
use super::super::kind::Kind;
use super::{COUNT_OR_SIZE, PORT};

const NO_TLS: &str = "there are no encrypted connections; remove the line, and put a proxy \
                      (stunnel, ghostunnel) before the server";

const fn text(name: &'static str, about: &'static str) -> Directive {
    row(name, Kind::Text, "", about).refused(&[], NO_TLS)
}

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    row("tls-port", PORT, "0",
        "TCP port for encrypted connections. 0: none.")
        .refused(&[], NO_TLS),
    text("tls-cert-file", "File with the certificate of the server."),
    text("tls-key-file", "File with the private key of the server."),
    text("tls-key-file-pass", "Password of that private key.").secret(),
    text("tls-client-cert-file", "File with the certificate for connections to other servers."),
    text("tls-client-key-file", "File with the private key for connections to other servers."),
    text("tls-client-key-file-pass", "Password of that private key.").secret(),
    text("tls-ca-cert-file", "File with the certificates of trusted authorities."),
    text("tls-ca-cert-dir", "Directory with the certificates of trusted authorities."),
    row("tls-auth-clients", Kind::Word(&["no", "yes", "optional"]), "yes",
        "Whether clients need a certificate.")
        .refused(&[], NO_TLS),
    row("tls-replication", Kind::Bool, "no",
        "Encrypt the connection to the primary.")
        .refused(&[], NO_TLS),
    row("tls-cluster", Kind::Bool, "no",
        "Encrypt the connections among nodes.")
        .refused(&[], NO_TLS),
    text("tls-protocols", "Versions of the protocol to allow, such as `TLSv1.2 TLSv1.3`."),
    text("tls-ciphers", "Ciphers to allow up to TLS 1.2."),
    text("tls-ciphersuites", "Ciphers to allow from TLS 1.3 on."),
    row("tls-prefer-server-ciphers", Kind::Bool, "no",
        "Let the server choose the cipher.")
        .refused(&[], NO_TLS),
    row("tls-session-caching", Kind::Bool, "yes",
        "Let clients come back without a full handshake.")
        .accepted("Only `tls-port` would use it."),
    row("tls-session-cache-size", COUNT_OR_SIZE, "20480",
        "Clients that can come back that way. 0: any number.")
        .accepted("Only `tls-port` would use it."),
    row("tls-session-cache-timeout", COUNT_OR_SIZE, "300",
        "Seconds for which they can.")
        .accepted("Only `tls-port` would use it."),
    text("tls-dh-params-file", "File with Diffie-Hellman parameters for old ciphers."),
];
