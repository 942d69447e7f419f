//! The server under attack, with all its protocols.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rustls::ClientConfig;

use super::bytes::Language;
use crate::{Connection, Launch, Server, free_port, tls_config};

/// A server and its ports.
pub(super) struct Target {
    pub(super) server: Server,
    pub(super) doors: Vec<Door>,
    pub(super) tls: Arc<ClientConfig>,
}

/// A port and its protocols.
#[derive(Clone, Copy)]
pub(super) struct Door {
    pub(super) address: SocketAddr,
    pub(super) languages: &'static [Language],
    pub(super) is_encrypted: bool,
}

const RESP: &[Language] = &[Language::Resp, Language::Inline];
const MEMCACHED: &[Language] = &[Language::Text, Language::Meta, Language::Binary];
const PEDROKV: &[Language] = &[Language::PedroKv];
const HTTP: &[Language] = &[Language::Http];

/// The other ports: directives, protocols, and encryption.
const OTHERS: [(&str, &[Language], bool); 6] = [
    ("tls-port", RESP, true),
    ("memcached-port", MEMCACHED, false),
    ("memcached-tls-port", MEMCACHED, true),
    ("pedrokv-port", PEDROKV, false),
    ("pedrokv-tls-port", PEDROKV, true),
    ("http-port", HTTP, false),
];

/// Limits whose defaults a test of seconds does not reach. A client that does not read may occupy some megabytes, all
/// clients together some more. A handshake takes a second at most.
const LIMITS: &[(&str, &str)] = &[
    ("client-output-buffer-limit", "normal 4mb 0 0 pubsub 1mb 0 0 replica 4mb 0 0"),
    ("client-query-buffer-limit", "4mb"),
    ("maxmemory-clients", "128mb"),
    ("proto-max-bulk-len", "4mb"),
    ("tls-handshake-timeout", "1"),
    ("tls-auth-clients", "no"),
    ("maxclients", "2000"),
];

impl Target {
    pub(super) fn start(launch: Launch) -> Self {
        let launch = LIMITS
            .iter()
            .fold(launch.with_certificates(), |launch, (name, value)| launch.with(name, value));
        let mut doors = Vec::new();
        let launch = OTHERS.iter().fold(launch, |launch, &(directive, languages, is_encrypted)| {
            let port = free_port();
            let address = (Ipv4Addr::LOCALHOST, port).into();
            doors.push(Door { address, languages, is_encrypted });
            launch.with(directive, &port.to_string())
        });
        let server = launch.start();
        // The user whose password abusers guess. No other user needs a password.
        server.connect().check("ACL SETUSER ann on >password +@all ~*", "+OK");
        doors.push(Door { address: server.address(), languages: RESP, is_encrypted: false });
        Self { server, doors, tls: tls_config(None) }
    }

    /// Returns the port for a protocol.
    pub(super) fn door(&self, language: Language, is_encrypted: bool) -> Door {
        let is_it =
            |door: &&Door| door.languages.contains(&language) && door.is_encrypted == is_encrypted;
        *self.doors.iter().find(is_it).expect("a port for each language")
    }

    /// Returns a number of INFO.
    pub(super) fn info(&self, connection: &mut Connection, field: &str) -> usize {
        let reply = connection.ask("INFO everything");
        let lines =
            reply.text().lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        lines.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no number {field}"))
    }
}
