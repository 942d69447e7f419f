//! A large collection that is being saved as it was at one moment, while it goes on changing.
//!
//! The collection itself keeps what that takes, and its own methods see to it: so whatever changes it,
//! and whatever it is called meanwhile, no change can forget to save first. A snapshot takes a slice
//! at a time, and each slice leaves the collection to others in between. What has been taken and what
//! is still to come is together, at any time, what the collection was in the beginning.
//!
//! This file has what the types have in common: whose collection it is ([`SaveTag`]), and how the
//! members of a table are saved ([`Saving`]), for sets, hashes and sorted sets alike. The table is
//! walked in the order of hashes, and a member ahead of the walk that is about to change is copied,
//! once; see [`tierce_dash::Snapshot`]. How a list does it stands in `list/saving.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use tierce_dash::{EntryHash, Snapshot, Table};

/// Tells the savings of one process apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SaveId(u64);

/// Whose saving it is, and where its memory is counted.
#[derive(Debug)]
pub struct SaveTag {
    id: SaveId,
    /// A figure that several savings share; relaxed, for it orders nothing.
    bytes: Arc<AtomicUsize>,
    /// What is counted there for this one.
    counted: usize,
}

impl SaveTag {
    /// A new one. What the copies take is counted in `bytes`.
    #[must_use]
    pub fn new(bytes: &Arc<AtomicUsize>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = SaveId(NEXT.fetch_add(1, Relaxed));
        Self { id, bytes: Arc::clone(bytes), counted: 0 }
    }

    /// The identity of the saving. Later ones have higher identities.
    #[must_use]
    pub fn id(&self) -> SaveId {
        self.id
    }

    /// Counts that copies take `bytes` now.
    pub(crate) fn count(&mut self, bytes: usize) {
        self.bytes.fetch_add(bytes.wrapping_sub(self.counted), Relaxed);
        self.counted = bytes;
    }
}

impl Drop for SaveTag {
    fn drop(&mut self) {
        self.count(0);
    }
}

/// Whether a slice was the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    /// There may be more.
    Slice,
    /// That was all.
    Complete,
}

/// What a collection has kept for a saving that was given up. Frees it when dropped, which may take a
/// while.
pub struct Leftover {
    _kept: Box<dyn Send + Sync>,
}

impl Leftover {
    pub(crate) fn new(kept: impl Send + Sync + 'static) -> Self {
        Self { _kept: Box::new(kept) }
    }
}

impl std::fmt::Debug for Leftover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Leftover")
    }
}

/// A copy of a member, made before that changes.
pub(crate) trait CopyOwned {
    /// Bytes it owns beside itself, as the allocator counts them.
    fn owned_bytes(&self) -> usize;
}

/// Copies stand in runs of so many, lest a vector of millions be moved when it grows.
const RUN_LEN: usize = 512;

/// The members of a table while they are being saved.
#[derive(Debug)]
pub(crate) struct Saving<C> {
    tag: SaveTag,
    walk: Snapshot,
    /// Members as they were, that have changed since and have not been taken yet. Not empty, but for
    /// the last run.
    copies: Vec<Vec<C>>,
    copy_bytes: usize,
}

impl<C> Saving<C> {
    pub(crate) fn begin(tag: SaveTag) -> Self {
        Self { tag, walk: Snapshot::begin(), copies: Vec::new(), copy_bytes: 0 }
    }

    pub(crate) fn id(&self) -> SaveId {
        self.tag.id
    }

    /// To be called before a member with this hash comes, goes or changes.
    #[cold]
    pub(crate) fn before_change<E>(
        &mut self,
        table: &Table<E>,
        hash: u64,
        hasher: &impl EntryHash<E>,
        copy: impl Fn(&E) -> C,
    ) where
        C: CopyOwned,
    {
        let Self { walk, copies, copy_bytes, .. } = self;
        walk.before_change_of_one(table, hash, hasher, |entry| {
            let copy = copy(entry);
            *copy_bytes += copy.owned_bytes();
            push(copies, copy);
        });
        self.count();
    }

    /// Shows members that have changed since the beginning, as they were then, until `visit` has made
    /// `bytes_max` bytes of them. Returns how many it has made.
    pub(crate) fn take_copies(
        &mut self,
        bytes_max: usize,
        mut visit: impl FnMut(&C) -> usize,
    ) -> usize
    where
        C: CopyOwned,
    {
        let mut bytes = 0;
        while bytes < bytes_max
            && let Some(copy) = self.pop()
        {
            self.copy_bytes -= copy.owned_bytes();
            bytes += visit(&copy);
        }
        self.count();
        bytes
    }

    /// Shows members that have not changed, until `visit` has made `bytes_max` bytes of them.
    pub(crate) fn walk_on<E>(
        &mut self,
        table: &Table<E>,
        hasher: &impl EntryHash<E>,
        bytes_max: usize,
        mut visit: impl FnMut(&E) -> usize,
    ) -> Saved {
        // A step finds nothing where all has changed.
        let (mut bytes, mut steps) = (0, 0);
        while bytes < bytes_max && steps < STEPS_MAX && !self.walk.is_complete() {
            self.walk.advance(table, hasher, |entry| bytes += visit(entry));
            steps += 1;
        }
        let complete = self.walk.is_complete() && self.copies.is_empty();
        if complete { Saved::Complete } else { Saved::Slice }
    }

    fn pop(&mut self) -> Option<C> {
        let run = self.copies.last_mut()?;
        let copy = run.pop();
        if run.is_empty() {
            self.copies.pop();
        }
        copy
    }

    fn count(&mut self) {
        let runs = self.copies.len() * (RUN_LEN * size_of::<C>() + size_of::<Vec<C>>());
        self.tag.count(self.copy_bytes + runs + self.walk.memory_bytes());
    }
}

/// Buckets that a slice walks through at most.
const STEPS_MAX: usize = 64;

fn push<C>(copies: &mut Vec<Vec<C>>, copy: C) {
    match copies.last_mut().filter(|run| run.len() < RUN_LEN) {
        Some(run) => run.push(copy),
        None => {
            let mut run = Vec::with_capacity(RUN_LEN);
            run.push(copy);
            copies.push(run);
        }
    }
}
