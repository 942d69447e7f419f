//! Slows down password guessing.
//!
//! Attempts wait in queues: one for each address and one for each user name. In each queue some wrong passwords are
//! free. After them the queue admits one attempt at a time. The delay between two attempts grows with each wrong
//! password, up to [`DELAY_MS_MAX`]. So many connections guess no faster than one. Only connections wait, never
//! threads.
//!
//! Honest clients are not delayed by their neighbours: once a user has authenticated from an address, this pair has a
//! queue of its own and uses no other. Strangers cannot shut them out either: an address without wrong passwords does
//! not wait in the queue of the user. Its attempts wait once, for the current delay of that queue. A guesser with many
//! addresses is slowed down at each of them.
//!
//! A queue admits the newest attempt first in one second, because guessers already wait, and the oldest first in the
//! next second. So every attempt is admitted at some time, even while many clients with an old password retry without
//! pause: each older attempt costs about two delays.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::Ipv6Addr;

use parking_lot::Mutex;

/// Number of free wrong passwords in a queue.
const FREE: u32 = 8;

/// The first delay, which doubles with each further wrong password.
const DELAY_MS_MIN: i64 = 50;

/// The longest delay.
const DELAY_MS_MAX: i64 = 1_000;

/// Time without wrong passwords after which a queue starts afresh.
const FORGOTTEN_AFTER_MS: i64 = 60_000;

/// Time for which a queue waits for the attempt whose turn it is. Its client may have disconnected.
const GRACE_MS: i64 = 20;

/// Period; in every other one, queues admit the oldest attempt first. Periods follow the clock, so that both queues of
/// an attempt agree, and are no shorter than the longest delay, so that each queue admits an attempt in each.
const TURN_MS: i64 = DELAY_MS_MAX;

/// Limit of queues of each kind. Beyond it the least recently used one is removed.
const THROTTLES_MAX: usize = 4_096;

/// Minimum time between two warnings. Each has the number of wrong passwords since the previous one.
const WARNED_EVERY_MS: i64 = 1_000;

/// See the module; times are Unix milliseconds.
#[derive(Default)]
pub struct Guesses(Mutex<State>);

/// An attempt of a connection to authenticate. It may have to wait.
#[derive(Default)]
pub struct Attempt {
    /// Sequence number of the waiting attempt, or 0 if none waits.
    number: u64,
    /// Time when it is admitted if its address has no wrong passwords.
    due_ms: i64,
}

impl Attempt {
    /// Returns the time at which an attempt to authenticate as `user` has to ask again; `None` if it is admitted.
    pub fn waits_until(
        &mut self,
        guesses: &Guesses,
        address: &str,
        user: &[u8],
        now_ms: i64,
    ) -> Option<i64> {
        let state = &mut *guesses.0.lock();
        if self.number == 0 {
            state.attempts += 1;
            self.number = state.attempts;
            self.due_ms = now_ms + state.delay_ms(address, user, now_ms);
        }
        let has_guessed = state.has_guessed(address, user, now_ms);
        let mut until_ms = 0;
        state.each_throttle(address, user, |throttle| {
            let admits_ms = match has_guessed {
                true => throttle.admits_ms(self.number, now_ms),
                false if throttle.delay_ms(now_ms) == 0 => 0,
                false => self.due_ms,
            };
            until_ms = until_ms.max(admits_ms);
        });
        if until_ms > now_ms {
            return Some(until_ms);
        }
        state.each_throttle(address, user, |throttle| throttle.close(now_ms));
        self.number = 0;
        None
    }
}

#[derive(Default)]
struct State {
    /// Seeded, so that no client can choose names that share a queue.
    hasher: RandomState,
    /// Queues of addresses and of users.
    throttles: HashMap<u64, Throttle>,
    /// Queues of user and address pairs that have authenticated.
    known: HashMap<u64, Throttle>,
    /// Sequence number of the newest attempt.
    attempts: u64,
    /// Time of the last warning.
    warned_ms: Option<i64>,
    /// Wrong passwords since that warning.
    unwarned: u64,
}

#[derive(Clone, Copy, Default)]
struct Throttle {
    wrong: u32,
    /// Time of the last wrong password.
    wrong_ms: i64,
    /// Time of the last attempt that was admitted or failed.
    used_ms: i64,
    /// Time when the next attempt is admitted.
    opens_ms: i64,
    /// The newest attempt that waits, or 0.
    newest: u64,
    /// The oldest attempt that waits, or 0. Waiting attempts register again before the next admission.
    oldest: u64,
}

impl Throttle {
    /// Returns true if the queue has no wrong passwords, or only forgotten ones.
    fn is_forgotten(&self, now_ms: i64) -> bool {
        self.wrong == 0 || now_ms - self.wrong_ms >= FORGOTTEN_AFTER_MS
    }

    fn delay_ms(&self, now_ms: i64) -> i64 {
        match self.wrong.saturating_sub(FREE) {
            0 => 0,
            _ if self.is_forgotten(now_ms) => 0,
            beyond => (DELAY_MS_MIN << (beyond - 1).min(10)).min(DELAY_MS_MAX),
        }
    }

    fn admits_ms(&mut self, attempt: u64, now_ms: i64) -> i64 {
        if self.delay_ms(now_ms) == 0 {
            return 0;
        }
        self.newest = self.newest.max(attempt);
        self.oldest = if self.oldest == 0 { attempt } else { self.oldest.min(attempt) };
        let is_turn_of_oldest = (self.opens_ms / TURN_MS) % 2 == 1;
        let next = if is_turn_of_oldest { self.oldest } else { self.newest };
        if next == attempt { self.opens_ms } else { self.opens_ms + GRACE_MS }
    }

    /// Notes that an attempt was admitted.
    fn close(&mut self, now_ms: i64) {
        self.opens_ms = now_ms + self.delay_ms(now_ms);
        (self.newest, self.oldest) = (0, 0);
        self.used_ms = now_ms;
    }

    fn note_wrong(&mut self, now_ms: i64) {
        if self.is_forgotten(now_ms) {
            self.wrong = 0;
        }
        self.wrong = self.wrong.saturating_add(1);
        (self.wrong_ms, self.used_ms) = (now_ms, now_ms);
        self.opens_ms = now_ms + self.delay_ms(now_ms);
    }
}

impl Guesses {
    /// Returns the milliseconds between two attempts to authenticate as `user` from an address.
    #[must_use]
    pub fn delay_ms(&self, address: &str, user: &[u8], now_ms: i64) -> i64 {
        self.0.lock().delay_ms(address, user, now_ms)
    }

    /// Notes a wrong password. Returns the number of wrong passwords since the last warning if a new warning is due.
    pub fn note_wrong(&self, address: &str, user: &[u8], now_ms: i64) -> Option<u64> {
        let state = &mut *self.0.lock();
        if !state.known.contains_key(&state.pair(address, user)) {
            for key in state.keys(address, user) {
                enter(&mut state.throttles, key);
            }
        }
        state.each_throttle(address, user, |throttle| throttle.note_wrong(now_ms));
        state.unwarned += 1;
        if state.warned_ms.is_some_and(|at| now_ms - at < WARNED_EVERY_MS) {
            return None;
        }
        state.warned_ms = Some(now_ms);
        Some(std::mem::take(&mut state.unwarned))
    }

    /// Notes a right password.
    pub fn note_right(&self, address: &str, user: &[u8], now_ms: i64) {
        let state = &mut *self.0.lock();
        let pair = state.pair(address, user);
        let throttle = enter(&mut state.known, pair);
        // Many honest clients may authenticate one after the other without a delay.
        (throttle.opens_ms, throttle.used_ms) = (now_ms, now_ms);
    }

    /// Notes a trusted client whose attempt did not pass the queue: it has a token with fewer rights than `user`, or
    /// has authenticated on this connection before. The queue does not open earlier, or each such client would admit a
    /// guess from that address.
    pub fn note_known(&self, address: &str, user: &[u8], now_ms: i64) {
        let state = &mut *self.0.lock();
        let pair = state.pair(address, user);
        enter(&mut state.known, pair).used_ms = now_ms;
    }
}

impl State {
    /// Visits the existing queues for attempts to authenticate as `user` from an address.
    fn each_throttle(&mut self, address: &str, user: &[u8], mut visit: impl FnMut(&mut Throttle)) {
        let pair = self.pair(address, user);
        if let Some(throttle) = self.known.get_mut(&pair) {
            return visit(throttle);
        }
        for key in self.keys(address, user) {
            self.throttles.get_mut(&key).into_iter().for_each(&mut visit);
        }
    }

    /// Returns the longest delay of these queues.
    fn delay_ms(&mut self, address: &str, user: &[u8], now_ms: i64) -> i64 {
        let mut delay_ms = 0;
        self.each_throttle(address, user, |throttle| {
            delay_ms = delay_ms.max(throttle.delay_ms(now_ms));
        });
        delay_ms
    }

    /// Returns true if such attempts wait in each of their queues. This is the case if the address has wrong passwords,
    /// or if the queue belongs to this pair of user and address.
    fn has_guessed(&self, address: &str, user: &[u8], now_ms: i64) -> bool {
        let [of_address, _] = self.keys(address, user);
        self.known.contains_key(&self.pair(address, user))
            || self
                .throttles
                .get(&of_address)
                .is_some_and(|throttle| !throttle.is_forgotten(now_ms))
    }

    fn pair(&self, address: &str, user: &[u8]) -> u64 {
        self.hasher.hash_one((network(address), user))
    }

    fn keys(&self, address: &str, user: &[u8]) -> [u64; 2] {
        [self.hasher.hash_one(network(address)), self.hasher.hash_one(user)]
    }
}

/// Returns the unit that an address counts for: the /64 network for IPv6, because one machine usually owns all of it.
fn network(address: &str) -> Result<[u16; 4], &str> {
    let ipv6 = address.trim_matches(['[', ']']).parse::<Ipv6Addr>().ok();
    let ipv6 = ipv6.filter(|ipv6| ipv6.to_ipv4_mapped().is_none());
    let [a, b, c, d, ..] = ipv6.ok_or(address)?.segments();
    Ok([a, b, c, d])
}

/// Returns the queue with this key, and creates it if there is none.
fn enter(throttles: &mut HashMap<u64, Throttle>, key: u64) -> &mut Throttle {
    if throttles.len() >= THROTTLES_MAX && !throttles.contains_key(&key) {
        let oldest =
            throttles.iter().min_by_key(|(_, throttle)| throttle.used_ms).map(|(&key, _)| key);
        oldest.map(|key| throttles.remove(&key));
    }
    throttles.entry(key).or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(guesses: &Guesses, times: u32, address: &str, user: &[u8]) {
        (0..times).for_each(|_| {
            guesses.note_wrong(address, user, 1);
        });
    }

    #[test]
    fn delays_grow_up_to_a_bound_and_end() {
        let guesses = Guesses::default();
        let delays: Vec<_> = (0..16)
            .map(|now_ms| {
                guesses.note_wrong("a", b"u", now_ms);
                guesses.delay_ms("a", b"u", now_ms)
            })
            .collect();
        assert_eq!(delays, [0, 0, 0, 0, 0, 0, 0, 0, 50, 100, 200, 400, 800, 1000, 1000, 1000]);
        let delays = |now_ms| {
            [("a", "v"), ("b", "u"), ("b", "v")]
                .map(|(address, user)| guesses.delay_ms(address, user.as_bytes(), now_ms))
        };
        assert_eq!(delays(16), [1000, 1000, 0]);
        assert_eq!(delays(15 + FORGOTTEN_AFTER_MS), [0, 0, 0]);
        guesses.note_wrong("a", b"u", 15 + FORGOTTEN_AFTER_MS);
        assert_eq!(delays(15 + FORGOTTEN_AFTER_MS), [0, 0, 0]);
    }

    #[test]
    fn attempts_of_many_connections_of_an_address_pass_one_by_one_and_the_newest_first() {
        let guesses = Guesses::default();
        let mut attempts: [Attempt; 3] = Default::default();
        let mut ask = |index: usize, now_ms| {
            attempts[index].waits_until(&guesses, "a", b"u", now_ms).map(|until| until - now_ms)
        };
        assert_eq!((ask(0, 1), ask(1, 1)), (None, None));
        fail(&guesses, FREE + 1, "a", b"u");
        assert_eq!(ask(0, 1), Some(DELAY_MS_MIN));
        assert_eq!(ask(1, 1), Some(DELAY_MS_MIN));
        assert_eq!(ask(0, 51), Some(GRACE_MS));
        assert_eq!(ask(1, 51), None);
        assert_eq!(ask(2, 51), Some(DELAY_MS_MIN));
        // The newest attempt has disconnected.
        assert_eq!(ask(0, 101), Some(GRACE_MS));
        assert_eq!(ask(0, 121), None);
    }

    /// Clients with an old password retry at once after each refusal, from the address of a client with the right one.
    #[test]
    fn the_right_password_has_its_turn_among_many_that_come_again_and_again() {
        const CLIENTS: usize = 41;
        const RIGHT: usize = CLIENTS / 2;
        let guesses = Guesses::default();
        fail(&guesses, 20, "a", b"u");
        // Attempts, with the time of their next try.
        let mut attempts: Vec<(Attempt, i64)> = Vec::new();
        attempts.resize_with(CLIENTS, || (Attempt::default(), 1));
        let (mut wrong, mut passed) = (0, None);
        for now_ms in 1..300_000 {
            for (index, (attempt, asks_ms)) in attempts.iter_mut().enumerate() {
                if *asks_ms > now_ms {
                    continue;
                }
                let until_ms = attempt.waits_until(&guesses, "a", b"u", now_ms);
                *asks_ms = until_ms.unwrap_or(now_ms + 1);
                if until_ms.is_none() && index == RIGHT {
                    passed = passed.or(Some(now_ms));
                    *asks_ms = i64::MAX;
                } else if until_ms.is_none() {
                    guesses.note_wrong("a", b"u", now_ms);
                    *attempt = Attempt::default();
                    wrong += 1;
                }
            }
        }
        let passed = passed.expect("it is never served");
        let delays_max = 2 * RIGHT as i64 + 3;
        assert!(passed <= delays_max * (DELAY_MS_MAX + 2 * GRACE_MS), "after {passed} ms");
        assert!(wrong <= 300, "{wrong} guesses in five minutes");
    }

    /// A stranger opens a connection every 50 ms and never stops.
    #[test]
    fn an_address_that_has_not_guessed_waits_once_whoever_guesses_elsewhere() {
        let guesses = Guesses::default();
        fail(&guesses, 20, "a", b"u");
        let mut strangers = Vec::new();
        let mut honest = Attempt::default();
        let mut first = None;
        let passed = (1..10_000).step_by(50).find(|&now_ms| {
            let mut stranger = Attempt::default();
            stranger.waits_until(&guesses, "a", b"u", now_ms);
            strangers.push(stranger);
            let until_ms = honest.waits_until(&guesses, "b", b"u", now_ms);
            first = first.or(until_ms);
            until_ms.is_none()
        });
        assert_eq!((first, passed), (Some(1 + DELAY_MS_MAX), Some(1 + DELAY_MS_MAX)));
        // After a wrong password of its own it queues with the others, which come from many addresses.
        let now_ms = 3_000;
        guesses.note_wrong("b", b"u", now_ms);
        assert!(honest.waits_until(&guesses, "b", b"u", now_ms).is_some());
        let waits = |number: usize, now_ms| {
            let (address, mut attempt) = (number.to_string(), Attempt::default());
            guesses.note_wrong(&address, b"u", now_ms);
            attempt.waits_until(&guesses, &address, b"u", now_ms).is_some()
        };
        assert!((0..100).all(|number| waits(number, now_ms)));
        let until_ms = honest.waits_until(&guesses, "b", b"u", now_ms + DELAY_MS_MAX);
        assert_eq!(until_ms, Some(now_ms + DELAY_MS_MAX + GRACE_MS));
        // Its wrong password is forgotten after a minute, even if those of the strangers are not.
        let now_ms = now_ms + FORGOTTEN_AFTER_MS;
        guesses.note_wrong("a", b"u", now_ms - 1);
        assert_eq!(honest.waits_until(&guesses, "b", b"u", now_ms), None);
    }

    #[test]
    fn a_right_token_makes_known_and_does_not_speed_up_guessing() {
        let guesses = Guesses::default();
        fail(&guesses, 20, "b", b"u");
        guesses.note_known("a", b"u", 1);
        assert_eq!(guesses.delay_ms("a", b"u", 1), 0);
        fail(&guesses, 20, "a", b"u");
        guesses.note_known("a", b"u", 1);
        let until_ms = Attempt::default().waits_until(&guesses, "a", b"u", 1);
        assert_eq!(until_ms, Some(1 + DELAY_MS_MAX));
    }

    #[test]
    fn a_user_who_is_known_at_an_address_does_not_wait_for_others() {
        let guesses = Guesses::default();
        guesses.note_right("a", b"u", 1);
        fail(&guesses, 20, "a", b"v");
        fail(&guesses, 20, "b", b"u");
        assert_eq!(guesses.delay_ms("a", b"u", 1), 0);
        assert_eq!(guesses.delay_ms("c", b"u", 1), DELAY_MS_MAX);
        // Guesses from there are slowed down as well.
        fail(&guesses, 20, "a", b"u");
        assert_eq!(guesses.delay_ms("a", b"u", 1), DELAY_MS_MAX);
        guesses.note_right("a", b"u", 1);
        assert_eq!(Attempt::default().waits_until(&guesses, "a", b"u", 1), None);
        assert_eq!(Attempt::default().waits_until(&guesses, "a", b"u", 1), Some(1 + DELAY_MS_MAX));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let guesses = Guesses::default();
        fail(&guesses, 20, "[2001:db8::1]", b"u");
        assert_eq!(guesses.delay_ms("[2001:db8::ffff]", b"v", 1), DELAY_MS_MAX);
        assert_eq!(guesses.delay_ms("[2001:db8:0:1::1]", b"v", 1), 0);
        assert_ne!(network("[::ffff:10.0.0.1]"), network("[::ffff:10.0.0.2]"));
    }

    #[test]
    fn warnings_are_few_and_count_the_rest() {
        let guesses = Guesses::default();
        let warned: Vec<_> =
            [0, 1, 2, 999, 1000, 1001].map(|at| guesses.note_wrong("a", b"u", at)).into();
        assert_eq!(warned, [Some(1), None, None, None, Some(4), None]);
    }

    #[test]
    fn memory_is_bounded() {
        let guesses = Guesses::default();
        for number in 0..2 * THROTTLES_MAX {
            guesses.note_wrong(&number.to_string(), b"u", number as i64);
            guesses.note_right(&number.to_string(), b"v", number as i64);
        }
        let state = guesses.0.lock();
        assert_eq!((state.throttles.len(), state.known.len()), (THROTTLES_MAX, THROTTLES_MAX));
        assert!(!state.throttles.contains_key(&state.keys("0", b"u")[0]));
        assert!(state.throttles.contains_key(&state.keys("0", b"u")[1]));
    }
}
