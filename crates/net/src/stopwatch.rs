//! Measuring short durations.
//!
//! [`Instant`](std::time::Instant) normalizes and checks what the system says, which takes longer than asking
//! it. Where durations are measured several times in each turn, that is felt.
#![allow(unsafe_code, reason = "one call of the system, into memory of our own")]

/// Nanoseconds on the clock that never goes back, since some moment in the past.
#[inline]
#[must_use]
pub fn monotonic_nanos() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the system writes a `timespec` to `now`, which is one and lives on.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    debug_assert_eq!(result, 0, "every Linux has this clock");
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn it_goes_as_instants_do() {
        let (before, instant) = (monotonic_nanos(), Instant::now());
        while instant.elapsed() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        let elapsed = monotonic_nanos() - before;
        assert!(elapsed >= 2_000_000, "{elapsed} ns");
    }
}
