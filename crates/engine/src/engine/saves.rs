//! Saves of an engine's data.

use std::sync::Arc;
use std::time::Duration;

use tierce_keyspace::ShardLocks;

use super::{Engine, News};
use crate::memory::MemoryReport;
use crate::persistence::{self, Backup, Cause, CopySink, SaveError, SaveId};
use tierce_config::Settings;

impl Engine {
    /// Begins a save of the data that `locks` sees now; see
    /// [`Persistence::begin`](crate::persistence::Persistence::begin).
    ///
    /// # Errors
    /// When one is running.
    pub fn begin_save(
        &self,
        locks: &mut ShardLocks<'_>,
        now_ms: i64,
        cause: Cause,
        backup: Option<Backup>,
    ) -> Result<SaveId, SaveError> {
        let begun = self.persistence.begin(&self.keyspace, locks, now_ms, cause, backup)?;
        self.note_latency("snapshot", begun.pause);
        Ok(begun.save_id)
    }

    /// Begins a full copy for replicas; see
    /// [`Persistence::begin_copy`](crate::persistence::Persistence::begin_copy).
    ///
    /// # Errors
    /// When a save is running.
    pub fn begin_copy(
        &self,
        locks: &mut ShardLocks<'_>,
        now_ms: i64,
        sink: Box<dyn CopySink>,
        moment: impl FnOnce(),
    ) -> Result<SaveId, SaveError> {
        let begun = self.persistence.begin_copy(&self.keyspace, locks, now_ms, sink, moment)?;
        self.note_latency("snapshot", begun.pause);
        Ok(begun.save_id)
    }

    /// Returns the number of changes to keys since the last snapshot on disk.
    pub fn unsaved_changes(&self) -> u64 {
        self.keyspace.stats().changes.saturating_sub(self.persistence.saved_changes())
    }

    /// Begins a save if a save point is due.
    pub(super) fn save_if_due(&self) {
        let (settings, now_ms) = (self.config.settings(), crate::clock::unix_ms());
        let changes = self.keyspace.stats().changes;
        let Some(point) = self.persistence.due(&settings, changes, now_ms / 1000) else { return };
        // If a program locks shards for long, the save is tried again later. A save that was begun meanwhile
        // serves as well.
        let mut locks = self.keyspace.impatient_long_locks(self.persistence.patience());
        if self.begin_save(&mut locks, now_ms, Cause::Background, None).is_ok() {
            let (changes, seconds) = (point.changes, point.seconds);
            self.log.notice(format_args!("{changes} changes in {seconds} seconds. Saving..."));
        }
    }
}

impl persistence::Host for Engine {
    fn settings(&self) -> Arc<Settings> {
        self.config.settings()
    }

    fn used_memory(&self) -> u64 {
        MemoryReport::take(self).used() as u64
    }

    fn note_latency(&self, event: &'static str, took: Duration) {
        self.note_latency(event, took);
    }

    fn saved(&self, save_id: SaveId, outcome: Result<(), Arc<str>>) {
        self.tell(News::Saved { save_id, outcome });
    }
}
