//! The store: keys in memory, the log that makes writes durable, snapshots, spilled values, and what
//! happens when memory runs short.
//!
//! Its parts know as little of each other as possible: each states in a trait what it needs from the
//! program around it, and this module connects them. **Invariant**: nothing here knows sessions,
//! protocols or commands. The engine reports to its users through its [`Audience`].

mod audience;
mod host;
mod memory;
mod opening;
mod reload;
mod saves;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tierce_keyspace::{DbIndex, Keyspace, Policy, Reaper, ShardLocks, SystemClock};
use tierce_storage::disk::Disk;

use crate::durability::Durability;
use crate::eviction::{self, Excess, Room};
use crate::feed::{Feed, Follower, Reader};
use crate::latency::LatencyMonitor;
use crate::loading::Loading;
use crate::log::Log;
use crate::memory::Purge;
use crate::persistence::{self, Persistence};
use crate::spill::Spill;
use tierce_config::{Config, Settings};

pub use audience::{Audience, AudienceMemory, News};
use host::EngineHost;
pub use opening::{OpenError, Opening};
pub use reload::{ReloadError, ReloadOptions};

/// The log warns when so many percent of its disk are used.
const DISK_STEPS: [u64; 2] = [80, 90];

/// It does not warn while so many times the data are free, and this for each of them at least.
const DISK_AMPLE: u64 = 10;
const DISK_AMPLE_BYTES: u64 = 1 << 30;

/// And warns again when it was so many percent below that meanwhile.
const DISK_STEP_BACK: u64 = 5;

/// The store, with all that keeps its data.
pub struct Engine {
    /// Directives, as they are now.
    pub config: Arc<Config>,
    /// The data.
    pub keyspace: Arc<Keyspace>,
    /// What makes writes durable.
    pub durability: Durability,
    /// What changes, for a follower.
    pub feed: Arc<Feed>,
    /// Snapshots on disk.
    pub persistence: Persistence,
    /// Whether the data are there yet.
    pub loading: Loading,
    /// Values on disk.
    pub spill: Spill,
    /// The time in which memory was beyond its limit.
    pub excess: Excess,
    /// The last of [`DISK_STEPS`] that was told.
    disk_step: AtomicU64,
    /// When memory is given back to the system.
    pub purge: Purge,
    /// Resident memory before there was data, in bytes.
    pub startup_memory: usize,
    /// Latency spikes.
    pub latency: Mutex<LatencyMonitor>,
    /// The server's log.
    pub log: Log,
    /// The largest memory use seen so far, in bytes.
    memory_peak: AtomicUsize,
    /// Removes keys whose time has come; absent while `DEBUG SET-ACTIVE-EXPIRE` has it off.
    reaper: Mutex<Option<Reaper>>,
    /// See [`Engine::end_expiry`].
    is_expiry_over: AtomicBool,
    saver: Mutex<Option<JoinHandle<()>>>,
    audience: OnceLock<Box<dyn Audience>>,
}

impl Engine {
    /// Around keys that are loaded, and their log. Threads are started one by one.
    pub fn new(
        config: Arc<Config>,
        keyspace: Arc<Keyspace>,
        durability: Durability,
        log: Log,
    ) -> Self {
        let spill = Spill::new(Arc::clone(&keyspace), Arc::clone(durability.wal_on_or_off()));
        Self {
            config,
            keyspace,
            feed: Arc::new(Feed::new(Arc::clone(durability.wal_on_or_off()))),
            durability,
            persistence: Persistence::new(crate::clock::unix_ms() / 1000),
            loading: Loading::default(),
            spill,
            excess: Excess::default(),
            disk_step: AtomicU64::new(0),
            purge: Purge::default(),
            startup_memory: crate::memory::resident_at_start(),
            latency: Mutex::default(),
            log,
            memory_peak: AtomicUsize::new(0),
            reaper: Mutex::new(None),
            is_expiry_over: AtomicBool::new(false),
            saver: Mutex::new(None),
            audience: OnceLock::new(),
        }
    }

    /// With the feed that is the sink of its keyspace. Without one, a follower hears of nothing.
    #[must_use]
    pub fn fed_by(self, feed: Arc<Feed>) -> Self {
        Self { feed, ..self }
    }

    /// Sets the users of the engine.
    pub fn attach(&self, audience: Box<dyn Audience>) {
        // A second call would be a bug; the first one stays in force.
        let _ = self.audience.set(audience);
    }

    /// Begins to collect all changes for `reader`, of which at most `bytes_max` bytes wait; `None` if that has a
    /// follower already.
    pub fn follow(&self, reader: Reader, bytes_max: usize) -> Option<Follower> {
        self.feed.follow(&self.keyspace, reader, bytes_max)
    }

    fn tell(&self, news: News) {
        if let Some(audience) = self.audience.get() {
            audience.hear(news);
        }
    }

    /// The database with this index, if there is one.
    pub fn database(&self, index: i64) -> Option<DbIndex> {
        self.keyspace.db_index(usize::try_from(index).ok()?)
    }

    /// Remembers that something took long, if it did by `latency-monitor-threshold`.
    pub fn note_latency(&self, event: &'static str, took: Duration) {
        let threshold = self.config.live().latency_monitor_threshold();
        let millis = took.as_millis() as u64;
        if threshold > 0 && millis >= threshold {
            let seconds = crate::clock::unix_ms() / 1000;
            self.latency.lock().record(event, seconds, millis);
        }
    }

    /// Makes room before something that may add data, if memory is short or would be with so many `bytes` more.
    /// Releases the shard of the last request if that takes an eviction. A replica has the memory that its primary says.
    #[inline]
    pub fn make_room(&self, locks: &mut ShardLocks<'_>, bytes: usize, now_ms: i64) -> Room {
        if self.keyspace.is_following() {
            return Room::Enough;
        }
        if bytes > 0 && self.cannot_fit(bytes) {
            return Room::None;
        }
        match self.keyspace.would_be_short(bytes) {
            true if self.keyspace.eviction().policy != Policy::Spill => {
                self.evict(locks, bytes, now_ms)
            }
            true if self.keyspace.is_short_of_memory() => self.ask_for_room(now_ms),
            _ => Room::Enough,
        }
    }

    /// True if there is no room for so many bytes whatever is evicted.
    #[must_use]
    pub fn cannot_fit(&self, bytes: usize) -> bool {
        let eviction = self.keyspace.eviction();
        match eviction.policy {
            _ if eviction.limit_bytes == 0 || self.keyspace.is_following() => false,
            Policy::Spill => false,
            Policy::Noeviction => self.keyspace.would_be_short(bytes),
            _ => bytes as u64 >= eviction.limit_bytes,
        }
    }

    /// Asks for room by moving values to disk, which takes others.
    #[cold]
    #[inline(never)]
    fn ask_for_room(&self, now_ms: i64) -> Room {
        self.excess.goes_on(now_ms);
        self.spill.room()
    }

    #[cold]
    #[inline(never)]
    fn evict(&self, locks: &mut ShardLocks<'_>, bytes: usize, now_ms: i64) -> Room {
        let tenacity = self.config.live().maxmemory_eviction_tenacity();
        let (room, took) = eviction::evict(locks, &self.excess, bytes, tenacity, now_ms);
        self.note_latency("eviction-cycle", took);
        room
    }

    /// Starts the threads that keep the log.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start_log(self: &Arc<Self>) -> io::Result<()> {
        self.durability.start(&self.keyspace, Arc::new(EngineHost::of(self)))
    }

    /// Starts the thread that moves values to disk, if they may go there or are there.
    ///
    /// # Errors
    /// When there is no store to be had, or no thread.
    pub fn start_spilling(
        self: &Arc<Self>,
        settings: &Settings,
        disk: &Arc<dyn Disk>,
        dir: &Path,
    ) -> Result<(), String> {
        self.spill.start(settings, Arc::new(EngineHost::of(self)), disk, dir)
    }

    /// Whether there is a thread that carries out saves: since the engine was opened, until it is closed.
    pub fn has_saver(&self) -> bool {
        self.saver.lock().is_some()
    }

    fn start_saver(self: &Arc<Self>) -> io::Result<()> {
        let engine = Arc::clone(self);
        let body = move || {
            persistence::run_saver(&engine.persistence, &engine.keyspace, &engine.log, &*engine);
        };
        let thread = std::thread::Builder::new().name("saver".into()).spawn(body)?;
        *self.saver.lock() = Some(thread);
        Ok(())
    }

    /// Starts or stops the removal of expired keys that are not read.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn set_active_expiry(&self, on: bool) -> io::Result<()> {
        let mut reaper = self.reaper.lock();
        if !on {
            *reaper = None;
        } else if reaper.is_none() {
            *reaper = Some(Reaper::start(Arc::clone(&self.keyspace), Arc::new(SystemClock))?);
        }
        Ok(())
    }

    /// Work that is due once a second, even in an idle server; takes some microseconds.
    pub fn cron(&self) {
        self.note_latency("expire-cycle", self.keyspace.take_longest_expiry());
        if let Some(durable_log) = self.durability.durable_log() {
            self.note_latency("aof-write", durable_log.take_longest_wait());
        }
        self.excess.check(&self.keyspace, crate::clock::unix_ms());
        self.purge_memory_if_due();
        self.save_if_due();
        self.watch_disk();
    }

    /// Warns when the disk of the log fills up: once at each step.
    fn watch_disk(&self) {
        let space = self.durability.durable_log().and_then(|_| self.durability.disk_space());
        let Some(space) = space.filter(|space| space.total > 0) else { return };
        let logged = self.keyspace.memory().logged();
        let (used, step) = disk_step(space.free, space.total, logged);
        let told = self.disk_step.load(Ordering::Relaxed);
        if step > told {
            self.log.warning(format_args!(
                "The disk of {} is {used} % full: {} MB are free, and writing the log anew, as compaction does, needs about \
                 {} MB. Make room before it is full: writes are refused then",
                self.durability.dir().display(),
                space.free / 1_000_000,
                logged.div_ceil(1_000_000)
            ));
        }
        // A step that is reached again and again is told once.
        if step > told || used + DISK_STEP_BACK < told {
            self.disk_step.store(step, Ordering::Relaxed);
        }
    }
}

/// The used part of a disk in percent, and the step that this has reached, 0 for none.
fn disk_step(free: u64, total: u64, logged: u64) -> (u64, u64) {
    let used = 100 - u128::from(free) * 100 / u128::from(total);
    let used = u64::try_from(used).unwrap_or(0);
    let is_ample = free >= logged.max(DISK_AMPLE_BYTES).saturating_mul(DISK_AMPLE);
    let step = DISK_STEPS.into_iter().rfind(|step| used >= *step && !is_ample);
    (used, step.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::disk_step;

    #[test]
    fn a_disk_that_fills_up_is_told_at_each_step_unless_there_is_ample_room() {
        const GIB: u64 = 1 << 30;
        assert_eq!(disk_step(21 * GIB, 100 * GIB, 30 * GIB), (79, 0));
        assert_eq!(disk_step(20 * GIB, 100 * GIB, 30 * GIB), (80, 80));
        assert_eq!(disk_step(5 * GIB, 100 * GIB, 0), (95, 90));
        assert_eq!(disk_step(40 * GIB, 300 * GIB, GIB), (87, 0), "ten logs find room");
        assert_eq!(disk_step(40 * GIB, 300 * GIB, 5 * GIB), (87, 80));
    }
}
