//! Saves a large collection as of one moment, while it keeps changing.
//!
//! The collection itself holds the state of its snapshot, and its own methods maintain it, so no change can bypass it,
//! under whatever key. A snapshot takes one slice at a time and releases the collection in between. At any time, the
//! slices taken and those still to come together make up the original collection.
//!
//! This file has the parts that the types share: the owner of a snapshot ([`SnapshotTag`]), and saving the members of
//! a table ([`IncrementalSnapshot`]) for sets, hashes and sorted sets. The table is walked in hash order, and a member
//! ahead of the walk is copied once, just before its first change; see [`tierce_dash::Snapshot`]. Lists use
//! `list/snapshot.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use tierce_dash::{EntryHash, Snapshot, Table};

/// Identity of a snapshot within the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(u64);

/// Owner of a snapshot, and the counter of its memory.
#[derive(Debug)]
pub struct SnapshotTag {
    id: SnapshotId,
    /// Sum over several snapshots; relaxed, since it orders nothing.
    bytes: Arc<AtomicUsize>,
    /// Bytes counted there for this one.
    counted: usize,
}

impl SnapshotTag {
    /// Creates a tag with a new identity. The memory of copies is counted in `bytes`.
    pub fn new(bytes: &Arc<AtomicUsize>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = SnapshotId(NEXT.fetch_add(1, Relaxed));
        Self { id, bytes: Arc::clone(bytes), counted: 0 }
    }

    /// Returns the identity of the snapshot. Later snapshots have higher identities.
    pub fn id(&self) -> SnapshotId {
        self.id
    }

    /// Updates the counted memory of copies to `bytes`.
    pub(crate) fn count(&mut self, bytes: usize) {
        self.bytes.fetch_add(bytes.wrapping_sub(self.counted), Relaxed);
        self.counted = bytes;
    }
}

impl Drop for SnapshotTag {
    fn drop(&mut self) {
        self.count(0);
    }
}

/// Says if a slice was the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotProgress {
    /// There may be more.
    Slice,
    /// Everything has been saved.
    Complete,
}

/// Copies that a collection kept for an abandoned snapshot. Dropping it frees them, which may take a while.
pub struct Remainder {
    _kept: Box<dyn Send + Sync>,
}

impl Remainder {
    pub(crate) fn new(kept: impl Send + Sync + 'static) -> Self {
        Self { _kept: Box::new(kept) }
    }
}

impl std::fmt::Debug for Remainder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Remainder")
    }
}

/// A collection that can be saved in slices as of one moment, while it changes. Streams cannot.
pub trait Snapshotted {
    /// Returns the snapshot in progress.
    #[inline]
    fn snapshot_id(&self) -> Option<SnapshotId> {
        None
    }

    /// Begins a snapshot, replacing one in progress; `false` if the collection is too small.
    fn begin_snapshot(&mut self, _tag: SnapshotTag) -> bool {
        false
    }

    /// Abandons the snapshot.
    fn cancel_snapshot(&mut self) -> Option<Remainder> {
        None
    }
}

/// Implements [`Snapshotted`] for a type whose large form has a field `snapshot`.
macro_rules! snapshotted {
    ($type:ty, $form:path[$large:ident], $tag:ident => $begin:expr) => {
        impl crate::Snapshotted for $type {
            #[inline]
            fn snapshot_id(&self) -> Option<crate::SnapshotId> {
                let $form($large) = &self.repr else { return None };
                $large.snapshot.as_ref().map(|snapshot| snapshot.tag.id())
            }

            fn begin_snapshot(&mut self, $tag: crate::SnapshotTag) -> bool {
                let $form($large) = &mut self.repr else { return false };
                $large.snapshot = Some(Box::new($begin));
                true
            }

            fn cancel_snapshot(&mut self) -> Option<crate::Remainder> {
                let $form($large) = &mut self.repr else { return None };
                $large.snapshot.take().map(crate::Remainder::new)
            }
        }
    };
}
pub(crate) use snapshotted;

/// A member that can be copied before it changes.
pub(crate) trait CopyOwned {
    /// Returns the bytes it owns, excluding itself, as the allocator counts them.
    fn owned_bytes(&self) -> usize;
}

/// Length of a run of copies. Runs avoid moving a vector of millions when it grows.
const RUN_LEN: usize = 512;

/// State of saving the members of a table.
#[derive(Debug)]
pub(crate) struct IncrementalSnapshot<C> {
    pub(crate) tag: SnapshotTag,
    walk: Snapshot,
    /// Old versions of members that have changed since and have not been taken yet. Runs are not empty, except the
    /// last.
    copies: Vec<Vec<C>>,
    copy_bytes: usize,
    /// Memory that the collection keeps beside them.
    kept_bytes: usize,
}

impl<C> IncrementalSnapshot<C> {
    pub(crate) fn begin(tag: SnapshotTag) -> Self {
        Self { tag, walk: Snapshot::begin(), copies: Vec::new(), copy_bytes: 0, kept_bytes: 0 }
    }

    /// Must be called before a member with this hash is added, removed or changed.
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

    /// Visits members that have changed since the beginning, as they were then, until `visit` has produced `bytes_max`
    /// bytes. Returns the bytes produced.
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

    /// Visits members that have not changed, until `visit` has produced `bytes_max` bytes.
    pub(crate) fn walk_on<E>(
        &mut self,
        table: &Table<E>,
        hasher: &impl EntryHash<E>,
        bytes_max: usize,
        mut visit: impl FnMut(&E) -> usize,
    ) -> SnapshotProgress {
        // A step finds nothing where everything has changed.
        let (mut bytes, mut steps) = (0, 0);
        while bytes < bytes_max && steps < STEPS_MAX && !self.walk.is_complete() {
            self.walk.advance(table, hasher, |entry| bytes += visit(entry));
            steps += 1;
        }
        let complete = self.walk.is_complete() && self.copies.is_empty();
        if complete { SnapshotProgress::Complete } else { SnapshotProgress::Slice }
    }

    fn pop(&mut self) -> Option<C> {
        let run = self.copies.last_mut()?;
        let copy = run.pop();
        if run.is_empty() {
            self.copies.pop();
        }
        copy
    }

    /// Counts `bytes` that the collection keeps for the snapshot beside the copies.
    pub(crate) fn count_kept(&mut self, bytes: usize) {
        self.kept_bytes = bytes;
        self.count();
    }

    fn count(&mut self) {
        let runs = self.copies.len() * (RUN_LEN * size_of::<C>() + size_of::<Vec<C>>());
        let bytes = self.copy_bytes + runs + self.walk.memory_bytes();
        self.tag.count(bytes + self.kept_bytes);
    }
}

/// Maximum number of buckets that a slice walks through.
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
