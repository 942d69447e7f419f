//! From a configuration to a running server, and to its end.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tierce_keyspace::{Keyspace, Options, OptionsError};
use tierce_net::{
    Handle, ListenAddress, ListenError, Listener, ListenerTag, OutputClass, OutputLimit,
    OutputLimits, Presence, Runtime,
};

use crate::config::{self, ClientClass, Config, DirectiveId, Settings, Startup};
use crate::server::{Server, Shutdown};
use crate::service::{Message, RespService};

/// How long clients get to read the last replies when the server ends.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// Descriptors beyond those of clients: listeners, loops, files.
const OTHER_DESCRIPTORS: u64 = 64;

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address to listen on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A host name of `bind`.
    #[error("could not look up {host}: {error}")]
    UnknownHost {
        /// The name.
        host: String,
        /// The resolver's reason.
        error: io::Error,
    },
    /// Neither a port nor a Unix socket is configured.
    #[error("nothing to listen on: port is 0 and there is no unixsocket")]
    NoListener,
    /// The number of shards or databases.
    #[error("{0}")]
    Keyspace(#[from] OptionsError),
    /// The system has no threads or descriptors to give.
    #[error("could not start: {0}")]
    Io(#[from] io::Error),
}

/// Runs the server until somebody ends it.
///
/// # Errors
/// When it cannot start; the message is one line that names the cause.
pub fn run(settings: Settings) -> Result<(), StartError> {
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let startup = settings.startup(cores);
    let config = Arc::new(Config::new(settings));
    // Before any other thread is there, so that all threads leave the signals to this one.
    let signals = Signals::new([SIGINT, SIGTERM])?;
    let listeners = listen(&startup)?;
    let listening = listeners.iter().map(describe_address).collect::<Vec<_>>();
    tierce_net::raise_fd_limit(config.live().maxclients() + OTHER_DESCRIPTORS);
    let keyspace = Arc::new(Keyspace::new(keyspace_options(&config, &startup))?);
    let workers = startup.threads.get();
    let server = Arc::new(Server::new(config, keyspace, workers, listening));
    server.set_active_expiry(true)?;
    let runtime = serve(&server, listeners, workers)?;
    server.attach(runtime.handle().clone());
    watch_config(&server, runtime.handle());
    watch_signals(signals, &server);
    announce(&server, &startup);
    let reason = server.wait_for_shutdown();
    end(&server, runtime, reason);
    Ok(())
}

fn keyspace_options(config: &Config, startup: &Startup) -> Options {
    let defaults = Options::default();
    Options {
        shards: startup.shards.map_or(defaults.shards, NonZeroUsize::get),
        databases: startup.databases,
        // Nobody outside can choose keys that collide.
        seed: crate::random::word(),
        value_len_max: config.live().proto_max_bulk_len() as usize,
        ..defaults
    }
}

fn listen(startup: &Startup) -> Result<Vec<Listener>, StartError> {
    const RESP: ListenerTag = ListenerTag(0);
    let mut listeners = Vec::new();
    if startup.port != 0 {
        let addresses = startup.bind.iter().map(resolve).collect::<Result<Vec<_>, _>>()?;
        listeners.extend(Listener::tcp_all(&addresses, startup.port, startup.tcp_backlog, RESP)?);
    }
    if let Some(path) = &startup.unixsocket {
        let mode = startup.unixsocket_permissions;
        listeners.push(Listener::unix(path, mode, startup.tcp_backlog, RESP)?);
    }
    if listeners.is_empty() { Err(StartError::NoListener) } else { Ok(listeners) }
}

/// Looks up an address of `bind`.
fn resolve(address: &config::BindAddress) -> Result<tierce_net::BindAddress, StartError> {
    let unknown = |error| StartError::UnknownHost { host: address.host.to_string(), error };
    let presence = if address.optional { Presence::Optional } else { Presence::Required };
    Ok(tierce_net::BindAddress { ip: address.resolve(0).map_err(unknown)?.ip(), presence })
}

fn describe_address(listener: &Listener) -> String {
    match listener.address() {
        ListenAddress::Tcp(address) => address.to_string(),
        ListenAddress::Unix(path) => path.display().to_string(),
    }
}

/// Lets CONFIG SET reach what holds a copy of a value.
fn watch_config(server: &Arc<Server>, net: &Handle<Message>) {
    const LIMITS: DirectiveId = DirectiveId::of("client-output-buffer-limit");
    const KEEPALIVE: DirectiveId = DirectiveId::of("tcp-keepalive");
    const TIMEOUT: DirectiveId = DirectiveId::of("timeout");
    const MAXCLIENTS: DirectiveId = DirectiveId::of("maxclients");
    let handle = net.clone();
    server.config.on_change([LIMITS], move |settings| {
        handle.set_output_limits(output_limits(settings));
        Ok(())
    });
    let handle = net.clone();
    server.config.on_change([KEEPALIVE], move |settings| {
        handle.set_keepalive(settings.count(KEEPALIVE) as u32);
        Ok(())
    });
    let handle = net.clone();
    server.config.on_change([TIMEOUT], move |settings| {
        let timeout_ms = settings.count(TIMEOUT) * 1000;
        handle.broadcast(|_| Message::IdleTimeout { timeout_ms });
        Ok(())
    });
    server.config.on_change([MAXCLIENTS], move |settings| {
        let wanted = settings.count(MAXCLIENTS) + OTHER_DESCRIPTORS;
        if tierce_net::raise_fd_limit(wanted) < wanted {
            return Err("The operating system is not able to handle the specified number of \
                        clients"
                .to_owned());
        }
        Ok(())
    });
}

/// The limits in the form of the event loops; clients are normal ones so far.
fn output_limits(settings: &Settings) -> OutputLimits {
    let limit = settings.output_limits().of(ClientClass::Normal);
    let limit = OutputLimit {
        hard_bytes: limit.hard_bytes as usize,
        soft_bytes: limit.soft_bytes as usize,
        soft_ms: u64::from(limit.soft_seconds) * 1000,
    };
    let mut limits = OutputLimits::default();
    limits.set(OutputClass::default(), limit);
    limits
}

fn serve(
    server: &Arc<Server>,
    listeners: Vec<Listener>,
    workers: usize,
) -> io::Result<Runtime<Message>> {
    let config = tierce_net::Config {
        workers,
        output_limits: output_limits(&server.config.settings()),
        keepalive_s: server.config.live().tcp_keepalive_seconds() as u32,
        ..tierce_net::Config::default()
    };
    Runtime::start(config, listeners, Arc::new(RespService(Arc::clone(server))))
}

/// A few lines on what runs where. Whoever starts the server waits for the last one.
fn announce(server: &Server, startup: &Startup) {
    let mut lines =
        format!("Tierce {} ({}-bit), pid {}\n", crate::VERSION, usize::BITS, std::process::id());
    for address in &server.listeners {
        lines += &format!("  listening on  {address}\n");
    }
    lines += &format!(
        "  workers       {} ({} shards, {} databases)\n",
        server.workers(),
        server.keyspace.shard_count(),
        server.keyspace.db_indices().count()
    );
    let dir = startup.dir.display();
    lines += &format!("  data          in memory only; a later version keeps it in {dir}\n");
    lines += "Ready to accept connections\n";
    // Nobody may be listening, and that is no reason to stop.
    let _ = io::stdout().lock().write_all(lines.as_bytes());
}

/// The first signal ends the server gracefully, a second one at once.
fn watch_signals(mut signals: Signals, server: &Arc<Server>) {
    let server = Arc::clone(server);
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for (count, _) in signals.forever().enumerate() {
                if count > 0 {
                    std::process::exit(1);
                }
                server.request_shutdown(Shutdown::Signal);
            }
        })
        .expect("a thread at start-up");
}

fn end(server: &Server, runtime: Runtime<Message>, reason: Shutdown) {
    let cause = match reason {
        Shutdown::Command => "SHUTDOWN",
        Shutdown::Signal => "a signal",
    };
    let _ = writeln!(io::stdout(), "Ending on {cause}: sending the last replies");
    runtime.handle().drain(DRAIN_MAX);
    runtime.join();
    let _ = server.set_active_expiry(false);
    let _ = writeln!(io::stdout(), "Bye");
}
