//! Versions of keys, by which a client stores a value only if no other client has (memcached's CAS).
//!
//! A version is a number that is returned with a value and compared in a later store. Guarantees:
//!
//! - Successive values of a key have different, increasing versions, whichever protocol stored
//!   them. So a store with a version never overwrites a value that the client has not seen.
//! - A store with the version of the present value succeeds, with the exception below.
//!
//! Half of memcached's protocol returns a version with every reply, and hardly any client uses it.
//! So a version must cost nothing until a client compares it. Each shard counts its changes, and
//! the version of a key is the count at its last change. There are two ways to store it:
//!
//! - *Striped.* Once a client has been given a version in a shard, the shard stores the last change
//!   of each of [`STRIPES`] groups of keys. A key without an own version has that of its group:
//!   never older than its last change, but newer when a neighbour changed.
//! - *Own.* Eight bytes in the entry, exact. An entry gets one when a client shows that it will
//!   compare: it asks with `gets` or meta's `c`, or stores with a version, matching or not. Every
//!   change renews it, a store without a version drops it.
//!
//! The exception: the first store with an incidental version, from a reply of the binary protocol,
//! may be refused although only a neighbour has changed. This happens only once: then the key has
//! an own version. `docs/decisions/0013-versions-on-demand.md` has the reasons.

use std::num::NonZeroU64;
use std::sync::OnceLock;

use crate::data::counter::Counter;
use crate::data::key::KeyHash;

/// Number of groups of keys in a shard, 2 KiB of versions. With the usual 256 shards a change
/// affects one key in 65,536 besides its own.
const STRIPES: usize = 256;

/// Versions of a shard's groups of keys, absent until a client gets one.
#[derive(Debug, Default)]
pub(crate) struct Versions(OnceLock<Box<[Counter]>>);

impl Versions {
    #[inline]
    pub(crate) fn get(&self) -> Option<&[Counter]> {
        self.0.get().map(|versions| &**versions)
    }

    /// Creates the versions: all earlier changes were at `latest` or before.
    pub(crate) fn start(&self, latest: NonZeroU64) -> &[Counter] {
        self.0.get_or_init(|| {
            let versions: Box<[Counter]> = (0..STRIPES).map(|_| Counter::default()).collect();
            versions.iter().for_each(|version| version.set(latest.get()));
            versions
        })
    }

    /// Restores the version of a group of keys.
    pub(crate) fn set(&self, stripe: usize, version: u64) {
        if let Some(versions) = self.get() {
            versions[stripe].set(version);
        }
    }

    /// Sets all versions to `latest`.
    pub(crate) fn renew_all(&self, latest: NonZeroU64) {
        for version in self.get().unwrap_or_default() {
            version.set(latest.get());
        }
    }
}

#[inline]
pub(crate) fn stripe(hash: KeyHash) -> usize {
    // The lowest bits affect neither the shard nor the position in its table.
    hash.0 as usize % STRIPES
}
