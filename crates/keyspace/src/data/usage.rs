//! Usage data of an entry for eviction, in 19 bits of its handle.
//!
//! | tracking | stamp, 16 bits | uses, 3 bits |
//! |---|---|---|
//! | [`Tracking::Time`] | time of the last use, see [`crate::data::stamp`] | nothing |
//! | [`Tracking::Uses`] | same | uses since the entry was added, up to 6; eviction counts down. 7: see [`ON_DISK`] |
//! | [`Tracking::Changes`] | time of the last change | 0 |
//! | [`Tracking::Frequency`] | logarithmic counter (upper byte), period (lower byte) | upper bits of the period |
//!
//! After a change of the policy, the bits of an entry are misread until its next use. This only makes the choice of
//! what to evict worse for a while.

use std::num::NonZeroU32;

use crate::data::stamp::Stamp;

/// Maximum number in the 3 bits.
pub(crate) const USES_MAX: u8 = 7;

/// Maximum number of uses that an entry remembers.
const USES_COUNTED_MAX: u8 = 6;

/// Mark instead of the uses: at the last pass of the clock hand, the value was only on disk. A search for values in
/// memory need not read the entry, which mostly saves a cache miss. A use clears the mark. It is only a hint, since
/// these bits have another meaning under other tracking modes.
pub(crate) const ON_DISK: u8 = 7;

/// Initial counter of a new key, as in Redis: a key gets a chance to be used again before it is the least frequently
/// used one.
const COUNTER_NEW: u8 = 5;

/// Number of bits of a period.
const PERIOD_BITS: u32 = 11;
const PERIOD_MASK: u16 = (1 << PERIOD_BITS) - 1;

/// Maximum age of a period. The rest of the cycle counts as the future, since threads read the clock at different
/// moments, and it may be set back.
const PERIODS_BACK: i64 = 3 << (PERIOD_BITS - 2);

/// Maximum age of periods that aging leaves unchanged: half of the cycle.
const PERIODS_KEPT: i64 = 1 << (PERIOD_BITS - 1);

const MINUTE_MS: i64 = 60_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Access {
    pub(crate) stamp: Stamp,
    /// At most [`USES_MAX`]; [`ON_DISK`] is not a number.
    pub(crate) uses: u8,
}

/// Policy for counting a use of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usage {
    /// Uses are not counted.
    None,
    /// Only the time of the last use is stored.
    Stamp,
    /// The use is tracked as the policy requires, or so that a rollback can revert it.
    Tracked,
}

impl Usage {
    pub(crate) fn of(tracking: Tracking) -> Self {
        match tracking {
            Tracking::Time => Self::Stamp,
            Tracking::Uses | Tracking::Frequency => Self::Tracked,
            Tracking::Changes => Self::None,
        }
    }

    /// Returns the policy for use under an undo log, which reverts uses in a rollback.
    pub(crate) fn undoable(self) -> Self {
        if self == Self::None { Self::None } else { Self::Tracked }
    }
}

/// Kind of usage data that an entry keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tracking {
    /// Time of the last use.
    Time,
    /// Time of the last use, and number of repeated uses.
    Uses,
    /// Frequency of use.
    Frequency,
    /// Time of the last change.
    Changes,
}

impl Access {
    /// Returns the data of an entry after one more use.
    #[inline]
    pub(crate) fn used_again(self, stamp: Stamp) -> Self {
        Self { stamp, uses: (self.uses + 1).min(USES_COUNTED_MAX) }
    }

    /// Rank of an entry that is tracked by its uses: the lower, the better for eviction.
    ///
    /// The number of uses comes first, reduced by one for each doubling of the idle time beyond a minute, so that
    /// formerly popular keys do not stay forever. Among equals the idle time decides, in steps of a factor of four,
    /// so that new keys are spared. Otherwise chance decides, which measured better than strict order
    /// (docs/decisions/0010-eviction.md).
    #[inline]
    pub(crate) fn warmth(self, now_ms: i64) -> u32 {
        let idle = self.stamp.idle_seconds(now_ms);
        let uses = u32::from(self.uses).saturating_sub(bits_of(idle / 60));
        uses << 8 | (u32::from(u8::MAX) - bits_of(idle) / 2)
    }
}

fn bits_of(number: u32) -> u32 {
    u32::BITS - number.leading_zeros()
}

/// Tuning of the frequency counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrequencyTuning {
    /// Scale of the uses needed per increment: with 10, a million uses bring a counter to 255.
    pub log_factor: u32,
    /// Minutes after which an unused counter decreases by one; `None` for never.
    pub decay_minutes: Option<NonZeroU32>,
}

impl Default for FrequencyTuning {
    fn default() -> Self {
        Self { log_factor: 10, decay_minutes: NonZeroU32::new(1) }
    }
}

impl FrequencyTuning {
    /// Returns the number of the period at a moment.
    fn period_number(&self, now_ms: i64) -> i64 {
        let minutes = self.decay_minutes.map_or(1, NonZeroU32::get);
        now_ms / MINUTE_MS / i64::from(minutes)
    }

    /// Returns the low bits of that number, which an entry can store.
    fn period(&self, now_ms: i64) -> u16 {
        self.period_number(now_ms) as u16 & PERIOD_MASK
    }
}

/// Frequency of use of an entry: the meaning of an [`Access`] under [`Tracking::Frequency`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frequency {
    counter: u8,
    period: u16,
}

impl Frequency {
    /// Returns the frequency of a new entry.
    pub(crate) fn new(tuning: &FrequencyTuning, now_ms: i64) -> Self {
        Self::with_counter(COUNTER_NEW, tuning, now_ms)
    }

    pub(crate) fn with_counter(counter: u8, tuning: &FrequencyTuning, now_ms: i64) -> Self {
        Self { counter, period: tuning.period(now_ms) }
    }

    #[inline]
    pub(crate) fn of(access: Access) -> Self {
        let [counter, low] = access.stamp.bits().to_be_bytes();
        Self { counter, period: u16::from(access.uses) << 8 | u16::from(low) }
    }

    #[inline]
    pub(crate) fn to_access(self) -> Access {
        let [high, low] = self.period.to_be_bytes();
        let stamp = Stamp::from_bits(u16::from_be_bytes([self.counter, low]));
        Access { stamp, uses: high }
    }

    /// Returns the counter now: one less for each period since the last use.
    #[inline]
    pub(crate) fn counter(self, tuning: &FrequencyTuning, now_ms: i64) -> u8 {
        self.decayed(tuning, self.periods_since(tuning, now_ms))
    }

    /// Returns the counter after so many periods.
    fn decayed(self, tuning: &FrequencyTuning, periods: i64) -> u8 {
        match tuning.decay_minutes {
            Some(_) => self.counter.saturating_sub(periods.clamp(0, u8::MAX.into()) as u8),
            None => self.counter,
        }
    }

    /// Returns the periods since the last use; negative if that is in the future.
    fn periods_since(self, tuning: &FrequencyTuning, now_ms: i64) -> i64 {
        let periods = i64::from(tuning.period(now_ms).wrapping_sub(self.period) & PERIOD_MASK);
        if periods > PERIODS_BACK { periods - (1 << PERIOD_BITS) } else { periods }
    }

    /// Returns the frequency after a pass of aging; the previous pass was at `before_ms`. Its meaning stays the same
    /// until the next pass. Without aging, periods would wrap around, after 34 hours by default, and formerly popular
    /// keys would seem popular again.
    pub(crate) fn aged(self, tuning: &FrequencyTuning, before_ms: i64, now_ms: i64) -> Self {
        let between = tuning.period_number(now_ms) - tuning.period_number(before_ms);
        let periods = self.periods_since(tuning, before_ms) + between;
        if (0..=PERIODS_KEPT).contains(&periods) {
            return self;
        }
        Self::with_counter(self.decayed(tuning, periods), tuning, now_ms)
    }

    /// Counts a use. The higher the counter, the less likely it increases; `random` decides.
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
        let now_ms = 1_700_000_000_000;
        let warmth =
            |idle, uses| Access { stamp: Stamp::of_idle(idle, now_ms), uses }.warmth(now_ms);
        assert!(warmth(0, 1) > warmth(0, 0));
        assert!(warmth(50, 1) > warmth(0, 0));
        assert!(warmth(500, 1) < warmth(0, 0));
        assert!(warmth(4, 0) < warmth(0, 0));
        assert_eq!(warmth(20_000, 7) >> 8, 0);
        // Half a year is colder than a day, and a day colder than an hour.
        assert!(warmth(180 * 86_400, 0) < warmth(86_400, 0));
        assert!(warmth(86_400, 0) < warmth(3600, 0));
    }

    #[test]
    fn what_was_popular_days_ago_is_not_so_again() {
        const HOUR_MS: i64 = 60 * MINUTE_MS;
        let tuning = FrequencyTuning::default();
        let popular = Frequency::with_counter(200, &tuning, 0);
        for hours in [1, 3, 35, 69, 24 * 100] {
            let expected = 200i64.saturating_sub(hours * 60).max(0) as u8;
            let hourly = (0..hours).fold(popular, |popular, hour| {
                popular.aged(&tuning, hour * HOUR_MS, (hour + 1) * HOUR_MS)
            });
            assert_eq!(hourly.counter(&tuning, hours * HOUR_MS), expected, "{hours} hours");
            let at_once = popular.aged(&tuning, 0, hours * HOUR_MS);
            assert_eq!(at_once.counter(&tuning, hours * HOUR_MS), expected, "{hours} hours");
        }
        let never = FrequencyTuning { decay_minutes: None, ..tuning };
        let aged = popular.aged(&never, 0, 69 * HOUR_MS);
        assert_eq!(aged.counter(&never, 69 * HOUR_MS), 200);
    }

    #[test]
    fn a_clock_that_is_a_minute_behind_forgets_no_use() {
        let tuning = FrequencyTuning::default();
        let popular = Frequency::with_counter(200, &tuning, 100 * MINUTE_MS);
        let behind_ms = 100 * MINUTE_MS - 1;
        assert_eq!(popular.counter(&tuning, behind_ms), 200);
        assert!(popular.used(&tuning, behind_ms, 1 << 63).counter(&tuning, behind_ms) >= 200);
    }
}
