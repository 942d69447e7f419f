//! Background work of a database in addition to that of its log: periodic syncs, compaction.
//!
//! Errors here have no caller. Those that matter latch the store, so the next write reports them.

use super::compaction::Pace;
use super::store::Store;
use crate::options::{Options, SyncPolicy};
use std::time::{Duration, Instant};
use tierce_storage::log::threads::Threads;

/// Starts the threads that the store's options ask for.
pub(super) fn start(threads: &mut Threads<Store>, options: &Options) -> std::io::Result<()> {
    threads.start()?;
    if !options.background_threads {
        return Ok(());
    }
    if let SyncPolicy::Every(interval) = options.sync {
        threads.spawn("cask-sync", move |store| sync(store, interval))?;
    }
    if options.compaction.automatic {
        threads.spawn("cask-compact", compact)?;
    }
    Ok(())
}

fn sync(store: &Store, interval: Duration) {
    let mut next = Instant::now() + interval;
    while store.files.wakeup.sleep_until(next) {
        let _ = store.files.sync(store);
        next = Instant::now() + interval;
    }
}

fn compact(store: &Store) {
    let options = store.options.compaction;
    while store.files.wakeup.sleep_until(Instant::now() + options.interval) {
        let _ = store.compact(&mut Pace::new(options.bytes_per_second));
    }
}
