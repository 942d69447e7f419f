//! Active expiry and lazy freeing, on a thread of its own.
//!
//! The reaper sleeps until the earliest deadline of all shards and then removes expired data, shard by shard, in the
//! order of their deadlines. It locks a shard for at most [`EXPIRE_BATCH`] keys, so requests are hardly delayed. Once
//! an hour it visits all entries, a few in each turn ([`crate::services::aging`]). Without due work it uses no
//! processor time.
//!
//! With much to do it rests three times as long as it works, so that it takes a quarter of a core at most, as Redis
//! does. Without rests it would hold some shard's lock almost always, and whenever the kernel preempts it, workers wait
//! for that shard until it runs again. It does not rest while memory is short, or while keys stay for [`LATE_MS`] too
//! long: then they expire faster than they are removed, and memory would grow without bound.
//!
//! It waits for no busy shard, since a script may keep one locked without end: it skips the shard, and retries.
//!
//! Expiry does not depend on the reaper: an expired key is always invisible. The reaper frees the memory and triggers
//! the events on time.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use crate::access::expire::expire_next;
use crate::access::hash_deadlines::expire_next_fields;
use crate::access::keyspace::Keyspace;
use crate::access::shard::Held;
use crate::access::shard_locks::ShardLocks;
use crate::clock::Clock;
use crate::data::deadline::NO_DEADLINE;
use crate::db_index::DbIndex;
use crate::interleaving;
use crate::registries::reaper_wakeup::Left;
use crate::services::aging::age_some;
use crate::services::evict::{Evicted, evict};
use crate::services::invalidation::trim_cached_keys;
use crate::services::waiters::forget_others;
use crate::services::watch::end_dropped;

/// Maximum number of deadlines handled under one lock: some microseconds, unless many values are large.
const EXPIRE_BATCH: usize = 32;

/// Bounds of the time for which expired data is removed between two rests; its end is that of a lock period as well.
/// It is longer than the minimum after a rest that was too long, as on a busy machine.
const WORK_MIN: Duration = Duration::from_micros(100);
const WORK_MAX: Duration = Duration::from_millis(1);

/// Duration of a round without rests. It is long, so that more keys are expired than evicted.
const WORK_URGENT: Duration = Duration::from_millis(5);

/// Ratio of rest to work.
const REST_SHARE: u32 = 3;

/// Time after their deadlines for which keys may stay, before the reaper stops resting.
const LATE_MS: i64 = 10_000;

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
    let (mut shard, mut work) = (0, WORK_MIN);
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
        let is_urgent = is_urgent(keyspace, now_ms);
        let work_max = if is_urgent { WORK_URGENT } else { mem::replace(&mut work, WORK_MIN) };
        let begun = interleaving::now();
        let worked = || interleaving::now().saturating_duration_since(begun);
        let expired = expire_some(&mut locks, now_ms, &mut shard, &mut || worked() >= work_max);
        let nanos = worked().as_nanos() as u64;
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
            if !is_urgent {
                let begun = interleaving::now();
                interleaving::sleep(WORK_MIN * REST_SHARE);
                let rested = interleaving::now().saturating_duration_since(begun);
                work = (rested / REST_SHARE).clamp(WORK_MIN, WORK_MAX);
            }
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

/// Returns true if expired data must go as fast as possible.
fn is_urgent(keyspace: &Keyspace, now_ms: i64) -> bool {
    let is_late = |deadline_ms: i64| deadline_ms < now_ms.saturating_sub(LATE_MS);
    keyspace.is_short_of_memory() || keyspace.next_deadline_ms().is_some_and(is_late)
}

/// Removes all expired keys, as the reaper does; for keyspaces without one. The lock of a shard is released after
/// every few keys.
pub fn expire_due(locks: &mut ShardLocks<'_>, now_ms: i64) {
    expire_some(locks, now_ms, &mut 0, &mut || false);
}

/// Does rounds over all shards, beginning at `first`, a batch of keys from each; until nothing is left, or `is_over`,
/// which is asked after each key. `first` becomes the shard at which to continue.
fn expire_some(
    locks: &mut ShardLocks<'_>,
    now_ms: i64,
    first: &mut usize,
    is_over: &mut impl FnMut() -> bool,
) -> Left {
    let keyspace = locks.keyspace();
    loop {
        let mut left = Left::Nothing;
        if keyspace.is_following() {
            return left;
        }
        for index in (*first..keyspace.shard_count()).chain(0..*first) {
            let times = [&keyspace.next_deadlines_ms, &keyspace.next_field_deadlines_ms];
            if times.iter().all(|times| times[index].load(Ordering::Relaxed) > now_ms) {
                continue;
            }
            let left_there = match locks.try_reach_shard(index) {
                true => expire_shard(locks, index, now_ms, is_over),
                false => Left::Busy,
            };
            left = left.max(left_there);
            locks.release();
            if is_over() {
                *first = (index + 1) % keyspace.shard_count();
                return Left::Something;
            }
        }
        if left != Left::Something {
            return left;
        }
    }
}

/// Removes expired keys of one shard, in the order of their deadlines, until none is left, [`EXPIRE_BATCH`] heap items
/// were handled, or `is_over`.
fn expire_shard(
    locks: &mut ShardLocks<'_>,
    index: usize,
    now_ms: i64,
    is_over: &mut impl FnMut() -> bool,
) -> Left {
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
        if is_over() {
            break;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::keyspace::Options;
    use crate::change::event::{EventBatch, EventClasses, EventSink};
    use crate::data::expiry::Expiry;
    use crate::registries::pressure::Eviction;

    const NOW_MS: i64 = 1_700_000_000_000;

    /// Numbers of keys that expired under one lock each.
    #[derive(Clone, Default)]
    struct Periods(Arc<Mutex<Vec<usize>>>);

    impl EventSink for Periods {
        fn deliver(&self, events: &EventBatch<'_>) {
            self.0.lock().push(events.iter().count());
        }
    }

    fn with_expired(keys: usize, shards: usize) -> (Keyspace, Periods) {
        let keyspace = Keyspace::new(Options { shards, ..Options::default() }).unwrap();
        let periods = Periods::default();
        keyspace.set_event_sink(periods.clone());
        keyspace.set_event_classes(EventClasses::EXPIRED);
        for number in 0..keys {
            let name = number.to_string();
            let key = keyspace.key(name.as_bytes());
            let mut locks = keyspace.locks();
            let mut db = locks.db(DbIndex::ZERO, key.hash(), NOW_MS - 1);
            db.set(key, b"", Expiry::At(NOW_MS)).unwrap();
        }
        (keyspace, periods)
    }

    #[test]
    fn a_round_ends_when_its_time_is_over_and_the_next_goes_on_with_other_shards() {
        const KEYS: usize = 4000;
        let (keyspace, periods) = with_expired(KEYS, 4);
        let mut first = 0;
        // A round has time for 40 keys: a whole batch, and a part of one.
        for round in 1..=KEYS / 40 / 4 {
            let mut checks = 0;
            // Each lock period is followed by another check.
            let mut is_over = || {
                checks += 1;
                checks > 40
            };
            let left = expire_some(&mut keyspace.locks(), NOW_MS, &mut first, &mut is_over);
            assert_eq!((left, first), (Left::Something, round * 2 % 4));
        }
        assert!(periods.0.lock().iter().all(|keys| [EXPIRE_BATCH, 8].contains(keys)));
        let left = expire_some(&mut keyspace.locks(), NOW_MS, &mut first, &mut || false);
        assert_eq!((left, keyspace.total_len()), (Left::Nothing, 0));
        let mut periods = mem::take(&mut *periods.0.lock());
        assert_eq!(periods.iter().sum::<usize>(), KEYS);
        assert_eq!(periods.drain(..).max(), Some(EXPIRE_BATCH));
    }

    #[test]
    fn the_reaper_rests_unless_memory_is_short_or_keys_are_late() {
        let (keyspace, _) = with_expired(1, 1);
        assert!(!is_urgent(&keyspace, NOW_MS + LATE_MS));
        assert!(is_urgent(&keyspace, NOW_MS + LATE_MS + 1));
        keyspace.set_eviction(&Eviction { limit_bytes: 1, ..Eviction::default() });
        assert!(is_urgent(&keyspace, NOW_MS));
        expire_due(&mut keyspace.locks(), NOW_MS);
        keyspace.set_eviction(&Eviction::default());
        assert!(!is_urgent(&keyspace, NOW_MS + LATE_MS + 1));
    }
}
