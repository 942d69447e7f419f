//! The thread that syncs the log.
//!
//! It syncs when a client waits, and under `everysec` once a second. One sync serves all waiting clients
//! (group commit); clients that come during a sync form the next group. No other thread waits for the device.
//! If a sync takes too long, writers wait (`exposure.rs`).

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::durable_log::DurableLog;
use super::host::{Severity, SyncHost};
use tierce_config::SyncPolicy;

/// Sync interval under `everysec`.
const INTERVAL: Duration = Duration::from_secs(1);

/// The thread; dropping it ends it.
pub(super) struct Syncer {
    durable_log: Arc<DurableLog>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    pub(super) fn start(
        durable_log: &Arc<DurableLog>,
        host: Arc<dyn SyncHost>,
    ) -> io::Result<Self> {
        durable_log.begin_syncing();
        let of_thread = Arc::clone(durable_log);
        let thread = thread::Builder::new().name("log-sync".into());
        let thread = thread.spawn(move || run(&of_thread, &*host))?;
        Ok(Self { durable_log: Arc::clone(durable_log), thread: Some(thread) })
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.durable_log.end_syncing();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(durable_log: &DurableLog, host: &dyn SyncHost) {
    durable_log.exposure.note_safe(durable_log.exposure.now_ms());
    let mut synced = Instant::now();
    // Position up to which the sessions were told that they need not wait.
    let mut announced = 0;
    loop {
        let patience = INTERVAL.saturating_sub(synced.elapsed());
        let Some(wanted) = durable_log.await_demand(announced, patience) else { break };
        let mut is_due = false;
        if synced.elapsed() >= INTERVAL {
            synced = Instant::now();
            is_due = is_due_every_second(durable_log, host);
        }
        let now_ms = durable_log.exposure.now_ms();
        let durable = durable_log.durable();
        if wanted > durable {
            // On a busy machine, this lets workers append more records, which join the group: clients answer
            // earlier replies with new requests. On an idle core this returns at once.
            thread::yield_now();
            sync(durable_log, host, "aof-fsync-always");
        } else if durable >= durable_log.appended() {
            durable_log.exposure.note_safe(now_ms);
            release(host, durable_log.exposure.rest());
        } else if is_due {
            sync(durable_log, host, "aof-fsync-everysec");
        }
        if wanted > announced {
            // Wake the sessions even if the sync failed: those that wait for it then end without replies.
            announced = wanted.max(durable_log.durable());
            host.device_reached();
        }
    }
    release(host, durable_log.exposure.rest());
}

/// Returns true if any client relies on periodic syncs.
fn is_due_every_second(durable_log: &DurableLog, host: &dyn SyncHost) -> bool {
    durable_log.exposure.take_guarantee() || host.sync_policy() != SyncPolicy::No
}

fn sync(durable_log: &DurableLog, host: &dyn SyncHost, event: &'static str) {
    let had_write_error = durable_log.has_write_error();
    let begun = Instant::now();
    let begun_ms = durable_log.exposure.begin_sync();
    let result = durable_log.sync();
    host.note_latency(event, begun.elapsed());
    let another_follows = host.sync_policy() != SyncPolicy::No;
    release(host, durable_log.exposure.end_sync(begun_ms, result.is_ok(), another_follows));
    if let Err(error) = result
        && !had_write_error
    {
        let line = format_args!("The log could not be synced, writes are refused: {error}");
        host.tell(Severity::Warning, line);
    }
}

/// Wakes writers that have waited for `held`, if there are any.
fn release(host: &dyn SyncHost, held: Option<Duration>) {
    let Some(held) = held else { return };
    host.note_latency("aof-write-pending-fsync", held);
    host.writers_go_on();
}
