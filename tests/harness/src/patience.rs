//! Waiting for conditions, and the time limit of a test.
//!
//! Every test has a limit: [`LIMIT`], or the time that [`takes_up_to_seconds`] allows it, times the [`effort`]. The
//! harness checks it wherever a test waits. So a test that hangs fails at the line where it waits, with a message.

use std::cell::Cell;
use std::panic::Location;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::effort;

/// Time to wait for an event that should happen at once. It is long, because only failing tests use all of it, and
/// machines that run tests are busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Time limit of a test, from its first use of the harness on.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Pause between two checks: short at first, because most conditions become true in a moment.
const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(10);

thread_local! {
    /// Start and time limit of this test. Each test has its own thread.
    static TEST: Cell<(Instant, Duration)> = Cell::new((Instant::now(), LIMIT));
}

/// Sets the limit of this test, which may be longer or shorter than [`LIMIT`].
pub fn takes_up_to_seconds(limit: u64) {
    TEST.with(|test| test.set((test.get().0, Duration::from_secs(limit))));
}

/// Fails a test that exceeds its limit, at the line that called the harness.
#[track_caller]
pub(crate) fn check_limit() {
    let (began, limit) = TEST.get();
    let limit = limit * effort(1);
    let line = Location::caller();
    assert!(began.elapsed() < limit, "the test takes longer than {limit:?}, and waits at {line}");
}

/// Checks repeatedly until `is_so`.
///
/// # Panics
/// If [`PATIENCE`] or the limit of the test is used up. `what` names the condition.
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
