//! Active expiry and lazy freeing, on a thread of its own.
//!
//! The reaper sleeps until the earliest deadline of all shards and then removes expired data, shard by shard, in the
//! order of their deadlines. It locks a shard for at most [`EXPIRE_BATCH`] keys, so requests are hardly delayed. Once
//! an hour it visits all entries, a few in each turn ([`crate::services::aging`]). Without due work it uses no
//! processor time.
//!
//! It waits for no busy shard, since a script may keep one locked without end: it skips the shard, and retries.
//!
//! Expiry does not depend on the reaper: an expired key is always invisible. The reaper frees the memory and triggers
//! the events on time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::access::expire::expire_next;
use crate::access::hash_deadlines::expire_next_fields;
use crate::access::keyspace::Keyspace;
use crate::access::shard::Held;
use crate::access::shard_locks::ShardLocks;
use crate::clock::Clock;
use crate::data::deadline::NO_DEADLINE;
use crate::db_index::DbIndex;
use crate::registries::reaper_wakeup::Left;
use crate::services::aging::age_some;
use crate::services::evict::{Evicted, evict};
use crate::services::invalidation::trim_cached_keys;
use crate::services::waiters::forget_others;
use crate::services::watch::end_dropped;

/// Maximum number of deadlines handled under one lock: some microseconds.
const EXPIRE_BATCH: usize = 32;

/// Maximum number of keys evicted in a round, each under its own lock.
const EVICT_BATCH: usize = 64;

/// Minimum sleep between two rounds, so that a stream of keys with deadlines is handled in batches and not key by
/// key. Keys may expire this much late.
const GRANULARITY_MS: i64 = 2;

/// Time after which the reaper retries busy shards.
const RETRY_BUSY_MS: i64 = 10;

/// Maximum sleep while there are deadlines. It bounds the delay until the reaper notices that the machine's clock was
/// set forward.
const SLEEP_MS_MAX: i64 = 10_000;

/// The background thread of a [`Keyspace`]. Dropping it ends the thread.
#[derive(Debug)]
pub struct Reaper {
    keyspace: Arc<Keyspace>,
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
}

/// Requests to the thread.
#[derive(Debug, Default)]
struct Orders {
    ends: AtomicBool,
    /// Function to be called once.
    call: Mutex<Option<fn()>>,
}

impl Reaper {
    /// Starts the thread, which asks `clock` for the time. A keyspace needs only one reaper.
    ///
    /// # Errors
    ///
    /// If the operating system refuses a thread.
    pub fn start(keyspace: Arc<Keyspace>, clock: Arc<dyn Clock>) -> std::io::Result<Self> {
        let (mut reaper, body) = Self::prepare(keyspace, clock);
        reaper.thread = Some(thread::Builder::new().name("reaper".into()).spawn(body)?);
        Ok(reaper)
    }

    /// Returns a reaper without a thread, and the body of the thread: for simulations.
    #[doc(hidden)]
    pub fn prepare(
        keyspace: Arc<Keyspace>,
        clock: Arc<dyn Clock>,
    ) -> (Self, impl FnOnce() + Send + 'static) {
        let orders = Arc::<Orders>::default();
        keyspace.lazy_free().begin_collecting();
        let reaper =
            Self { keyspace: Arc::clone(&keyspace), orders: Arc::clone(&orders), thread: None };
        (reaper, move || run(&keyspace, &*clock, &orders))
    }

    /// Has the thread call this function soon: some allocators release a thread's freed memory only on request of
    /// that thread.
    pub fn call(&self, this: fn()) {
        *self.orders.call.lock() = Some(this);
        self.wake();
    }

    /// Makes the reaper read the clock again. Only for clocks that are set by hand: the reaper wakes by itself for
    /// earlier deadlines and for lazy-free items.
    pub fn wake(&self) {
        self.keyspace.reaper_wakeup.notify();
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.orders.ends.store(true, Ordering::Release);
        self.keyspace.reaper_wakeup.notify();
        if let Some(thread) = self.thread.take() {
            // A panic in a sink was reported when it happened.
            _ = thread.join();
        }
        self.keyspace.lazy_free().end_collecting();
    }
}

fn run(keyspace: &Keyspace, clock: &dyn Clock, orders: &Orders) {
    while !orders.ends.load(Ordering::Acquire) {
        while keyspace.lazy_free().free_one() {}
        let call = orders.call.lock().take();
        if let Some(call) = call {
            call();
        }
        let now_ms = clock.now_ms();
        let mut locks = keyspace.locks();
        let waiters_left = forget_others(&mut locks);
        let watches_left = end_dropped(&mut locks);
        if keyspace.cached.is_congested() {
            // The keys to remove are invisible, or can wait: removing them would add more notices.
            drop(locks);
            keyspace.reaper_wakeup.sleep(Duration::from_millis(GRANULARITY_MS as u64));
            continue;
        }
        let begun = Instant::now();
        let expired = expire_some(&mut locks, now_ms);
        let nanos = begun.elapsed().as_nanos() as u64;
        keyspace.expiry_nanos.fetch_add(nanos, Ordering::Relaxed);
        keyspace.longest_expiry_nanos.fetch_max(nanos, Ordering::Relaxed);
        let evicted = match keyspace.is_following() {
            false => evict(&mut locks, now_ms, EVICT_BATCH),
            true => Evicted::Nothing,
        };
        let trimmed = trim_cached_keys(&mut locks);
        let aged = age_some(&mut locks, now_ms);
        // Clients that waited for the removed keys are told now, not after the sleep.
        drop(locks);
        let left = [waiters_left, watches_left, expired, trimmed, aged];
        if left.contains(&Left::Something) || evicted == Evicted::Some {
            continue;
        }
        match left.contains(&Left::Busy) || evicted == Evicted::Later {
            true => keyspace.reaper_wakeup.sleep(Duration::from_millis(RETRY_BUSY_MS as u64)),
            false => sleep(keyspace, now_ms),
        }
    }
}

fn sleep(keyspace: &Keyspace, now_ms: i64) {
    let sleep_ms = sleep_ms(keyspace, now_ms);
    // A deadline less than the granularity before the end of the sleep can wait for it. The first deadline of all
    // always wakes the reaper: from then on it reads the clock more often.
    let is_watching = keyspace.next_deadline_ms().is_some();
    let until_ms = if is_watching { now_ms + sleep_ms - GRANULARITY_MS } else { NO_DEADLINE };
    keyspace.reaper_wakeup.announce_sleep(until_ms);
    if self::sleep_ms(keyspace, now_ms) >= sleep_ms && keyspace.lazy_free().is_empty() {
        keyspace.reaper_wakeup.sleep(Duration::from_millis(sleep_ms as u64));
    }
}

/// Returns the time to sleep: until the earliest deadline or the next round of aging, but not too long without
/// reading the clock.
fn sleep_ms(keyspace: &Keyspace, now_ms: i64) -> i64 {
    let aging_ms = keyspace.aging.due_in_ms(now_ms);
    let deadline_ms = keyspace
        .next_deadline_ms()
        .filter(|_| !keyspace.is_following())
        .map_or(i64::MAX, |deadline_ms| deadline_ms.saturating_sub(now_ms).min(SLEEP_MS_MAX));
    aging_ms.min(deadline_ms).max(GRANULARITY_MS)
}

/// Removes all expired keys, as the reaper does; for keyspaces without one. The lock of a shard is released after
/// every few keys.
pub fn expire_due(locks: &mut ShardLocks<'_>, now_ms: i64) {
    while expire_some(locks, now_ms) == Left::Something {}
}

/// Does one round over all shards, a batch of keys from each.
fn expire_some(locks: &mut ShardLocks<'_>, now_ms: i64) -> Left {
    let mut left = Left::Nothing;
    let keyspace = locks.keyspace();
    if keyspace.is_following() {
        return left;
    }
    let times = keyspace.next_deadlines_ms.iter().zip(&keyspace.next_field_deadlines_ms);
    for (index, (keys_ms, fields_ms)) in times.enumerate() {
        if keys_ms.load(Ordering::Relaxed).min(fields_ms.load(Ordering::Relaxed)) <= now_ms {
            let left_there = match locks.try_reach_shard(index) {
                true => expire_shard(locks, index, now_ms),
                false => Left::Busy,
            };
            left = left.max(left_there);
            locks.release();
        }
    }
    left
}

/// Removes expired keys of one shard, in the order of their deadlines, until none is left or [`EXPIRE_BATCH`] heap
/// items were handled.
fn expire_shard(locks: &mut ShardLocks<'_>, index: usize, now_ms: i64) -> Left {
    let keyspace = locks.keyspace();
    for _ in 0..EXPIRE_BATCH {
        let due = next_due(locks.held(index), now_ms);
        // By now another server may decide about expiry.
        let Some((db, what)) = due.filter(|_| !keyspace.is_following()) else { break };
        let mut db = locks.shard_db(index, db, now_ms);
        match what {
            Due::Key => expire_next(&mut db),
            Due::Fields => expire_next_fields(&mut db),
        }
    }
    let held = locks.held(index);
    keyspace.publish_next_deadline(held);
    let is_due = next_due(held, now_ms).is_some() && !keyspace.is_following();
    if is_due { Left::Something } else { Left::Nothing }
}

/// Kind of a due deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Key,
    Fields,
}

/// Returns the database of a shard with the earliest deadline, if that has passed, and its kind.
fn next_due(held: &Held<'_>, now_ms: i64) -> Option<(DbIndex, Due)> {
    let times = held.shard.dbs().flat_map(|(db, data)| {
        let key = data.deadlines.next_ms().map(|time_ms| (time_ms, db, Due::Key));
        let fields = data.field_deadlines.next_ms().map(|time_ms| (time_ms, db, Due::Fields));
        key.into_iter().chain(fields)
    });
    times.min().filter(|(deadline_ms, ..)| *deadline_ms <= now_ms).map(|(_, db, what)| (db, what))
}
