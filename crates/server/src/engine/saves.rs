//! Saves of what an engine holds.

use std::sync::Arc;
use std::time::Duration;

use tierce_keyspace::Locker;

use super::{Engine, News};
use crate::config::Settings;
use crate::memory::MemoryReport;
use crate::persistence::{self, Backup, Cause, SaveError, Ticket};

impl Engine {
    /// Begins a save of what `locker` sees now; see
    /// [`Persistence::begin`](crate::persistence::Persistence::begin).
    ///
    /// # Errors
    /// When one is in progress.
    pub fn begin_save(
        &self,
        locker: &mut Locker<'_>,
        now_ms: i64,
        cause: Cause,
        backup: Option<Backup>,
    ) -> Result<Ticket, SaveError> {
        let begun = self.persistence.begin(&self.keyspace, locker, now_ms, cause, backup)?;
        self.note_latency("snapshot", begun.pause);
        Ok(begun.ticket)
    }

    /// Changes to keys since the last snapshot on disk.
    #[must_use]
    pub fn unsaved_changes(&self) -> u64 {
        self.keyspace.stats().changes.saturating_sub(self.persistence.saved_changes())
    }

    /// Begins a save if a save point asks for one.
    pub(super) fn save_if_due(&self) {
        let (settings, now_ms) = (self.config.settings(), crate::clock::unix_ms());
        let changes = self.keyspace.stats().changes;
        let Some(point) = self.persistence.due(&settings, changes, now_ms / 1000) else { return };
        self.log.notice(format_args!(
            "{} changes in {} seconds. Saving...",
            point.changes, point.seconds
        ));
        // One that somebody has begun in between serves as well.
        let _ = self.begin_save(&mut self.keyspace.locker(), now_ms, Cause::Background, None);
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

    fn saved(&self, ticket: Ticket, outcome: Result<(), Arc<str>>) {
        self.tell(News::Saved { ticket, outcome });
    }
}
