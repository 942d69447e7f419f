//! `maxmemory-policy spill`: values that were not used for long are on disk only.
//!
//! * `spiller`: a thread that moves cold values to disk before memory runs short, and cleans up there.
//! * `fetcher`: values that sessions wait for.
//! * `wanted`: which values a request needs.
//!
//! A worker never waits for the disk. Before a request runs whose value is on disk, its session is
//! suspended; when the value has been read, the worker puts it into memory, and the request starts over.
//! A pipeline has the values of all its requests fetched at the same time. If a value has been forgotten again before its request came to
//! run, and that several times, the worker reads it itself, which is slow and seldom.
//!
//! Writers that are faster than the disk wait, too: while memory is beyond its limit, sessions that
//! write are held back, until the spiller has made room or found that it cannot.

mod fetcher;
mod spiller;
mod wanted;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex};
use tierce_cask::disk::{Disk, ReadDriver};
use tierce_cask::{ColdLimits, ColdOptions, ColdStore};
use tierce_keyspace::{Keyspace, Policy};

use crate::config::DirectiveId;
use crate::durability::cold_dir;
use crate::eviction::Room;
use crate::server::Server;
pub use fetcher::Fetcher;
use spiller::Spiller;
pub use wanted::{Wanted, add_key, add_wanted, is_enough};

/// A session that has waited so often for the same request has its values read by the worker.
const ATTEMPTS_MAX: u8 = 3;

/// What a session waits for from disk.
#[derive(Default)]
pub struct Fetches {
    /// It waits.
    pub underway: bool,
    /// How often it has waited since a request was executed.
    attempts: u8,
}

impl Fetches {
    /// Whether it may wait again.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        self.attempts < ATTEMPTS_MAX
    }

    fn begin(&mut self) {
        self.underway = true;
        self.attempts += 1;
    }

    /// It cannot wait, and the request is to be executed as it is.
    fn give_up(&mut self) {
        self.attempts = ATTEMPTS_MAX;
    }

    /// A request was executed.
    pub fn has_run(&mut self) {
        self.attempts = 0;
    }
}

/// The threads, and what they tell others.
#[derive(Default)]
pub struct Spill {
    /// Who reads for sessions.
    driver: OnceLock<ReadDriver>,
    /// How much is written at once, if not what is usual.
    limits: OnceLock<ColdLimits>,
    spiller: Mutex<Option<Spiller>>,
    /// Memory is beyond its limit, and no value can go to disk.
    is_stuck: AtomicBool,
    /// Somebody needs room, or the spiller has to end.
    calls: Mutex<Calls>,
    called: Condvar,
}

#[derive(Default)]
struct Calls {
    room: bool,
    ends: bool,
}

impl Spill {
    /// Starts the threads, if values may go to disk or are there. `disk` and `dir` are for a store that
    /// has to be made.
    ///
    /// # Errors
    /// When there is no store to be had, or no thread.
    pub fn start(
        &self,
        server: &Arc<Server>,
        disk: &Arc<dyn Disk>,
        dir: &Path,
    ) -> Result<(), String> {
        let keyspace = &server.keyspace;
        if keyspace.cold_store().is_none() {
            if keyspace.eviction().policy != Policy::Spill {
                return Ok(());
            }
            // Before the log's threads run, which know what is wanted, there is one or there is none.
            let durability = &server.durability;
            let is_logged = durability.journal().is_some() || durability.is_wanted();
            // What is there may belong to a log that still counts.
            if is_logged && !durability.settle().is_ok_and(|is_complete| is_complete) {
                return Err("the log is not complete yet".to_owned());
            }
            let store = open_new(Arc::clone(disk), dir, is_logged);
            keyspace.set_cold_store(store.map_err(|error| error.to_string())?);
        }
        let mut spiller = self.spiller.lock();
        if spiller.is_none() {
            self.choose_driver(server)?;
            self.calls.lock().ends = false;
            *spiller = Some(Spiller::start(server).map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    /// Has no more written at once than this; before the threads are started.
    pub fn set_limits(&self, limits: ColdLimits) {
        self.limits.get_or_init(|| limits);
    }

    fn limits(&self) -> ColdLimits {
        self.limits.get().copied().unwrap_or_default()
    }

    /// Ends the threads. Sessions that wait are not told any more.
    pub fn stop(&self, keyspace: &Keyspace) {
        self.calls.lock().ends = true;
        self.called.notify_all();
        drop(self.spiller.lock().take());
        if let Some(store) = keyspace.cold_store() {
            store.close();
        }
    }

    /// Finds out who is to read for sessions: what the configuration says, or what works.
    fn choose_driver(&self, server: &Server) -> Result<(), String> {
        const READS: DirectiveId = DirectiveId::of("spill-reads");
        let driver = match server.config.settings().word(READS) {
            "threads" => ReadDriver::Threads,
            wanted => match ReadDriver::probe_ring() {
                Ok(()) => ReadDriver::Ring,
                Err(error) if wanted == "io_uring" => return Err(format!("io_uring: {error}")),
                Err(error) => {
                    let log = &server.log;
                    log.notice(format_args!("Threads read from disk, without io_uring: {error}"));
                    ReadDriver::Threads
                }
            },
        };
        self.driver.get_or_init(|| driver);
        Ok(())
    }

    /// Who reads for sessions, once values may be on disk.
    #[must_use]
    pub fn driver(&self) -> Option<ReadDriver> {
        self.driver.get().copied()
    }

    /// What a command that may add data shall do while memory is beyond its limit.
    #[cold]
    pub fn room(&self) -> Room {
        if self.is_stuck.load(Relaxed) {
            return Room::None;
        }
        self.call();
        Room::Soon
    }

    /// Has the spiller look at once.
    fn call(&self) {
        let mut calls = self.calls.lock();
        if !calls.room {
            calls.room = true;
            self.called.notify_one();
        }
    }

    /// Whether memory is beyond its limit and the spiller on its way to change that.
    fn is_making_room(&self, keyspace: &Keyspace) -> bool {
        let is_making_room = keyspace.is_short_of_memory() && !self.is_stuck.load(Relaxed);
        if is_making_room {
            self.call();
        }
        is_making_room
    }
}

/// The store of a server without a log. What is in it means nothing to the next one; and what belongs to
/// a log that is not used today is elsewhere.
fn unlogged_dir(dir: &Path) -> std::path::PathBuf {
    dir.join("cold-unlogged")
}

fn open_new(
    disk: Arc<dyn Disk>,
    dir: &Path,
    is_logged: bool,
) -> Result<Arc<ColdStore>, tierce_cask::Error> {
    let dir = if is_logged { cold_dir(dir) } else { unlogged_dir(dir) };
    let store = ColdStore::open(disk, dir, ColdOptions::default())?;
    // Nothing refers to what may be there.
    store.settle()?;
    Ok(Arc::new(store))
}

impl Server {
    /// Whether values are on disk, or may go there. A store that a start has opened without finding any
    /// does not count.
    pub(crate) fn may_have_values_on_disk(&self) -> bool {
        self.keyspace.eviction().policy == Policy::Spill
            || self.keyspace.cold_store().is_some_and(|store| store.figures().segments > 0)
    }
}
