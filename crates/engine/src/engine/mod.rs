//! The store: keys in memory, the log that makes writes durable, snapshots, spilled values, and eviction when memory
//! runs short.
//!
//! Its parts know as little of each other as possible: each has a trait for its needs from the program around it, and
//! this module connects them. **Invariant**: it does not know sessions, protocols or commands. The engine notifies its
//! users through its [`Audience`].

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

/// Used part of the log's disk, in percent, at which the server warns.
const DISK_STEPS: [u64; 2] = [80, 90];

/// Free space, as a multiple of the data, above which it does not warn; and the least value assumed for the data.
const DISK_AMPLE: u64 = 10;
const DISK_AMPLE_BYTES: u64 = 1 << 30;

/// Percentage by which the used part must fall below a step before the server warns of it again.
const DISK_STEP_BACK: u64 = 5;

/// The store and all that keeps its data.
pub struct Engine {
    /// Present values of the directives.
    pub config: Arc<Config>,
    /// The data.
    pub keyspace: Arc<Keyspace>,
    /// The durable log.
    pub durability: Durability,
    /// Change feed for followers.
    pub feed: Arc<Feed>,
    /// Snapshots on disk.
    pub persistence: Persistence,
    /// Progress of the load at the start.
    pub loading: Loading,
    /// Values on disk.
    pub spill: Spill,
    /// Time in which memory exceeded its limit.
    pub excess: Excess,
    /// Last of [`DISK_STEPS`] that was reported.
    disk_step: AtomicU64,
    /// Schedule for returning memory to the system.
    pub purge: Purge,
    /// Resident memory before any data was loaded, in bytes.
    pub startup_memory: usize,
    /// Latency spikes.
    pub latency: Mutex<LatencyMonitor>,
    /// The server's log.
    pub log: Log,
    /// Peak of the memory use seen so far, in bytes.
    memory_peak: AtomicUsize,
    /// Thread that removes expired keys; `None` while `DEBUG SET-ACTIVE-EXPIRE` has it off.
    reaper: Mutex<Option<Reaper>>,
    /// See [`Engine::end_expiry`].
    is_expiry_over: AtomicBool,
    saver: Mutex<Option<JoinHandle<()>>>,
    audience: OnceLock<Box<dyn Audience>>,
}

impl Engine {
    /// Creates an engine around loaded keys and their log. Its threads are started one by one.
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

    /// Sets the feed, which must be the log sink of the keyspace. Without it, followers get no changes.
    #[must_use]
    pub fn fed_by(self, feed: Arc<Feed>) -> Self {
        Self { feed, ..self }
    }

    /// Sets the users of the engine.
    pub fn attach(&self, audience: Box<dyn Audience>) {
        // A second call would be a bug; the first one stays in force.
        let _ = self.audience.set(audience);
    }

    /// Begins to collect all changes for `reader`, with at most `bytes_max` pending bytes. Returns `None` if it has a
    /// follower already.
    pub fn follow(&self, reader: Reader, bytes_max: usize) -> Option<Follower> {
        self.feed.follow(&self.keyspace, reader, bytes_max)
    }

    fn tell(&self, news: News) {
        if let Some(audience) = self.audience.get() {
            audience.hear(news);
        }
    }

    /// Returns the database with this index, if there is one.
    pub fn database(&self, index: i64) -> Option<DbIndex> {
        self.keyspace.db_index(usize::try_from(index).ok()?)
    }

    /// Records the latency of an event if it reaches `latency-monitor-threshold`.
    pub fn note_latency(&self, event: &'static str, took: Duration) {
        let threshold = self.config.live().latency_monitor_threshold();
        let millis = took.as_millis() as u64;
        if threshold > 0 && millis >= threshold {
            let seconds = crate::clock::unix_ms() / 1000;
            self.latency.lock().record(event, seconds, millis);
        }
    }

    /// Makes room before a command that may add data, if memory is short or would be with `bytes` more. An eviction
    /// releases the shard of the last request. A replica never evicts, because its primary decides.
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

    /// Returns true if there is no room for so many bytes, whatever is evicted.
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

    /// Requests room from the spiller, a thread that moves values to disk.
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

    /// Starts the threads of the log.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn start_log(self: &Arc<Self>) -> io::Result<()> {
        self.durability.start(&self.keyspace, Arc::new(EngineHost::of(self)))
    }

    /// Starts the thread that moves values to disk, if they may go there or are there.
    ///
    /// # Errors
    /// When the store cannot be opened, or the thread cannot be started.
    pub fn start_spilling(
        self: &Arc<Self>,
        settings: &Settings,
        disk: &Arc<dyn Disk>,
        dir: &Path,
    ) -> Result<(), String> {
        self.spill.start(settings, Arc::new(EngineHost::of(self)), disk, dir)
    }

    /// Returns true if the saver thread exists: from the opening of the engine until it is closed.
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

    /// Starts or stops the active removal of expired keys.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn set_active_expiry(&self, on: bool) -> io::Result<()> {
        let mut reaper = self.reaper.lock();
        if !on {
            *reaper = None;
        } else if reaper.is_none() {
            *reaper = Some(Reaper::start(Arc::clone(&self.keyspace), Arc::new(SystemClock))?);
        }
        Ok(())
    }

    /// Does the work that is due once a second, even in an idle server. Takes some microseconds.
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

    /// Warns when the disk of the log fills up: once per step.
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
        // A step that is reached repeatedly is reported once.
        if step > told || used + DISK_STEP_BACK < told {
            self.disk_step.store(step, Ordering::Relaxed);
        }
    }
}

/// Returns the used part of a disk in percent, and the step that it has reached, 0 for none.
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
