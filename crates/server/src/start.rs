//! From a configuration to a running server, and to its end.

use std::fmt::Display;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tierce_cask::ColdLimits;
use tierce_cask::disk::{Disk, OsDisk};
use tierce_keyspace::log::LogSink;
use tierce_keyspace::{Keyspace, Options, OptionsError};
use tierce_net::{Handle, OutputClass, OutputLimit, OutputLimits, Runtime};

use crate::clients::{PauseMode, STRANGERS, STRANGERS_OUTPUT_BYTES_MAX};
use crate::compactness;
use crate::config::{
    ClientClass, Config, ConfigError, DirectiveId, Loaded, LogLevel, Peer, Settings, Startup,
};
use crate::durability::{self, Durability, Journal, LogHome, LogOptions, RecoveryError};
use crate::engine::Engine;
use crate::eviction;
use crate::listening::{self, Listening, ListeningError};
use crate::log::{Log, LogError};
use crate::message::Message;
use crate::persistence::{self, Cause, Holding, LoadError, OwnFiles};
use crate::process::PidFile;
use crate::server::{Server, Shutdown};
use crate::service::AnyService;
use crate::supervision::{self, Supervisor};
use crate::transfer::{self, AdoptError};

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
    /// Something about the addresses to listen on.
    #[error(transparent)]
    Listening(#[from] ListeningError),
    /// The number of shards or databases.
    #[error("{0}")]
    Keyspace(#[from] OptionsError),
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
    /// The snapshot in `dir`.
    #[error("{0}")]
    Load(#[from] LoadError),
    /// The log of the data.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The data directory.
    #[error("dir {}: {source}", dir.display())]
    Dir {
        /// Its path.
        dir: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Data that Redis left.
    #[error(transparent)]
    Adopt(#[from] AdoptError),
    /// The values on disk.
    #[error("maxmemory-policy spill: {0}")]
    Spill(String),
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

/// Runs the server until somebody ends it: SHUTDOWN, SIGTERM or SIGINT. What is odd about the
/// configuration, and why there can be no start, is written into the log, too, if that is a file.
/// `on_ready` is called once, when clients are served.
///
/// # Errors
/// When it cannot start; the message is one line that names the cause.
pub fn run(loaded: Loaded, on_ready: impl FnOnce()) -> Result<(), StartError> {
    // What is no file for a log is not written to.
    check_own_files(&loaded.settings)?;
    let logfile = loaded.settings.logfile();
    log_beside(logfile.as_deref(), &loaded.notes);
    run_until_ended(loaded.settings, on_ready).inspect_err(|error| {
        log_beside(logfile.as_deref(), &[format!("The server cannot start: {error}")]);
    })
}

/// Writes into the log that the server would have had what its configuration is refused for.
pub fn log_refusal(error: &ConfigError) {
    let ConfigError::Refused { logfile, .. } = error else { return };
    let text = error.to_string();
    log_beside(logfile.as_deref(), &text.lines().collect::<Vec<_>>());
}

/// Logs what the caller shows on the standard error. If the log cannot be opened, the start says so.
fn log_beside(logfile: Option<&Path>, lines: &[impl Display]) {
    let Some(Ok(log)) = logfile.map(|path| Log::open(Some(path), LogLevel::Notice)) else { return };
    lines.iter().for_each(|line| log.warning(line));
}

/// No two directives may name one file, or one that is a place of the server's data.
fn check_own_files(settings: &Settings) -> Result<(), StartError> {
    let own = OwnFiles::of(settings, &settings.dir()).with_snapshot(settings);
    own.conflict().map_or(Ok(()), |conflict| Err(StartError::Files(conflict)))
}

fn run_until_ended(settings: Settings, on_ready: impl FnOnce()) -> Result<(), StartError> {
    // Before any other thread is there, so that all threads leave the signals to this one.
    let signals = Signals::new([SIGINT, SIGTERM])?;
    let instance = Instance::start(settings)?;
    watch_signals(signals, &instance.server);
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
    /// Carries out saves.
    saver: JoinHandle<()>,
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
        // Loading takes memory that would count as the server's own.
        crate::memory::resident_at_start();
        let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let startup = settings.startup(cores);
        check_own_files(&settings)?;
        let log = Log::open(startup.logfile.as_deref(), settings.log_level())?;
        let supervisor = Supervisor::of(&settings);
        let config = Arc::new(Config::new(settings));
        check_databases(&startup)?;
        let listening = Listening::start(&startup)?;
        fit_to_descriptors(&config, startup.threads.get(), &log)?;
        let log_home = LogHome::new(Arc::clone(&disk), &startup.dir, LogOptions::default());
        let (keyspace, journal) = open_data(&config, &startup, &log_home, &log, of_redis)?;
        keyspace.set_eviction(&eviction::configured(&config.settings()));
        let workers = startup.threads.get();
        let durability = Durability::new(journal, log_home);
        let engine = Arc::new(Engine::new(config, keyspace, durability, log));
        engine.persistence.set_home(startup.dir.clone());
        // Before anybody is served, who might need it.
        engine.spill.set_limits(spilled);
        engine.start_spilling(&disk, &startup.dir).map_err(StartError::Spill)?;
        load_snapshot(&engine)?;
        if of_redis == OfRedis::TakeOver {
            let holding = match engine.durability.journal() {
                Some(_) => Holding::Locked,
                None => Holding::Shared,
            };
            persistence::remove_leftovers(&startup.dir, holding, &engine.log);
        }
        let saver = engine.start_saver()?;
        engine.set_active_expiry(true)?;
        let server = Arc::new(Server::new(engine, workers, listening));
        let runtime = serve(&server, workers)?;
        server.attach(runtime.handle().clone());
        server.engine.start_log()?;
        watch_eviction(&server, disk, &startup);
        watch_config(&server, runtime.handle());
        let pid_file = write_pid_file(&server, &startup);
        Ok(Self { server, runtime, saver, startup, supervisor, _pid_file: pid_file })
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

    /// Serves until somebody ends the server, and then until the data are saved, if they are to be,
    /// and the last replies are sent.
    pub fn wait(self) {
        let Self { server, runtime, saver, supervisor, .. } = self;
        let log = &server.log;
        let saves = loop {
            let reason = server.wait_for_shutdown();
            log.notice(match reason {
                Shutdown::Command { .. } => "A client asked for shutdown",
                Shutdown::Signal { .. } => "A signal asks for shutdown",
                Shutdown::Owner => "The program asks for shutdown",
            });
            let saves = reason.saves(&server.config);
            if !saves || save_before_end(&server) || reason.is_forced() {
                break saves;
            }
            log.warning("Error trying to save the DB, can't exit.");
            stay_up(&server);
        };
        supervisor.stopping(log);
        runtime.handle().drain(DRAIN_MAX);
        runtime.join();
        // The last clones, so that Unix sockets leave no file behind.
        server.listening.close();
        // The thread that removes expired keys ends; it was there already, so nothing can fail.
        let _ = server.set_active_expiry(false);
        // What has expired is so for the log, too: the clock may be an earlier one at the next start.
        server.keyspace.locker().expire_due(crate::clock::unix_ms());
        server.persistence.give_up();
        if saves && server.unsaved_changes() > 0 {
            // Some requests were under way when the first snapshot began.
            save_before_end(&server);
        }
        server.persistence.end_saver();
        // A panic was reported when it happened.
        let _ = saver.join();
        server.spill.stop();
        server.durability.stop(log);
        log.notice("All replies are sent, bye");
    }
}

/// How long writes may be held back while the last snapshot is written: longer than that takes.
const LAST_SAVE_MS_MAX: i64 = 24 * 3600 * 1000;

/// Takes a snapshot while writes are held back; `false` if that failed.
fn save_before_end(server: &Server) -> bool {
    let now_ms = crate::clock::unix_ms();
    server.pause.begin(now_ms + LAST_SAVE_MS_MAX, PauseMode::Write, now_ms);
    server.persistence.give_up();
    server.log.notice("Saving the final RDB snapshot before exiting.");
    let begun = server.begin_save(&mut server.keyspace.locker(), now_ms, Cause::Shutdown, None);
    begun.is_ok_and(|ticket| server.persistence.wait(ticket).is_ok())
}

/// Goes on serving.
fn stay_up(server: &Server) {
    server.cancel_shutdown();
    server.pause.end();
    server.post_to_all(&Message::Resume);
    server.post_to_all(&Message::StaysUp);
}

/// Loads the snapshot that is in `dir`, if there is one, and no log is kept.
fn load_snapshot(engine: &Engine) -> Result<(), StartError> {
    const VERIFIES: DirectiveId = DirectiveId::of("rdbchecksum");
    const SKIP: DirectiveId = DirectiveId::of("skip-unsupported");
    if engine.durability.journal().is_some() {
        // As in Redis, the log is what counts when there is one.
        return Ok(());
    }
    let settings = engine.config.settings();
    let path = persistence::snapshot_path(&settings);
    let verifies = settings.is_on(VERIFIES);
    let load = if settings.is_on(SKIP) {
        persistence::load_without_unsupported
    } else {
        persistence::load
    };
    if let Some(loaded) = load(&path, &engine.keyspace, &engine.log, verifies)? {
        engine.persistence.note_loaded(loaded, engine.keyspace.stats().changes);
    }
    Ok(())
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
    /// So many milliseconds pass.
    pub fn advance(&self, ms: u64) {
        self.0.durability.advance_clock(ms);
    }
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
    // Nobody watches the directive yet, and a smaller number is valid.
    let _ = config.set(&[(b"maxclients", fitting.to_string().as_bytes())], Peer::Local);
    Ok(())
}

/// Makes room for so many clients; otherwise the number there is room for.
fn raise_descriptors(clients: u64, workers: usize) -> Result<(), u64> {
    let other = other_descriptors(workers);
    let granted = tierce_net::raise_fd_limit(clients + other);
    let fitting = granted.saturating_sub(other);
    if fitting < clients { Err(fitting) } else { Ok(()) }
}

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
    /// Nobody looks for them.
    Leave,
}

/// The keys that the log holds. A log that was never written to takes over what Redis left.
fn open_data(
    config: &Config,
    startup: &Startup,
    home: &LogHome,
    log: &Log,
    of_redis: OfRedis,
) -> Result<(Arc<Keyspace>, Arc<Journal>), StartError> {
    let (keyspace, journal, is_used) = recover(config, startup, home, log)?;
    let looks = of_redis == OfRedis::TakeOver && settings_say_log(config) && !is_used;
    // One that was begun at run time holds what was there then, even if that was nothing.
    if !looks || !durability::log_dir(&startup.dir)?.ends_with("wal") {
        return Ok((keyspace, journal));
    }
    let settings = config.settings();
    let Some(found) = transfer::find_data_of_redis(&settings) else {
        return Ok((keyspace, journal));
    };
    // The import opens the log by itself.
    drop((keyspace, journal));
    transfer::adopt(&found, &settings, log)?;
    let (keyspace, journal, _) = recover(config, startup, home, log)?;
    Ok((keyspace, journal))
}

/// The keys that the log holds, if there is to be one, and whether there has ever been any record in it.
fn recover(
    config: &Config,
    startup: &Startup,
    home: &LogHome,
    log: &Log,
) -> Result<(Arc<Keyspace>, Arc<Journal>, bool), StartError> {
    const LOST: DirectiveId = DirectiveId::of("spill-lost-values");
    let journal = Arc::<Journal>::default();
    let keyspace = Arc::new(Keyspace::new(keyspace_options(config, startup, &journal))?);
    let settings = config.settings();
    keyspace.set_limits(&compactness::configured(&settings));
    let mut is_used = false;
    if settings_say_log(config) {
        let accepts = settings.word(LOST) == "accept";
        let recovered = durability::recover(&journal, &keyspace, home, log, accepts);
        is_used = recovered.map_err(|error| match error {
            RecoveryError::Io(source) => StartError::Dir { dir: startup.dir.clone(), source },
            error => error.into(),
        })?;
    }
    Ok((keyspace, journal, is_used))
}

fn settings_say_log(config: &Config) -> bool {
    const APPENDONLY: DirectiveId = DirectiveId::of("appendonly");
    config.settings().is_on(APPENDONLY)
}

fn keyspace_options(config: &Config, startup: &Startup, journal: &Arc<Journal>) -> Options {
    let defaults = Options::default();
    Options {
        shards: startup.shards.map_or(defaults.shards, NonZeroUsize::get),
        databases: startup.databases,
        // Nobody outside can choose keys that collide.
        seed: crate::random::word(),
        value_len_max: value_len_max(&config.settings()),
        version_base: version_base(crate::clock::unix_ms()),
        log: Some(Arc::clone(journal) as Arc<dyn LogSink>),
        ..defaults
    }
}

/// The longest value: what a request may bring.
fn value_len_max(settings: &Settings) -> usize {
    const VALUE_LEN: DirectiveId = DirectiveId::of("proto-max-bulk-len");
    settings.bytes(VALUE_LEN) as usize
}

/// Versions of keys begin above this: those of a later life are larger, as long as no shard changes
/// 2^14 times a millisecond on average. The milliseconds count from 2025 on, so that for the next
/// seventeen years a version is exact as a floating-point number, which is what some clients keep it
/// in.
fn version_base(unix_ms: i64) -> u64 {
    const YEAR_2025_MS: i64 = 1_735_689_600_000;
    ((unix_ms - YEAR_2025_MS).max(0) as u64) << 14
}

/// Lets CONFIG SET reach what holds a copy of a value.
fn watch_config(server: &Arc<Server>, net: &Handle<Message>) {
    const LIMITS: DirectiveId = DirectiveId::of("client-output-buffer-limit");
    const KEEPALIVE: DirectiveId = DirectiveId::of("tcp-keepalive");
    const TIMEOUT: DirectiveId = DirectiveId::of("timeout");
    const MAXCLIENTS: DirectiveId = DirectiveId::of("maxclients");
    const VALUE_LEN: DirectiveId = DirectiveId::of("proto-max-bulk-len");
    const LOG_LEVEL: DirectiveId = DirectiveId::of("loglevel");
    const APPENDONLY: DirectiveId = DirectiveId::of("appendonly");
    const SAVE: DirectiveId = DirectiveId::of("save");
    const STOP_WRITES: DirectiveId = DirectiveId::of("stop-writes-on-bgsave-error");
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
        TIMEOUT,
        Box::new(move |settings| {
            let timeout_ms = settings.count(TIMEOUT) * 1000;
            handle.broadcast(|_| Message::IdleTimeout { timeout_ms });
        }),
    );
    let weak = Arc::downgrade(server);
    server.config.on_change([VALUE_LEN, APPENDONLY], move |settings| {
        if let Some(server) = weak.upgrade() {
            let on = settings.is_on(APPENDONLY);
            if on != server.durability.is_wanted() && server.spill.may_have_values_on_disk() {
                // Where they are follows from whether there is a log.
                return Err("values may be on disk (maxmemory-policy spill)".to_owned());
            }
            server.keyspace.set_value_len_max(value_len_max(settings));
            if on != server.durability.is_wanted() {
                server.durability.switch(on);
            }
        }
        Ok(())
    });
    let keyspace = Arc::clone(&server.keyspace);
    server.config.on_change(compactness::DIRECTIVES, move |settings| {
        keyspace.set_limits(&compactness::configured(settings));
        Ok(())
    });
    let log = Arc::downgrade(server);
    watch(
        LOG_LEVEL,
        Box::new(move |settings| {
            if let Some(server) = log.upgrade() {
                server.log.set_level(settings.log_level());
            }
        }),
    );
    let weak = Arc::downgrade(server);
    server.config.on_change([SAVE, STOP_WRITES], move |settings| {
        if let Some(server) = weak.upgrade() {
            server.persistence.decide_on_writes(settings);
        }
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

/// The policy `spill` needs threads and a place for values.
fn watch_eviction(server: &Arc<Server>, disk: Arc<dyn Disk>, startup: &Startup) {
    let (weak, dir) = (Arc::downgrade(server), startup.dir.clone());
    server.config.on_change(eviction::DIRECTIVES, move |settings| {
        let Some(server) = weak.upgrade() else { return Ok(()) };
        server.keyspace.set_eviction(&eviction::configured(settings));
        server.engine.start_spilling(&disk, &dir)
    });
}

/// Registered behind all others: what they refuse need not be undone here, where that could fail.
fn watch_addresses(server: &Arc<Server>, net: &Handle<Message>) {
    const BIND: DirectiveId = DirectiveId::of("bind");
    const PORT: DirectiveId = DirectiveId::of("port");
    const MEMCACHED_PORT: DirectiveId = DirectiveId::of("memcached-port");
    const PEDROKV_PORT: DirectiveId = DirectiveId::of("pedrokv-port");
    let (weak, net) = (Arc::downgrade(server), net.clone());
    server.config.on_change([BIND, PORT, MEMCACHED_PORT, PEDROKV_PORT], move |settings| {
        let Some(server) = weak.upgrade() else { return Ok(()) };
        let install = |listeners| net.listen(listeners);
        let changed = server.listening.change(settings, install);
        let changed = changed.inspect(|()| {
            for listener in server.listening.listeners() {
                server.log.notice(format_args!("Listening on {}", listening::describe(&listener)));
            }
        });
        changed.map_err(|error| {
            server.log.warning(format_args!("Listening as before: {error}"));
            let same_port = settings.port() == server.config.settings().port();
            let what = if same_port {
                "Failed to bind to specified addresses."
            } else {
                "Unable to listen on this port."
            };
            format!("{what} {error}")
        })
    });
}

/// The limits in the form of the event loops; clients are normal ones so far, or strangers.
fn output_limits(settings: &Settings) -> OutputLimits {
    let limit = settings.output_limits().of(ClientClass::Normal);
    let limit = OutputLimit {
        hard_bytes: limit.hard_bytes as usize,
        soft_bytes: limit.soft_bytes as usize,
        soft_ms: u64::from(limit.soft_seconds) * 1000,
    };
    let mut limits = OutputLimits::default();
    limits.set(OutputClass::default(), limit);
    let hard_bytes = match limit.hard_bytes {
        0 => STRANGERS_OUTPUT_BYTES_MAX,
        hard_bytes => hard_bytes.min(STRANGERS_OUTPUT_BYTES_MAX),
    };
    limits.set(STRANGERS, OutputLimit { hard_bytes, ..limit });
    limits
}

fn serve(server: &Arc<Server>, workers: usize) -> io::Result<Runtime<Message>> {
    let config = tierce_net::Config {
        workers,
        output_limits: output_limits(&server.config.settings()),
        keepalive_s: server.config.live().tcp_keepalive_seconds() as u32,
        last_words: AnyService::too_many,
        ..tierce_net::Config::default()
    };
    let service = Arc::new(AnyService(Arc::clone(server)));
    Runtime::start(config, server.listening.listeners(), service)
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

/// A few lines on what runs where. Whoever starts the server waits for the last one.
fn announce(instance: &Instance) {
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
    lines.push(format!(
        "  workers       {} ({} shards, {} databases)",
        server.workers(),
        server.keyspace.shard_count(),
        server.keyspace.db_indices().count()
    ));
    let dir = startup.dir.display();
    lines.push(match server.durability.journal() {
        Some(_) => format!("  data          in memory, and durable in {dir}"),
        None => format!("  data          in memory only (appendonly is off), snapshots in {dir}"),
    });
    if let Some(path) = &startup.logfile {
        lines.push(format!("  log           {}", path.display()));
        lines.iter().for_each(|line| server.log.notice(line.trim_start()));
    }
    lines.push("Ready to accept connections\n".to_owned());
    // Nobody may be listening, and that is no reason to stop.
    let _ = io::stdout().lock().write_all(lines.join("\n").as_bytes());
}

/// The first signal ends the server gracefully, a second one at once.
fn watch_signals(mut signals: Signals, server: &Arc<Server>) {
    let server = Arc::clone(server);
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            const SIGINT_MEANS: DirectiveId = DirectiveId::of("shutdown-on-sigint");
            const SIGTERM_MEANS: DirectiveId = DirectiveId::of("shutdown-on-sigterm");
            for (count, signal) in signals.forever().enumerate() {
                if count > 0 {
                    server.log.warning("A second signal: ending without sending the last replies");
                    std::process::exit(1);
                }
                let directive = if signal == SIGINT { SIGINT_MEANS } else { SIGTERM_MEANS };
                let reason = Shutdown::on_signal(&server.config.settings(), directive);
                server.request_shutdown(reason);
            }
        })
        .expect("a thread at start-up");
}
