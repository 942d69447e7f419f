//! `maxmemory-policy spill`: values that have not been used for long are on disk only.
//!
//! `spiller` is a thread that moves cold values to disk before memory runs short, and cleans up there.
//! Commands that need a value read it back.
//!
//! Writers that outpace the disk are throttled: while memory exceeds its limit they wait until the
//! spiller has freed memory or found that it cannot.

mod spiller;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tierce_keyspace::{Keyspace, Policy};
use tierce_storage::disk::{Disk, ReadDriver};
use tierce_storage::{ColdLimits, ColdOptions, ColdStore};

use crate::durability::{DurableLog, Operator, Severity, cold_dir};
use crate::eviction::Room;
use spiller::{Spiller, Work};
use tierce_config::{DirectiveId, Settings};

/// The spiller thread and its shared state.
pub struct Spill {
    keyspace: Arc<Keyspace>,
    durable_log: Arc<DurableLog>,
    /// Driver of the sessions' reads.
    driver: OnceLock<ReadDriver>,
    /// Upper bounds of a single write, if they differ from the defaults.
    limits: OnceLock<ColdLimits>,
    spiller: Mutex<Option<Spiller>>,
    demand: Arc<Demand>,
}

/// State shared by the spiller and the threads that need memory.
#[derive(Default)]
struct Demand {
    /// Memory exceeds its limit, and no value can go to disk.
    is_stuck: AtomicBool,
    /// Requests to the spiller: a writer needs memory, or the spiller has to end.
    calls: Mutex<Calls>,
    called: Condvar,
}

#[derive(Default)]
struct Calls {
    room: bool,
    ends: bool,
}

impl Spill {
    /// Creates the spill state of a keyspace, whose log may refer to values on disk.
    pub fn new(keyspace: Arc<Keyspace>, durable_log: Arc<DurableLog>) -> Self {
        let (driver, limits) = (OnceLock::new(), OnceLock::new());
        let (spiller, demand) = (Mutex::default(), Arc::default());
        Self { keyspace, durable_log, driver, limits, spiller, demand }
    }

    /// Starts the thread, if values may go to disk or are there. A new store is created on `disk` in
    /// `dir`.
    ///
    /// # Errors
    /// When the store cannot be opened, or the thread cannot be started.
    pub fn start(
        &self,
        settings: &Settings,
        operator: Arc<dyn Operator>,
        disk: &Arc<dyn Disk>,
        dir: &Path,
    ) -> Result<(), String> {
        let keyspace = &self.keyspace;
        if keyspace.cold_store().is_none() {
            if keyspace.eviction().policy != Policy::Spill {
                return Ok(());
            }
            // Before the log's threads run, `is_wanted` is not set yet, but `is_on` is valid.
            let is_logged = self.durable_log.is_on() || self.durable_log.is_wanted();
            // Existing values may belong to a log that is still authoritative.
            if is_logged
                && !self.durable_log.sync_if_complete().is_ok_and(|is_complete| is_complete)
            {
                return Err("the log is not complete yet".to_owned());
            }
            let store = open_new(Arc::clone(disk), dir, is_logged);
            keyspace.set_cold_store(store.map_err(|error| error.to_string())?);
        }
        let mut spiller = self.spiller.lock();
        if spiller.is_none() {
            self.choose_driver(settings, &*operator)?;
            let work = Work {
                keyspace: Arc::clone(keyspace),
                durable_log: Arc::clone(&self.durable_log),
                demand: Arc::clone(&self.demand),
                limits: self.limits(),
                operator,
            };
            *spiller = Some(Spiller::start(work).map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    /// Limits the size of a single write. Call it before the threads are started.
    pub fn set_limits(&self, limits: ColdLimits) {
        self.limits.get_or_init(|| limits);
    }

    fn limits(&self) -> ColdLimits {
        self.limits.get().copied().unwrap_or_default()
    }

    /// Ends the thread. Waiting sessions are no longer notified.
    pub fn stop(&self) {
        drop(self.spiller.lock().take());
        if let Some(store) = self.keyspace.cold_store() {
            store.close();
        }
    }

    /// Chooses the driver of the sessions' reads: the configured one, or one that works.
    fn choose_driver(&self, settings: &Settings, operator: &dyn Operator) -> Result<(), String> {
        const READS: DirectiveId = DirectiveId::of("spill-reads");
        let driver = match settings.word(READS) {
            "threads" => ReadDriver::Threads,
            wanted => match ReadDriver::probe_ring() {
                Ok(()) => ReadDriver::Ring,
                Err(error) if wanted == "io_uring" => return Err(format!("io_uring: {error}")),
                Err(error) => {
                    let line = format_args!("Threads read from disk, without io_uring: {error}");
                    operator.tell(Severity::Notice, line);
                    ReadDriver::Threads
                }
            },
        };
        self.driver.get_or_init(|| driver);
        Ok(())
    }

    /// Returns the driver of the sessions' reads, once values may be on disk.
    pub fn driver(&self) -> Option<ReadDriver> {
        self.driver.get().copied()
    }

    /// Tells a command that may add data what to do while memory exceeds its limit.
    #[cold]
    pub fn room(&self) -> Room {
        if self.demand.is_stuck.load(Relaxed) {
            return Room::None;
        }
        self.demand.call();
        Room::Soon
    }

    /// Returns true if memory exceeds its limit and the spiller is freeing some.
    pub fn is_making_room(&self) -> bool {
        let is_making_room =
            self.keyspace.is_short_of_memory() && !self.demand.is_stuck.load(Relaxed);
        if is_making_room {
            self.demand.call();
        }
        is_making_room
    }

    /// Returns true if values are on disk, or may go there. A store that was opened empty at the start
    /// does not count.
    pub fn may_have_values_on_disk(&self) -> bool {
        self.keyspace.eviction().policy == Policy::Spill
            || self.keyspace.cold_store().is_some_and(|store| store.figures().segments > 0)
    }
}

impl Demand {
    /// Makes the spiller check at once.
    fn call(&self) {
        let mut calls = self.calls.lock();
        if !calls.room {
            calls.room = true;
            self.called.notify_one();
        }
    }

    /// Waits for a call, at most `patience`. Returns true if the spiller must end.
    fn await_call(&self, patience: Duration) -> bool {
        let mut calls = self.calls.lock();
        if !calls.room && !calls.ends && !patience.is_zero() {
            self.called.wait_for(&mut calls, patience);
        }
        calls.room = false;
        calls.ends
    }

    /// Ends the spiller, or allows another one to begin.
    fn set_end(&self, ends: bool) {
        self.calls.lock().ends = ends;
        self.called.notify_all();
    }
}

/// Returns the directory of the store of a server without a log. Its content is useless to the next
/// start. Values of an unused log are in another directory.
fn unlogged_dir(dir: &Path) -> std::path::PathBuf {
    dir.join("cold-unlogged")
}

fn open_new(
    disk: Arc<dyn Disk>,
    dir: &Path,
    is_logged: bool,
) -> Result<Arc<ColdStore>, tierce_storage::Error> {
    let dir = if is_logged { cold_dir(dir) } else { unlogged_dir(dir) };
    let store = ColdStore::open(disk, dir, ColdOptions::default())?;
    // Nothing refers to old values in it.
    store.finish_recovery()?;
    Ok(Arc::new(store))
}
