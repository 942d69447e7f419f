//! Runs histories, and reduces a failing one.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::together::history::Step;
use crate::together::world::{self, Failure};

/// Runs a history. A panic counts as a failure.
pub fn run(seed: u64, steps: &[Step]) -> Result<(), Failure> {
    let outcome = catch_unwind(AssertUnwindSafe(|| world::run(seed, steps)));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("a panic: {}", text.unwrap_or_default()))
    })
}

/// Removes steps that are not needed for the failure.
pub fn shrink(seed: u64, mut steps: Vec<Step>) -> Vec<Step> {
    let mut stretch = steps.len().div_ceil(2);
    loop {
        let mut start = 0;
        let mut is_shorter = false;
        while start < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(start..steps.len().min(start + stretch));
            if run(seed, &fewer).is_err() {
                steps = fewer;
                is_shorter = true;
            } else {
                start += stretch;
            }
        }
        if stretch == 1 && !is_shorter {
            return steps;
        }
        stretch = stretch.div_ceil(2);
    }
}
