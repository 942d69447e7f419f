//! Changes of a key, in the forms in which listeners get them: a [`Change`], an operation for the log, an event by
//! name, a newer version.
//!
//! All operations that change keys pass `Db::before_change` (`access/db.rs`) and `Context::changed` or
//! `Context::removed` (`access/context.rs`), with the shard locked throughout. In `before_change` a snapshot saves what
//! is about to change (`services/snapshot`). Then the shard's count of changes grows. If there are listeners
//! ([`interest`]), the log gets an operation ([`log`]), versions become newer, and the key is
//! noted for clients that wait for it or watch it (`services/watch`). An [`Event`](crate::Event) names the
//! change separately.

pub(crate) mod event;
pub(crate) mod interest;
pub(crate) mod log;
pub(crate) mod stream_place;
pub(crate) mod version;

use crate::data::entry::Entry;

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
    /// Its value is out of date, or is not any more, or a client was told to store another one: its
    /// [`Marks`](crate::Marks) have changed.
    Marked,
    /// It has other flags, as another server has stored them, and perhaps other marks; its value is the same.
    Noted,
    /// It is gone.
    Removed(Removal),
}

/// Why a key is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Removal {
    /// A command deleted it.
    Deleted,
    /// Its deadline came.
    Expired,
    /// It was a hash, and the deadline of its last field came.
    Emptied,
    /// Memory ran short, and the policy chose it.
    Evicted,
    /// It was taken, to be put under another key or into another database.
    Moved,
}

impl Removal {
    /// Why an entry is gone by itself, if it is: its deadline has come, or those of all fields of its hash. Of a server
    /// that follows a primary only the former: the other one decides when its fields go, and may change them until
    /// then.
    #[inline]
    pub(crate) fn due(
        entry: &Entry,
        now_ms: i64,
        is_following: impl FnOnce() -> bool,
    ) -> Option<Self> {
        if entry.is_expired(now_ms) {
            return Some(Self::Expired);
        }
        let has_due = entry.next_field_deadline_ms().is_some_and(|at| at <= now_ms);
        let is_gone = has_due && !is_following() && entry.is_hash_all_due(now_ms);
        is_gone.then_some(Self::Emptied)
    }

    /// Whether it went because its time had come.
    #[inline]
    pub fn is_expiry(self) -> bool {
        matches!(self, Self::Expired | Self::Emptied)
    }
}
