//! From a configuration to a running server, and to its end.

use std::fmt::Display;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tierce_cask::ColdLimits;
use tierce_cask::disk::{Disk, OsDisk};
use tierce_gateway::Gateway;
use tierce_keyspace::StreamPlace;
use tierce_net::{Handle, OutputClass, OutputLimit, OutputLimits, Runtime, TlsSettings};
use tierce_replication::identity::ReplicationId;
use tierce_replication::link::Place;

use crate::acl::{self, ChannelDefault, FileError, Terms, Users};
use crate::clients::{PauseMode, STRANGERS, STRANGERS_OUTPUT_BYTES_MAX, SUBSCRIBERS};
use crate::command::Table;
use crate::commands::replication::role::Address;
use crate::config::{
    ClientClass, Config, ConfigError, DirectiveId, Loaded, LogFormat, LogLevel, Peer, Settings,
    Startup,
};
use crate::dispatcher::Dispatcher;
use crate::engine::{OpenError, Opening};
use crate::kernel::Kernel;
use crate::listening::{self, Listening, ListeningError};
use crate::log::{Log, LogError};
use crate::long_commands::LongCommands;
use crate::message::Notice;
use crate::notifications;
use crate::persistence::{self, Cause, Holding, OwnFiles};
use crate::pid_file::PidFile;
use crate::replication::replica::Follower;
use crate::replication::{Copies, Stream};
use crate::server::{Message, Server};
use crate::shutdown::Shutdown;
use crate::supervision::{self, Supervisor};
use crate::tls::{self, TlsError};
use crate::tracking;
use crate::transfer::{self, FirstImportError};

/// How long clients get to read the last replies when the server ends.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// Descriptors that a running server has beside those of clients and those that are reserved: listeners,
/// loops, and the files that are always open. A loop has two.
const OWN_DESCRIPTORS: u64 = 24;
const DESCRIPTORS_OF_A_LOOP: u64 = 2;

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Something about encrypted connections.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Something about the addresses to listen on.
    #[error(transparent)]
    Listening(#[from] ListeningError),
    /// Where to speak HTTP.
    #[error(transparent)]
    Http(#[from] tierce_gateway::ListenError),
    /// The data.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A directive names a database that there is not.
    #[error("{directive} {wanted}: there are only {there} databases")]
    NoSuchDatabase {
        /// The directive.
        directive: &'static str,
        /// What it says.
        wanted: usize,
        /// How many there are.
        there: usize,
    },
    /// Directives name files that must not be the same.
    #[error("{0}")]
    Files(String),
    /// The file to log into.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The users of the configuration, or of the file of users.
    #[error(transparent)]
    Users(#[from] FileError),
    /// The names of commands.
    #[error("{0}")]
    Commands(String),
    /// Data that Redis left.
    #[error(transparent)]
    FirstImport(#[from] FirstImportError),
    /// Hardly any client could connect, or none.
    #[error(
        "could not start: the limit of open files is too low for any client; ulimit -n must be \
             {needed} or more"
    )]
    Descriptors {
        /// As many as one client needs.
        needed: u64,
    },
    /// The system has no threads or descriptors to give.
    #[error("could not start: {0}")]
    Io(#[from] io::Error),
}

/// Runs the server until it is ended: SHUTDOWN, SIGTERM or SIGINT. What is odd about the
/// configuration, and why there can be no start, is written into the log, too, if that is a file.
/// `on_ready` is called once, when clients are served.
///
/// # Errors
/// When it cannot start; the message is one line that names the cause.
pub fn run(loaded: Loaded, on_ready: impl FnOnce()) -> Result<(), StartError> {
    // What is no file for a log is not written to.
    check_own_files(&loaded.settings)?;
    let log = LogBeside::of(&loaded.settings);
    log.write(&loaded.notes);
    run_until_ended(loaded.settings, on_ready).inspect_err(|error| {
        log.write(&[format!("The server cannot start: {error}")]);
    })
}

/// Writes into the log that the server would have had what its configuration is refused for.
pub fn log_refusal(error: &ConfigError) {
    let ConfigError::Refused { logfile, log_format, .. } = error else { return };
    let text = error.to_string();
    let log = LogBeside { path: logfile.clone(), format: *log_format };
    log.write(&text.lines().collect::<Vec<_>>());
}

/// The log of a server that is not there (yet), for what the caller shows on the standard error.
struct LogBeside {
    path: Option<PathBuf>,
    format: LogFormat,
}

impl LogBeside {
    fn of(settings: &Settings) -> Self {
        Self { path: settings.logfile(), format: settings.log_format() }
    }

    /// Logs lines. If the log cannot be opened, the start says so.
    fn write(&self, lines: &[impl Display]) {
        let Some(Ok(log)) =
            self.path.as_deref().map(|path| Log::open(Some(path), LogLevel::Notice))
        else {
            return;
        };
        log.set_format(self.format);
        lines.iter().for_each(|line| log.warning(line));
    }
}

/// No two directives may name one file, or one that is a place of the server's data.
fn check_own_files(settings: &Settings) -> Result<(), StartError> {
    let own = OwnFiles::of(settings, &settings.dir()).with_snapshot(settings);
    own.conflict().map_or(Ok(()), |conflict| Err(StartError::Files(conflict)))
}

fn run_until_ended(settings: Settings, on_ready: impl FnOnce()) -> Result<(), StartError> {
    // Before any other thread is there, so that all threads leave the signals to this one.
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let started = Arc::new(OnceLock::new());
    watch_signals(signals, &started, LogBeside::of(&settings));
    let log_beside = LogBeside::of(&settings);
    let instance = match Instance::start(settings) {
        Err(StartError::Open(OpenError::GivenUp(_))) => {
            log_beside.write(&["A client asks for shutdown before the data are loaded"]);
            return Ok(());
        }
        started => started?,
    };
    let _ = started.set(Arc::clone(&instance.server));
    let log = &instance.server.log;
    supervision::warn_if_alone(&instance.server.config.settings(), log);
    announce(&instance);
    instance.supervisor.ready(log);
    on_ready();
    instance.wait();
    Ok(())
}

/// A running server.
pub struct Instance {
    server: Arc<Server>,
    runtime: Runtime<Message>,
    long_commands: LongCommands,
    /// Speaks HTTP, if that is wanted.
    gateway: Arc<Gateway>,
    /// Begins full copies for replicas.
    copies: Copies,
    stream: Stream,
    follower: Follower,
    /// Carries out saves.
    startup: Startup,
    supervisor: Supervisor,
    /// Removed when the server has ended.
    _pid_file: Option<PidFile>,
}

impl Instance {
    /// Starts to serve, on threads of its own.
    ///
    /// # Errors
    /// When it cannot start; the message is one line that names the cause.
    pub fn start(settings: Settings) -> Result<Self, StartError> {
        Self::start_with(settings, Arc::new(OsDisk), ColdLimits::default(), OfRedis::TakeOver)
    }

    /// The same with the log on another disk than that of the operating system: for tests of what
    /// a disk may do. Snapshots do not go there, and files of Redis do not come from there.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    #[doc(hidden)]
    pub fn start_on(settings: Settings, disk: Arc<dyn Disk>) -> Result<Self, StartError> {
        Self::start_limited(settings, disk, ColdLimits::default())
    }

    /// The same with other limits for what is spilled at once: for tests of what happens at them.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    #[doc(hidden)]
    pub fn start_limited(
        settings: Settings,
        disk: Arc<dyn Disk>,
        spilled: ColdLimits,
    ) -> Result<Self, StartError> {
        Self::start_with(settings, disk, spilled, OfRedis::Leave)
    }

    fn start_with(
        settings: Settings,
        disk: Arc<dyn Disk>,
        spilled: ColdLimits,
        of_redis: OfRedis,
    ) -> Result<Self, StartError> {
        let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let startup = settings.startup(cores);
        check_own_files(&settings)?;
        let commands = check_access(&settings)?;
        let log = Log::open(startup.logfile.as_deref(), settings.log_level())?;
        log.set_format(settings.log_format());
        let supervisor = Supervisor::of(&settings);
        let config = Arc::new(Config::new(settings));
        check_databases(&startup)?;
        let tls = tls::load(&config.settings())?;
        tls::outgoing(&config.settings())?;
        let listening = Listening::start(&startup)?;
        // Before the data are loaded: it tells that they are.
        let gateway = Arc::new(Gateway::new(Arc::clone(&config)));
        gateway.listen(&config.settings(), https(&config.settings(), tls.as_ref()))?;
        fit_to_descriptors(&config, startup.threads.get(), &log)?;
        let opening = Opening::begin(Arc::clone(&config), &startup, &disk, log, spilled)?;
        let (engine, workers) = (Arc::clone(opening.engine()), startup.threads.get());
        let server = Arc::new(Server::new(engine, commands, workers, listening));
        server.load_users()?;
        if let Some((host, port)) = config.settings().primary() {
            let primary = Address { host: host.to_vec(), port };
            server.follow(Some(primary), crate::clock::unix_ms());
        }
        let runtime = prepare_loops(&server, workers, tls)?;
        let mut loops = Loops { server, gateway, runtime: Some(runtime) };
        let long_commands = loops.answer()?;
        let pid_file = write_pid_file(&loops.server, &startup);
        let (copies, stream, follower) = loops.load(opening, of_redis)?;
        let (server, runtime, gateway) = loops.into_parts();
        Ok(Self {
            server,
            runtime,
            long_commands,
            gateway,
            copies,
            stream,
            follower,
            startup,
            supervisor,
            _pid_file: pid_file,
        })
    }

    /// Ends the server from anywhere.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.server))
    }

    /// Moves the time on by which it is decided whether a sync takes too long: for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn sync_clock(&self) -> SyncClock {
        SyncClock(Arc::clone(&self.server))
    }

    /// Holds shards for long, as a long command does: for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn shards(&self) -> Shards {
        Shards(Arc::clone(&self.server))
    }

    /// Serves until the server is ended, and then until the data are saved, if they are to be,
    /// and the last replies are sent.
    pub fn wait(self) {
        let Self {
            server,
            runtime,
            long_commands,
            copies,
            stream,
            follower,
            gateway,
            supervisor,
            ..
        } = self;
        let log = &server.log;
        let saves = loop {
            let reason = server.wait_for_shutdown();
            log.notice(match reason {
                Shutdown::Command { .. } => "A client asked for shutdown",
                Shutdown::Signal { .. } => "A signal asks for shutdown",
                Shutdown::Owner => "The program asks for shutdown",
            });
            // What they hold is needed for the last snapshot.
            server.scripts.running.end_all();
            let saves = reason.saves(&server.config);
            if !saves || save_before_end(&server) || reason.is_forced() {
                break saves;
            }
            log.warning("Error trying to save the DB, can't exit.");
            stay_up(&server);
        };
        supervisor.stopping(log);
        gateway.end(DRAIN_MAX);
        runtime.handle().drain(DRAIN_MAX);
        // What has begun comes to its end, and into the log.
        drop(follower);
        drop(long_commands);
        runtime.join();
        drop(copies);
        drop(stream);
        // The last clones, so that Unix sockets leave no file behind.
        server.listening.close();
        // Before the last snapshot, so that it is without them.
        server.end_expiry();
        server.persistence.give_up();
        if saves && server.unsaved_changes() > 0 {
            // Some requests were under way when the first snapshot began.
            save_before_end(&server);
        }
        server.close();
        log.notice("All replies are sent, bye");
    }
}

/// A server that starts: its loops run, and they end with this unless it gets as far as to serve.
struct Loops {
    server: Arc<Server>,
    gateway: Arc<Gateway>,
    /// There until it serves.
    runtime: Option<Runtime<Message>>,
}

impl Loops {
    /// Has clients answered: those who need no data. The others hear that it is loading.
    fn answer(&mut self) -> Result<LongCommands, StartError> {
        let Self { server, gateway, runtime } = self;
        let runtime = runtime.as_mut().expect("it does not serve yet");
        server.attach(runtime.handle().clone());
        let long_commands = LongCommands::start(server)?;
        let _ = server.supervisor.set(supervision::name(&server.config.settings()));
        watch_config(server, runtime.handle());
        watch_http(server, gateway);
        tracking::connect(server);
        // Last: a CONFIG SET that comes earlier would find none of those that act on it.
        runtime.accept()?;
        Ok(long_commands)
    }

    /// Loads the data, and then lets all commands pass.
    fn load(
        &self,
        opening: Opening,
        of_redis: OfRedis,
    ) -> Result<(Copies, Stream, Follower), StartError> {
        let Self { server, gateway, .. } = self;
        if of_redis == OfRedis::TakeOver {
            take_over_from_redis(&opening)?;
        }
        let dir = opening.settings().dir();
        let engine = opening.load()?;
        if of_redis == OfRedis::TakeOver {
            let holding = match engine.durability.wal_handle() {
                Some(_) => Holding::Locked,
                None => Holding::Shared,
            };
            persistence::remove_leftovers(&dir, holding, &engine.log);
        }
        let kernel: &Kernel = server;
        server.scripts.libraries.check(kernel);
        engine.start_log()?;
        let copies = Copies::start(server)?;
        let stream = Stream::start(server)?;
        notifications::connect(server);
        go_on_in_stream(server);
        engine.loading.end();
        let follower = Follower::start(server)?;
        let kernel: Arc<Server> = Arc::clone(server);
        let handle = self.runtime.as_ref().expect("it does not serve yet").handle().clone();
        let dial = move |peer, local| listening::dial(&handle, peer, local);
        gateway.serve(kernel, Box::new(dial));
        Ok((copies, stream, follower))
    }

    /// It serves.
    fn into_parts(mut self) -> (Arc<Server>, Runtime<Message>, Arc<Gateway>) {
        let runtime = self.runtime.take().expect("it does not serve yet");
        (Arc::clone(&self.server), runtime, Arc::clone(&self.gateway))
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        self.gateway.end(Duration::ZERO);
        runtime.handle().drain(Duration::ZERO);
        runtime.join();
        // The last clones, so that Unix sockets leave no file behind.
        self.server.listening.close();
        self.server.close();
    }
}

/// How long writes may be held back while the last snapshot is written: longer than that takes.
const LAST_SAVE_MS_MAX: i64 = 24 * 3600 * 1000;

/// Takes a snapshot while writes are held back; `false` if that failed.
fn save_before_end(server: &Server) -> bool {
    let now_ms = crate::clock::unix_ms();
    server.pause.begin(now_ms + LAST_SAVE_MS_MAX, PauseMode::Write, now_ms);
    server.primary.give_up_copy();
    server.persistence.give_up();
    server.log.notice("Saving the final RDB snapshot before exiting.");
    let begun = server.begin_save(&mut server.keyspace.locks(), now_ms, Cause::Shutdown, None);
    begun.is_ok_and(|save_id| server.persistence.wait(save_id).is_ok())
}

/// Goes on serving.
fn stay_up(server: &Server) {
    server.shutdown().cancel();
    server.scripts.running.go_on();
    server.pause.end();
    server.tell_all(&Notice::Resume);
    server.tell_all(&Notice::StaysUp);
}

/// Ends an [`Instance`] from anywhere; see [`Instance::stopper`].
#[derive(Clone)]
pub struct Stopper(Arc<Server>);

impl Stopper {
    /// Asks for the end; [`Instance::wait`] returns.
    pub fn stop(&self) {
        self.0.request_shutdown(Shutdown::Owner);
    }
}

/// See [`Instance::sync_clock`].
#[doc(hidden)]
pub struct SyncClock(Arc<Server>);

impl SyncClock {
    /// This many milliseconds pass.
    pub fn advance(&self, ms: u64) {
        self.0.durability.advance_clock(ms);
    }
}

/// See [`Instance::shards`].
#[doc(hidden)]
pub struct Shards(Arc<Server>);

impl Shards {
    /// Holds those of some keys, or all of them without any, while `body` runs.
    pub fn hold<R>(&self, keys: &[&str], body: impl FnOnce() -> R) -> R {
        let keyspace = &self.0.keyspace;
        let hashes: Vec<_> = keys.iter().map(|key| keyspace.hash(key.as_bytes())).collect();
        let mut locks = keyspace.long_locks();
        let _held = match keys {
            [] => locks.lock_all(),
            [..] => locks.lock_many(&hashes),
        };
        body()
    }

    /// The number of the shard of a key.
    pub fn of(&self, key: &str) -> usize {
        self.0.keyspace.shard_of(self.0.keyspace.hash(key.as_bytes()))
    }
}

/// The commands by the names that the configuration gives them, if these and its users make sense.
///
/// # Errors
/// If a line that renames a command or makes a user is wrong.
pub fn check_access(settings: &Settings) -> Result<Table, StartError> {
    let table = crate::command_table_for(settings).map_err(StartError::Commands)?;
    let terms = Terms { table: &table, channels: ChannelDefault::None };
    acl::load_configured(settings, &Users::new(terms), terms)?;
    Ok(table)
}

fn check_databases(startup: &Startup) -> Result<(), StartError> {
    let there = startup.databases;
    for (directive, wanted) in [
        ("memcached-database", startup.memcached_database),
        ("pedrokv-database", startup.pedrokv_database),
    ] {
        if wanted >= there {
            return Err(StartError::NoSuchDatabase { directive, wanted, there });
        }
    }
    Ok(())
}

/// Has the system give as many descriptors as `maxclients` asks for, or takes back what it asks.
fn fit_to_descriptors(config: &Config, workers: usize, log: &Log) -> Result<(), StartError> {
    let asked = config.live().maxclients();
    let Err(fitting) = raise_descriptors(asked, workers) else { return Ok(()) };
    if fitting == 0 {
        return Err(StartError::Descriptors { needed: other_descriptors(workers) + 1 });
    }
    log.warning(format_args!(
        "maxclients is {fitting} instead of {asked}: the system gives this process no more file \
         descriptors (see ulimit -n)"
    ));
    // The directive is not watched yet, and a smaller number is valid.
    let _ = config.set(&[(b"maxclients", fitting.to_string().as_bytes())], Peer::Local);
    Ok(())
}

/// Makes room for so many clients; otherwise the number there is room for.
fn raise_descriptors(clients: u64, workers: usize) -> Result<(), u64> {
    let other = other_descriptors(workers);
    let granted = tierce_net::raise_fd_limit(clients + other + REFUSED_DESCRIPTORS);
    let fitting = granted.saturating_sub(other);
    if fitting < clients { Err(fitting) } else { Ok(()) }
}

/// Descriptors, if there are so many, for connections that are refused: each has one until its peer has read why. A
/// crowd of them would otherwise take those of the places that are kept for others.
const REFUSED_DESCRIPTORS: u64 = 256;

/// Descriptors that are not for clients.
fn other_descriptors(workers: usize) -> u64 {
    let loops = (workers as u64 + 1) * DESCRIPTORS_OF_A_LOOP;
    tierce_net::DESCRIPTORS_RESERVED + OWN_DESCRIPTORS + loops
}

/// What becomes of data of Redis beside a log that was never written to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OfRedis {
    /// They are imported.
    TakeOver,
    /// They are not looked for.
    Leave,
}

/// A replica goes on where its log ends. A primary leaves the stream of its time as a replica.
fn go_on_in_stream(server: &Server) {
    let Some(following) = server.role.following() else { return server.leave_stream() };
    let Some(StreamPlace { stream, offset, db }) = server.keyspace.stream_place() else { return };
    let place = ReplicationId::parse(&stream).map(|id| Place { id, offset });
    let _ = server.role.update(following.number, |following| {
        (following.place, following.db, following.read_offset) = (place, db, offset);
    });
}

/// A log that was never written to takes over what Redis left.
fn take_over_from_redis(opening: &Opening) -> Result<(), StartError> {
    const APPENDONLY: DirectiveId = DirectiveId::of("appendonly");
    let settings = opening.settings();
    if settings.is_on(APPENDONLY)
        && let Some(found) = transfer::find_data_of_redis(settings)
        && !opening.has_log()?
    {
        // The import opens the log by itself.
        transfer::first_import(&found, settings, &opening.engine().log)?;
    }
    Ok(())
}

/// Lets CONFIG SET reach what holds a copy of a value.
fn watch_config(server: &Arc<Server>, net: &Handle<Message>) {
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

/// Registered behind all others: what they refuse need not be undone here, where that could fail.
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
        if ADDRESSES.iter().all(|&id| settings.value(id) == current.value(id)) {
            net.set_tls(tls.as_ref());
            return Ok(());
        }
        // In this order, so that no connection comes in before a worker knows how to encrypt it.
        let install = |listeners| {
            net.set_tls(tls.as_ref());
            net.listen(listeners);
        };
        let changed = server.listening.change(settings, install);
        let changed = changed.inspect(|()| {
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

/// What HTTP is encrypted with, if it is.
fn https(settings: &Settings, tls: Option<&TlsSettings>) -> Option<Arc<rustls::ServerConfig>> {
    tls.filter(|_| settings.has_https()).map(|tls| Arc::clone(&tls.config))
}

/// Lets CONFIG SET open and close the listener for HTTP, and read its certificates anew. What requests look at is looked up by each of them.
fn watch_http(server: &Arc<Server>, gateway: &Arc<Gateway>) {
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

/// The limits in the form of the event loops.
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

fn prepare_loops(
    server: &Arc<Server>,
    workers: usize,
    tls: Option<TlsSettings>,
) -> io::Result<Runtime<Message>> {
    let config = tierce_net::Config {
        workers,
        output_limits: output_limits(&server.config.settings()),
        keepalive_s: server.config.live().tcp_keepalive_seconds() as u32,
        arrivals_per_second: server.config.live().max_new_connections_per_address() as u32,
        last_words: Dispatcher::last_words,
        tls,
        ..tierce_net::Config::default()
    };
    let service = Arc::new(Dispatcher(Arc::clone(server)));
    Runtime::prepare(config, server.listening.listeners(), service)
}

/// A file that cannot be written is no reason not to serve.
fn write_pid_file(server: &Server, startup: &Startup) -> Option<PidFile> {
    let path = startup.pidfile.as_deref()?;
    let written = PidFile::write(path);
    let complain = |error: &io::Error| {
        server.log.warning(format_args!("could not write pidfile {}: {error}", path.display()));
    };
    written.inspect_err(complain).ok()
}

/// A few lines on what runs where. Scripts that start the server wait for the last one. They are plain text, unless the
/// standard output has a log of JSON, of which collectors read each line.
fn announce(instance: &Instance) {
    const LOG_FORMAT: DirectiveId = DirectiveId::of("log-format");
    let Instance { server, startup, .. } = instance;
    let mut lines = vec![format!(
        "Tierce {} ({}-bit), pid {}",
        crate::VERSION,
        usize::BITS,
        std::process::id()
    )];
    for listener in server.listening.listeners() {
        lines.push(format!("  listening on  {}", listening::describe(&listener)));
    }
    for address in instance.gateway.addresses() {
        lines.push(format!("  HTTP on       {address}"));
    }
    lines.push(format!(
        "  workers       {} ({} shards, {} databases)",
        server.workers(),
        server.keyspace.shard_count(),
        server.keyspace.db_indices().count()
    ));
    let dir = startup.dir.display();
    lines.push(match server.durability.wal_handle() {
        Some(_) => format!("  data          in memory, and durable in {dir}"),
        None => format!("  data          in memory only (appendonly is off), snapshots in {dir}"),
    });
    if let Some(path) = &startup.logfile {
        lines.push(format!("  log           {}", path.display()));
        lines.iter().for_each(|line| server.log.notice(line.trim_start()));
    }
    lines.push("Ready to accept connections\n".to_owned());
    if startup.logfile.is_none() && server.config.settings().word(LOG_FORMAT) == "json" {
        return lines.iter().for_each(|line| server.log.notice(line.trim()));
    }
    // The service manager may not listen, and that is no reason to stop.
    let _ = io::stdout().lock().write_all(lines.join("\n").as_bytes());
}

/// SIGHUP opens the file of the log again. The first of the other signals ends the server gracefully, a second one at
/// once. Until it has `started` there is nothing to save or to reply, and loading may take long: it ends as if it were
/// killed.
fn watch_signals(
    mut signals: Signals,
    started: &Arc<OnceLock<Arc<Server>>>,
    log_beside: LogBeside,
) {
    let started = Arc::clone(started);
    let watch = move || {
        const SIGINT_MEANS: DirectiveId = DirectiveId::of("shutdown-on-sigint");
        const SIGTERM_MEANS: DirectiveId = DirectiveId::of("shutdown-on-sigterm");
        let mut ends = false;
        for signal in signals.forever() {
            if signal == SIGHUP {
                started.get().inspect(|server| reopen_log(&server.log));
                continue;
            }
            let Some(server) = started.get() else {
                let text = "A signal ends the start";
                log_beside.write(&[text]);
                let _ = writeln!(io::stderr(), "tierce: {text}");
                std::process::exit(0);
            };
            if std::mem::replace(&mut ends, true) {
                server.log.warning("A second signal: ending without sending the last replies");
                std::process::exit(1);
            }
            let directive = if signal == SIGINT { SIGINT_MEANS } else { SIGTERM_MEANS };
            let reason = Shutdown::on_signal(&server.config.settings(), directive);
            server.request_shutdown(reason);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch).expect("a thread at start-up");
}

fn reopen_log(log: &Log) {
    match log.reopen() {
        Ok(()) if log.is_file() => log.notice("SIGHUP: the log was opened again"),
        Ok(()) => {}
        Err(error) => log.warning(format_args!("SIGHUP: {error}; the log stays where it was")),
    }
}
