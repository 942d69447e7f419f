//! Keyspace, log, compaction, expiry, values on disk and snapshots together, on a disk that fails, against a
//! model, over random histories.

mod claims;
mod commands;
mod contents;
mod history;
mod life;
mod model;
mod saving;
mod shrink;
mod start;
mod world;

use std::fmt::Write as _;

use parking_lot::RwLock;
use tierce_keyspace::planted::{self, Fault};

/// A number from the environment.
fn setting(name: &str, otherwise: u64) -> u64 {
    let value = std::env::var(name).ok().map(|value| value.parse().expect("a number"));
    value.unwrap_or(otherwise)
}

/// Runs the history of a seed; what is wrong, with the shortest history that shows it.
fn check(seed: u64) -> Result<(), String> {
    let steps = history::draw(seed);
    if shrink::run(seed, &steps).is_ok() {
        return Ok(());
    }
    let steps = shrink::shrink(seed, steps);
    let mut report = format!("seed {seed}, which needs these steps:\n");
    for step in &steps {
        let _ = writeln!(report, "  {step:?}");
    }
    let failure = shrink::run(seed, &steps).expect_err("what was shrunk fails");
    let _ = writeln!(report, "{failure}");
    Err(report)
}

/// Of the process: faults are planted for all of it.
static FAULTS: RwLock<()> = RwLock::new(());

#[test]
fn contents_are_those_of_the_model_whatever_happens() {
    let _sound = FAULTS.read();
    let first = setting("TIERCE_TOGETHER_SEED", 0);
    let histories = setting("TIERCE_TOGETHER_HISTORIES", 2500);
    let failures_max = setting("TIERCE_TOGETHER_FAILURES", 1);
    let reports = (first..first + histories).filter_map(|seed| check(seed).err());
    let reports: Vec<_> = reports.take(failures_max as usize).collect();
    assert!(reports.is_empty(), "{}", reports.join("\n"));
}

/// With the fault in the code a history fails that does not fail without it.
fn is_found(fault: Fault, within: u64) {
    let _faulty = FAULTS.write();
    let fails = |seed: &u64, fault| {
        planted::plant(fault);
        let outcome = shrink::run(*seed, &history::draw(*seed));
        planted::plant(None);
        outcome.is_err()
    };
    let found = (0..within).find(|seed| fails(seed, Some(fault)) && !fails(seed, None));
    let Some(seed) = found else { panic!("{fault:?} is not found by {within} histories") };
    println!("{fault:?} is found by the history of seed {seed}");
}

#[test]
fn a_flush_that_ends_all_lists_is_found() {
    is_found(Fault::FlushEndsAllLists, 2000);
}

#[test]
fn an_expiry_that_is_not_logged_is_found() {
    is_found(Fault::ExpiryIsNotLogged, 2000);
}

#[test]
fn a_long_record_that_is_dropped_is_found() {
    is_found(Fault::LongRecordsAreDropped, 2000);
}

#[test]
fn a_log_that_is_not_begun_again_is_found() {
    is_found(Fault::RefusedLogIsNotBegun, 2000);
}

#[test]
fn a_wound_that_ends_too_early_is_found() {
    is_found(Fault::WoundEndsTooEarly, 2000);
}

#[test]
fn a_completion_that_is_not_repeated_is_found() {
    is_found(Fault::CompletionIsNotRepeated, 2000);
}
