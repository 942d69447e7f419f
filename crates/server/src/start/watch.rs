//! Passes configuration values to the event loops: at the start, and after CONFIG SET.

use std::io;
use std::sync::Arc;

use tierce_gateway::Gateway;
use tierce_net::{Handle, OutputClass, OutputLimit, OutputLimits, Runtime, TlsSettings};

use crate::clients::{STRANGERS, STRANGERS_OUTPUT_BYTES_MAX, SUBSCRIBERS};
use crate::config::{ClientClass, DirectiveId, Settings};
use crate::dispatcher::Dispatcher;
use crate::last_words;
use crate::listening;
use crate::message::Notice;
use crate::server::{Message, Server};
use crate::tls;

use super::descriptors::raise_descriptors;
use super::tls_reload;

/// Makes CONFIG SET reach the holders of copied values.
pub(super) fn watch_config(server: &Arc<Server>, net: &Handle<Message>) {
    const LIMITS: DirectiveId = DirectiveId::of("client-output-buffer-limit");
    const KEEPALIVE: DirectiveId = DirectiveId::of("tcp-keepalive");
    const ARRIVALS: DirectiveId = DirectiveId::of("max-new-connections-per-address");
    const TIMEOUT: DirectiveId = DirectiveId::of("timeout");
    const MAXCLIENTS: DirectiveId = DirectiveId::of("maxclients");
    const MAXMEMORY: DirectiveId = DirectiveId::of("maxmemory");
    const MAXMEMORY_CLIENTS: DirectiveId = DirectiveId::of("maxmemory-clients");
    let watch = |id, act: Box<dyn Fn(&Settings) + Send + Sync>| {
        server.config.on_change([id], move |settings| {
            act(settings);
            Ok(())
        });
    };
    let handle = net.clone();
    watch(LIMITS, Box::new(move |settings| handle.set_output_limits(output_limits(settings))));
    let handle = net.clone();
    watch(
        KEEPALIVE,
        Box::new(move |settings| handle.set_keepalive(settings.count(KEEPALIVE) as u32)),
    );
    let handle = net.clone();
    watch(
        ARRIVALS,
        Box::new(move |settings| handle.set_arrivals_per_second(settings.count(ARRIVALS) as u32)),
    );
    let handle = net.clone();
    watch(
        TIMEOUT,
        Box::new(move |settings| {
            let timeout_ms = settings.count(TIMEOUT) * 1000;
            handle.broadcast(|_| Message::Notice(Notice::IdleTimeout { timeout_ms }));
        }),
    );
    let clients = Arc::clone(&server.clients);
    clients.limit_memory(server.config.settings().client_memory_limit());
    server.config.on_change([MAXMEMORY_CLIENTS, MAXMEMORY], move |settings| {
        clients.limit_memory(settings.client_memory_limit());
        Ok(())
    });
    let workers = server.workers();
    server.config.on_change([MAXCLIENTS], move |settings| {
        raise_descriptors(settings.count(MAXCLIENTS), workers).map_err(|fitting| {
            format!(
                "The operating system is not able to handle the specified number of clients, try \
                 with {fitting}"
            )
        })
    });
    watch_addresses(server, net);
}

/// Watches addresses. Registered after all others, so that a refusal by those needs no undo here, which could fail.
fn watch_addresses(server: &Arc<Server>, net: &Handle<Message>) {
    const BIND: DirectiveId = DirectiveId::of("bind");
    const PORT: DirectiveId = DirectiveId::of("port");
    const MEMCACHED_PORT: DirectiveId = DirectiveId::of("memcached-port");
    const PEDROKV_PORT: DirectiveId = DirectiveId::of("pedrokv-port");
    const TLS_PORT: DirectiveId = DirectiveId::of("tls-port");
    const MEMCACHED_TLS_PORT: DirectiveId = DirectiveId::of("memcached-tls-port");
    const PEDROKV_TLS_PORT: DirectiveId = DirectiveId::of("pedrokv-tls-port");
    const ADDRESSES: [DirectiveId; 7] =
        [BIND, PORT, MEMCACHED_PORT, PEDROKV_PORT, TLS_PORT, MEMCACHED_TLS_PORT, PEDROKV_TLS_PORT];
    let (weak, net) = (Arc::downgrade(server), net.clone());
    server.config.on_change(ADDRESSES.into_iter().chain(tls::DIRECTIVES), move |settings| {
        let Some(server) = weak.upgrade() else { return Ok(()) };
        let good = tls::outgoing(settings).and_then(|_| tls::load(settings));
        let tls = good.map_err(|error| {
            server.log.warning(format_args!("Encrypting connections as before: {error}"));
            format!("Unable to update TLS configuration. {error}")
        })?;
        let current = server.config.settings();
        let note = || tls_reload::note_certificates(&server, settings);
        if ADDRESSES.iter().all(|&id| settings.value(id) == current.value(id)) {
            net.set_tls(tls.as_ref());
            note();
            return Ok(());
        }
        // In this order, so that no connection arrives before a worker can encrypt it.
        let install = |listeners| {
            net.set_tls(tls.as_ref());
            net.listen(listeners);
        };
        let changed = server.listening.change(settings, install);
        let changed = changed.inspect(|()| {
            note();
            for listener in server.listening.listeners() {
                server.log.notice(format_args!("Listening on {}", listening::describe(&listener)));
            }
        });
        changed.map_err(|error| {
            server.log.warning(format_args!("Listening as before: {error}"));
            let same_port = settings.port() == current.port();
            let what = if same_port {
                "Failed to bind to specified addresses."
            } else {
                "Unable to listen on this port."
            };
            format!("{what} {error}")
        })
    });
}

/// Returns the TLS configuration of HTTP, if it is encrypted.
pub(super) fn https(
    settings: &Settings,
    tls: Option<&TlsSettings>,
) -> Option<Arc<rustls::ServerConfig>> {
    tls.filter(|_| settings.has_https()).map(|tls| Arc::clone(&tls.config))
}

/// Makes CONFIG SET open and close the listener for HTTP, and reload its certificates. Each request reads the other
/// settings itself.
pub(super) fn watch_http(server: &Arc<Server>, gateway: &Arc<Gateway>) {
    let (weak, gateway) = (Arc::downgrade(server), Arc::downgrade(gateway));
    let directives = Settings::HTTP_ADDRESSES.into_iter().chain(tls::DIRECTIVES);
    server.config.on_change(directives, move |settings| {
        let (Some(server), Some(gateway)) = (weak.upgrade(), gateway.upgrade()) else {
            return Ok(());
        };
        let tls = tls::load(settings).map_err(|error| error.to_string())?;
        gateway.listen(settings, https(settings, tls.as_ref())).map_err(|error| {
            server.log.warning(format_args!("Speaking HTTP as before: {error}"));
            format!("Unable to listen on this port. {error}")
        })
    });
}

/// Returns the limits in the form of the event loops.
fn output_limits(settings: &Settings) -> OutputLimits {
    let limit_of = |class| {
        let limit = settings.output_limits().of(class);
        OutputLimit {
            hard_bytes: limit.hard_bytes as usize,
            soft_bytes: limit.soft_bytes as usize,
            soft_ms: u64::from(limit.soft_seconds) * 1000,
        }
    };
    let limit = limit_of(ClientClass::Normal);
    let mut limits = OutputLimits::default();
    limits.set(OutputClass::default(), limit);
    limits.set(SUBSCRIBERS, limit_of(ClientClass::Pubsub));
    let hard_bytes = match limit.hard_bytes {
        0 => STRANGERS_OUTPUT_BYTES_MAX,
        hard_bytes => hard_bytes.min(STRANGERS_OUTPUT_BYTES_MAX),
    };
    limits.set(STRANGERS, OutputLimit { hard_bytes, ..limit });
    limits
}

pub(super) fn prepare_loops(
    server: &Arc<Server>,
    workers: usize,
    tls: Option<TlsSettings>,
) -> io::Result<Runtime<Message>> {
    let config = tierce_net::Config {
        workers,
        output_limits: output_limits(&server.config.settings()),
        keepalive_s: server.config.live().tcp_keepalive_seconds() as u32,
        arrivals_per_second: server.config.live().max_new_connections_per_address() as u32,
        last_words: last_words::turned_away,
        tls,
        ..tierce_net::Config::default()
    };
    let service = Arc::new(Dispatcher(Arc::clone(server)));
    Runtime::prepare(config, server.listening.listeners(), service)
}
