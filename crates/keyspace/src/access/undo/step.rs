//! One step of a rollback.

use std::ops::Range;
use std::sync::Arc;

use tierce_collections::CollectionKind;
use tierce_storage::ColdLocation;

use super::whole::FlushedDb;
use crate::data::code::CodeKind;
use crate::data::collections::sealed::Sealed;
use crate::data::collections::with_type;
use crate::data::entry::{Attributes, Entry, OutOfLine};
use crate::data::key::{Key, KeyHash};
use crate::data::usage::Access;
use crate::db_index::DbIndex;
use crate::planted::Fault;
use crate::registries::waiters::Waiter;

/// A key. Its bytes are stored in the undo log.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyAt {
    pub(super) db: DbIndex,
    pub(super) hash: KeyHash,
    pub(super) start: usize,
    pub(super) len: u32,
}

impl KeyAt {
    pub(super) fn bytes<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.start..self.start + self.len as usize]
    }

    pub(super) fn key<'b>(&self, bytes: &'b [u8]) -> Key<'b> {
        Key::new(self.bytes(bytes), self.hash)
    }
}

/// Everything in an entry but its value.
#[derive(Debug)]
pub(super) struct Shell {
    pub(super) access: Access,
    pub(super) deadline_ms: Option<i64>,
    pub(super) attributes: Attributes,
}

impl Shell {
    pub(super) fn of(entry: &Entry) -> Self {
        Self {
            access: entry.access(),
            deadline_ms: entry.deadline_ms(),
            attributes: entry.attributes(),
        }
    }

    /// Restores this state in an entry. The value stays.
    pub(super) fn put_on(&self, entry: &mut Entry) {
        if entry.deadline_ms() != self.deadline_ms {
            entry.set_deadline(self.deadline_ms);
        }
        if !entry.carries(&self.attributes) {
            entry.set_attributes(self.attributes);
        }
        entry.set_access(self.access);
    }
}

/// Old bytes of a large string that were overwritten, or are after its old end. In the undo log they follow the
/// bytes.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) old_len: usize,
    pub(super) old_capacity: usize,
    /// Offset of the old bytes.
    pub(super) offset: usize,
    /// Number of the old bytes.
    pub(super) len: usize,
}

impl Written {
    pub(super) fn push(&self, bytes: &mut Vec<u8>) {
        let Self { old_len, old_capacity, offset, len } = *self;
        for number in [old_len, old_capacity, offset, len] {
            bytes.extend_from_slice(&(number as u64).to_le_bytes());
        }
    }

    /// Splits the last one off: returns its old bytes, itself, and everything before.
    pub(super) fn split_last(bytes: &[u8]) -> Option<(&[u8], Self, &[u8])> {
        let (bytes, numbers) = bytes.split_last_chunk::<32>()?;
        let (numbers, _) = numbers.as_chunks::<8>();
        let [old_len, old_capacity, offset, len] =
            std::array::from_fn(|number| u64::from_le_bytes(numbers[number]) as usize);
        let (before, old) = bytes.split_at(bytes.len() - len);
        Some((before, Self { old_len, old_capacity, offset, len }, old))
    }
}

/// Inverse edits of a collection, in chunks. The length follows each chunk, and the last chunk is applied first.
#[derive(Debug)]
pub(super) struct Edits {
    pub(super) kind: CollectionKind,
    pub(super) start: usize,
    pub(super) end: usize,
    /// Progress of a checkpoint through a list, as the list notes it.
    pub(super) prefix: Option<(u64, usize)>,
}

/// Previous state of a key that was moved.
#[derive(Debug)]
pub(super) struct Moved {
    pub(super) from: KeyAt,
    pub(super) to: KeyAt,
    pub(super) shell: Shell,
}

/// Figures of a shard.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) shard: usize,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) expired: u64,
    pub(super) evicted: u64,
    pub(super) changes: u64,
    /// True if a client had been given a version in the shard.
    pub(super) has_versions: bool,
}

/// Undo information for a change.
#[derive(Debug)]
pub(super) enum Step {
    /// The key was absent.
    Absent(KeyAt),
    /// The key had this entry, or an equal one.
    Entry(KeyAt, Entry),
    /// The key had this value. An earlier step has the rest of its state.
    Value(KeyAt, Box<OutOfLine>),
    /// The key had this state besides its value.
    Shell(KeyAt, Box<Shell>),
    /// The entry had this usage data.
    Access(KeyAt, Access),
    /// Its large string was written to. Old bytes of each part, each followed by a [`Written`].
    Written(KeyAt, Range<usize>),
    /// Its collection was edited.
    Edits(KeyAt, Box<Edits>),
    /// It was moved.
    Moved(Box<Moved>),
    /// The shard had these figures.
    Counted(Box<Counted>),
    /// A group of keys had this version.
    Stripe { shard: usize, stripe: usize, version: u64 },
    /// All groups of keys of a shard had these versions.
    Stripes(usize, Box<[u64]>),
    /// A database was emptied in a shard.
    Flushed(Box<FlushedDb>),
    /// Two databases were exchanged.
    Swapped(DbIndex, DbIndex),
    /// The library or script had this source, or none.
    Code(CodeKind, Box<[u8]>, Option<Arc<[u8]>>),
    /// A location on disk was released.
    Location(ColdLocation),
    /// A client began to wait.
    Waits(Arc<Waiter>),
}

impl Step {
    /// Returns the test fault that skips a step of this kind.
    pub(super) fn fault(&self) -> Fault {
        match self {
            Step::Absent(_) => Fault::UndoOfNewKeys,
            Step::Entry(..) => Fault::UndoOfEntries,
            Step::Value(..) => Fault::UndoOfValues,
            Step::Shell(..) => Fault::UndoOfShells,
            Step::Access(..) => Fault::UndoOfUses,
            Step::Written(..) => Fault::UndoOfBytes,
            Step::Edits(_, edits) => with_type!(edits.kind, T => T::FAULT_OF_UNDO),
            Step::Moved(_) => Fault::UndoOfMoves,
            Step::Counted(_) => Fault::UndoOfCounters,
            Step::Stripe { .. } | Step::Stripes(..) => Fault::UndoOfVersions,
            Step::Flushed(_) => Fault::UndoOfFlushes,
            Step::Swapped(..) => Fault::UndoOfSwaps,
            Step::Code(..) => Fault::UndoOfCode,
            Step::Location(_) => Fault::UndoOfLocations,
            Step::Waits(_) => Fault::UndoOfWaiters,
        }
    }
}
