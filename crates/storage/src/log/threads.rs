//! Background work of a log: flushing and sealing.
//!
//! Errors here have no caller. Those that matter latch the log, so the next write reports them.

use super::files::{LogFiles, Owner, Wakeup};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The threads of an open log and of its owner.
pub struct Threads<O: Owner> {
    owner: Arc<O>,
    handles: Vec<JoinHandle<()>>,
}

impl Wakeup {
    /// Sleeps until woken, at most this long. Returns `false` when it is time to stop.
    pub fn sleep(&self, at_most: Duration) -> bool {
        let mut stop = self.stop.lock();
        if !*stop {
            self.changed.wait_for(&mut stop, at_most);
        }
        !*stop
    }

    /// Sleeps until this time, whatever wakes it. Returns `false` when it is time to stop.
    pub fn sleep_until(&self, then: Instant) -> bool {
        let mut stop = self.stop.lock();
        while !*stop && !self.changed.wait_until(&mut stop, then).timed_out() {}
        !*stop
    }
}

impl<O: Owner> Threads<O> {
    /// Creates the set without threads; see [`Threads::start`].
    pub fn new(owner: &Arc<O>) -> Self {
        Threads { owner: owner.clone(), handles: Vec::new() }
    }

    /// Starts the threads that every log has, if the options ask for threads.
    pub fn start(&mut self) -> std::io::Result<()> {
        if !self.owner.files().options.background_threads {
            return Ok(());
        }
        for first in 0..FLUSHERS {
            self.spawn("log-flush", move |owner| flush(owner, first))?;
        }
        self.spawn("log-seal", seal)
    }

    pub fn spawn(
        &mut self,
        name: &str,
        run: impl FnOnce(&O) + Send + 'static,
    ) -> std::io::Result<()> {
        let owner = self.owner.clone();
        let thread = std::thread::Builder::new().name(name.to_owned());
        self.handles.push(thread.spawn(move || run(&owner))?);
        Ok(())
    }

    /// Stops all threads; their work is finished or aborted cleanly.
    pub fn stop(&mut self) {
        let LogFiles { wakeup, flush_wakeup, .. } = self.owner.files();
        *wakeup.stop.lock() = true;
        wakeup.changed.notify_all();
        flush_wakeup.stop();
        for handle in self.handles.drain(..) {
            // A panic in it was printed by the thread; closing continues anyway.
            let _ = handle.join();
        }
    }
}

impl<O: Owner> Drop for Threads<O> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Threads that write blocks to segments. Two keep the device busy while one of them copies.
const FLUSHERS: usize = 2;
/// Time that a flusher waits for space on a full disk.
const FULL_DISK_PAUSE: Duration = Duration::from_millis(100);

fn flush(owner: &impl Owner, first: usize) {
    let files = owner.files();
    while files.flush_wakeup.wait() {
        let appenders = &files.appenders;
        for appender in
            appenders.iter().cycle().skip(first * appenders.len() / FLUSHERS).take(appenders.len())
        {
            if !files.is_latched() && appender.flush_if_idle(owner).is_err() {
                // The failure is transient or has latched the store; writers learn of it either
                // way.
                files.wakeup.sleep_until(Instant::now() + FULL_DISK_PAUSE);
                files.flush_wakeup.notify();
            }
        }
    }
}

fn seal(owner: &impl Owner) {
    let files = owner.files();
    // Rotation wakes it; the time limit only retries after a full disk.
    while files.wakeup.sleep(Duration::from_secs(1)) {
        // A log that never fills a segment needs no spares.
        if !files.immutable.lock().is_empty() {
            let _ = files.prepare_spares(owner);
        }
        let _ = files.seal_immutable(owner);
    }
}
