//! Rolls back changes under a guard: all of them, or everything since a savepoint.
//!
//! A guard ([`MultiShardGuard`](crate::MultiShardGuard)) may keep an undo log. Then each change records a step that
//! reverts it, before or during the change, and a rollback applies these steps from the last to the first. Without an
//! undo log nothing is recorded, and a change costs at most one additional branch.
//!
//! * `step`: the kinds of steps.
//! * `record`: recording steps; which keys need one.
//! * `rollback`: applying steps, and making changes final.
//! * `whole`: databases that were emptied or exchanged.
//!
//! The first change of a key since the last savepoint decides how it is recorded (`Cover`):
//! - A key that was absent is removed by a rollback, whatever it has become.
//! - A small value is copied; later changes of the key need no steps.
//! - For a large value the shell is kept: deadline, attributes and usage. Each edit then records its inverse, at a
//!   cost proportional to the edit, not to the value. An entry or value that is removed or replaced is kept as it is,
//!   and the key needs no more steps.
//!
//! **Invariants:**
//! - Steps are absolute for a fully covered key: they restore it whatever it is by then. Inverse edits are applied in
//!   exactly the reverse order of the edits, without gaps.
//! - Nothing that a rollback needs is freed before the commit: no value, no location on disk, no table.
//! - A rollback restores contents, deadlines, attributes, versions, usage data and counters. Memory and deadline
//!   heaps are as a recount finds them; heaps may have additional stale items.
//! - Records for the log and notices for waiters are truncated, and are not delivered before the commit.
//! - A client that began to wait under the guard does not wait any more: it is in no queue, and no thread can answer
//!   it. A client that was answered under the guard stays so; waiters are served outside of an undo log.
//!
//! `docs/decisions/0024-undo.md` has the reasons.

mod cover;
mod guard;
mod record;
mod rollback;
mod step;
mod whole;

#[cfg(test)]
mod tests;

use std::cell::RefCell;

use crate::access::effects::EffectsMark;

pub(crate) use cover::{cover, cover_bytes};
pub(crate) use record::EditRecording;
use record::Recorded;

/// Undo information for the changes under a guard. See the head of this file.
#[derive(Debug)]
pub(crate) struct UndoLog {
    recorded: RefCell<Recorded>,
    /// State at the beginning.
    pub(super) begun: Savepoint,
}

/// A moment under a guard with an undo log, for [`ShardLocks::rollback_to`](crate::ShardLocks::rollback_to). It is
/// valid for any number of rollbacks, until one goes back further or the log ends.
#[derive(Debug, Clone, Copy)]
pub struct Savepoint {
    pub(super) steps: usize,
    pub(super) bytes: usize,
    pub(super) kept_bytes: usize,
    pub(super) effects: EffectsMark,
}
