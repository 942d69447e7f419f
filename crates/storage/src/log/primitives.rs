//! Primitives of [`published`](super::published), which a model checker replaces.

pub(super) use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of offers, more than processors in most machines.
pub(super) const OFFERS: usize = 64;

/// Number of turns that only relax the processor: as long as storing a usual record takes.
pub(super) const SPINS: u32 = 64;
/// Number of turns until the other thread has had a chance to run here.
const YIELDS: u32 = SPINS + 16;
const SLEEP: Duration = Duration::from_micros(50);

/// Waits a moment for another thread, longer after more turns.
pub(super) fn pause(turn: u32) {
    match turn {
        ..SPINS => std::hint::spin_loop(),
        SPINS..YIELDS => std::thread::yield_now(),
        _ => std::thread::sleep(SLEEP),
    }
}
