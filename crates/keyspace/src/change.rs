//! The one place every mutation passes, and who is told of it.
//!
//! All operations that change keys pass `Db::before_change` (`db.rs`) and `Context::changed`
//! (`context.rs`), with the shard locked throughout. In the former a snapshot saves what is about to
//! change (`snapshot`). In the latter the shard's count of changes grows, the log, if there is one,
//! gets an operation ([`crate::log`]), and an observer, if the keyspace has one, gets the [`Event`].
//! Without them each is a branch that is always predicted.
//!
//! Events of one key arrive in the order of its changes, because its shard is locked.

use crate::db_index::DbIndex;
use crate::entry::Entry;

/// Something that happened in the keyspace.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Something happened to one key.
    Key {
        /// The database.
        db: DbIndex,
        /// The key as it is now, or as it was when it was removed.
        entry: &'a Entry,
        /// What happened.
        change: Change,
    },
    /// All keys of a database are gone.
    Flushed {
        /// The database.
        db: DbIndex,
    },
    /// Two databases have exchanged their keys.
    Swapped {
        /// One of them.
        a: DbIndex,
        /// The other one.
        b: DbIndex,
    },
}

/// What happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// It has a new value: it was created, replaced or modified. Its deadline may be new, too.
    Stored,
    /// A part of its string has new bytes, and the string may have become longer.
    Written {
        /// Where the new bytes begin.
        offset: usize,
        /// How many they are.
        len: usize,
    },
    /// Elements of its collection have changed, as is on record for the log.
    Edited,
    /// It has another deadline, or none any more, and still its value.
    Deadline,
    /// Its value is out of date, or is not any more, or somebody was told to store another one: its
    /// [`Marks`](crate::Marks) have changed.
    Marked,
    /// It is gone.
    Removed(Removal),
}

/// Why a key is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Removal {
    /// Somebody deleted it.
    Deleted,
    /// Its deadline came.
    Expired,
    /// Memory ran short, and the policy chose it.
    Evicted,
    /// It was taken, to be put under another key or into another database.
    Moved,
}

/// Who is told of every change, under the lock of the shard.
///
/// An observer must be quick and must not call the keyspace.
pub trait Observer: Send + Sync {
    /// `event` has just happened; it is visible to others when the lock is released.
    fn event(&self, event: &Event<'_>);
}
