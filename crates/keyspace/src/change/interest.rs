//! The kinds of listeners to changes, as one word with a bit for each.
//!
//! A change checks one word to see if there is a listener. Some bits belong to a shard, and others to the thread that
//! has it locked, which takes them from the keyspace when it locks. Both words are combined by OR. Usually the result
//! is zero, or has only the bit of the log.

use std::ops::BitOr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::change::event::EventClasses;

/// A set of kinds of listeners to changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Interest(u64);

/// Position of the event classes: the upper half.
const CLASSES_SHIFT: u32 = 32;

impl Interest {
    /// Thread bit: changes go to the log that makes them durable.
    pub(crate) const DURABLE: Self = Self(1 << 0);
    /// Thread bit: a follower gets all changes, durable or not.
    pub(crate) const FOLLOWED: Self = Self(1 << 6);
    /// Changes are recorded, for one of these reasons or both.
    pub(crate) const LOG: Self = Self(Self::DURABLE.0 | Self::FOLLOWED.0);
    /// Shard bit: a client knows versions of its keys.
    pub(crate) const VERSIONS: Self = Self(1 << 1);
    /// Shard bit: clients wait for its keys.
    pub(crate) const WAITERS: Self = Self(1 << 2);
    /// Shard bit: among these clients, some wait for edits of present keys.
    pub(crate) const EDITS: Self = Self(1 << 7);
    /// Shard bit: some of its keys are watched.
    pub(crate) const WATCHED: Self = Self(1 << 3);
    /// Shard bit: clients may have cached some of its keys.
    pub(crate) const CACHED: Self = Self(1 << 4);
    /// Thread bit: every change is reported to clients that cache keys.
    pub(crate) const BROADCAST: Self = Self(1 << 5);
    /// Clients that cache keys may have to be told.
    pub(crate) const INVALIDATES: Self = Self(Self::CACHED.0 | Self::BROADCAST.0);
    /// Listeners to each change of every key.
    pub(crate) const UNFILTERED: Self = Self(Self::CHANGES.0 & !Self::WATCHED.0);
    /// Listeners to each change.
    pub(crate) const CHANGES: Self = Self(
        Self::LOG.0 | Self::VERSIONS.0 | Self::WAITERS.0 | Self::WATCHED.0 | Self::INVALIDATES.0,
    );
    /// Additional listeners to removals.
    pub(crate) const REMOVALS: Self = Self(
        Self::CHANGES.0
            | Self::of_classes(EventClasses::EXPIRED).0
            | Self::of_classes(EventClasses::EVICTED).0,
    );

    #[inline]
    pub(crate) const fn of_classes(classes: EventClasses) -> Self {
        Self((classes.bits() as u64) << CLASSES_SHIFT)
    }

    /// Returns true if any of `others` is among these.
    #[inline]
    pub(crate) const fn includes(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Returns these, with the event classes of another set.
    pub(crate) const fn with_classes_of(self, other: Self) -> Self {
        let lower = (1 << CLASSES_SHIFT) - 1;
        Self(self.0 & lower | other.0 & !lower)
    }

    pub(crate) fn set(&mut self, which: Self, is_there: bool) {
        self.0 = if is_there { self.0 | which.0 } else { self.0 & !which.0 };
    }
}

impl BitOr for Interest {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Interest in the changes of one shard. Written by the holder of its lock.
#[derive(Debug, Default)]
pub(crate) struct ShardInterest(AtomicU64);

impl ShardInterest {
    // Relaxed: reader and writer hold the lock.
    #[inline]
    pub(crate) fn get(&self) -> Interest {
        Interest(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, which: Interest, is_there: bool) {
        let mut interest = self.get();
        interest.set(which, is_there);
        self.0.store(interest.0, Ordering::Relaxed);
    }
}

/// Interest in the changes of all shards. A thread reads it when it has locked a shard.
#[derive(Debug, Default)]
pub(crate) struct SharedInterest(AtomicU64);

impl SharedInterest {
    /// Acquire: a thread that sees the bit of the log also sees everything done before it was set.
    #[inline]
    pub(crate) fn get(&self) -> Interest {
        Interest(self.0.load(Ordering::Acquire))
    }

    pub(crate) fn set_log(&self, is_there: bool) {
        self.set(Interest::DURABLE, is_there);
    }

    pub(crate) fn set_followed(&self, is_followed: bool) {
        self.set(Interest::FOLLOWED, is_followed);
    }

    pub(crate) fn set_broadcast(&self, is_there: bool) {
        self.set(Interest::BROADCAST, is_there);
    }

    fn set(&self, which: Interest, is_there: bool) {
        match is_there {
            true => self.0.fetch_or(which.0, Ordering::Release),
            false => self.0.fetch_and(!which.0, Ordering::Release),
        };
    }

    pub(crate) fn set_classes(&self, classes: EventClasses) {
        let upper = Interest::of_classes(classes).0;
        let keep = (1 << CLASSES_SHIFT) - 1;
        let replace = |word| Some(word & keep | upper);
        // The closure always returns a value.
        _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, replace);
    }
}
