//! The thread that has the log reach the device.
//!
//! It works when somebody waits, and under `everysec` once a second. One sync serves all who wait:
//! those who come while it is underway form the next group. Nobody else waits for a device.

use std::io;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::journal::Journal;
use super::policy::SyncPolicy;
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
    let mut synced = Instant::now();
    // Up to here sessions know that they need not wait any more.
    let mut announced = 0;
    loop {
        let patience = INTERVAL.saturating_sub(synced.elapsed());
        let Some(wanted) = journal.await_demand(announced, patience) else { return };
        let Some(server) = server.upgrade() else { return };
        let mut is_due = false;
        if synced.elapsed() >= INTERVAL {
            synced = Instant::now();
            is_due = server.config.live().appendfsync() != SyncPolicy::No;
        }
        let durable = journal.durable();
        if wanted > durable {
            // Where all cores are busy, workers may get to append more meanwhile, which then joins the
            // group: replies to the group before come back as requests. On an idle core this returns at once.
            thread::yield_now();
            sync(journal, &server, "aof-fsync-always");
        } else if is_due && durable < journal.appended() {
            sync(journal, &server, "aof-fsync-everysec");
        }
        if wanted > announced {
            // Even if the sync failed: sessions that wait for the device then end without replies.
            announced = wanted.max(journal.durable());
            server.post_to_all(&Message::Durable);
        }
    }
}

fn sync(journal: &Journal, server: &Server, event: &'static str) {
    let was_wounded = journal.is_wounded();
    let begun = Instant::now();
    let result = journal.sync();
    server.note_latency(event, begun.elapsed());
    if let Err(error) = result
        && !was_wounded
    {
        server
            .log
            .warning(format_args!("The log could not be synced, writes are refused: {error}"));
    }
}
