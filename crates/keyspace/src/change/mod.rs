//! Changes of a key, in the forms for the different listeners: a [`Change`], an operation for the log, an event by
//! name, a newer version.
//!
//! All operations that change keys pass `Db::before_change` (`access/db.rs`) and `Context::changed` or
//! `Context::removed` (`access/context.rs`), with the shard locked throughout. In `before_change` a snapshot saves
//! the entry. Then the shard's count of changes increases. If there are listeners ([`interest`]), the log gets an
//! operation ([`log`]), versions become newer, and the key is noted for clients that wait for it or watch it
//! (`services/watch`). An [`Event`](crate::Event) names the change separately.

pub(crate) mod event;
pub(crate) mod interest;
pub(crate) mod log;
pub(crate) mod stream_position;
pub(crate) mod version;

use crate::data::entry::Entry;

/// Kind of a change to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// It has a new value: it was created, replaced or modified. Its deadline may be new, too.
    Stored,
    /// A part of its string has new bytes, and the string may have become longer.
    Written {
        /// Offset of the new bytes.
        offset: usize,
        /// Number of new bytes.
        len: usize,
    },
    /// Elements of its collection have changed; the edits are recorded for the log separately.
    Edited,
    /// It has another deadline, or none any more, and still its value.
    Deadline,
    /// Its [`Marks`](crate::Marks) have changed: its value became stale or fresh, or a client was told to store
    /// another one.
    Marked,
    /// It has other flags, and perhaps other marks, as another server has stored them; its value is the same.
    Noted,
    /// It is gone.
    Removed(Removal),
}

/// Reason why a key is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Removal {
    /// A command deleted it.
    Deleted,
    /// Its deadline came.
    Expired,
    /// It was a hash or a set, and the deadline of its last element came.
    Emptied,
    /// It was evicted because memory ran short.
    Evicted,
    /// It is moved to another key or database.
    Moved,
}

impl Removal {
    /// Returns the reason if an entry has expired: its deadline has passed, or those of all its elements. On a
    /// server that follows a primary only the former counts: the primary decides when fields expire, and may change
    /// them until then. Always inlined: a call costs 16 instructions of each read.
    #[inline(always)]
    pub(crate) fn due(
        entry: &Entry,
        now_ms: i64,
        is_following: impl FnOnce() -> bool,
    ) -> Option<Self> {
        if entry.is_expired(now_ms) {
            return Some(Self::Expired);
        }
        let has_due = entry.next_field_deadline_ms().is_some_and(|at| at <= now_ms);
        let is_gone = has_due && !is_following() && entry.is_all_due(now_ms);
        is_gone.then_some(Self::Emptied)
    }

    /// Returns true if it expired.
    #[inline]
    pub fn is_expiry(self) -> bool {
        matches!(self, Self::Expired | Self::Emptied)
    }
}
