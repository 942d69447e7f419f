//! The thread that has the log reach the device.
//!
//! It works when somebody waits, and under `everysec` once a second. One sync serves all who wait:
//! those who come while it is underway form the next group. No other thread waits for a device; where a
//! sync takes too long, sessions do that write (`exposure.rs`).

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::host::{Severity, SyncHost};
use super::journal::Journal;
use crate::config::SyncPolicy;

/// Under `everysec`.
const INTERVAL: Duration = Duration::from_secs(1);

/// The thread; dropping it ends it.
pub(super) struct Syncer {
    journal: Arc<Journal>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    pub(super) fn start(journal: &Arc<Journal>, host: Arc<dyn SyncHost>) -> io::Result<Self> {
        journal.begin_syncing();
        let of_thread = Arc::clone(journal);
        let thread = thread::Builder::new().name("log-sync".into());
        let thread = thread.spawn(move || run(&of_thread, &*host))?;
        Ok(Self { journal: Arc::clone(journal), thread: Some(thread) })
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.journal.end_syncing();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(journal: &Journal, host: &dyn SyncHost) {
    journal.exposure.note_safe(journal.exposure.now_ms());
    let mut synced = Instant::now();
    // Up to here sessions know that they need not wait any more.
    let mut announced = 0;
    loop {
        let patience = INTERVAL.saturating_sub(synced.elapsed());
        let Some(wanted) = journal.await_demand(announced, patience) else { break };
        let mut is_due = false;
        if synced.elapsed() >= INTERVAL {
            synced = Instant::now();
            is_due = is_due_every_second(journal, host);
        }
        let now_ms = journal.exposure.now_ms();
        let durable = journal.durable();
        if wanted > durable {
            // Where all cores are busy, workers may get to append more meanwhile, which then joins the
            // group: replies to the group before come back as requests. On an idle core this returns at once.
            thread::yield_now();
            sync(journal, host, "aof-fsync-always");
        } else if durable >= journal.appended() {
            journal.exposure.note_safe(now_ms);
            release(host, journal.exposure.rest());
        } else if is_due {
            sync(journal, host, "aof-fsync-everysec");
        }
        if wanted > announced {
            // Even if the sync failed: sessions that wait for the device then end without replies.
            announced = wanted.max(journal.durable());
            host.device_reached();
        }
    }
    release(host, journal.exposure.rest());
}

/// Whether anybody was promised that a power cut loses at most the writes of a moment.
fn is_due_every_second(journal: &Journal, host: &dyn SyncHost) -> bool {
    journal.exposure.take_promise() || host.sync_policy() != SyncPolicy::No
}

fn sync(journal: &Journal, host: &dyn SyncHost, event: &'static str) {
    let was_wounded = journal.is_wounded();
    let begun = Instant::now();
    let begun_ms = journal.exposure.begin_sync();
    let result = journal.sync();
    host.note_latency(event, begun.elapsed());
    let another_follows = host.sync_policy() != SyncPolicy::No;
    release(host, journal.exposure.end_sync(begun_ms, result.is_ok(), another_follows));
    if let Err(error) = result
        && !was_wounded
    {
        let line = format_args!("The log could not be synced, writes are refused: {error}");
        host.tell(Severity::Warning, line);
    }
}

/// Has writers go on that were held back for so long, if there are any.
fn release(host: &dyn SyncHost, held: Option<Duration>) {
    let Some(held) = held else { return };
    host.note_latency("aof-write-pending-fsync", held);
    host.writers_go_on();
}
