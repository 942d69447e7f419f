//! The thread that moves cold values to disk before memory runs short.
//!
//! It begins when less than [`BEGIN`] of the limit is free and continues until [`END`] of it is, so that it writes
//! values in large batches. Values that are on disk already are only dropped from memory.
//!
//! As under every other policy, the limit applies to counted memory. Moving more values does not reduce the rest:
//! buffers, and holes in pages that are in use, which the allocator cannot return. [`crate::memory`] makes threads
//! return memory where possible.
//!
//! When it is idle it cleans up. It removes segments without live values once the log that no longer refers to them is
//! durable. Before that a crash would bring the old state back. It also waits for a running snapshot, which may need
//! them. If less than half of a segment is live, it moves the live values elsewhere. So the disk holds at most about
//! twice the live data.
//!
//! **A full disk.** Values are not moved to a disk that has little more space than the store's reserve and compaction
//! of the log need. So deletes are still logged there, and segments can be cleaned, as many at a time as fit.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tierce_keyspace::{
    Cleaning, Keyspace, Policy, SHARD_PATIENCE, SpillBatch, gather_cold, leave_to_disk,
};
use tierce_storage::{ColdLimits, ColdStore, Durable, Origin};

use super::Demand;
use crate::durability::{DurableLog, Operator, Severity};

/// Parts of the limit, as divisors. The range between the two holds a few writes' values at a small limit of 40 MB. At
/// most a 32nd of the limit stays unused for data.
const BEGIN: u64 = 64;
const END: u64 = 32;

/// Approximate size of a batch of values.
const BATCH_BYTES: usize = 1 << 20;

/// Number of shard visits without a value to move after which the search ends.
const VAIN_LOOKS_MAX: usize = 2048;

/// Maximum duration of one round of moving values, because there are segments to clean, too.
const ROUND: Duration = Duration::from_millis(25);

/// Interval of memory checks without a request.
const CHECK_EVERY: Duration = Duration::from_millis(5);

/// Interval of memory checks without a limit, or under another policy.
const IDLE_CHECK_EVERY: Duration = Duration::from_millis(200);

/// Interval of segment checks.
const CLEAN_EVERY: Duration = Duration::from_millis(500);

/// Pause when nothing in memory can be moved.
const PAUSE_IN_VAIN: Duration = Duration::from_millis(100);

/// Pause after a failure of the disk.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Time to wait for values in busy shards before writers are told that nothing can be moved.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);

/// Pause after a failed attempt to pass all shards before a removal of segments.
const PAUSE_OF_REMOVAL: Duration = Duration::from_secs(5);

/// Pauses between two cleaning passes when the first one left out busy shards: the segments are as sparse as before.
/// The pause doubles with each such pass.
const CLEAN_BUSY_EVERY: Range<Duration> = Duration::from_secs(1)..Duration::from_secs(30);

/// Live part of a segment below which it is cleaned.
const SPARSE: f64 = 0.5;

/// Divisor of the segments: a pass over all keys is worthwhile when at least this part of them can be cleaned.
const SPARSE_PART: u64 = 8;

/// Inputs of the thread.
pub(super) struct Work {
    pub(super) keyspace: Arc<Keyspace>,
    pub(super) durable_log: Arc<DurableLog>,
    pub(super) demand: Arc<Demand>,
    /// Upper bounds of a single write.
    pub(super) limits: ColdLimits,
    /// The receiver of failures.
    pub(super) operator: Arc<dyn Operator>,
}

/// The thread; dropping it ends it.
pub(super) struct Spiller {
    demand: Arc<Demand>,
    thread: Option<JoinHandle<()>>,
}

impl Spiller {
    pub(super) fn start(work: Work) -> io::Result<Self> {
        let demand = Arc::clone(&work.demand);
        demand.set_end(false);
        let thread = thread::Builder::new().name("spiller".into());
        let thread = thread.spawn(move || run(&work))?;
        Ok(Self { demand, thread: Some(thread) })
    }
}

impl Drop for Spiller {
    fn drop(&mut self) {
        self.demand.set_end(true);
        if let Some(thread) = self.thread.take() {
            // The panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// State of the thread between rounds.
struct SpillerState {
    batch: SpillBatch,
    cleaning: Option<Cleaning>,
    cleaned: Instant,
    /// Earliest time of the next pass over all keys, and the pause that it follows.
    cleans_again: Instant,
    clean_pause: Duration,
    /// Earliest time of the next removal of segments.
    removes_again: Instant,
    /// Time since when only values in busy shards could be moved.
    busy_since: Option<Instant>,
    has_failed: bool,
    /// Counted memory when nothing could be moved. While it is unchanged, hardly anything can.
    vain_at: Option<u64>,
}

impl SpillerState {
    fn new(work: &Work) -> Self {
        Self {
            batch: SpillBatch::with_limits(work.limits),
            cleaning: None,
            cleaned: Instant::now(),
            cleans_again: Instant::now(),
            clean_pause: Duration::ZERO,
            removes_again: Instant::now(),
            busy_since: None,
            has_failed: false,
            vain_at: None,
        }
    }
}

fn run(work: &Work) {
    let mut state = None;
    loop {
        let Some(store) = work.keyspace.cold_store() else { return };
        let state = state.get_or_insert_with(|| SpillerState::new(work));
        let eviction = work.keyspace.eviction();
        let is_active = eviction.policy == Policy::Spill && eviction.limit_bytes > 0;
        let mut patience = if is_active { CHECK_EVERY } else { IDLE_CHECK_EVERY };
        if is_active {
            let limit = eviction.limit_bytes;
            if work.keyspace.told_memory() > limit - limit / BEGIN {
                patience = make_room(work, store, state, limit - limit / END);
            } else {
                work.demand.is_stuck.store(false, Relaxed);
            }
        } else {
            work.demand.is_stuck.store(false, Relaxed);
        }
        if state.cleaning.is_some() || state.cleaned.elapsed() >= CLEAN_EVERY {
            state.cleaned = Instant::now();
            if clean(work, store, state) {
                patience = Duration::ZERO;
            }
        }
        if work.demand.await_call(patience) {
            return;
        }
    }
}

/// Moves values to disk until memory is at `target`. Returns how long to wait afterwards.
fn make_room(work: &Work, store: &ColdStore, state: &mut SpillerState, target: u64) -> Duration {
    let begun = Instant::now();
    let told = work.keyspace.told_memory();
    // The search costs much, and a server may be this full for days.
    if state.vain_at == Some(told) && !work.keyspace.is_short_of_memory() {
        work.demand.is_stuck.store(false, Relaxed);
        return PAUSE_IN_VAIN;
    }
    state.vain_at = None;
    loop {
        let Found { count: found, has_met_busy } = gather(work, &mut state.batch, target);
        let spilled = match write(work, store, &mut state.batch, Origin::Memory) {
            Ok(spilled) => spilled,
            Err(error) => {
                let makes_room = error.is_no_space() && log_makes_room(work, store);
                if !makes_room {
                    fail(work, state, &error);
                }
                return PAUSE_AFTER_FAILURE;
            }
        };
        state.has_failed = false;
        let is_short = work.keyspace.is_short_of_memory();
        let is_vain = found == 0 && spilled == 0;
        state.busy_since = match is_vain && has_met_busy {
            true => state.busy_since.or_else(|| Some(Instant::now())),
            false => None,
        };
        let may_go_soon = state.busy_since.is_some_and(|since| since.elapsed() < BUSY_PATIENCE);
        let is_stuck = is_vain && is_short && !may_go_soon;
        work.demand.is_stuck.store(is_stuck, Relaxed);
        if work.keyspace.told_memory() <= target {
            return CHECK_EVERY;
        }
        if found == 0 {
            // Collections of a snapshot can be moved when it ends, and so can values in busy shards.
            let may_change = has_met_busy || work.keyspace.snapshot_memory().is_some();
            state.vain_at = (!may_change).then(|| work.keyspace.told_memory());
            return PAUSE_IN_VAIN;
        }
        // Under a constant load this loop would not end.
        if work.demand.calls.lock().ends || begun.elapsed() >= ROUND {
            return Duration::ZERO;
        }
    }
}

/// Result of [`gather`].
struct Found {
    /// Values that can be moved.
    count: usize,
    /// There may be more in shards that a program has locked, perhaps forever.
    has_met_busy: bool,
}

/// Drops values from memory that are on disk, and copies others into the batch.
fn gather(work: &Work, batch: &mut SpillBatch, target: u64) -> Found {
    let keyspace = &*work.keyspace;
    let now_ms = crate::clock::unix_ms();
    let mut locks = keyspace.locks();
    let (mut found, mut vain) = (Found { count: 0, has_met_busy: false }, 0);
    while batch.bytes() < BATCH_BYTES && vain < VAIN_LOOKS_MAX {
        if keyspace.told_memory() <= target + batch.bytes() as u64 {
            break;
        }
        let gathered = gather_cold(&mut locks, batch, now_ms);
        let count = gathered.copied + gathered.forgotten;
        vain = if count == 0 { vain + 1 } else { 0 };
        found.count += count;
        found.has_met_busy |= gathered.is_busy;
    }
    found
}

/// Writes the batch. Returns how many values are newly on disk.
fn write(
    work: &Work,
    store: &ColdStore,
    batch: &mut SpillBatch,
    origin: Origin,
) -> Result<usize, tierce_storage::Error> {
    if batch.is_empty() {
        return Ok(0);
    }
    // Without a log, a crash loses track of these values.
    let durable = if work.durable_log.may_refer() { Durable::Yes } else { Durable::No };
    leave_room_for_log(work, store);
    let spilled = store.write(batch.values(), durable, origin).map(|places| {
        let now_ms = crate::clock::unix_ms();
        leave_to_disk(&mut work.keyspace.locks(), batch, &places, now_ms)
    });
    batch.clear(2 * BATCH_BYTES);
    spilled
}

/// Makes the store leave free the space that compaction of the log needs.
fn leave_room_for_log(work: &Work, store: &ColdStore) {
    if let Some(space) = store.space() {
        store.leave_free(work.durable_log.room_for_compaction(&work.keyspace, space));
    }
}

/// Returns true if compaction of the log will free space; writers wait for it.
fn log_makes_room(work: &Work, store: &ColdStore) -> bool {
    store.space().is_some_and(|space| work.durable_log.makes_room(&work.keyspace, space))
}

fn fail(work: &Work, state: &mut SpillerState, error: &tierce_storage::Error) {
    if !std::mem::replace(&mut state.has_failed, true) {
        let line = format_args!("Values cannot be moved to disk: {error}");
        work.operator.tell(Severity::Warning, line);
    }
    work.demand.is_stuck.store(work.keyspace.is_short_of_memory(), Relaxed);
}

/// Removes and cleans segments. Returns true if there is more to clean at once.
fn clean(work: &Work, store: &ColdStore, state: &mut SpillerState) -> bool {
    if let Err(error) = remove_dead(work, store, state) {
        let line = format_args!("Old files of spilled values cannot be removed: {error}");
        work.operator.tell(Severity::Warning, line);
    }
    if state.cleaning.is_none() {
        leave_room_for_log(work, store);
        if let Err(error) = store.restore_reserve() {
            fail(work, state, &error);
        }
        let sparse = store.sparse(SPARSE);
        if Instant::now() < state.cleans_again
            || sparse.is_empty()
            || (sparse.len() as u64) < store.figures().segments / SPARSE_PART
        {
            return false;
        }
        let movable = store.movable(&sparse);
        if movable.is_empty() {
            return false;
        }
        state.cleaning = Some(Cleaning::begin(movable));
    }
    let Some(cleaning) = &mut state.cleaning else { return false };
    let stepped = cleaning.step(&work.keyspace, &mut state.batch, BATCH_BYTES);
    let has_met_busy = cleaning.has_met_busy();
    let written = write(work, store, &mut state.batch, Origin::Segments);
    match (stepped, written) {
        (Ok(true), Ok(_)) => return true,
        (Ok(false), Ok(_)) => {}
        (Err(error), _) | (_, Err(error)) => fail(work, state, &error),
    }
    state.clean_pause = match has_met_busy {
        true => (2 * state.clean_pause).clamp(CLEAN_BUSY_EVERY.start, CLEAN_BUSY_EVERY.end),
        false => Duration::ZERO,
    };
    state.cleans_again = Instant::now() + state.clean_pause;
    state.cleaning = None;
    false
}

/// Removes segments without live values. First it determines these segments, then checks that no older snapshot is
/// running, waits until all threads have logged the changes that made them dead, and syncs the log.
fn remove_dead(
    work: &Work,
    store: &ColdStore,
    state: &mut SpillerState,
) -> Result<(), tierce_storage::Error> {
    let dead = store.dead();
    let is_early = Instant::now() < state.removes_again;
    if dead.is_empty() || is_early || work.keyspace.snapshot_memory().is_some() {
        return Ok(());
    }
    // They stay if a program runs without end.
    if work.keyspace.impatient_long_locks(SHARD_PATIENCE).try_pass_shards(0).is_err() {
        state.removes_again = Instant::now() + PAUSE_OF_REMOVAL;
        return Ok(());
    }
    // A log that has failed, or is about to be replaced, may still refer to them, and the next start may have to rely
    // on it.
    if !work.durable_log.sync_if_complete()? {
        return Ok(());
    }
    store.remove(&dead)
}
