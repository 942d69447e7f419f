//! The memory limit, and how near it is.
//!
//! Each shard counts its bytes exactly. Adding them all up for each write would cost more than the
//! write, so a shard updates a common sum when its size has changed by a [`Pressure::step`]. The sum is
//! off by at most a step for each shard, [`INEXACTNESS`] of the limit in all. Without a limit there are
//! no updates, and the cost is one comparison.
//!
//! It counts what eviction can free: entries, index and deadlines, and what is known of their readers for client-side
//! caching, which is forgotten with them. It also counts the code that clients keep, so that it cannot be registered
//! without end. It counts neither connection buffers nor removed values that wait for the reaper.

use std::num::NonZeroU32;
use std::sync::atomic::{
    AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed,
};

use crate::data::usage::{FrequencyTuning, Tracking};
use crate::registries::policy::Policy;

/// The sum is off by at most one part in this many of the limit.
const INEXACTNESS: u64 = 256;

/// The step of a limit that is so large that more exactness is not needed.
const STEP_MAX: u64 = 64 * 1024;

/// What happens when memory runs short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eviction {
    /// Bytes of entries, index, deadlines and cached keys at most; 0 is no limit.
    pub limit_bytes: u64,
    /// Which keys go.
    pub policy: Policy,
    /// The thoroughness of the search for the right key; see [`evict`](crate::evict).
    pub samples: u32,
    /// How frequencies are counted.
    pub frequency: FrequencyTuning,
}

impl Default for Eviction {
    fn default() -> Self {
        Self {
            limit_bytes: 0,
            policy: Policy::Noeviction,
            samples: 5,
            frequency: FrequencyTuning::default(),
        }
    }
}

/// An [`Eviction`] in parts that can be read at any time, and the sum. All are relaxed: each stands
/// for itself, and a reader of an old one evicts a key too many or too few.
#[derive(Debug)]
pub(crate) struct Pressure {
    /// The limit; `u64::MAX` if there is none.
    limit_bytes: AtomicU64,
    step: AtomicU64,
    policy: AtomicU8,
    samples: AtomicU32,
    log_factor: AtomicU32,
    decay_minutes: AtomicU32,
    sum: Sum,
}

/// What changes all the time, away from what hardly does.
#[derive(Debug)]
#[repr(align(128))]
struct Sum {
    /// Bytes that the keyspace takes without keys, and those that shards have told.
    bytes: AtomicI64,
    /// Counts evictions, to take turns among the shards.
    turn: AtomicUsize,
}

impl Pressure {
    /// A keyspace without keys counts as `empty_bytes`, so that a limit below it refuses the first write as well, as in
    /// Redis.
    pub(crate) fn new(empty_bytes: usize) -> Self {
        let pressure = Self {
            limit_bytes: AtomicU64::new(u64::MAX),
            step: AtomicU64::new(u64::MAX),
            policy: AtomicU8::new(0),
            samples: AtomicU32::new(0),
            log_factor: AtomicU32::new(0),
            decay_minutes: AtomicU32::new(0),
            sum: Sum { bytes: AtomicI64::new(empty_bytes as i64), turn: AtomicUsize::new(0) },
        };
        pressure.set(&Eviction::default(), 1);
        pressure
    }

    pub(crate) fn set(&self, eviction: &Eviction, shards: usize) {
        let step = match eviction.limit_bytes {
            0 => u64::MAX,
            limit => (limit / INEXACTNESS / shards as u64).clamp(1, STEP_MAX),
        };
        let limit_bytes = if eviction.limit_bytes == 0 { u64::MAX } else { eviction.limit_bytes };
        self.limit_bytes.store(limit_bytes, Relaxed);
        self.step.store(step, Relaxed);
        self.policy.store(eviction.policy as u8, Relaxed);
        self.samples.store(eviction.samples, Relaxed);
        self.log_factor.store(eviction.frequency.log_factor, Relaxed);
        let decay_minutes = eviction.frequency.decay_minutes.map_or(0, NonZeroU32::get);
        self.decay_minutes.store(decay_minutes, Relaxed);
    }

    pub(crate) fn eviction(&self) -> Eviction {
        Eviction {
            limit_bytes: if self.has_limit() { self.limit_bytes.load(Relaxed) } else { 0 },
            policy: self.policy(),
            samples: self.samples.load(Relaxed),
            frequency: self.frequency(),
        }
    }

    #[inline]
    pub(crate) fn policy(&self) -> Policy {
        Policy::ALL[usize::from(self.policy.load(Relaxed))]
    }

    /// That of the policy, found at once: each batch asks for it.
    #[inline]
    pub(crate) fn tracking(&self) -> Tracking {
        const OF_POLICIES: [Tracking; Policy::ALL.len()] = {
            let mut all = [Tracking::Time; Policy::ALL.len()];
            let mut at = 0;
            while at < all.len() {
                all[at] = Policy::ALL[at].tracking();
                at += 1;
            }
            all
        };
        OF_POLICIES[usize::from(self.policy.load(Relaxed))]
    }

    pub(crate) fn frequency(&self) -> FrequencyTuning {
        FrequencyTuning {
            log_factor: self.log_factor.load(Relaxed),
            decay_minutes: NonZeroU32::new(self.decay_minutes.load(Relaxed)),
        }
    }

    /// By how many bytes a shard may be off before it reports; `u64::MAX` without a limit.
    #[inline]
    pub(crate) fn step(&self) -> u64 {
        self.step.load(Relaxed)
    }

    /// A shard has this many bytes more than it last reported.
    pub(crate) fn tell(&self, more: i64) {
        self.sum.bytes.fetch_add(more, Relaxed);
    }

    /// The sum of what all shards have reported, and what the keyspace takes without keys.
    #[inline]
    pub(crate) fn used_bytes(&self) -> u64 {
        // Two shards may tell in another order than things happened.
        self.sum.bytes.load(Relaxed).max(0) as u64
    }

    /// Bytes up to the limit.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.limit_bytes.load(Relaxed).saturating_sub(self.used_bytes())
    }

    #[inline]
    pub(crate) fn has_limit(&self) -> bool {
        self.limit_bytes.load(Relaxed) != u64::MAX
    }

    #[inline]
    pub(crate) fn is_exceeded(&self) -> bool {
        self.is_exceeded_with(0)
    }

    /// True if it would be with so many bytes more.
    #[inline]
    pub(crate) fn is_exceeded_with(&self, bytes: u64) -> bool {
        self.used_bytes().saturating_add(bytes) > self.limit_bytes.load(Relaxed)
    }

    /// A number that is another one each time.
    pub(crate) fn turn(&self) -> usize {
        self.sum.turn.fetch_add(1, Relaxed)
    }
}
