//! The beginning and end of an undo log.

use std::cell::RefCell;
use std::rc::Rc;

use super::record::Recorded;
use super::{Savepoint, UndoLog};
use crate::access::shard_locks::ShardLocks;
use crate::data::usage::Usage;

/// Methods under a [`MultiShardGuard`](crate::MultiShardGuard).
impl ShardLocks<'_> {
    /// Begins an undo log for changes under the present [`MultiShardGuard`](crate::MultiShardGuard).
    /// [`ShardLocks::rollback`] reverts them, and [`ShardLocks::commit`] keeps them. The end of the `MultiShardGuard`
    /// reverts them.
    ///
    /// # Panics
    ///
    /// If no shards are locked together, or there is already an undo log.
    pub fn begin_undo(&mut self) {
        assert!(self.is_within(), "an undo log belongs to shards that are locked together");
        assert!(self.thread.undo.is_none(), "one undo log at a time");
        self.thread.effects.hold(true);
        let recorded = Recorded::default();
        let begun = self.savepoint_at(recorded.lens());
        let recorded = RefCell::new(recorded);
        self.thread.undo = Some(Rc::new(UndoLog { recorded, begun }));
        self.thread.usage = self.thread.usage.undoable();
    }

    /// Returns true if there is an undo log.
    #[must_use]
    pub fn has_undo(&self) -> bool {
        self.thread.undo.is_some()
    }

    /// Returns a savepoint for [`ShardLocks::rollback_to`].
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

    /// Returns the bytes of memory of the undo log, with the pending records for the log on disk. Callers use it for
    /// a limit of their own.
    #[must_use]
    pub fn undo_bytes(&self) -> usize {
        let Some(undo) = &self.thread.undo else { return 0 };
        undo.recorded.borrow().memory_bytes() + self.thread.effects.unlogged_len()
    }

    pub(super) fn undo_log(&self) -> &UndoLog {
        self.thread.undo.as_ref().expect("an undo log")
    }

    /// Passes the deferred records to the log on disk, and restores the quick counting of uses.
    pub(super) fn end_undo(&mut self) {
        self.thread.undo = None;
        self.thread.usage = match self.thread.usage {
            Usage::None => Usage::None,
            _ => Usage::of(self.tracking()),
        };
        self.thread.effects.hold(false);
    }
}
