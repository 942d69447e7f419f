//! Versions of keys, by which a client stores a value only if no other client has (memcached's CAS).
//!
//! A version is a number that is handed out with a value and comes back with a store. What holds:
//!
//! - Two values that a key had one after the other have two versions, the later one a larger,
//!   whichever protocol stored them. So a store that asks for a version never overwrites a value
//!   that the client has not seen.
//! - A store that asks for the version of the present value succeeds, except as said below.
//!
//! Half of memcached's protocol hands a version out with every reply, and hardly any client looks at
//! it. So a version must cost nothing until a client compares it. Each shard counts its changes, and
//! the version of a key is the count at its last change; the question is where it is kept:
//!
//! - *Striped.* Once a client has been told a version in a shard, the shard notes for each of
//!   [`STRIPES`] groups of keys when it changed last. A key without a version of its own has that of
//!   its group: never older than its last change, but newer when a neighbour changed.
//! - *Own.* Eight bytes in the entry, exact. An entry gets one when a client shows that it means to
//!   compare: it asks with `gets` or meta's `c`, or stores with a version, whether that fits or not.
//!   Every change renews it, a store without a version drops it.
//!
//! So the exception is this: the first store with a version that a client has by the way, from a
//! reply of the binary protocol, may be refused though only a neighbour has changed. It is refused
//! once: then the key has a version of its own. The reasons are in
//! `docs/decisions/0013-versions-on-demand.md`.

use std::num::NonZeroU64;
use std::sync::OnceLock;

use crate::data::counter::Counter;
use crate::data::key::KeyHash;

/// Groups of keys in a shard, 2 KiB of versions. With the usual 256 shards a change concerns one key
/// in 65,536 besides the one that changed.
const STRIPES: usize = 256;

/// The versions of a shard's groups of keys, absent until a client gets one.
#[derive(Debug, Default)]
pub(crate) struct Versions(OnceLock<Box<[Counter]>>);

impl Versions {
    #[inline]
    pub(crate) fn get(&self) -> Option<&[Counter]> {
        self.0.get().map(|versions| &**versions)
    }

    /// Whatever changed before, changed at `latest` or earlier.
    pub(crate) fn start(&self, latest: NonZeroU64) -> &[Counter] {
        self.0.get_or_init(|| {
            let versions: Box<[Counter]> = (0..STRIPES).map(|_| Counter::default()).collect();
            versions.iter().for_each(|version| version.set(latest.get()));
            versions
        })
    }

    /// Gives a group of keys the version that it had.
    pub(crate) fn set(&self, stripe: usize, version: u64) {
        if let Some(versions) = self.get() {
            versions[stripe].set(version);
        }
    }

    /// All keys changed at `latest`.
    pub(crate) fn renew_all(&self, latest: NonZeroU64) {
        for version in self.get().unwrap_or_default() {
            version.set(latest.get());
        }
    }
}

#[inline]
pub(crate) fn stripe(hash: KeyHash) -> usize {
    // The lowest bits decide neither the shard nor the place in its table.
    hash.0 as usize % STRIPES
}
