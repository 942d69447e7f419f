//! Opens an engine on a data directory, and closes it.

use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use tierce_cask::ColdLimits;
use tierce_cask::disk::Disk;
use tierce_config::{Config, DirectiveId, Settings, Startup};
use tierce_keyspace::log::LogSink;
use tierce_keyspace::{Keyspace, Options, OptionsError};

use super::Engine;
use crate::durability::{self, Durability, LogDirectory, LogOptions, RecoveryError, WalHandle};
use crate::feed::Feed;
use crate::log::Log;
use crate::persistence::{self, LoadError};
use crate::{encoding_limits, eviction};

/// Why an engine could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The number of shards or databases.
    #[error("{0}")]
    Keyspace(#[from] OptionsError),
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
    /// The values on disk.
    #[error("maxmemory-policy spill: {0}")]
    Spill(String),
    /// The system has no threads to give.
    #[error("could not start: {0}")]
    Io(#[from] io::Error),
}

/// What the log of a data directory holds, loaded; the log continues from there.
pub struct Opened {
    keyspace: Arc<Keyspace>,
    wal_handle: Arc<WalHandle>,
    feed: Arc<Feed>,
    log_directory: LogDirectory,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    is_used: bool,
}

impl Opened {
    /// Loads the log in the directory that `startup` names, if the configuration asks for one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn load(
        config: &Config,
        startup: &Startup,
        disk: &Arc<dyn Disk>,
        log: &Log,
    ) -> Result<Self, OpenError> {
        const LOST: DirectiveId = DirectiveId::of("spill-lost-values");
        // Loading takes memory that would count as the program's own.
        crate::memory::resident_at_start();
        let (disk, dir) = (Arc::clone(disk), startup.dir.clone());
        let log_directory = LogDirectory::new(Arc::clone(&disk), &dir, LogOptions::default());
        let wal_handle = Arc::<WalHandle>::default();
        let feed = Arc::new(Feed::new(Arc::clone(&wal_handle)));
        let keyspace = Arc::new(Keyspace::new(keyspace_options(config, startup, &feed))?);
        let settings = config.settings();
        keyspace.set_limits(&encoding_limits::configured(&settings));
        let mut is_used = false;
        if asks_for_log(&settings) {
            let accepts = settings.word(LOST) == "accept";
            let recovered =
                durability::recover(&wal_handle, &keyspace, &log_directory, log, accepts);
            is_used = recovered.map_err(|error| match error {
                RecoveryError::Io(source) => OpenError::Dir { dir: dir.clone(), source },
                error => error.into(),
            })?;
        }
        keyspace.set_eviction(&eviction::configured(&settings));
        Ok(Self { keyspace, wal_handle, feed, log_directory, disk, dir, is_used })
    }

    /// Whether there has ever been a record in the log.
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// An engine around it, which writes at most `spilled` at once when it spills values. Without a log, it has
    /// the data of the snapshot in the directory.
    ///
    /// Only the threads of the log are missing, which [`Engine::start_log`] starts: what they find out, they tell
    /// those who use it, who may have to be ready for that.
    ///
    /// # Errors
    /// When the snapshot cannot be loaded, or the system has no threads to give.
    pub fn into_engine(
        self,
        config: Arc<Config>,
        log: Log,
        spilled: ColdLimits,
    ) -> Result<Arc<Engine>, OpenError> {
        let Self { keyspace, wal_handle, feed, log_directory, disk, dir, .. } = self;
        let durability = Durability::new(wal_handle, log_directory);
        let engine = Arc::new(Engine::new(config, keyspace, durability, log).fed_by(feed));
        engine.persistence.set_start_dir(dir.clone());
        // Before any client is served, which might need it.
        engine.spill.set_limits(spilled);
        engine.start_spilling(&disk, &dir).map_err(OpenError::Spill)?;
        engine.load_snapshot()?;
        engine.start_saver()?;
        engine.set_active_expiry(true)?;
        engine.follow_config(disk, dir);
        Ok(engine)
    }
}

impl Engine {
    /// Opens the data directory that the settings name, with what its log or its snapshot holds, and starts all
    /// threads. They end with [`close`](Self::close).
    ///
    /// # Errors
    /// When the data cannot be read, with the file and what can be done, or the system has no threads to give.
    pub fn open(settings: Settings, disk: Arc<dyn Disk>, log: Log) -> Result<Arc<Self>, OpenError> {
        // It has no workers, and so no use for their number.
        let startup = settings.startup(NonZeroUsize::MIN);
        let config = Arc::new(Config::new(settings));
        let opened = Opened::load(&config, &startup, &disk, &log)?;
        let engine = opened.into_engine(config, log, ColdLimits::default())?;
        engine.start_log()?;
        Ok(engine)
    }

    /// Removes all keys that have expired, and none from then on: the clock may be an earlier one at the next
    /// start.
    pub fn end_expiry(&self) {
        // The thread was there already, so nothing can fail.
        let _ = self.set_active_expiry(false);
        self.keyspace.locks().expire_due(crate::clock::unix_ms());
    }

    /// Ends all threads and closes the log; everything is on the device then. Not for threads of the engine.
    pub fn close(&self) {
        self.end_expiry();
        self.persistence.end_saver();
        if let Some(saver) = self.saver.lock().take() {
            // A panic was reported when it happened.
            let _ = saver.join();
        }
        self.spill.stop();
        self.durability.stop(&self.log);
    }

    /// Loads the snapshot in the data directory, if there is one, and no log is kept.
    fn load_snapshot(&self) -> Result<(), LoadError> {
        const VERIFIES: DirectiveId = DirectiveId::of("rdbchecksum");
        const SKIP: DirectiveId = DirectiveId::of("skip-unsupported");
        if self.durability.wal_handle().is_some() {
            // As in Redis, the log is what counts when there is one.
            return Ok(());
        }
        let settings = self.config.settings();
        let path = persistence::snapshot_path(&settings);
        let verifies = settings.is_on(VERIFIES);
        let load = if settings.is_on(SKIP) {
            persistence::load_without_unsupported
        } else {
            persistence::load
        };
        if let Some(loaded) = load(&path, &self.keyspace, &self.log, verifies)? {
            self.persistence.note_loaded(loaded, self.keyspace.stats().changes);
        }
        Ok(())
    }

    /// Has changes of the configuration reach what holds a copy of a value.
    fn follow_config(self: &Arc<Self>, disk: Arc<dyn Disk>, dir: PathBuf) {
        const VALUE_LEN: DirectiveId = DirectiveId::of("proto-max-bulk-len");
        const LOG_LEVEL: DirectiveId = DirectiveId::of("loglevel");
        const LOG_FORMAT: DirectiveId = DirectiveId::of("log-format");
        const SAVE: DirectiveId = DirectiveId::of("save");
        const STOP_WRITES: DirectiveId = DirectiveId::of("stop-writes-on-bgsave-error");
        let follow = |directives: &[DirectiveId], act: Act| {
            let engine = Arc::downgrade(self);
            self.config.on_change(directives.iter().copied(), move |settings| {
                engine.upgrade().map_or(Ok(()), |engine| act(&engine, settings))
            });
        };
        // The policy `spill` needs threads and a place for values.
        let spills = move |engine: &Arc<Self>, settings: &Settings| {
            engine.keyspace.set_eviction(&eviction::configured(settings));
            engine.start_spilling(&disk, &dir)
        };
        follow(&eviction::DIRECTIVES, Box::new(spills));
        follow(&[VALUE_LEN, APPENDONLY], Box::new(Self::switch_log));
        follow(
            &encoding_limits::DIRECTIVES,
            Box::new(|engine, settings| {
                engine.keyspace.set_limits(&encoding_limits::configured(settings));
                Ok(())
            }),
        );
        follow(
            &[LOG_LEVEL, LOG_FORMAT],
            Box::new(|engine, settings| {
                engine.log.set_level(settings.log_level());
                engine.log.set_format(settings.log_format());
                Ok(())
            }),
        );
        follow(
            &[SAVE, STOP_WRITES],
            Box::new(|engine, settings| {
                engine.persistence.decide_on_writes(settings);
                Ok(())
            }),
        );
    }

    fn switch_log(self: &Arc<Self>, settings: &Settings) -> Result<(), String> {
        let on = asks_for_log(settings);
        if on != self.durability.is_wanted() && self.spill.may_have_values_on_disk() {
            // Where they are follows from whether there is a log.
            return Err("values may be on disk (maxmemory-policy spill)".to_owned());
        }
        self.keyspace.set_value_len_max(value_len_max(settings));
        if on != self.durability.is_wanted() {
            self.durability.switch(on);
        }
        Ok(())
    }
}

/// What is done at a change of some directives.
type Act = Box<dyn Fn(&Arc<Engine>, &Settings) -> Result<(), String> + Send + Sync>;

const APPENDONLY: DirectiveId = DirectiveId::of("appendonly");

fn asks_for_log(settings: &Settings) -> bool {
    settings.is_on(APPENDONLY)
}

fn keyspace_options(config: &Config, startup: &Startup, feed: &Arc<Feed>) -> Options {
    let defaults = Options::default();
    Options {
        shards: startup.shards.map_or(defaults.shards, NonZeroUsize::get),
        databases: startup.databases,
        // Clients cannot choose keys that collide.
        seed: crate::random::word(),
        value_len_max: value_len_max(&config.settings()),
        version_base: version_base(crate::clock::unix_ms()),
        log: Some(Arc::clone(feed) as Arc<dyn LogSink>),
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
