//! The memory limit, and the memory that counts against it.
//!
//! Each shard counts its bytes exactly. Adding them all up for each write would cost more than the write. So a shard
//! updates a common sum when its size has changed by a [`Pressure::step`]. The error of the sum is at most a step for
//! each shard, in total 1/[`INEXACTNESS`] of the limit. Without a limit there are no updates, and the cost is one
//! comparison.
//!
//! The sum includes memory that eviction can free: entries, index, deadlines, and the readers for client-side
//! caching, which are forgotten with their keys. It also includes the code that clients store, so that they cannot
//! store it without limit. It includes neither connection buffers nor removed values that wait for the reaper.

use std::num::NonZeroU32;
use std::sync::atomic::{
    AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed,
};

use crate::data::usage::{FrequencyTuning, Tracking};
use crate::registries::policy::Policy;

/// The maximum error of the sum is the limit divided by this number.
const INEXACTNESS: u64 = 256;

/// Maximum step, for limits so large that more exactness is not needed.
const STEP_MAX: u64 = 64 * 1024;

/// Policy for when memory runs short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eviction {
    /// Maximum bytes of entries, index, deadlines and cached keys; 0 is no limit.
    pub limit_bytes: u64,
    /// Policy that selects keys.
    pub policy: Policy,
    /// Thoroughness of the search for a key; see [`evict`](crate::evict).
    pub samples: u32,
    /// Tuning of the frequency counters.
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

/// An [`Eviction`] in atomic parts, and the sum. All are relaxed: each is independent, and a reader of an old value
/// evicts a key too many or too few.
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

/// Frequently changed fields, separate from those that rarely change.
#[derive(Debug)]
#[repr(align(128))]
struct Sum {
    /// Bytes of the empty keyspace, and those that shards have reported.
    bytes: AtomicI64,
    /// Counts evictions, to take turns among the shards.
    turn: AtomicUsize,
}

impl Pressure {
    /// An empty keyspace counts as `empty_bytes`, so that a limit below it refuses even the first write, as in Redis.
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

    /// Returns the tracking mode of the policy. Fast, since each batch asks for it.
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

    /// Returns the change in bytes at which a shard reports; `u64::MAX` without a limit.
    #[inline]
    pub(crate) fn step(&self) -> u64 {
        self.step.load(Relaxed)
    }

    /// Adds the change in bytes since a shard's last report.
    pub(crate) fn tell(&self, more: i64) {
        self.sum.bytes.fetch_add(more, Relaxed);
    }

    /// Returns the sum of the shards' reports and of the empty keyspace.
    #[inline]
    pub(crate) fn used_bytes(&self) -> u64 {
        // Reports of two shards may arrive in another order than their changes.
        self.sum.bytes.load(Relaxed).max(0) as u64
    }

    /// Returns the bytes left up to the limit.
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

    /// Returns true if the limit would be exceeded with so many bytes more.
    #[inline]
    pub(crate) fn is_exceeded_with(&self, bytes: u64) -> bool {
        self.used_bytes().saturating_add(bytes) > self.limit_bytes.load(Relaxed)
    }

    /// Returns a different number each time.
    pub(crate) fn turn(&self) -> usize {
        self.sum.turn.fetch_add(1, Relaxed)
    }
}
