//! From a configuration to a running server, and to its end.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tierce_keyspace::{Keyspace, Options, OptionsError};
use tierce_net::{BindAddress, ListenAddress, ListenError, Listener, ListenerTag, Runtime};

use crate::config::{Config, Settings};
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
    let config = Arc::new(Config::new(settings));
    // Before any other thread is there, so that all threads leave the signals to this one.
    let signals = Signals::new([SIGINT, SIGTERM])?;
    let listeners = listen(&config)?;
    let listening = listeners.iter().map(describe_address).collect::<Vec<_>>();
    tierce_net::raise_fd_limit(config.maxclients() as u64 + OTHER_DESCRIPTORS);
    let keyspace = Arc::new(Keyspace::new(keyspace_options(&config))?);
    let workers = config.threads();
    let server = Arc::new(Server::new(config, keyspace, workers, listening));
    server.set_active_expiry(true)?;
    let runtime = serve(&server, listeners, workers)?;
    server.attach(runtime.handle().clone());
    announce(&server);
    watch_signals(signals, &server);
    let reason = server.wait_for_shutdown();
    end(&server, runtime, reason);
    Ok(())
}

fn keyspace_options(config: &Config) -> Options {
    Options {
        shards: config.shards(),
        databases: config.databases(),
        // Nobody outside can choose keys that collide.
        seed: crate::random::word(),
        value_len_max: config.bulk_len_max(),
        ..Options::default()
    }
}

fn listen(config: &Config) -> Result<Vec<Listener>, StartError> {
    const RESP: ListenerTag = ListenerTag(0);
    let backlog = config.tcp_backlog();
    let mut listeners = Vec::new();
    if let Some(port) = config.tcp_port() {
        let parse = |text: &String| text.parse::<BindAddress>();
        let addresses = config.bind().iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        listeners.extend(Listener::tcp_all(&addresses, port, backlog, RESP)?);
    }
    if let Some(path) = config.unix_socket() {
        listeners.push(Listener::unix(&path, config.unix_socket_mode(), backlog, RESP)?);
    }
    if listeners.is_empty() { Err(StartError::NoListener) } else { Ok(listeners) }
}

fn describe_address(listener: &Listener) -> String {
    match listener.address() {
        ListenAddress::Tcp(address) => address.to_string(),
        ListenAddress::Unix(path) => path.display().to_string(),
    }
}

fn serve(
    server: &Arc<Server>,
    listeners: Vec<Listener>,
    workers: usize,
) -> io::Result<Runtime<Message>> {
    let config = tierce_net::Config {
        workers,
        output_limits: server.config.output_limits(),
        keepalive_s: server.config.keepalive_seconds(),
        ..tierce_net::Config::default()
    };
    Runtime::start(config, listeners, Arc::new(RespService(Arc::clone(server))))
}

/// A few lines on what runs where. Whoever starts the server waits for the last one.
fn announce(server: &Server) {
    let mut lines = format!(
        "Tierce {} ({}-bit), pid {}\n",
        crate::VERSION,
        usize::BITS,
        std::process::id()
    );
    for address in &server.listeners {
        lines += &format!("  listening on  {address}\n");
    }
    lines += &format!(
        "  workers       {} ({} shards, {} databases)\n",
        server.workers(),
        server.keyspace.shard_count(),
        server.keyspace.db_indices().count()
    );
    let dir = server.config.dir();
    lines += &format!("  data          in memory only; later versions keep it in {}\n", dir.display());
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
