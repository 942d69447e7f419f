//! An undo log from its beginning to its end.

use std::cell::RefCell;
use std::rc::Rc;

use super::record::Recorded;
use super::{Savepoint, UndoLog};
use crate::access::shard_locks::ShardLocks;
use crate::data::usage::Usage;

/// Under a [`MultiShardGuard`](crate::MultiShardGuard).
impl ShardLocks<'_> {
    /// Begins an undo log: what follows under the present [`MultiShardGuard`](crate::MultiShardGuard) is taken back by
    /// [`ShardLocks::rollback`], and stays by [`ShardLocks::commit`]. The end of the `MultiShardGuard` takes it back.
    ///
    /// # Panics
    ///
    /// If no shards are locked together, or there is an undo log.
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

    /// Bytes of memory that the undo log takes, with what waits for the log on disk: for callers that set themselves a
    /// limit.
    #[must_use]
    pub fn undo_bytes(&self) -> usize {
        let Some(undo) = &self.thread.undo else { return 0 };
        undo.recorded.borrow().memory_bytes() + self.thread.effects.unlogged_len()
    }

    pub(super) fn undo_log(&self) -> &UndoLog {
        self.thread.undo.as_ref().expect("an undo log")
    }

    /// The log on disk gets what was held back, and uses are counted the quick way again.
    pub(super) fn end_undo(&mut self) {
        self.thread.undo = None;
        self.thread.usage = match self.thread.usage {
            Usage::None => Usage::None,
            _ => Usage::of(self.tracking()),
        };
        self.thread.effects.hold(false);
    }
}
