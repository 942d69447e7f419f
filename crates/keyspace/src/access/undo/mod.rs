//! Rolls back what was done under a guard: all of it, or everything since a savepoint.
//!
//! A guard ([`MultiShardGuard`](crate::MultiShardGuard)) may keep an undo log. Then each change records how it is taken
//! back, before or while it happens, and a rollback goes through these steps from the last one to the first. Without an
//! undo log nothing is recorded, and a change costs a branch more at most.
//!
//! * `step`: what a step says.
//! * `record`: recording steps; which keys need one.
//! * `rollback`: taking steps back, and making them final.
//! * `whole`: databases that were emptied or exchanged.
//!
//! What a key needs is decided at its first change since the last savepoint, and remembered (`Cover`):
//! - A key that was not there is removed by a rollback, whatever it has become.
//! - Of a small value a copy is kept; whatever happens to the key afterwards needs no step.
//! - Of a large one its shell is kept: deadline, attributes and use. Each edit then records its inverse, and
//!   costs what it changes, however large the value is. An entry or a value that is removed or replaced is kept
//!   as it is, and the key needs no more steps.
//!
//! **Invariants:**
//! - Steps are absolute for a key that is covered fully: they make it what it was, whatever it is by then. Inverse
//!   edits are taken back in the exact reverse order of the edits, with none left out in between.
//! - Nothing that a rollback needs is freed before the commit: not a value, not a location on disk, not a table.
//! - A rollback leaves contents, deadlines, attributes, versions, uses and counters as they were. Memory and the
//!   heaps of deadlines are as a recount finds them; heaps may have additional stale items.
//! - What is collected for the log and for waiters is cut back, and reaches neither before the commit.
//! - A client that began to wait under the guard waits no more: it is in no queue, and no thread can answer it. One
//!   that was answered under the guard stays so; who serves waiters does that outside of an undo log.
//!
//! The reasons are in `docs/decisions/0024-undo.md`.

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

/// How to take back what a guard has done. See the head of this file.
#[derive(Debug)]
pub(crate) struct UndoLog {
    recorded: RefCell<Recorded>,
    /// How things were when it began.
    pub(super) begun: Savepoint,
}

/// A moment under a guard with an undo log, to which [`ShardLocks::rollback_to`](crate::ShardLocks::rollback_to)
/// goes back. It is good for any
/// number of rollbacks, until one goes back further or the log ends.
#[derive(Debug, Clone, Copy)]
pub struct Savepoint {
    pub(super) steps: usize,
    pub(super) bytes: usize,
    pub(super) kept_bytes: usize,
    pub(super) effects: EffectsMark,
}
