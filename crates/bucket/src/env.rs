//! Clocks and randomness, as a parameter: a simulation brings its own.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom, SystemRandom};
use rustix::time::{ClockId, clock_gettime};

/// The clocks and the random source of one process.
pub trait Env: Send + Sync + 'static {
    /// Returns milliseconds since 1970. It may be wrong and may jump; only expiry and times in lists depend on it.
    fn wall(&self) -> u64;

    /// Reads a clock that never jumps and keeps running while the machine is suspended (`CLOCK_BOOTTIME`). Leases use
    /// it.
    fn boottime(&self) -> Duration;

    /// Returns random bytes that no other process and no earlier call received.
    fn random(&self) -> [u8; 16];
}

/// The real clocks and the kernel's randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Env for System {
    fn wall(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn boottime(&self) -> Duration {
        let time = clock_gettime(ClockId::Boottime);
        Duration::new(
            time.tv_sec.try_into().unwrap_or_default(),
            time.tv_nsec.try_into().unwrap_or_default(),
        )
    }

    fn random(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        // Linux' getrandom does not fail once the machine has booted.
        SystemRandom::new().fill(&mut bytes).expect("the kernel's randomness");
        bytes
    }
}
