//! Which keys or values leave memory when it runs short: Redis' policies, and `spill`.

use crate::data::usage::Tracking;

/// See [`Policy::name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Policy {
    /// None: writes have to fail.
    #[default]
    Noeviction,
    /// Any key that was not used for long.
    AllkeysLru,
    /// Any key that is seldom used.
    AllkeysLfu,
    /// Any key.
    AllkeysRandom,
    /// A key with a deadline that was not used for long.
    VolatileLru,
    /// A key with a deadline that is seldom used.
    VolatileLfu,
    /// Any key with a deadline.
    VolatileRandom,
    /// The key with the nearest deadline.
    VolatileTtl,
    /// None: values that were not used for long go to disk.
    Spill,
}

/// Which keys may go at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    Volatile,
}

/// By what the coldest key is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    Uses,
    Frequency,
    Chance,
}

/// How a key to evict is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Search {
    Coldest(Scope, Measure),
    NearestDeadline,
}

impl Policy {
    /// All policies; the place of each is its number.
    pub const ALL: [Self; 9] = [
        Self::Noeviction,
        Self::AllkeysLru,
        Self::AllkeysLfu,
        Self::AllkeysRandom,
        Self::VolatileLru,
        Self::VolatileLfu,
        Self::VolatileRandom,
        Self::VolatileTtl,
        Self::Spill,
    ];

    /// The name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Noeviction => "noeviction",
            Self::AllkeysLru => "allkeys-lru",
            Self::AllkeysLfu => "allkeys-lfu",
            Self::AllkeysRandom => "allkeys-random",
            Self::VolatileLru => "volatile-lru",
            Self::VolatileLfu => "volatile-lfu",
            Self::VolatileRandom => "volatile-random",
            Self::VolatileTtl => "volatile-ttl",
            Self::Spill => "spill",
        }
    }

    /// The policy of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Whether the uses of keys are counted as frequencies, and their idle time is not known.
    pub const fn counts_frequency(self) -> bool {
        matches!(self, Self::AllkeysLfu | Self::VolatileLfu)
    }

    pub(crate) const fn tracking(self) -> Tracking {
        match self {
            Self::AllkeysLru | Self::VolatileLru | Self::Spill => Tracking::Uses,
            Self::AllkeysLfu | Self::VolatileLfu => Tracking::Frequency,
            _ => Tracking::Time,
        }
    }

    pub(crate) fn search(self) -> Option<Search> {
        use {Measure::*, Scope::*};
        Some(match self {
            // Spilling removes no key, and is done elsewhere: see `crate::services::spill`.
            Self::Noeviction | Self::Spill => return None,
            Self::AllkeysLru => Search::Coldest(All, Uses),
            Self::AllkeysLfu => Search::Coldest(All, Frequency),
            Self::AllkeysRandom => Search::Coldest(All, Chance),
            Self::VolatileLru => Search::Coldest(Volatile, Uses),
            Self::VolatileLfu => Search::Coldest(Volatile, Frequency),
            Self::VolatileRandom => Search::Coldest(Volatile, Chance),
            Self::VolatileTtl => Search::NearestDeadline,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_back() {
        for policy in Policy::ALL {
            assert_eq!(Policy::ALL[policy as usize], policy);
            assert_eq!(Policy::named(policy.name()), Some(policy));
        }
        assert_eq!(Policy::named("lru"), None);
    }
}
