//! Reads the system's clocks.
//!
//! [`Instant`](std::time::Instant) and [`SystemTime`](std::time::SystemTime) normalize and check the system's answer.
//! This takes longer than the call itself, and is measurable several times per turn.
#![allow(unsafe_code, reason = "one call of the system, into memory of our own")]

/// Returns nanoseconds of the monotonic clock, since an unspecified time in the past.
#[inline]
pub fn monotonic_nanos() -> u64 {
    let now = read(libc::CLOCK_MONOTONIC);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns milliseconds since 1970. A clock set before that is read as 1970.
#[inline]
pub(crate) fn unix_ms() -> u64 {
    let now = read(libc::CLOCK_REALTIME);
    (now.tv_sec * 1000 + now.tv_nsec / 1_000_000).max(0) as u64
}

#[inline]
fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the system writes a `timespec` to `now`, which is one and outlives the call.
    let result = unsafe { libc::clock_gettime(clock, &raw mut now) };
    debug_assert_eq!(result, 0, "every Linux has these clocks");
    now
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    #[test]
    fn the_clocks_are_those_of_the_library() {
        let (before, instant) = (monotonic_nanos(), Instant::now());
        while instant.elapsed() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        assert!(monotonic_nanos() - before >= 2_000_000);
        let library = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        let (before, now, after) = (library(), unix_ms(), library());
        assert!((before..=after).contains(&now), "{before} {now} {after}");
    }
}
