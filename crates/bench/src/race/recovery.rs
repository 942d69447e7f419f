//! The recovery phase: writers are killed repeatedly, and no acknowledged write may be lost.
//!
//! The writing process ([`writer`](super::writer)) gets SIGKILL after a random number of writes, sometimes while it
//! is still opening the store. Two times out of three the store is then opened here. Every key must have its last
//! acknowledged version. Only the one key that each thread was writing may have the next version. Point reads, a full
//! range and ranges with random bounds check this. Otherwise the next writer must recover the store.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::child::{self, Job, Task};
use super::dataset::{Dataset, Key};
use super::engine::Store;
use super::error::RaceError;
use super::plan::{Plan, remove_store};
use super::verify::{missing, show, wrong_value};
use super::writer::{KEYS_PER_THREAD, Notes};
use crate::random::Random;

/// Result of the recovery phase.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Recovery {
    pub(super) kills: u32,
    pub(super) acknowledged: u64,
    /// Number of times that the store was opened and compared here.
    pub(super) checks: u32,
    pub(super) open_seconds_max: f64,
    pub(super) seconds: f64,
}

/// Upper bound of a killed process' writes, so that many kills fit into a short time.
const WRITES_PER_KILL_MAX: u64 = 20_000;
/// One of this many kills comes while the writer opens the store or shortly after.
const EARLY_KILLS: u32 = 4;
/// Latest time of an early kill.
const EARLY_MS_MAX: u64 = 40;
/// Interval of reading the notes while waiting for the time to kill.
const LOOKED_EVERY: Duration = Duration::from_micros(500);
/// A store counts as hanging after this time without progress.
const STALLED_MAX: Duration = Duration::from_secs(60);
/// Number of ranges with random bounds in each comparison.
const RANGES: u32 = 16;

/// Runs the phase. Passes the number of kills to `tell`.
pub(super) fn run(plan: &Plan, mut tell: impl FnMut(u32)) -> Result<Recovery, RaceError> {
    remove_files(plan)?;
    let notes = Notes::open(&plan.acknowledged(), plan.threads)?;
    let start = Instant::now();
    let mut random = Random::new(plan.seed);
    let mut recovery = Recovery::default();
    for kill in 0..plan.kills {
        kill_a_writer(plan, &notes, kill, &mut random)?;
        recovery.kills += 1;
        let is_last = kill + 1 == plan.kills;
        if kill % 3 != 1 || is_last {
            let opening = compare(plan, &notes.read()?, &mut random)
                .map_err(|error| at_kill(&error, kill))?;
            recovery.checks += 1;
            recovery.open_seconds_max = recovery.open_seconds_max.max(opening.as_secs_f64());
        }
        tell(recovery.kills);
    }
    recovery.acknowledged = notes.read()?.iter().sum();
    recovery.seconds = start.elapsed().as_secs_f64();
    remove_files(plan)?;
    Ok(recovery)
}

fn at_kill(error: &RaceError, kill: u32) -> RaceError {
    let reason = format!("after kill {}: {error}", kill + 1);
    RaceError::Phase { phase: "recovery".into(), reason }
}

fn remove_files(plan: &Plan) -> Result<(), RaceError> {
    remove_store(&plan.killed_store())?;
    // The notes may not exist. If they cannot be removed, opening them fails with the reason.
    let _ = fs::remove_file(plan.acknowledged());
    Ok(())
}

/// Starts a writer and kills it at a random time.
fn kill_a_writer(
    plan: &Plan,
    notes: &Notes,
    kill: u32,
    random: &mut Random,
) -> Result<(), RaceError> {
    let before: u64 = notes.read()?.iter().sum();
    let job = Job { task: Task::WriteOn, plan: plan.clone() };
    let mut writer = child::start(&job)?;
    if kill % EARLY_KILLS == EARLY_KILLS - 1 {
        thread::sleep(Duration::from_millis(random.below(EARLY_MS_MAX)));
    } else {
        let goal = before + 1 + random.below(plan.keys().min(WRITES_PER_KILL_MAX));
        wait_for(notes, before, goal, &mut writer)?;
    }
    if has_ended(&mut writer)? {
        let reason = "the writer ended by itself; what it said is above".to_owned();
        return Err(RaceError::Phase { phase: "recovery".into(), reason });
    }
    let failed = |action| RaceError::io(action, Path::new("the writer"));
    writer.kill().map_err(failed("kill"))?;
    writer.wait().map_err(failed("wait for"))?;
    Ok(())
}

/// Waits until so many writes were recorded, or the writer has ended.
fn wait_for(notes: &Notes, before: u64, goal: u64, writer: &mut Child) -> Result<(), RaceError> {
    let (mut last, mut last_change) = (before, Instant::now());
    while last < goal && !has_ended(writer)? {
        thread::sleep(LOOKED_EVERY);
        let now = notes.read()?.iter().sum();
        if now != last {
            (last, last_change) = (now, Instant::now());
        } else if last_change.elapsed() > STALLED_MAX {
            // Killed here, because a parent that reports the stall would leave it running.
            let _ = writer.kill().and_then(|()| writer.wait());
            let reason = format!("the run is void: no write came back for {STALLED_MAX:?}");
            return Err(RaceError::Phase { phase: "recovery".into(), reason });
        }
    }
    Ok(())
}

fn has_ended(writer: &mut Child) -> Result<bool, RaceError> {
    let status = writer.try_wait().map_err(RaceError::io("wait for", Path::new("the writer")))?;
    Ok(status.is_some())
}

/// Allowed versions of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Allowed {
    /// Last acknowledged version; `None` if no write of the key was acknowledged.
    acknowledged: Option<u64>,
    /// Version that was being written at the kill.
    unfinished: Option<u64>,
}

impl Allowed {
    /// Returns the allowed versions of the key in slot `slot` of a thread that has recorded `writes`.
    fn new(writes: u64, slot: u64) -> Self {
        let of_key = (writes + KEYS_PER_THREAD - 1 - slot) / KEYS_PER_THREAD;
        let is_next = writes % KEYS_PER_THREAD == slot;
        Self {
            acknowledged: of_key.checked_sub(1),
            unfinished: is_next.then_some(writes / KEYS_PER_THREAD),
        }
    }

    fn has(self, dataset: &Dataset, key: Key, value: &[u8]) -> bool {
        let versions = [self.acknowledged, self.unfinished];
        versions.into_iter().flatten().any(|version| dataset.is_value(value, key, version))
    }
}

type Model = BTreeMap<Key, Allowed>;

fn model(dataset: &Dataset, notes: &[u64]) -> Model {
    let of_thread = |(thread, &writes): (usize, &u64)| {
        (0..KEYS_PER_THREAD).map(move |slot| {
            let number = thread as u64 * KEYS_PER_THREAD + slot;
            (dataset.key(number), Allowed::new(writes, slot))
        })
    };
    notes.iter().enumerate().flat_map(of_thread).collect()
}

/// Opens the store and compares all of it with the allowed versions. Returns the time of opening.
fn compare(plan: &Plan, notes: &[u64], random: &mut Random) -> Result<Duration, RaceError> {
    let dataset = plan.dataset();
    let model = model(&dataset, notes);
    let start = Instant::now();
    let store = Store::open(&plan.killed_store(), &plan.tuning.restless())?;
    let opening = start.elapsed();
    for (&key, allowed) in &model {
        let found = store.get(key, |value| allowed.has(&dataset, key, value))?;
        match found {
            Some(true) => {}
            Some(false) => return Err(wrong_value(key)),
            None if allowed.acknowledged.is_some() => return Err(missing(key)),
            None => {}
        }
    }
    compare_range(&store, &dataset, &model, None)?;
    for _ in 0..RANGES {
        let mut bounds = [random.bits(), random.bits()].map(u64::to_be_bytes);
        bounds.sort_unstable();
        compare_range(&store, &dataset, &model, Some(bounds))?;
    }
    store.close()?;
    Ok(opening)
}

/// Compares a range, or everything, with the allowed versions.
fn compare_range(
    store: &Store,
    dataset: &Dataset,
    model: &Model,
    bounds: Option<[Key; 2]>,
) -> Result<(), RaceError> {
    let (lower, upper): (&[u8], &[u8]) = match &bounds {
        Some([lower, upper]) => (lower, upper),
        None => (b"", b""),
    };
    let mut expected =
        model.iter().filter(|(key, _)| &key[..] >= lower && (upper.is_empty() || &key[..] < upper));
    store.scan(lower, upper, |found, value| {
        // Keys that were never acknowledged may be absent; the first other one must be this one.
        let next =
            expected.find(|(key, allowed)| &key[..] >= found || allowed.acknowledged.is_some());
        match next {
            Some((&key, allowed)) if key[..] == *found => match allowed.has(dataset, key, value) {
                true => Ok(()),
                false => Err(wrong_value(key)),
            },
            Some((&key, allowed)) if key[..] < *found && allowed.acknowledged.is_some() => {
                Err(missing(key))
            }
            _ => Err(RaceError::Void(format!(
                "a range met key {} out of order, twice, or that was never written",
                show(found)
            ))),
        }
    })?;
    match expected.find(|(_, allowed)| allowed.acknowledged.is_some()) {
        Some((&key, _)) => Err(missing(key)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::dataset::VALUE_LEN;
    use crate::race::engine::{Placement, Tuning, Writes};

    #[test]
    fn versions_follow_from_the_number_of_writes() {
        let allowed = |writes, slot| {
            let it = Allowed::new(writes, slot);
            (it.acknowledged, it.unfinished)
        };
        let last = KEYS_PER_THREAD - 1;
        assert_eq!(allowed(0, 0), (None, Some(0)));
        assert_eq!(allowed(0, 1), (None, None));
        assert_eq!(allowed(1, 0), (Some(0), None));
        assert_eq!(allowed(1, 1), (None, Some(0)));
        assert_eq!(allowed(last, last), (None, Some(0)));
        assert_eq!(allowed(KEYS_PER_THREAD, last), (Some(0), None));
        assert_eq!(allowed(KEYS_PER_THREAD, 0), (Some(0), Some(1)));
        assert_eq!(allowed(3 * KEYS_PER_THREAD + 5, 4), (Some(3), None));
        assert_eq!(allowed(3 * KEYS_PER_THREAD + 5, 5), (Some(2), Some(3)));
    }

    #[test]
    fn a_model_has_every_key_of_every_thread() {
        let model = model(&Dataset::new(1), &[0, 5, 100]);
        assert_eq!(model.len() as u64, 3 * KEYS_PER_THREAD);
        let acknowledged = model.values().filter(|allowed| allowed.acknowledged.is_some()).count();
        assert_eq!(acknowledged as u64, 5 + KEYS_PER_THREAD);
        assert_eq!(model.values().filter(|allowed| allowed.unfinished.is_some()).count(), 3);
    }

    /// Three threads, of which the second has recorded 40 writes, and a store with these.
    fn store_of_40_writes(name: &str) -> (Plan, Vec<u64>) {
        let dir = std::env::temp_dir().join(format!("tierce-race-{name}-{}", std::process::id()));
        let plan = Plan {
            dir,
            threads: 3,
            per_thread: 1,
            scans: 1,
            kills: 1,
            seed: 5,
            verify_all: false,
            tuning: Tuning {
                shards: 2,
                placement: Placement::Ordered,
                writes: Writes::Direct,
                tail_bytes: 1 << 16,
                direct_io: false,
                segment_size_bytes: 1 << 20,
                read_cache_bytes: 0,
                scan_memory_bytes: 1 << 20,
            },
        };
        remove_store(&plan.dir).expect("room for a test");
        let dataset = plan.dataset();
        let store = Store::open(&plan.killed_store(), &plan.tuning).expect("a store");
        let mut value = [0; VALUE_LEN];
        for write in 0..40 {
            let key = dataset.key(KEYS_PER_THREAD + write % KEYS_PER_THREAD);
            dataset.fill(&mut value, key, write / KEYS_PER_THREAD);
            store.put(key, &value).expect("a write");
        }
        store.close().expect("closed");
        (plan, vec![0, 40, 0])
    }

    #[test]
    fn what_was_acknowledged_and_one_more_write_are_right() {
        let (plan, mut notes) = store_of_40_writes("right");
        let outcome = |notes: &[u64]| compare(&plan, notes, &mut Random::new(1)).is_ok();
        assert!(outcome(&notes));
        notes[1] = 39;
        assert!(outcome(&notes), "one write can be done without being noted");
        remove_store(&plan.dir).expect("removed");
    }

    #[test]
    fn whatever_is_lost_or_was_not_written_is_noticed() {
        let (plan, notes) = store_of_40_writes("lost");
        let outcome = |thread: usize, writes: u64| {
            let mut notes = notes.clone();
            notes[thread] = writes;
            let outcome = compare(&plan, &notes, &mut Random::new(1));
            outcome.expect_err("a loss must be noticed").to_string()
        };
        assert!(outcome(1, 41).contains("another value"), "an acknowledged version is lost");
        assert!(outcome(1, 38).contains("another value"), "two writes that were not noted");
        assert!(outcome(0, 1).contains("missing"), "an acknowledged key is lost");
        assert!(outcome(1, 0).contains("another value"), "keys that were never written");
        remove_store(&plan.dir).expect("removed");
    }
}
