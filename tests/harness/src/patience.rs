//! Waiting for others, and the limit of a test.
//!
//! Every test has a limit: [`LIMIT`], or the time that [`takes_up_to_seconds`] allows it, times the [`effort`]. The
//! harness looks at it wherever a test waits, so a test that hangs fails at the line where it waits, and says so.

use std::cell::Cell;
use std::panic::Location;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::effort;

/// How long to wait for something that should happen at once. Generous, because it is only used up
/// by tests that fail, and machines that test are busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The time that a test may take, from its first use of the harness on.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Time between two looks: short at first, for most things are true a moment later.
const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(10);

thread_local! {
    /// When this test began, and how long it may take. Each test has a thread of its own.
    static TEST: Cell<(Instant, Duration)> = Cell::new((Instant::now(), LIMIT));
}

/// Allows this test more time than [`LIMIT`], or less.
pub fn takes_up_to_seconds(limit: u64) {
    TEST.with(|test| test.set((test.get().0, Duration::from_secs(limit))));
}

/// Ends a test that takes longer than it may, at the line that called the harness.
#[track_caller]
pub(crate) fn check_limit() {
    let (began, limit) = TEST.get();
    let limit = limit * effort(1);
    let line = Location::caller();
    assert!(began.elapsed() < limit, "the test takes longer than {limit:?}, and waits at {line}");
}

/// Looks again and again until `is_so`.
///
/// # Panics
/// When [`PATIENCE`] or the limit of the test is used up; `what` says what was waited for.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = PAUSE_MIN;
    while !is_so() {
        check_limit();
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain: {what}");
        sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_over_its_limit_says_where_it_waits() {
        let hung = std::thread::spawn(|| {
            takes_up_to_seconds(0);
            wait_until("never", || false);
        });
        let panic = hung.join().expect_err("over its limit");
        let said = panic.downcast_ref::<String>().expect("a message");
        assert!(said.contains("longer than 0ns") && said.contains(file!()), "{said}");
    }
}
