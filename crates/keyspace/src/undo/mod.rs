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

mod record;
mod rollback;
mod step;
mod whole;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::rc::Rc;

use crate::effects::EffectsMark;
use crate::error::{Error, Result};
use crate::shard_locks::ShardLocks;
use crate::usage::Usage;

use record::Recorded;
pub(crate) use record::{EditRecording, push_chunk};

/// How to take back what a guard has done. See the head of this file.
#[derive(Debug)]
pub(crate) struct UndoLog {
    recorded: RefCell<Recorded>,
    /// How many bytes it may take.
    limit_bytes: usize,
    /// How things were when it began.
    begun: Savepoint,
}

/// A moment under a guard with an undo log, to which [`ShardLocks::rollback_to`] goes back. It is good for any
/// number of rollbacks, until one goes back further or the log ends.
#[derive(Debug, Clone, Copy)]
pub struct Savepoint {
    steps: usize,
    bytes: usize,
    kept_bytes: usize,
    effects: EffectsMark,
}

/// Under a [`MultiShardGuard`](crate::MultiShardGuard).
impl ShardLocks<'_> {
    /// Begins an undo log: what follows under the present [`MultiShardGuard`](crate::MultiShardGuard) is taken back by
    /// [`ShardLocks::rollback`], and stays by [`ShardLocks::commit`]. The end of the `MultiShardGuard` takes it back.
    ///
    /// [`ShardLocks::check_undo`] refuses when it takes more than `limit_bytes`.
    ///
    /// # Panics
    ///
    /// If no shards are locked together, or there is an undo log.
    pub fn begin_undo(&mut self, limit_bytes: usize) {
        assert!(self.is_within(), "an undo log belongs to shards that are locked together");
        assert!(self.thread.undo.is_none(), "one undo log at a time");
        self.thread.effects.hold(true);
        let recorded = Recorded::default();
        let begun = self.savepoint_at(recorded.lens());
        let recorded = RefCell::new(recorded);
        self.thread.undo = Some(Rc::new(UndoLog { recorded, limit_bytes, begun }));
        self.thread.usage = self.thread.usage.undoable();
    }

    /// Whether there is an undo log.
    #[must_use]
    pub fn has_undo(&self) -> bool {
        self.thread.undo.is_some()
    }

    /// Where [`ShardLocks::rollback_to`] can go back to.
    ///
    /// # Panics
    ///
    /// Without an undo log.
    pub fn savepoint(&mut self) -> Savepoint {
        let mut recorded = self.undo_log().recorded.borrow_mut();
        recorded.begin_epoch();
        let lens = recorded.lens();
        drop(recorded);
        self.savepoint_at(lens)
    }

    fn savepoint_at(&self, (steps, bytes, kept_bytes): (usize, usize, usize)) -> Savepoint {
        Savepoint { steps, bytes, kept_bytes, effects: self.thread.effects.mark() }
    }

    /// Bytes of memory that the undo log takes, with what waits for the log on disk.
    #[must_use]
    pub fn undo_bytes(&self) -> usize {
        let Some(undo) = &self.thread.undo else { return 0 };
        undo.recorded.borrow().memory_bytes() + self.thread.effects.pending_len()
    }

    /// Whether the undo log keeps to its limit. To be asked after each command: one may go beyond it, and can still
    /// be taken back.
    ///
    /// # Errors
    ///
    /// [`Error::UndoTooLarge`].
    pub fn check_undo(&self) -> Result<()> {
        let Some(undo) = &self.thread.undo else { return Ok(()) };
        let (bytes, max) = (self.undo_bytes(), undo.limit_bytes);
        if bytes > max { Err(Error::UndoTooLarge { bytes, max }) } else { Ok(()) }
    }

    fn undo_log(&self) -> &UndoLog {
        self.thread.undo.as_ref().expect("an undo log")
    }

    /// The log on disk gets what was held back, and uses are counted the quick way again.
    fn end_undo(&mut self) {
        self.thread.undo = None;
        self.thread.usage = match self.thread.usage {
            Usage::None => Usage::None,
            _ => Usage::of(self.tracking()),
        };
        self.thread.effects.hold(false);
    }
}
