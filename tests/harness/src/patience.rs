//! Waiting for others.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long to wait for something that should happen at once. Generous, because it is only used up
/// by tests that fail, and machines that test are busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// Looks again and again until `is_so`.
///
/// # Panics
/// When [`PATIENCE`] is used up; `what` says what was waited for.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain: {what}");
        sleep(PAUSE);
    }
}
