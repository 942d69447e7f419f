//! What an entry remembers of its uses, in 19 bits of its handle, and how it is read.
//!
//! | tracking | stamp, 16 bits | uses, 3 bits |
//! |---|---|---|
//! | [`Tracking::Time`] | time of the last use in seconds, modulo 2^16 | nothing |
//! | [`Tracking::Uses`] | the same | uses since the entry came, up to 6; eviction counts down. 7: see [`ON_DISK`] |
//! | [`Tracking::Frequency`] | logarithmic counter in the upper byte, period in the lower one | upper bits of the period |
//!
//! Who changes the policy changes what the bits mean: until an entry is used again they are read
//! wrong, which makes the choice of what to evict worse for a while and nothing else.

use std::num::NonZeroU32;

/// The largest number that its 3 bits hold.
pub(crate) const USES_MAX: u8 = 7;

/// The largest number of uses that an entry remembers.
const USES_COUNTED_MAX: u8 = 6;

/// In place of the uses: when the hand of eviction last came by, the value was on disk only. Whoever
/// looks for values in memory need not look into the entry, which mostly saves a cache miss. A use takes
/// the mark away; it is a hint, for other trackings have the same bits mean something else.
pub(crate) const ON_DISK: u8 = 7;

/// The counter of a key that has just come, as in Redis: a key shall have a chance to be used again
/// before it is the least frequent one.
const COUNTER_NEW: u8 = 5;

/// Bits of a period.
const PERIOD_BITS: u32 = 11;
const PERIOD_MASK: u16 = (1 << PERIOD_BITS) - 1;

const MINUTE_MS: i64 = 60_000;

/// See the head of this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Access {
    pub(crate) stamp: u16,
    /// At most [`USES_MAX`]; [`ON_DISK`] is not a number.
    pub(crate) uses: u8,
}

/// What is kept of the uses of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tracking {
    /// When it was last used.
    Time,
    /// That, and whether it has been used repeatedly.
    Uses,
    /// How often it is used.
    Frequency,
}

impl Access {
    /// Of an entry that is used once more.
    #[inline]
    pub(crate) fn used_again(self, stamp: u16) -> Self {
        Self { stamp, uses: (self.uses + 1).min(USES_COUNTED_MAX) }
    }

    /// Seconds since the last use, as far as 16 bits tell.
    #[inline]
    pub(crate) fn idle_seconds(self, clock: u16) -> u16 {
        clock.wrapping_sub(self.stamp)
    }

    /// How little is lost with an entry that is tracked by its uses: the less the number, the less.
    ///
    /// What counts first is the number of uses, less one for each doubling of the idle time from a
    /// minute on: what was popular yesterday shall not stay for that. Among equals the idle time
    /// decides in steps of a factor of four, so that what has just come is spared, and otherwise
    /// chance, which measured better than strict order (docs/decisions/0010-eviction.md).
    #[inline]
    pub(crate) fn warmth(self, clock: u16) -> u32 {
        let idle = u32::from(self.idle_seconds(clock));
        let uses = u32::from(self.uses).saturating_sub(bits_of(idle / 60));
        uses << 8 | (u32::from(u8::MAX) - bits_of(idle) / 2)
    }
}

fn bits_of(number: u32) -> u32 {
    u32::BITS - number.leading_zeros()
}

/// How frequencies are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrequencyTuning {
    /// How many uses it takes to count up: with 10, a million bring a counter to 255.
    pub log_factor: u32,
    /// Minutes after which a counter that was not used goes down by one; `None` for never.
    pub decay_minutes: Option<NonZeroU32>,
}

impl Default for FrequencyTuning {
    fn default() -> Self {
        Self { log_factor: 10, decay_minutes: NonZeroU32::new(1) }
    }
}

impl FrequencyTuning {
    /// The number of the period of a moment, as far as an entry can keep it.
    fn period(&self, now_ms: i64) -> u16 {
        let minutes = self.decay_minutes.map_or(1, NonZeroU32::get);
        (now_ms / MINUTE_MS / i64::from(minutes)) as u16 & PERIOD_MASK
    }
}

/// How often an entry is used: the meaning of an [`Access`] under [`Tracking::Frequency`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frequency {
    counter: u8,
    period: u16,
}

impl Frequency {
    /// Of a new entry.
    pub(crate) fn new(tuning: &FrequencyTuning, now_ms: i64) -> Self {
        Self { counter: COUNTER_NEW, period: tuning.period(now_ms) }
    }

    #[inline]
    pub(crate) fn of(access: Access) -> Self {
        let [counter, low] = access.stamp.to_be_bytes();
        Self { counter, period: u16::from(access.uses) << 8 | u16::from(low) }
    }

    #[inline]
    pub(crate) fn to_access(self) -> Access {
        let [high, low] = self.period.to_be_bytes();
        Access { stamp: u16::from_be_bytes([self.counter, low]), uses: high }
    }

    /// The counter now: one less for each period since the last use.
    #[inline]
    pub(crate) fn counter(self, tuning: &FrequencyTuning, now_ms: i64) -> u8 {
        if tuning.decay_minutes.is_none() {
            return self.counter;
        }
        let periods = tuning.period(now_ms).wrapping_sub(self.period) & PERIOD_MASK;
        self.counter.saturating_sub(u8::try_from(periods).unwrap_or(u8::MAX))
    }

    /// Counts a use. The higher the counter, the less likely it goes up; `random` decides.
    pub(crate) fn used(self, tuning: &FrequencyTuning, now_ms: i64, random: u64) -> Self {
        let counter = self.counter(tuning, now_ms);
        let above = f64::from(counter.saturating_sub(COUNTER_NEW));
        let chance = 1.0 / (above * f64::from(tuning.log_factor) + 1.0);
        let goes_up = ((random >> 11) as f64) < chance * (1u64 << 53) as f64;
        let counter = counter.saturating_add(u8::from(goes_up));
        Self { counter, period: tuning.period(now_ms) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frequency_survives_the_bits_of_an_entry() {
        let tuning = FrequencyTuning::default();
        for minutes in [0, 1, 255, 256, 2047] {
            let frequency = Frequency::new(&tuning, minutes * MINUTE_MS);
            let access = frequency.to_access();
            assert!(access.uses <= USES_MAX);
            assert_eq!(Frequency::of(access), frequency);
        }
    }

    #[test]
    fn counters_go_up_ever_more_slowly_and_down_by_time() {
        let tuning = FrequencyTuning::default();
        let mut frequency = Frequency::new(&tuning, 0);
        let mut random = 1u64;
        let mut after = Vec::new();
        for uses in 1..=100_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            frequency = frequency.used(&tuning, 0, random);
            if [1, 100, 1000, 100_000].contains(&uses) {
                after.push(frequency.counter(&tuning, 0));
            }
        }
        // The first use always counts. Redis documents 10, 18 and 142 for the others.
        assert_eq!(after[0], 6);
        for (counter, expected) in after[1..].iter().zip([10u8, 18, 142]) {
            assert!(counter.abs_diff(expected) <= 2 + expected / 8, "{after:?}");
        }
        let now = frequency.counter(&tuning, 0);
        assert_eq!(frequency.counter(&tuning, 3 * MINUTE_MS), now - 3);
        assert_eq!(frequency.counter(&tuning, 1000 * MINUTE_MS), 0);
        let never = FrequencyTuning { decay_minutes: None, ..tuning };
        assert_eq!(frequency.counter(&never, 1000 * MINUTE_MS), now);
    }

    #[test]
    fn uses_count_first_and_time_wears_them_off() {
        let access = |stamp, uses| Access { stamp, uses };
        let now = 40_000u16;
        assert!(access(now, 1).warmth(now) > access(now, 0).warmth(now));
        assert!(access(now - 50, 1).warmth(now) > access(now, 0).warmth(now));
        assert!(access(now - 500, 1).warmth(now) < access(now, 0).warmth(now));
        assert!(access(now - 4, 0).warmth(now) < access(now, 0).warmth(now));
        assert_eq!(access(now - 20_000, 7).warmth(now) >> 8, 0);
        // The clock goes round.
        assert_eq!(access(u16::MAX, 3).warmth(0), access(999, 3).warmth(1000));
    }
}
