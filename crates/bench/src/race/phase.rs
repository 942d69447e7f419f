//! The timed phases, as run in their own process.
//!
//! Time runs from the common start of all threads to the end of the last one. Opening, flushing and closing the store
//! are timed separately.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::cache;
use super::dataset::{Shuffle, VALUE_LEN};
use super::engine::{Sizes, Store};
use super::error::RaceError;
use super::memory::Memory;
use super::plan::Plan;
use super::traffic::device_bytes_read;
use super::verify::{Coverage, Pass, Share, missing, wrong_value};
use super::worker_pool::{self, PoolWorker};

/// A timed phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    Write,
    Read,
    Warm,
    Scan,
}

impl Phase {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Warm => "warm",
            Self::Scan => "scan",
        }
    }

    /// Returns the number of keys that all threads handle together.
    pub(super) fn operations(self, plan: &Plan) -> u64 {
        match self {
            Self::Scan => plan.keys() * u64::from(plan.threads) * u64::from(plan.scans),
            _ => plan.keys(),
        }
    }
}

/// Result of a phase.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Outcome {
    pub(super) phase: Phase,
    pub(super) operations: u64,
    pub(super) seconds: f64,
    pub(super) open_seconds: f64,
    /// Time from the last acknowledgement until all data was durable.
    pub(super) flush_seconds: Option<f64>,
    pub(super) close_seconds: f64,
    pub(super) memory: Memory,
    /// Number of bytes read from the device during the timed part.
    pub(super) device_bytes_read: u64,
    pub(super) sizes: Sizes,
}

/// Number of keys of a scan after which a thread updates its count. Counting each key would cost more than some
/// engines need to deliver it.
const SCAN_STEP: u64 = 256;

/// Runs a phase in this process.
pub(super) fn run(
    plan: &Plan,
    phase: Phase,
    tell: impl FnMut(u64, Duration),
) -> Result<Outcome, RaceError> {
    if phase == Phase::Warm {
        cache::fill(&plan.store())?;
    }
    let (store, open) = timed(|| Store::open(&plan.store(), &plan.tuning))?;
    let read_before = device_bytes_read();
    let time = match phase {
        Phase::Write => write(plan, &store, tell)?,
        Phase::Read => read(plan, &store, plan.seed, tell)?,
        Phase::Warm => read(plan, &store, !plan.seed, tell)?,
        Phase::Scan => scan(plan, &store, tell)?,
    };
    let device_bytes_read = device_bytes_read() - read_before;
    let memory = Memory::read();
    let flush = match phase {
        Phase::Write => Some(timed(|| store.flush())?.1.as_secs_f64()),
        _ => None,
    };
    let sizes = store.sizes();
    if sizes.keys != plan.keys() {
        let (found, all) = (sizes.keys, plan.keys());
        return Err(RaceError::Void(format!("the store has {found} keys of {all}")));
    }
    let ((), close) = timed(|| store.close())?;
    Ok(Outcome {
        phase,
        operations: phase.operations(plan),
        seconds: time.as_secs_f64(),
        open_seconds: open.as_secs_f64(),
        flush_seconds: flush,
        close_seconds: close.as_secs_f64(),
        memory,
        device_bytes_read,
        sizes,
    })
}

fn timed<T>(work: impl FnOnce() -> Result<T, RaceError>) -> Result<(T, Duration), RaceError> {
    let start = Instant::now();
    let result = work()?;
    Ok((result, start.elapsed()))
}

/// Writes: every thread writes its own keys.
fn write(
    plan: &Plan,
    store: &Store,
    tell: impl FnMut(u64, Duration),
) -> Result<Duration, RaceError> {
    let dataset = plan.dataset();
    let work = |worker: &PoolWorker<'_>| {
        let mut value = [0; VALUE_LEN];
        let first = worker.number as u64 * plan.per_thread;
        for number in first..first + plan.per_thread {
            if worker.is_over() {
                break;
            }
            let key = dataset.key(number);
            dataset.fill(&mut value, key, 0);
            store.put(key, &value)?;
            worker.count(1);
        }
        Ok(())
    };
    worker_pool::run(plan.threads as usize, work, tell)
}

/// Reads: all threads together read every key once. So no read is served from a cache entry of an earlier read of the
/// same key.
fn read(
    plan: &Plan,
    store: &Store,
    salt: u64,
    tell: impl FnMut(u64, Duration),
) -> Result<Duration, RaceError> {
    let dataset = plan.dataset();
    let order = Shuffle::new(plan.keys(), salt);
    let work = |worker: &PoolWorker<'_>| {
        let first = worker.number as u64 * plan.per_thread;
        for position in first..first + plan.per_thread {
            if worker.is_over() {
                break;
            }
            let key = dataset.key(order.at(position));
            match store.get(key, |value| dataset.is_value(value, key, 0))? {
                Some(true) => worker.count(1),
                Some(false) => return Err(wrong_value(key)),
                None => return Err(missing(key)),
            }
        }
        Ok(())
    };
    worker_pool::run(plan.threads as usize, work, tell)
}

/// Scans: every thread scans all keys, several times.
fn scan(
    plan: &Plan,
    store: &Store,
    tell: impl FnMut(u64, Duration),
) -> Result<Duration, RaceError> {
    let dataset = plan.dataset();
    let expected = Coverage::of(&dataset, plan.keys());
    let work = |worker: &PoolWorker<'_>| {
        let share = match plan.verify_all {
            true => Share::All,
            false => {
                Share::OneOf { number: worker.number as u64, threads: u64::from(plan.threads) }
            }
        };
        for _ in 0..plan.scans {
            let mut pass = Pass::new(&dataset, share);
            let mut uncounted = 0;
            store.scan(b"", b"", |key, value| {
                pass.see(key, value)?;
                uncounted += 1;
                if uncounted == SCAN_STEP {
                    worker.count(std::mem::take(&mut uncounted));
                    if worker.is_over() {
                        return Err(RaceError::Void("another thread failed".into()));
                    }
                }
                Ok(())
            })?;
            worker.count(uncounted);
            pass.finish(expected)?;
        }
        Ok(())
    };
    worker_pool::run(plan.threads as usize, work, tell)
}
