//! Policies for evicting keys or values when memory runs short: those of Redis, and `spill`.

use crate::data::usage::Tracking;

/// Eviction policy; see [`Policy::name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Policy {
    /// Evicts nothing: writes fail.
    #[default]
    Noeviction,
    /// Evicts the least recently used keys.
    AllkeysLru,
    /// Evicts the least frequently used keys.
    AllkeysLfu,
    /// Evicts random keys.
    AllkeysRandom,
    /// Evicts the least recently used keys with a deadline.
    VolatileLru,
    /// Evicts the least frequently used keys with a deadline.
    VolatileLfu,
    /// Evicts random keys with a deadline.
    VolatileRandom,
    /// Evicts the keys with the nearest deadlines.
    VolatileTtl,
    /// Evicts no keys; the least recently used values go to disk.
    Spill,
    /// Evicts the least recently changed keys.
    AllkeysLrm,
    /// Evicts the least recently changed keys with a deadline.
    VolatileLrm,
}

/// Keys that may be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    Volatile,
}

/// Criterion for the coldest key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    Uses,
    Frequency,
    LastChange,
    Chance,
}

/// Search for a key to evict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Search {
    Coldest(Scope, Measure),
    NearestDeadline,
}

impl Policy {
    /// All policies; the number of each is its index.
    pub const ALL: [Self; 11] = [
        Self::Noeviction,
        Self::AllkeysLru,
        Self::AllkeysLfu,
        Self::AllkeysRandom,
        Self::VolatileLru,
        Self::VolatileLfu,
        Self::VolatileRandom,
        Self::VolatileTtl,
        Self::Spill,
        Self::AllkeysLrm,
        Self::VolatileLrm,
    ];

    /// Returns the name in the configuration.
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
            Self::AllkeysLrm => "allkeys-lrm",
            Self::VolatileLrm => "volatile-lrm",
        }
    }

    /// Returns the policy of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Returns true if uses are counted as frequencies, so that idle times are not known.
    pub const fn counts_frequency(self) -> bool {
        matches!(self, Self::AllkeysLfu | Self::VolatileLfu)
    }

    pub(crate) const fn tracking(self) -> Tracking {
        match self {
            Self::AllkeysLru | Self::VolatileLru | Self::Spill => Tracking::Uses,
            Self::AllkeysLfu | Self::VolatileLfu => Tracking::Frequency,
            Self::AllkeysLrm | Self::VolatileLrm => Tracking::Changes,
            _ => Tracking::Time,
        }
    }

    pub(crate) fn search(self) -> Option<Search> {
        use {Measure::*, Scope::*};
        Some(match self {
            // Spilling removes no key; `crate::services::spill` does it.
            Self::Noeviction | Self::Spill => return None,
            Self::AllkeysLru => Search::Coldest(All, Uses),
            Self::AllkeysLrm => Search::Coldest(All, LastChange),
            Self::AllkeysLfu => Search::Coldest(All, Frequency),
            Self::AllkeysRandom => Search::Coldest(All, Chance),
            Self::VolatileLru => Search::Coldest(Volatile, Uses),
            Self::VolatileLrm => Search::Coldest(Volatile, LastChange),
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
