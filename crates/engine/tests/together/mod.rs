//! Tests of keyspace, log, compaction, expiry, values on disk and snapshots together, on a failing disk, against a
//! model, over random histories.

mod commands;
mod contents;
mod guarantees;
mod history;
mod life;
mod model;
mod saving;
mod shrink;
mod start;
mod world;

use std::fmt::Write as _;
use std::iter;

use history::{Edit, Fault as DiskFault, Step, Write};
use tierce_harness::effort;
use tierce_keyspace::planted::{self, Fault};

/// Returns a number from the environment.
fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// Runs the history of a seed. An error contains the shortest history that fails.
fn check(seed: u64) -> Result<(), String> {
    let steps = history::draw(seed);
    let Err(first) = shrink::run(seed, &steps) else { return Ok(()) };
    let steps = shrink::shrink(seed, steps);
    let mut report = format!("seed {seed}, which needs these steps:\n");
    for step in &steps {
        let _ = writeln!(report, "  {step:?}");
    }
    let failure = shrink::run(seed, &steps).err();
    let failure = failure.unwrap_or_else(|| format!("not always; the first time: {first}"));
    let _ = writeln!(report, "{failure}");
    Err(report)
}

#[test]
fn contents_are_those_of_the_model_whatever_happens() {
    let first = setting("TIERCE_TOGETHER_SEED").unwrap_or(0);
    let histories = setting("TIERCE_TOGETHER_HISTORIES").unwrap_or_else(|| effort(300));
    let failures_max = setting("TIERCE_TOGETHER_FAILURES").unwrap_or(1);
    let reports = (first..first + histories).filter_map(|seed| check(seed).err());
    let reports: Vec<_> = reports.take(failures_max as usize).collect();
    assert!(reports.is_empty(), "{}", reports.join("\n"));
}

/// Checks that with the fault in the code some history fails that does not fail without it. The seed that failed last
/// is tried first, because some faults fail few histories. It changes only when the histories or the code change.
fn is_found(fault: Fault, last: u64) {
    is_found_at_the_end_of(fault, iter::once(last).chain(0..2000), |_| Vec::new());
}

/// Checks this with histories that end in some more steps.
fn is_found_at_the_end_of(
    fault: Fault,
    mut seeds: impl Iterator<Item = u64>,
    more: impl Fn(u64) -> Vec<Step>,
) {
    let fails = |seed: &u64, fault| {
        planted::plant(fault);
        let steps = [history::draw(*seed), more(*seed)].concat();
        let outcome = shrink::run(*seed, &steps);
        planted::plant(None);
        outcome.is_err()
    };
    let found = seeds.find(|seed| fails(seed, Some(fault)) && !fails(seed, None));
    let Some(seed) = found else { panic!("{fault:?} is not found by any history") };
    println!("{fault:?} is found by the history of seed {seed}");
}

#[test]
fn a_flush_that_ends_all_lists_is_found() {
    is_found(Fault::FlushEndsAllLists, 318);
}

#[test]
fn an_expiry_that_is_not_logged_is_found() {
    // A key is changed and expires before the pass reaches it.
    is_found_at_the_end_of(Fault::ExpiryIsNotLogged, 0..200, |seed| {
        let set = |from| Edit::SetFields { range: (from, 2), number: 3, ttl: None };
        let key = |edit| Step::Write(Write::Key((2, (seed % 6) as u8), edit));
        let old = [Edit::Delete, set(1), Edit::Expire(Some(9))].map(key);
        let new = [Step::Keep(60), Step::Compact, Step::Keep(1), key(set(7)), Step::Wait(60)];
        [&old[..], &new[..], &[Step::Expire, Step::Keep(60)]].concat()
    });
}

#[test]
fn a_long_record_that_is_dropped_is_found() {
    is_found(Fault::LongRecordsAreDropped, 0);
}

#[test]
fn a_log_that_is_not_begun_again_is_found() {
    is_found(Fault::RefusedLogIsNotBegun, 1397);
}

#[test]
fn a_write_error_that_ends_too_early_is_found() {
    is_found(Fault::WriteErrorEndsTooEarly, 505);
}

#[test]
fn a_completion_that_is_not_repeated_is_found() {
    // A directory is synced a dozen times while a new log is created, and the last time may fail.
    is_found_at_the_end_of(Fault::CompletionIsNotRepeated, 0..200, |seed| {
        let fails = Step::Fault(DiskFault::SyncDir, (seed % 20) as u8);
        vec![Step::SwitchLog(false), Step::Keep(9), fails, Step::SwitchLog(true), Step::Keep(90)]
    });
}
