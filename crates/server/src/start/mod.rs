//! The life of a server, from a configuration to its shutdown.

mod announce;
mod checks;
mod descriptors;
mod end;
mod error;
mod handles;
mod load;
mod refusal;
mod signals;
mod tls_reload;
mod watch;

use std::io;
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tierce_gateway::Gateway;
use tierce_net::Runtime;
use tierce_storage::ColdLimits;
use tierce_storage::disk::{Disk, OsDisk};

pub use self::checks::{check_access, is_open};
pub use self::descriptors::descriptors_needed;
pub use self::error::StartError;
pub use self::handles::{Shards, Stopper, SyncClock};
pub use self::load::Console;
pub use self::refusal::log_refusal;
use crate::bucket::Bucket;
use crate::commands::replication::role::Address;
use crate::config::{Config, Loaded, Settings, Startup};
use crate::engine::{OpenError, Opening};
use crate::listening::Listening;
use crate::log::Log;
use crate::long_commands::LongCommands;
use crate::pid_file::PidFile;
use crate::replication::replica::Follower;
use crate::replication::{Copies, Handover, Stream};
use crate::server::{Message, Server};
use crate::shutdown::Shutdown;
use crate::supervision::{self, Supervisor};
use crate::tls;

use self::announce::announce;
use self::checks::{check_databases, check_own_files};
use self::descriptors::fit_to_descriptors;
use self::load::{Loops, OfRedis, Threads};
use self::refusal::LogWithoutServer;
use self::signals::watch_signals;
use self::watch::{https, prepare_loops};

/// Time that clients have at shutdown to read the last replies.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// Way in which a server has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By request.
    AsTold,
    /// Because another server owns the log in the bucket. After a restart, it follows that one.
    Succeeded,
}

/// Runs the server until SHUTDOWN, SIGTERM, SIGINT, or a takeover by another server. Warnings about the configuration,
/// and an error that prevents the start, also go into the log, if that is a file. `on_ready` is called once, when
/// clients are served. The `console` shows the progress of the load.
///
/// # Errors
/// If it cannot start; the message is one line with the cause.
pub fn run(
    loaded: Loaded,
    console: &mut dyn Console,
    on_ready: impl FnOnce(),
) -> Result<Ended, StartError> {
    // A log path that is no file is not written to.
    check_own_files(&loaded.settings)?;
    let log = LogWithoutServer::of(&loaded.settings);
    log.write(&loaded.notes);
    run_until_ended(loaded.settings, console, on_ready).inspect_err(|error| {
        log.write(&[format!("The server cannot start: {error}")]);
    })
}

/// Console that shows nothing, for a server inside another program.
struct NoConsole;

impl Console for NoConsole {
    fn is_shown(&self) -> bool {
        false
    }

    fn loading(&mut self, _: u64, _: u64) {}
    fn loaded(&mut self) {}
}

fn run_until_ended(
    settings: Settings,
    console: &mut dyn Console,
    on_ready: impl FnOnce(),
) -> Result<Ended, StartError> {
    // Before any other thread exists, so that all threads leave the signals to this one.
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let started = Arc::new(OnceLock::new());
    watch_signals(signals, &started, LogWithoutServer::of(&settings));
    let log = LogWithoutServer::of(&settings);
    let (disk, spilled) = (Arc::new(OsDisk), ColdLimits::default());
    let instance = match Instance::start_with(settings, disk, spilled, OfRedis::TakeOver, console) {
        Err(StartError::Open(OpenError::GivenUp(_))) => {
            log.write(&["A client asks for shutdown before the data are loaded"]);
            return Ok(Ended::AsTold);
        }
        started => started?,
    };
    let _ = started.set(Arc::clone(&instance.server));
    let log = &instance.server.log;
    supervision::warn_if_alone(&instance.server.config.settings(), log);
    announce(&instance);
    instance.supervisor.ready(log);
    on_ready();
    let server = Arc::clone(&instance.server);
    instance.wait();
    let is_succeeded = server.shutdown().reason().is_some_and(Shutdown::leaves_bucket);
    Ok(if is_succeeded { Ended::Succeeded } else { Ended::AsTold })
}

/// Running server.
pub struct Instance {
    server: Arc<Server>,
    runtime: Runtime<Message>,
    long_commands: LongCommands,
    /// HTTP gateway, if configured.
    gateway: Arc<Gateway>,
    /// Begins full copies for replicas.
    copies: Copies,
    stream: Stream,
    follower: Follower,
    handover: Handover,
    /// Writes the log in a bucket, if there is one.
    bucket: Option<Bucket>,
    /// Settings that only a start reads.
    startup: Startup,
    /// True if the data directory was empty.
    is_new: bool,
    supervisor: Supervisor,
    /// Removed when the server has ended.
    _pid_file: Option<PidFile>,
}

impl Instance {
    /// Starts to serve, on threads of its own.
    ///
    /// # Errors
    /// If it cannot start; the message is one line with the cause.
    pub fn start(settings: Settings) -> Result<Self, StartError> {
        let (disk, spilled) = (Arc::new(OsDisk), ColdLimits::default());
        Self::start_with(settings, disk, spilled, OfRedis::TakeOver, &mut NoConsole)
    }

    /// Starts with the log on another disk than that of the operating system: for tests of disk failures. Snapshots do
    /// not go there, and files of Redis do not come from there.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    #[doc(hidden)]
    pub fn start_on(settings: Settings, disk: Arc<dyn Disk>) -> Result<Self, StartError> {
        Self::start_limited(settings, disk, ColdLimits::default())
    }

    /// Starts with other limits of values being spilled at once: for tests of these limits.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    #[doc(hidden)]
    pub fn start_limited(
        settings: Settings,
        disk: Arc<dyn Disk>,
        spilled: ColdLimits,
    ) -> Result<Self, StartError> {
        Self::start_with(settings, disk, spilled, OfRedis::Leave, &mut NoConsole)
    }

    fn start_with(
        settings: Settings,
        disk: Arc<dyn Disk>,
        spilled: ColdLimits,
        of_redis: OfRedis,
        console: &mut dyn Console,
    ) -> Result<Self, StartError> {
        let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let startup = settings.startup(cores);
        check_own_files(&settings)?;
        let commands = check_access(&settings)?;
        // Before anything is written there, such as the log file.
        let is_new = !std::fs::read_dir(&startup.dir).is_ok_and(|mut dir| dir.next().is_some());
        let log = Log::open(startup.logfile.as_deref(), settings.log_level())?;
        log.set_format(settings.log_format());
        let supervisor = Supervisor::of(&settings);
        let config = Arc::new(Config::new(settings));
        check_databases(&startup)?;
        let tls = tls::load(&config.settings())?;
        tls::outgoing(&config.settings())?;
        let listening = Listening::start(&startup)?;
        // Before the data are loaded: its health check reports the load.
        let gateway = Arc::new(Gateway::new(Arc::clone(&config)));
        gateway.listen(&config.settings(), https(&config.settings(), tls.as_ref()))?;
        fit_to_descriptors(&config, startup.threads.get(), &log)?;
        let opening = Opening::begin(Arc::clone(&config), &startup, &disk, log, spilled)?;
        let (engine, workers) = (Arc::clone(opening.engine()), startup.threads.get());
        let server = Arc::new(Server::new(engine, commands, workers, listening));
        tls_reload::watch(&server);
        server.load_users()?;
        if let Some((host, port)) = config.settings().primary() {
            let primary = Address { host: host.to_vec(), port };
            server.follow(Some(primary), crate::clock::unix_ms());
        }
        let runtime = prepare_loops(&server, workers, tls)?;
        let (loops, long_commands) = Loops::begin(server, gateway, runtime)?;
        let pid_file = write_pid_file(&loops.server, &startup);
        let Threads { copies, stream, follower, bucket } =
            loops.load(opening, of_redis, console)?;
        let handover = Handover::start(&loops.server)?;
        let (server, runtime, gateway) = loops.into_parts();
        Ok(Self {
            server,
            runtime,
            long_commands,
            gateway,
            copies,
            stream,
            follower,
            handover,
            bucket,
            startup,
            is_new,
            supervisor,
            _pid_file: pid_file,
        })
    }

    /// Returns a handle that ends the server from anywhere.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.server))
    }

    /// Returns the clock that decides if a sync takes too long: for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn sync_clock(&self) -> SyncClock {
        SyncClock(Arc::clone(&self.server))
    }

    /// Returns a handle that locks shards for long, as a long command does: for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn shards(&self) -> Shards {
        Shards(Arc::clone(&self.server))
    }
}

/// Writes the pid file. A failure does not prevent the start.
fn write_pid_file(server: &Server, startup: &Startup) -> Option<PidFile> {
    let path = startup.pidfile.as_deref()?;
    let written = PidFile::write(path);
    let complain = |error: &io::Error| {
        server.log.warning(format_args!("could not write pidfile {}: {error}", path.display()));
    };
    written.inspect_err(complain).ok()
}
