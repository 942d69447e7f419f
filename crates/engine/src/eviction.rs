//! Makes room for the data that a command may add: the limit `maxmemory` and its enforcement.
//!
//! The keyspace chooses the keys to evict. This module decides how long a worker may evict before a command, and
//! measures how long memory exceeded its limit.
//!
//! Only commands that may add data call it, at a cost of two loads while there is room. If the limit is lowered below
//! the memory in use, the reaper evicts in the background; meanwhile commands continue, and each evicts for a bounded
//! time.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tierce_keyspace::{
    Evicted, Eviction, FrequencyTuning, Keyspace, Policy, ShardLocks, evict_for,
};

use tierce_config::{DirectiveId, Settings};

/// Number of keys evicted between two looks at the clock.
const KEYS_PER_LOOK: usize = 16;

/// Directives that [`configured`] reads.
pub const DIRECTIVES: [DirectiveId; 5] = [LIMIT, POLICY, SAMPLES, LOG_FACTOR, DECAY_TIME];

const LIMIT: DirectiveId = DirectiveId::of("maxmemory");
const POLICY: DirectiveId = DirectiveId::of("maxmemory-policy");
const SAMPLES: DirectiveId = DirectiveId::of("maxmemory-samples");
const LOG_FACTOR: DirectiveId = DirectiveId::of("lfu-log-factor");
const DECAY_TIME: DirectiveId = DirectiveId::of("lfu-decay-time");

/// Returns the configured eviction.
pub fn configured(settings: &Settings) -> Eviction {
    // The table of directives limits all of these to 2^31.
    let small = |id| settings.count(id) as u32;
    Eviction {
        limit_bytes: settings.bytes(LIMIT),
        policy: Policy::named(settings.word(POLICY)).expect("the table names policies only"),
        samples: small(SAMPLES),
        frequency: FrequencyTuning {
            log_factor: small(LOG_FACTOR),
            decay_minutes: NonZeroU32::new(small(DECAY_TIME)),
        },
    }
}

/// Admission of a command that may add data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// There is room, or there will be soon. The command may run.
    Enough,
    /// There will be room, but the command must wait for it.
    Soon,
    /// Memory exceeds its limit, or would, and nothing may be evicted.
    None,
}

/// Evicts for a command that may add data, if memory is short or would be with `bytes` more, for as long as `tenacity`
/// allows. Releases the shard of the last request. Returns the admission and the time taken.
pub fn evict(
    locks: &mut ShardLocks<'_>,
    excess: &Excess,
    bytes: usize,
    tenacity: u64,
    now_ms: i64,
) -> (Room, Duration) {
    let started = Instant::now();
    let room = evict_until(locks, excess, bytes, time_max(tenacity), now_ms, started);
    (room, started.elapsed())
}

fn evict_until(
    locks: &mut ShardLocks<'_>,
    excess: &Excess,
    bytes: usize,
    time_max: Option<Duration>,
    now_ms: i64,
    started: Instant,
) -> Room {
    let keyspace = locks.keyspace();
    loop {
        match evict_for(locks, bytes, now_ms, KEYS_PER_LOOK) {
            Evicted::Enough => {
                excess.ends(now_ms);
                return Room::Enough;
            }
            // Another thread may just have evicted the last keys.
            Evicted::Nothing if bytes == 0 && !keyspace.is_short_of_memory() => {
                return Room::Enough;
            }
            // There may be room soon, and the command need not wait for data that does not exist yet.
            Evicted::Later if !keyspace.is_short_of_memory() => return Room::Enough,
            Evicted::Nothing => {
                if keyspace.is_short_of_memory() {
                    excess.goes_on(now_ms);
                }
                return Room::None;
            }
            Evicted::Later => {
                excess.goes_on(now_ms);
                return Room::Soon;
            }
            Evicted::Some => {}
        }
        if time_max.is_some_and(|time_max| started.elapsed() >= time_max) {
            if keyspace.is_short_of_memory() {
                excess.goes_on(now_ms);
                keyspace.evict_later();
            }
            return Room::Enough;
        }
    }
}

/// Returns how long one command may evict at this tenacity; `None` for no limit. As in Redis, it grows in even steps
/// up to half a millisecond at 10, then by a constant factor up to two minutes at 99.
fn time_max(tenacity: u64) -> Option<Duration> {
    match tenacity {
        0..=10 => Some(Duration::from_micros(50 * tenacity)),
        11..=99 => {
            let micros = 500.0 * 1.15f64.powi(tenacity as i32 - 10);
            Some(Duration::from_micros(micros as u64))
        }
        _ => None,
    }
}

/// Time for which memory has exceeded its limit, as far as it was noticed, in milliseconds.
#[derive(Debug, Default)]
pub struct Excess {
    /// Unix time of its begin; 0 while memory is within its limit.
    since_ms: AtomicI64,
    /// Total duration of earlier excesses.
    former_ms: AtomicI64,
}

impl Excess {
    /// Notes that memory exceeds its limit.
    pub fn goes_on(&self, now_ms: i64) {
        if self.since_ms.load(Relaxed) == 0 {
            self.since_ms.store(now_ms, Relaxed);
        }
    }

    fn ends(&self, now_ms: i64) {
        if self.since_ms.load(Relaxed) != 0 {
            // If several workers see the end at the same time, only one counts it.
            let since_ms = self.since_ms.swap(0, Relaxed);
            if since_ms != 0 {
                self.former_ms.fetch_add((now_ms - since_ms).max(0), Relaxed);
            }
        }
    }

    /// Ends the excess if the reaper has brought memory below the limit.
    pub fn check(&self, keyspace: &Keyspace, now_ms: i64) {
        if !keyspace.is_short_of_memory() {
            self.ends(now_ms);
        }
    }

    /// Returns the duration of the present excess; 0 if there is none.
    pub fn current_ms(&self, now_ms: i64) -> i64 {
        match self.since_ms.load(Relaxed) {
            0 => 0,
            since_ms => (now_ms - since_ms).max(0),
        }
    }

    /// Returns the total duration, including the present excess.
    pub fn total_ms(&self, now_ms: i64) -> i64 {
        self.former_ms.load(Relaxed) + self.current_ms(now_ms)
    }

    /// Resets all durations.
    pub fn reset(&self) {
        self.since_ms.store(0, Relaxed);
        self.former_ms.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenacity_is_time() {
        assert_eq!(time_max(0), Some(Duration::ZERO));
        assert_eq!(time_max(10), Some(Duration::from_micros(500)));
        assert!((100..200).contains(&time_max(99).unwrap().as_secs()));
        assert_eq!(time_max(100), None);
    }

    #[test]
    fn excess_is_counted_once() {
        let excess = Excess::default();
        excess.ends(5);
        excess.goes_on(10);
        excess.goes_on(20);
        assert_eq!((excess.current_ms(30), excess.total_ms(30)), (20, 20));
        excess.ends(40);
        excess.ends(50);
        assert_eq!((excess.current_ms(60), excess.total_ms(60)), (0, 30));
        excess.reset();
        assert_eq!(excess.total_ms(70), 0);
    }

    #[test]
    fn the_configuration_is_understood() {
        let eviction = configured(&Settings::default());
        assert_eq!(eviction, Eviction::default());
    }
}
