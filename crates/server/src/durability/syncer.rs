//! The thread that has the log reach the device.
//!
//! It works when somebody waits, and under `everysec` once a second. One sync serves all who wait:
//! those who come while it is underway form the next group. No other thread waits for a device; where a
//! sync takes too long, sessions do that write (`exposure.rs`).

use std::io;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::journal::Journal;
use crate::config::SyncPolicy;
use crate::server::Server;
use crate::service::Message;

/// Under `everysec`.
const INTERVAL: Duration = Duration::from_secs(1);

/// The thread; dropping it ends it.
pub(super) struct Syncer {
    journal: Arc<Journal>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    pub(super) fn start(journal: &Arc<Journal>, server: &Arc<Server>) -> io::Result<Self> {
        journal.begin_syncing();
        let (of_thread, weak) = (Arc::clone(journal), Arc::downgrade(server));
        let thread = thread::Builder::new().name("log-sync".into());
        let thread = thread.spawn(move || run(&of_thread, &weak))?;
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

fn run(journal: &Journal, server: &Weak<Server>) {
    journal.exposure.note_safe(journal.exposure.now_ms());
    let mut synced = Instant::now();
    // Up to here sessions know that they need not wait any more.
    let mut announced = 0;
    loop {
        let patience = INTERVAL.saturating_sub(synced.elapsed());
        let Some(wanted) = journal.await_demand(announced, patience) else { break };
        let Some(server) = server.upgrade() else { return };
        let mut is_due = false;
        if synced.elapsed() >= INTERVAL {
            synced = Instant::now();
            is_due = is_due_every_second(journal, &server);
        }
        let now_ms = journal.exposure.now_ms();
        let durable = journal.durable();
        if wanted > durable {
            // Where all cores are busy, workers may get to append more meanwhile, which then joins the
            // group: replies to the group before come back as requests. On an idle core this returns at once.
            thread::yield_now();
            sync(journal, &server, "aof-fsync-always");
        } else if durable >= journal.appended() {
            journal.exposure.note_safe(now_ms);
            release(&server, journal.exposure.rest());
        } else if is_due {
            sync(journal, &server, "aof-fsync-everysec");
        }
        if wanted > announced {
            // Even if the sync failed: sessions that wait for the device then end without replies.
            announced = wanted.max(journal.durable());
            server.post_to_all(&Message::Durable);
        }
    }
    if let Some(server) = server.upgrade() {
        release(&server, journal.exposure.rest());
    }
}

/// Whether anybody was promised that a power cut loses at most the writes of a moment.
fn is_due_every_second(journal: &Journal, server: &Server) -> bool {
    journal.exposure.take_promise() || server.config.live().appendfsync() != SyncPolicy::No
}

fn sync(journal: &Journal, server: &Server, event: &'static str) {
    let was_wounded = journal.is_wounded();
    let begun = Instant::now();
    let begun_ms = journal.exposure.begin_sync();
    let result = journal.sync();
    server.note_latency(event, begun.elapsed());
    let another_follows = server.config.live().appendfsync() != SyncPolicy::No;
    release(server, journal.exposure.end_sync(begun_ms, result.is_ok(), another_follows));
    if let Err(error) = result
        && !was_wounded
    {
        server
            .log
            .warning(format_args!("The log could not be synced, writes are refused: {error}"));
    }
}

/// Has writers go on that were held back for so long, if there are any.
fn release(server: &Server, held: Option<Duration>) {
    let Some(held) = held else { return };
    server.note_latency("aof-write-pending-fsync", held);
    server.post_to_all(&Message::Resume);
}
