//! Time of an entry's last use, in 16 bits, from seconds to half a year ago.
//!
//! | bit 15 | bits 0 to 14 | stands for |
//! |---|---|---|
//! | 0 | Unix time in seconds, modulo 2^15 | that second |
//! | 1 | Unix time in units of 512 seconds, modulo 2^15 | the middle of that unit |
//!
//! A use writes seconds, which wrap around after nine hours. Before that, aging (`services/aging.rs`) converts stamps
//! older than [`SECONDS_KEPT`] into units, and keeps units that would wrap around at [`IDLE_SECONDS_MAX`]. So idle
//! times up to three hours are exact, longer ones are within [`UNIT`] of the truth, and a long one is never taken for
//! a short one.
//!
//! The meaning of a stamp depends on the time at which it is read. Of the moments that match its bits, it is the one
//! in a window of one cycle; the window begins [`SECONDS_BACK`] or [`UNITS_BACK`] ago and extends into the future.
//! The future is included because threads read the clock at different moments, clocks are set back, and aging reads
//! all stamps as of its previous pass.

/// Bit 15: the other bits count units.
const COARSE: u16 = 1 << 15;

/// Bits of the number.
const NUMBER: u16 = COARSE - 1;

/// Seconds in a unit.
const UNIT: i64 = 512;

/// Maximum age of seconds that aging leaves unchanged: three hours.
const SECONDS_KEPT: i64 = 3 * 3600;

/// Maximum age of seconds when they are read: [`SECONDS_KEPT`], and twice the time between two rounds of aging, with
/// two hours to spare. Twice, since a round may miss an entry that moves meanwhile.
const SECONDS_BACK: i64 = SECONDS_KEPT + 4 * 3600;

const DAY: i64 = 24 * 3600;

/// Maximum idle time that differs from longer ones: 180 days.
const IDLE_SECONDS_MAX: i64 = 180 * DAY;

/// Maximum age of units when they are read. The rest of their cycle of 194 days is the future.
const UNITS_BACK: i64 = IDLE_SECONDS_MAX + 7 * DAY;

const _: () = assert!(SECONDS_BACK + 2 * 3600 < 1 << 15);
const _: () = assert!(UNITS_BACK + 7 * DAY < UNIT << 15);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stamp(u16);

impl Stamp {
    /// Returns the stamp of a use at this time, in Unix time in milliseconds.
    #[inline]
    pub(crate) fn at(now_ms: i64) -> Self {
        // No time is negative; this tells the compiler so, and makes the division cheaper.
        Self((now_ms as u64 / 1000) as u16 & NUMBER)
    }

    /// Returns the stamp of a last use this many seconds ago.
    pub(crate) fn of_idle(seconds: u64, now_ms: i64) -> Self {
        let idle = i64::try_from(seconds).unwrap_or(i64::MAX).min(IDLE_SECONDS_MAX);
        if idle <= SECONDS_KEPT {
            Self::at((now_ms - idle * 1000).max(0))
        } else {
            Self::of_unit(now_ms / 1000 - idle)
        }
    }

    fn of_unit(second: i64) -> Self {
        Self(second.div_euclid(UNIT) as u16 & NUMBER | COARSE)
    }

    pub(crate) const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    #[inline]
    pub(crate) const fn bits(self) -> u16 {
        self.0
    }

    /// Returns the seconds since the last use.
    #[inline]
    pub(crate) fn idle_seconds(self, now_ms: i64) -> u32 {
        let now = now_ms / 1000;
        (now - self.second(now)).max(0) as u32
    }

    /// Returns the second that it represents when read at `now`. Inlined, so that readers that do not use the idle time
    /// do not compute it.
    #[inline]
    fn second(self, now: i64) -> i64 {
        if self.0 & COARSE == 0 {
            return self.number_from(now - SECONDS_BACK);
        }
        self.number_from((now - UNITS_BACK).div_euclid(UNIT)) * UNIT + UNIT / 2
    }

    /// Returns the first number from `start` on with its bits.
    #[inline]
    fn number_from(self, start: i64) -> i64 {
        start + i64::from(self.0.wrapping_sub(start as u16) & NUMBER)
    }

    /// Returns the stamp after a pass of aging at the second `now`; the previous pass was at `before`. It represents
    /// the same time, as far as possible, until the next pass.
    pub(crate) fn aged(self, before: i64, now: i64) -> Self {
        // Read as of the previous pass, it is correct however long ago that was, and if the clock was set back
        // meanwhile.
        let second = self.second(before);
        match now - second {
            ..0 => Self(now as u16 & NUMBER),
            idle if idle > IDLE_SECONDS_MAX => Self::of_unit(now - IDLE_SECONDS_MAX),
            idle if idle > SECONDS_KEPT && self.0 & COARSE == 0 => Self::of_unit(second),
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tierce_harness::effort;

    use super::*;

    const NOW: i64 = 1_700_000_000;
    const HOUR: i64 = 3600;

    /// A stamp, and the true time of the last use.
    #[derive(Clone, Copy)]
    struct Used {
        stamp: Stamp,
        second: i64,
    }

    impl Used {
        fn at(second: i64) -> Self {
            Self { stamp: Stamp::at(second * 1000), second }
        }

        #[track_caller]
        fn check(self, now: i64) {
            let idle = now - self.second;
            let told = i64::from(self.stamp.idle_seconds(now * 1000));
            let inexactness = if idle <= SECONDS_KEPT { 0 } else { UNIT };
            let longest = IDLE_SECONDS_MAX - UNIT;
            let is_right = (told - idle).abs() <= inexactness || idle > longest && told >= longest;
            assert!(is_right, "{idle} s are told as {told}");
        }
    }

    /// Lets time pass. Aging runs each hour or, if nothing ran meanwhile, once at the end.
    fn pass(all: &mut [Used], now: &mut i64, seconds: i64, each: i64) {
        let end = *now + seconds;
        while *now < end {
            let before = std::mem::replace(now, end.min(*now + each));
            all.iter_mut().for_each(|used| used.stamp = used.stamp.aged(before, *now));
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Use(usize),
        /// As with RESTORE.
        SetIdle(usize, u64),
        Pass(i64),
        Jump(i64),
    }

    fn seconds() -> impl Strategy<Value = i64> {
        prop_oneof![1..100i64, 1..20 * HOUR, 1..10 * DAY, 1..100 * DAY]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..8usize).prop_map(Step::Use),
            1 => (0..8usize, seconds()).prop_map(|(at, idle)| Step::SetIdle(at, idle as u64)),
            2 => seconds().prop_map(Step::Pass),
            1 => seconds().prop_map(Step::Jump),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        #[test]
        fn idle_times_are_what_they_are(steps in prop::collection::vec(step(), 1..40)) {
            let (mut now, mut all) = (NOW, [Used::at(NOW); 8]);
            for step in steps {
                match step {
                    Step::Use(at) => all[at] = Used::at(now),
                    Step::SetIdle(at, idle) => {
                        let stamp = Stamp::of_idle(idle, now * 1000);
                        all[at] = Used { stamp, second: now - idle as i64 };
                    }
                    Step::Pass(seconds) => pass(&mut all, &mut now, seconds, HOUR),
                    Step::Jump(seconds) => pass(&mut all, &mut now, seconds, seconds),
                }
                all.iter().for_each(|used| used.check(now));
                // Earlier uses look earlier, as far as times can be distinguished.
                for (a, b) in all.iter().zip(&all[1..]) {
                    if a.second + 2 * UNIT <= b.second && now - b.second < IDLE_SECONDS_MAX - 2 * UNIT {
                        let [a, b] = [a, b].map(|used| used.stamp.idle_seconds(now * 1000));
                        prop_assert!(a > b, "{a} {b}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_clock_that_is_behind_sees_no_idle_time() {
        for seconds in [1, 60, HOUR] {
            assert_eq!(Stamp::at(NOW * 1000).idle_seconds((NOW - seconds) * 1000), 0);
        }
        // If the clock is set back by more, the new time counts after a pass of aging.
        let mut all =
            [Used::at(NOW), Used { stamp: Stamp::of_idle(90_000, NOW * 1000), second: 0 }];
        let back = NOW - 30 * DAY;
        for used in &mut all {
            used.stamp = used.stamp.aged(NOW, back);
            assert_eq!(used.stamp.idle_seconds(back * 1000), 0);
        }
    }

    #[test]
    fn what_was_written_while_aging_was_late_is_read_right() {
        let used = Used::at(NOW);
        for hours in 0..7 {
            used.check(NOW + hours * HOUR);
        }
        let aged = Used { stamp: used.stamp.aged(NOW - HOUR, NOW + 5 * HOUR), second: NOW };
        aged.check(NOW + 5 * HOUR);
    }
}
