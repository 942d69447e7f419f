//! Encrypted connections.

use super::super::directive::{Directive, row};
use super::super::kind::{COUNT_OR_SIZE, INT_MAX, Kind, PORT};

/// Makes the row of a file or directory whose contents every CONFIG SET reads again.
const fn file(name: &'static str, about: &'static str) -> Directive {
    row(name, Kind::Text, "", about).stands_for_contents()
}

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    row("tls-port", PORT, "0",
        "TCP port for encrypted connections of the Redis protocol, on the same addresses. 0: none."),
    file("tls-cert-file", "File with the certificate chain of the server, in PEM."),
    file("tls-key-file", "File with the private key of the server, in PEM."),
    row("tls-key-file-pass", Kind::Text, "", "Password of that private key.").secret(),
    file("tls-client-cert-file",
        "File with the certificate for the connection to the primary. Empty: that of `tls-cert-file`."),
    file("tls-client-key-file", "File with the private key for the connection to the primary."),
    row("tls-client-key-file-pass", Kind::Text, "", "Password of that private key.").secret(),
    file("tls-ca-cert-file",
        "File with the certificates of the authorities that are trusted for clients and the primary, in PEM."),
    file("tls-ca-cert-dir", "Directory of such files. All certificate files in it are used."),
    row("tls-auth-clients", Kind::Word(&["no", "yes", "optional"]), "yes",
        "Requires a certificate of clients. `optional`: only check it if there is one."),
    row("tls-auth-clients-user", Kind::Word(&["off", "CN"]), "off",
        "Which part of a client's certificate is the name of its ACL user: none, or the common name of its subject. \
         Without such a user, or while it is off, the client is the default user as without a certificate. As in Redis 8.")
        .own("0.1.0"),
    row("tls-replication", Kind::Bool, "no",
        "Encrypt the connection to the primary, and tell it `tls-port` as the port of this replica."),
    row("tls-cluster", Kind::Bool, "no",
        "Encrypt the connections between the nodes of a cluster.")
        .refused(&[], "there is no cluster mode"),
    row("tls-protocols", Kind::Text, "",
        "Versions of the protocol to allow: `TLSv1.2`, `TLSv1.3`, or both in quotes. Empty: both."),
    row("tls-ciphers", Kind::Text, "",
        "Ciphers to allow for TLS 1.2, as OpenSSL names separated by colons. Empty: all."),
    row("tls-ciphersuites", Kind::Text, "",
        "Ciphers to allow for TLS 1.3, in the same form. Empty: all."),
    row("tls-prefer-server-ciphers", Kind::Bool, "no",
        "Let the server choose the cipher, in the order of the lists, rather than the client."),
    row("tls-session-caching", Kind::Bool, "yes",
        "Give clients tickets to resume their sessions without a full handshake."),
    row("tls-session-cache-size", COUNT_OR_SIZE, "20480",
        "Sessions that can be resumed. 0: any number.")
        .accepted("Clients store their sessions, in tickets."),
    row("tls-session-cache-timeout", COUNT_OR_SIZE, "300",
        "Seconds for which a ticket is valid, and up to twice as many. 0: there are no tickets."),
    row("tls-dh-params-file", Kind::Text, "", "File with Diffie-Hellman parameters for old ciphers.")
        .accepted("All ciphers use elliptic curves, which need no parameters."),
    row("tls-auto-reload-interval", Kind::Int(0, INT_MAX), "60",
        "Seconds between checks if the files have changed, which are then read again. 0: they are read when their directives \
         are set. As in Valkey 9.1, where the default is 0.")
        .own("0.1.0"),
    row("tls-handshake-timeout", Kind::Int(1, INT_MAX), "10",
        "Seconds that a handshake may take.")
        .own("0.1.0"),
    row("tls-handshakes-max", Kind::Int(1, INT_MAX), "1000",
        "Concurrent handshakes per worker thread. Further connections are closed.")
        .own("0.1.0"),
];
