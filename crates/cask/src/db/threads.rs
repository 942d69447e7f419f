//! Background work: flushing, periodic syncs, sealing, compacting.
//!
//! Errors here have no caller. Those that matter latch the store, so the next write reports them.

use super::compaction::Pace;
use super::store::{Store, Wakeup};
use crate::options::SyncPolicy;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The threads of an open store.
pub(crate) struct Threads {
    store: Arc<Store>,
    handles: Vec<JoinHandle<()>>,
}

impl Wakeup {
    /// Sleeps until woken, at most this long; `false` when it is time to stop.
    pub(crate) fn sleep(&self, at_most: Duration) -> bool {
        let mut stop = self.stop.lock();
        if !*stop {
            self.changed.wait_for(&mut stop, at_most);
        }
        !*stop
    }

    /// Sleeps until the time has come, whatever wakes it; `false` when it is time to stop.
    pub(crate) fn sleep_until(&self, then: Instant) -> bool {
        let mut stop = self.stop.lock();
        while !*stop && !self.changed.wait_until(&mut stop, then).timed_out() {}
        !*stop
    }
}

impl Threads {
    /// No threads yet; see [`Threads::start`].
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Threads { store: store.clone(), handles: Vec::new() }
    }

    /// Starts those that the store's options ask for.
    pub(crate) fn start(&mut self) -> std::io::Result<()> {
        if !self.store.options.background_threads {
            return Ok(());
        }
        for first in 0..FLUSHERS {
            self.spawn("cask-flush", move |store| flush(store, first))?;
        }
        self.spawn("cask-seal", seal)?;
        if let SyncPolicy::Every(interval) = self.store.options.sync {
            self.spawn("cask-sync", move |store| sync(store, interval))?;
        }
        if self.store.options.compaction.automatic {
            self.spawn("cask-compact", compact)?;
        }
        Ok(())
    }

    fn spawn(
        &mut self,
        name: &str,
        run: impl FnOnce(&Store) + Send + 'static,
    ) -> std::io::Result<()> {
        let store = self.store.clone();
        let thread = std::thread::Builder::new().name(name.to_owned());
        self.handles.push(thread.spawn(move || run(&store))?);
        Ok(())
    }

    /// Stops all threads; what they were doing is finished or given up cleanly.
    pub(crate) fn stop(&mut self) {
        *self.store.wakeup.stop.lock() = true;
        self.store.wakeup.changed.notify_all();
        self.store.flush_wakeup.stop();
        for handle in self.handles.drain(..) {
            // A panic in there was printed by the thread; closing goes on all the same.
            let _ = handle.join();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Threads that write blocks to segments. Two keep the device busy while one of them copies.
const FLUSHERS: usize = 2;
/// How long a flusher waits for space to return on a full disk.
const FULL_DISK_PAUSE: Duration = Duration::from_millis(100);

fn flush(store: &Store, first: usize) {
    while store.flush_wakeup.wait() {
        let lanes = &store.lanes;
        for lane in lanes.iter().cycle().skip(first * lanes.len() / FLUSHERS).take(lanes.len()) {
            if !store.is_latched() && lane.flush_if_idle(store).is_err() {
                // Of a kind that latches, or of one that passes; writers are told either way.
                store.wakeup.sleep_until(Instant::now() + FULL_DISK_PAUSE);
                store.flush_wakeup.notify();
            }
        }
    }
}

fn seal(store: &Store) {
    // Woken by rotation; the time limit only retries what a full disk prevented.
    while store.wakeup.sleep(Duration::from_secs(1)) {
        // A store that never fills a segment needs no spares.
        if !store.immutable.lock().is_empty() {
            let _ = store.prepare_spares();
        }
        let _ = store.seal_immutable();
    }
}

fn sync(store: &Store, interval: Duration) {
    let mut next = Instant::now() + interval;
    while store.wakeup.sleep_until(next) {
        let _ = store.flush();
        next = Instant::now() + interval;
    }
}

fn compact(store: &Store) {
    let options = store.options.compaction;
    while store.wakeup.sleep_until(Instant::now() + options.interval) {
        let _ = store.compact(&mut Pace::new(options.bytes_per_second));
    }
}
