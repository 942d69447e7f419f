//! Opens an engine on a data directory, and closes it.

use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tierce_config::{Config, DirectiveId, Settings, Startup};
use tierce_keyspace::log::{LogSink, Replay};
use tierce_keyspace::{
    Keyspace, Options, OptionsError, Policy, SHARDS_MAX, StreamPosition, expire_due,
};
use tierce_storage::ColdLimits;
use tierce_storage::disk::Disk;

use super::Engine;
use crate::durability::{Durability, DurableLog, LogDirectory, LogOptions, RecoveryError};
use crate::feed::{Feed, Follower, Reader, WAITING_BYTES_MAX};
use crate::loading::GivenUp;
use crate::log::Log;
use crate::persistence::{self, LoadError, LoadReport, Source, Unfit, load_arriving};
use crate::{encoding_limits, eviction, next_step};

/// Reason why an engine could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The number of shards or databases is invalid.
    #[error("{0}")]
    Keyspace(#[from] OptionsError),
    /// The snapshot in `dir` could not be loaded.
    #[error("{0}")]
    Load(#[from] LoadError),
    /// The log could not be loaded.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The data directory cannot be used.
    #[error("dir {}: {source}{}", dir.display(), next_step::of_system(source))]
    Dir {
        /// Its path.
        dir: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The load was aborted.
    #[error(transparent)]
    GivenUp(#[from] GivenUp),
    /// The values on disk cannot be used.
    #[error("maxmemory-policy spill: {0}")]
    Spill(String),
    /// The system cannot start a thread.
    #[error("could not start: {0}")]
    Io(#[from] io::Error),
}

/// An engine that exists, but whose keys are not loaded yet.
///
/// So a server can report the progress of the load ([`Engine::loading`]). **Invariant:** until [`Opening::load`] has
/// returned and [`Loading::end`](crate::loading::Loading::end) was called, only the loading thread looks at keys.
pub struct Opening {
    engine: Arc<Engine>,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// Settings of the load, independent of later changes.
    settings: Arc<Settings>,
    /// True if the keys were loaded from elsewhere.
    is_filled: bool,
}

impl Opening {
    /// Creates an engine without keys. It follows changes of the configuration, except for those that it refuses while
    /// it loads. It writes at most `spilled` at once when it spills values.
    ///
    /// # Errors
    /// When the settings are invalid.
    pub fn begin(
        config: Arc<Config>,
        startup: &Startup,
        disk: &Arc<dyn Disk>,
        log: Log,
        spilled: ColdLimits,
    ) -> Result<Self, OpenError> {
        // Measure this first: the memory of the load would count as the program's own.
        crate::memory::resident_at_start();
        let (disk, dir, settings) = (Arc::clone(disk), startup.dir.clone(), config.settings());
        let log_directory = LogDirectory::new(Arc::clone(&disk), &dir, LogOptions::default());
        let durable_log = Arc::<DurableLog>::default();
        let feed = Arc::new(Feed::new(Arc::clone(&durable_log)));
        let keyspace = Arc::new(Keyspace::new(keyspace_options(&config, startup, &feed))?);
        let durability = Durability::new(durable_log, log_directory);
        let engine = Arc::new(Engine::new(config, keyspace, durability, log).fed_by(feed));
        engine.loading.begin();
        engine.persistence.set_start_dir(dir.clone());
        // Set before any client is served.
        engine.spill.set_limits(spilled);
        engine.follow_config_from_the_start();
        Ok(Self { engine, disk, dir, settings, is_filled: false })
    }

    /// Returns the engine.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns the settings of the load.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns true if the log that will be loaded has ever had a record.
    ///
    /// # Errors
    /// When the data directory cannot be read.
    pub fn has_log(&self) -> Result<bool, OpenError> {
        let has_log = self.engine.durability.was_ever_written();
        has_log.map_err(|error| self.of_log(error))
    }

    /// Loads a snapshot of another engine as it arrives, including expired keys: later records tell if they were
    /// deleted. Must be followed by [`replay`](Self::replay) and [`keep`](Self::keep).
    ///
    /// # Errors
    /// When it is damaged, or has something unsupported. Part of it is loaded then.
    pub fn load_copy(&self, snapshot: Source<'_>) -> Result<LoadReport, OpenError> {
        let Engine { keyspace, log, loading, .. } = &*self.engine;
        let loaded = load_arriving(snapshot, &mut keyspace.locks(), log, loading);
        if loading.is_given_up() {
            return Err(GivenUp.into());
        }
        Ok(loaded?)
    }

    /// Begins to apply records of the change feed of another engine.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn replay(&self) -> io::Result<Replay> {
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let keyspace = Arc::clone(&self.engine.keyspace);
        Ok(Replay::start(keyspace, threads.get(), crate::clock::unix_ms())?.of_another())
    }

    /// Writes the loaded keys to a new log in the data directory, which has none. A crash before that leaves it
    /// without a log.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&mut self) -> Result<(), OpenError> {
        let engine = &self.engine;
        engine.durability.begin_with(&engine.keyspace).map_err(|error| self.of_log(error))?;
        self.is_filled = true;
        Ok(())
    }

    /// Loads the log, if the configuration asks for one, or else the snapshot in the directory, and starts all threads
    /// except those of the log. [`Engine::start_log`] starts these, because they notify the users, who may have to be
    /// ready first. Other threads may use the keys after [`Loading::end`](crate::loading::Loading::end).
    ///
    /// # Errors
    /// When it cannot be read, or the system cannot start a thread.
    pub fn load(self) -> Result<Arc<Engine>, OpenError> {
        self.load_followed(|_| {}).map(|(engine, _)| engine)
    }

    /// Loads as [`load`](Self::load) does, and calls `loaded` when all keys are there and unchanged. If the data has
    /// an offset in a replication stream, also returns a follower that gets every later change, including expiries.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_followed(
        self,
        loaded: impl FnOnce(&Arc<Engine>),
    ) -> Result<(Arc<Engine>, Option<Follower>), OpenError> {
        const LOST: DirectiveId = DirectiveId::of("spill-lost-values");
        let engine = &self.engine;
        if asks_for_log(&self.settings) && !self.is_filled {
            let accepts_losses = self.settings.word(LOST) == "accept";
            let (keyspace, loading) = (&engine.keyspace, &engine.loading);
            let found = engine.durability.recover(keyspace, &engine.log, accepts_losses, loading);
            found.map_err(|error| self.of_log(error))?;
        }
        loaded(engine);
        engine.follow_config_of_data(&self.disk, &self.dir)?;
        engine.load_snapshot(&self.settings)?;
        engine.start_saver()?;
        let follower = engine
            .keyspace
            .stream_position()
            .and_then(|_| engine.follow(Reader::Replicas, WAITING_BYTES_MAX));
        engine.set_active_expiry(true)?;
        Ok((self.engine, follower))
    }

    fn of_log(&self, error: RecoveryError) -> OpenError {
        match error {
            RecoveryError::Io(source) => OpenError::Dir { dir: self.dir.clone(), source },
            RecoveryError::GivenUp(given_up) => given_up.into(),
            error => error.into(),
        }
    }
}

impl Engine {
    /// Opens the data directory of the settings, loads its log or snapshot, and starts all threads. They end with
    /// [`close`](Self::close).
    ///
    /// # Errors
    /// When the data cannot be read, with the file and the remedy, or the system cannot start a thread.
    pub fn open(settings: Settings, disk: Arc<dyn Disk>, log: Log) -> Result<Arc<Self>, OpenError> {
        // This engine has no workers, so their number does not matter.
        let startup = settings.startup(NonZeroUsize::MIN);
        let config = Arc::new(Config::new(settings));
        let opening = Opening::begin(config, &startup, &disk, log, ColdLimits::default())?;
        let engine = opening.load()?;
        engine.start_log()?;
        engine.loading.end();
        Ok(engine)
    }

    /// Removes all expired keys, and stops expiry for good: the clock may be earlier at the next start.
    pub fn end_expiry(&self) {
        if self.is_expiry_over.swap(true, Ordering::Relaxed) {
            return;
        }
        // Stopping the thread cannot fail.
        let _ = self.set_active_expiry(false);
        expire_due(&mut self.keyspace.locks(), crate::clock::unix_ms());
    }

    /// Ends all threads and closes the log. Everything is durable afterwards. Threads of the engine must not call it.
    pub fn close(&self) {
        self.end_expiry();
        self.persistence.end_saver();
        if let Some(saver) = self.saver.lock().take() {
            // The panic was reported when it happened.
            let _ = saver.join();
        }
        self.spill.stop();
        self.durability.stop(&self.log);
    }

    /// Loads the snapshot in the data directory, if there is one and no log is kept.
    fn load_snapshot(&self, settings: &Settings) -> Result<(), OpenError> {
        const VERIFIES: DirectiveId = DirectiveId::of("rdbchecksum");
        const SKIP: DirectiveId = DirectiveId::of("skip-unsupported");
        if self.durability.durable_log().is_some() {
            // As in Redis, the log takes precedence over the snapshot.
            return Ok(());
        }
        if let Ok(Some(unread)) = self.durability.unread_log() {
            self.log.warning(format_args!(
                "appendonly is off, so the log in {} is not loaded, and its keys are not there. To use it, start with \
                 appendonly yes; if it is not needed, move it away",
                unread.display()
            ));
        }
        let path = persistence::snapshot_path(settings);
        let verifies = settings.is_on(VERIFIES);
        let unfit = if settings.is_on(SKIP) { Unfit::LeaveOut } else { Unfit::Refuse };
        let Self { keyspace, log, loading, .. } = self;
        let loaded = persistence::load(&path, keyspace, log, verifies, unfit, loading);
        if loading.is_given_up() {
            return Err(GivenUp.into());
        }
        if let Some(loaded) = loaded? {
            self.persistence.note_loaded(loaded, keyspace.stats().changes);
            if let Some((stream, offset)) = loaded.stream
                && let Some(db) = keyspace.db_index(loaded.stream_db)
            {
                keyspace.note_loaded_position(StreamPosition { stream, offset, db });
            }
        }
        Ok(())
    }

    /// Subscribes the parts to their directives, except for changes that must wait until the data is loaded.
    fn follow_config_from_the_start(self: &Arc<Self>) {
        const LOG_LEVEL: DirectiveId = DirectiveId::of("loglevel");
        const LOG_FORMAT: DirectiveId = DirectiveId::of("log-format");
        const SAVE: DirectiveId = DirectiveId::of("save");
        const STOP_WRITES: DirectiveId = DirectiveId::of("stop-writes-on-bgsave-error");
        const DELAY: DirectiveId = DirectiveId::of("key-load-delay");
        let limits = |engine: &Arc<Self>, settings: &Settings| {
            engine.keyspace.set_limits(&encoding_limits::configured(settings));
            Ok(())
        };
        let adopted = self.adopt(&encoding_limits::DIRECTIVES, limits);
        let delay = |engine: &Arc<Self>, settings: &Settings| {
            let micros = u64::try_from(settings.number(DELAY)).unwrap_or(0);
            engine.loading.set_delay(Duration::from_micros(micros));
            Ok(())
        };
        let adopted = adopted.and(self.adopt(&[DELAY], delay));
        debug_assert!(adopted.is_ok(), "they refuse nothing");
        self.on_change(&[LOG_LEVEL, LOG_FORMAT], |engine, settings| {
            engine.log.set_level(settings.log_level());
            engine.log.set_format(settings.log_format());
            Ok(())
        });
        self.on_change(&[SAVE, STOP_WRITES], |engine, settings| {
            engine.persistence.decide_on_writes(settings);
            Ok(())
        });
        // These directives determine how the data is loaded.
        self.on_change(&[APPENDONLY, POLICY], |engine, _| match engine.loading.is_on() {
            true => Err("the data are being loaded".to_owned()),
            false => Ok(()),
        });
    }

    /// Subscribes the remaining parts: from now on keys may be evicted or spilled, and the log may be switched.
    fn follow_config_of_data(
        self: &Arc<Self>,
        disk: &Arc<dyn Disk>,
        dir: &Path,
    ) -> Result<(), OpenError> {
        const VALUE_LEN: DirectiveId = DirectiveId::of("proto-max-bulk-len");
        // The policy `spill` needs threads and a directory for values.
        let (disk, dir) = (Arc::clone(disk), dir.to_owned());
        let spills = move |engine: &Arc<Self>, settings: &Settings| {
            let eviction = eviction::configured(settings);
            engine.durability.note_spilling(eviction.policy == Policy::Spill);
            engine.keyspace.set_eviction(&eviction);
            engine.start_spilling(settings, &disk, &dir)
        };
        self.adopt(&eviction::DIRECTIVES, spills).map_err(OpenError::Spill)?;
        // A refused value cannot have been set: no switch was possible so far.
        self.adopt(&[VALUE_LEN, APPENDONLY], Self::switch_log).map_err(OpenError::Spill)
    }

    /// Calls `act` at each change of these directives.
    fn on_change(
        self: &Arc<Self>,
        directives: &[DirectiveId],
        act: impl Fn(&Arc<Self>, &Settings) -> Result<(), String> + Send + Sync + 'static,
    ) {
        let engine = Arc::downgrade(self);
        self.config.on_change(directives.iter().copied(), move |settings| {
            engine.upgrade().map_or(Ok(()), |engine| act(&engine, settings))
        });
    }

    /// Calls `act` now and at each change of these directives.
    fn adopt(
        self: &Arc<Self>,
        directives: &[DirectiveId],
        act: impl Fn(&Arc<Self>, &Settings) -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<(), String> {
        let engine = Arc::downgrade(self);
        self.config.adopt(directives.iter().copied(), move |settings| {
            engine.upgrade().map_or(Ok(()), |engine| act(&engine, settings))
        })
    }

    /// Refuses a new log if it would replace one that was not loaded, which users may not know of.
    fn check_unread_log(&self) -> Result<(), String> {
        match self.durability.unread_log() {
            Ok(None) => Ok(()),
            Ok(Some(unread)) => Err(format!(
                "the log in {} was not loaded, as appendonly was off at the start, and would be replaced: start with \
                 appendonly yes to use it, or move it away to begin another one",
                unread.display()
            )),
            Err(error) => Err(error.to_string()),
        }
    }

    fn switch_log(self: &Arc<Self>, settings: &Settings) -> Result<(), String> {
        let on = asks_for_log(settings);
        if on != self.durability.is_wanted() && self.spill.may_have_values_on_disk() {
            // Their directory depends on the existence of a log.
            return Err("values may be on disk, as maxmemory-policy is or was spill: start again to change this".to_owned());
        }
        if on && !self.durability.is_wanted() {
            self.check_unread_log()?;
        }
        self.keyspace.set_value_len_max(value_len_max(settings));
        if on != self.durability.is_wanted() {
            self.durability.switch(on);
        }
        Ok(())
    }
}

/// Minimum number of shards for each worker.
const SHARDS_PER_WORKER: usize = 64;
/// Minimum number of shards, so that a script or a long command holds few keys besides its own.
const SHARDS_MIN: usize = 256;

const APPENDONLY: DirectiveId = DirectiveId::of("appendonly");
const POLICY: DirectiveId = DirectiveId::of("maxmemory-policy");

fn asks_for_log(settings: &Settings) -> bool {
    settings.is_on(APPENDONLY)
}

fn keyspace_options(config: &Config, startup: &Startup, feed: &Arc<Feed>) -> Options {
    let defaults = Options::default();
    Options {
        shards: startup.shards.map_or_else(|| shards_for(startup.threads), NonZeroUsize::get),
        databases: startup.databases,
        // A random seed, so that clients cannot choose colliding keys.
        seed: crate::random::word(),
        value_len_max: value_len_max(&config.settings()),
        version_base: version_base(crate::clock::unix_ms()),
        log: Some(Arc::clone(feed) as Arc<dyn LogSink>),
        ..defaults
    }
}

/// Returns the number of shards for so many workers: enough that two of them seldom need the same one.
fn shards_for(workers: NonZeroUsize) -> usize {
    (SHARDS_PER_WORKER * workers.get()).next_power_of_two().clamp(SHARDS_MIN, SHARDS_MAX)
}

/// Returns the maximum length of a value, which is that of an argument of a request.
fn value_len_max(settings: &Settings) -> usize {
    const VALUE_LEN: DirectiveId = DirectiveId::of("proto-max-bulk-len");
    settings.bytes(VALUE_LEN) as usize
}

/// Returns the base of key versions. Versions of a later run of the server are larger, as long as no shard changes
/// 2^14 times a millisecond on average. The milliseconds count from 2025, so that for the next seventeen years a
/// version is exact as a floating-point number, which some clients use for it.
fn version_base(unix_ms: i64) -> u64 {
    const YEAR_2025_MS: i64 = 1_735_689_600_000;
    ((unix_ms - YEAR_2025_MS).max(0) as u64) << 14
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_grow_with_the_workers() {
        let shards = |workers| shards_for(NonZeroUsize::new(workers).expect("positive"));
        assert_eq!([1, 4, 5, 12, 16, 100].map(shards), [256, 256, 512, 1024, 1024, 1024]);
    }
}
