//! Slows down password guessing.
//!
//! An address has some wrong passwords free. From then on each attempt from there is delayed, longer with each further
//! wrong password, up to [`DELAY_MS_MAX`]. Its connection waits, but no thread does. An attempt is delayed once, so an
//! honest client at the same address gets in after that time, however many others guess.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Wrong passwords of an address that cost nothing.
const FREE: u32 = 8;

/// The first delay; it doubles from one wrong password to the next.
const DELAY_MS_MIN: i64 = 50;

/// The longest delay.
const DELAY_MS_MAX: i64 = 1_000;

/// An address that stays without wrong passwords for so long begins anew.
const FORGOTTEN_AFTER_MS: i64 = 60_000;

/// Addresses that are remembered. Of more, the one goes that guessed the longest ago.
const ADDRESSES_MAX: usize = 4_096;

/// A warning is logged at most this often, with the number of wrong passwords since the one before.
const WARNED_EVERY_MS: i64 = 1_000;

/// See the module; times are Unix milliseconds.
#[derive(Default)]
pub struct Guesses(Mutex<State>);

/// The attempt of a connection to authenticate, which may have to wait.
#[derive(Default)]
pub struct Attempt {
    /// When it may go on; 0 if no attempt waits.
    at_ms: i64,
}

impl Attempt {
    /// Until when the next attempt from an address waits, if it has to. It is to be asked again then, and has not to
    /// wait any more.
    pub fn waits_until(&mut self, guesses: &Guesses, address: &str, now_ms: i64) -> Option<i64> {
        if self.at_ms == 0 {
            let delay_ms = guesses.delay_ms(address, now_ms);
            self.at_ms = if delay_ms > 0 { now_ms + delay_ms } else { 0 };
        }
        if self.at_ms > now_ms {
            return Some(self.at_ms);
        }
        self.at_ms = 0;
        None
    }
}

#[derive(Default)]
struct State {
    by_address: HashMap<String, Guesser>,
    /// When a warning was logged last.
    warned_ms: Option<i64>,
    /// Wrong passwords since then.
    unwarned: u64,
}

#[derive(Clone, Copy)]
struct Guesser {
    wrong: u32,
    last_ms: i64,
}

impl Guesser {
    fn is_forgotten(&self, now_ms: i64) -> bool {
        now_ms - self.last_ms >= FORGOTTEN_AFTER_MS
    }
}

impl Guesses {
    /// How long an attempt from an address waits before it is looked at, in milliseconds.
    #[must_use]
    pub fn delay_ms(&self, address: &str, now_ms: i64) -> i64 {
        let state = self.0.lock();
        let guesser = state.by_address.get(address).filter(|guesser| !guesser.is_forgotten(now_ms));
        let beyond = guesser.map_or(0, |guesser| guesser.wrong.saturating_sub(FREE));
        match beyond {
            0 => 0,
            beyond => (DELAY_MS_MIN << (beyond - 1).min(10)).min(DELAY_MS_MAX),
        }
    }

    /// An attempt from an address has failed. How many have since the last warning, if it is time for another one.
    pub fn note_wrong(&self, address: &str, now_ms: i64) -> Option<u64> {
        let state = &mut *self.0.lock();
        if state.by_address.len() >= ADDRESSES_MAX && !state.by_address.contains_key(address) {
            state.make_room(now_ms);
        }
        let guesser = state
            .by_address
            .entry(address.to_owned())
            .or_insert(Guesser { wrong: 0, last_ms: now_ms });
        if guesser.is_forgotten(now_ms) {
            guesser.wrong = 0;
        }
        guesser.wrong = guesser.wrong.saturating_add(1);
        guesser.last_ms = now_ms;
        state.unwarned += 1;
        if state.warned_ms.is_some_and(|at| now_ms - at < WARNED_EVERY_MS) {
            return None;
        }
        state.warned_ms = Some(now_ms);
        Some(std::mem::take(&mut state.unwarned))
    }
}

impl State {
    fn make_room(&mut self, now_ms: i64) {
        self.by_address.retain(|_, guesser| !guesser.is_forgotten(now_ms));
        if self.by_address.len() < ADDRESSES_MAX {
            return;
        }
        let oldest = self.by_address.iter().min_by_key(|(_, guesser)| guesser.last_ms);
        if let Some(address) = oldest.map(|(address, _)| address.clone()) {
            self.by_address.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_up_to_a_bound_and_end() {
        let guesses = Guesses::default();
        let delays: Vec<_> = (0..16)
            .map(|now_ms| {
                guesses.note_wrong("a", now_ms);
                guesses.delay_ms("a", now_ms)
            })
            .collect();
        assert_eq!(delays, [0, 0, 0, 0, 0, 0, 0, 0, 50, 100, 200, 400, 800, 1000, 1000, 1000]);
        assert_eq!(guesses.delay_ms("b", 16), 0);
        assert_eq!(guesses.delay_ms("a", 15 + FORGOTTEN_AFTER_MS), 0);
        guesses.note_wrong("a", 15 + FORGOTTEN_AFTER_MS);
        assert_eq!(guesses.delay_ms("a", 15 + FORGOTTEN_AFTER_MS), 0);
    }

    #[test]
    fn an_attempt_waits_once() {
        let (guesses, mut attempt) = (Guesses::default(), Attempt::default());
        assert_eq!(attempt.waits_until(&guesses, "a", 1), None);
        for _ in 0..=FREE {
            guesses.note_wrong("a", 1);
        }
        assert_eq!(attempt.waits_until(&guesses, "a", 1), Some(1 + DELAY_MS_MIN));
        // Another connection guesses on.
        guesses.note_wrong("a", 2);
        assert_eq!(attempt.waits_until(&guesses, "a", DELAY_MS_MIN), Some(1 + DELAY_MS_MIN));
        assert_eq!(attempt.waits_until(&guesses, "a", 1 + DELAY_MS_MIN), None);
        assert_eq!(attempt.waits_until(&guesses, "a", 60), Some(60 + 2 * DELAY_MS_MIN));
    }

    #[test]
    fn warnings_are_few_and_count_the_rest() {
        let guesses = Guesses::default();
        let warned: Vec<_> =
            [0, 1, 2, 999, 1000, 1001].map(|at| guesses.note_wrong("a", at)).into();
        assert_eq!(warned, [Some(1), None, None, None, Some(4), None]);
    }

    #[test]
    fn memory_is_bounded() {
        let guesses = Guesses::default();
        for number in 0..2 * ADDRESSES_MAX {
            guesses.note_wrong(&number.to_string(), number as i64);
        }
        let state = guesses.0.lock();
        assert_eq!(state.by_address.len(), ADDRESSES_MAX);
        assert!(!state.by_address.contains_key("0"));
    }
}
