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

#[test]
fn contents_are_those_of_the_model_whatever_happens() {
    let first = setting("TIERCE_TOGETHER_SEED", 0);
    let histories = setting("TIERCE_TOGETHER_HISTORIES", 2000);
    let mut failed = 0;
    for seed in first..first + histories {
        if let Err(report) = check(seed) {
            println!("{report}");
            failed += 1;
            if failed == setting("TIERCE_TOGETHER_FAILURES", 1) {
                break;
            }
        }
    }
    assert_eq!(failed, 0);
}
