//! DEBUG RELOAD: saves all data and loads it again, atomically for other clients.
//!
//! - No write is lost: the reload defers writes before the snapshot begins. It notices any that slipped through when it
//!   locks all shards, and keeps them locked until everything is loaded. A partial load is never visible.
//! - The log has all data at any moment: each loaded value replaces the previous one, and keys and code that the file
//!   lacks are removed only at the end. The log is never emptied on the way.
//! - A damaged file is detected before anything changes.

use std::path::Path;

use tierce_keyspace::{
    CodeEditor, CodeKind, DbIndex, Freeing, ShardLocks, StreamPosition, flush_dbs, for_each_entry,
    invalidate_at_once,
};

use super::Engine;
use crate::persistence::{
    Cause, LoadError, LoadReport, Names, Purpose, SaveError, Unfit, read, read_all, snapshot_path,
};

/// Maximum number of saves. A save is repeated if data has changed meanwhile. With writes deferred, only commands that
/// were already running can do that.
const ATTEMPTS_MAX: usize = 10;

/// Steps that RELOAD skips.
#[derive(Clone, Copy, Default)]
pub struct ReloadOptions {
    /// Keys that the file lacks are kept.
    pub keeps_keys: bool,
    /// No save is made; the last file is loaded.
    pub skips_save: bool,
}

/// Reason why nothing was reloaded; the data is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The save failed.
    #[error("{0}")]
    Save(String),
    /// Data changed during every save.
    #[error("databases changed during each of {ATTEMPTS_MAX} saves")]
    Changing,
    /// There is no snapshot.
    #[error("there is no file {0}")]
    Missing(String),
    /// The caller no longer wants to replace the data.
    #[error("the data are not to be replaced any more")]
    NotWanted,
    /// The snapshot cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl Engine {
    /// Saves, empties all databases and loads the file, except for the steps that `options` skip. The caller must defer
    /// other writes meanwhile. `is_wanted` is called once the data cannot change any more.
    ///
    /// # Errors
    /// When a step fails; nothing has changed then.
    pub fn reload(
        &self,
        locks: &mut ShardLocks<'_>,
        now_ms: i64,
        options: ReloadOptions,
        is_wanted: impl Fn() -> bool,
    ) -> Result<(), ReloadError> {
        let load = |locks: &mut ShardLocks<'_>| match is_wanted() {
            true => load_in_place(self, locks, now_ms, options),
            false => Err(ReloadError::NotWanted),
        };
        if options.skips_save {
            return load(locks.lock_all().locks());
        }
        for _ in 0..ATTEMPTS_MAX {
            save(self, locks, now_ms).map_err(ReloadError::Save)?;
            let mut all = locks.lock_all();
            if self.unsaved_changes() == 0 {
                return load(all.locks());
            }
        }
        Err(ReloadError::Changing)
    }
}

/// Replaces all data by those of another server.
impl Engine {
    /// Replaces all data by the file at `path`, atomically for others. The old data stays until the file is known to be
    /// intact. Expired keys are loaded too: the other server deletes them. The data then has the replication offset
    /// `position`, in the database that the file names, also after a restart. `is_wanted` is called once the old data
    /// cannot change any more.
    ///
    /// # Errors
    /// When the file is damaged or has something unsupported, or `is_wanted` returns false; nothing has changed then.
    /// Only a file that becomes unreadable during the load leaves a part of it among the old data, or, without a log,
    /// no data at all. The data then has no replication offset.
    pub fn replace_all(
        &self,
        path: &Path,
        locks: &mut ShardLocks<'_>,
        position: StreamPosition,
        is_wanted: impl FnOnce() -> bool,
    ) -> Result<LoadReport, ReloadError> {
        let missing = || ReloadError::Missing(path.display().to_string());
        let (log, refuse) = (&self.log, Unfit::Refuse);
        let verify = |locks: &mut ShardLocks<'_>| {
            read_all(path, locks, log, Purpose::Verify, refuse)?.ok_or_else(missing)
        };
        // Verify while clients go on. An empty server, as most replicas are at first, has nothing to protect: the
        // loaded part of a damaged file is removed.
        let is_verified = !self.is_empty();
        if is_verified {
            verify(locks)?;
        }
        let mut all = locks.lock_all();
        if !is_wanted() {
            return Err(ReloadError::NotWanted);
        }
        let is_empty = self.is_empty();
        if !is_empty && !is_verified {
            verify(all.locks())?;
        }
        let replace = |locks: &mut ShardLocks<'_>| {
            invalidate_at_once(locks, |locks| self.replace_locked(path, locks, is_empty))
        };
        let loaded = match self.feed.is_followed() {
            true => replace(all.locks()),
            // The replica's own feed is paused: its changes would be dropped, so they are not even recorded.
            false => all.locks().without_followers(replace),
        }?;
        let db = self.keyspace.db_index(loaded.stream_db).unwrap_or(DbIndex::ZERO);
        all.locks().move_to(Some(StreamPosition { db, ..position }));
        drop(all);
        // The data is in the log as one batch, which a start would read completely before it applies any of it. A pass
        // splits it.
        if let Some(durable_log) = self.durability.durable_log() {
            durable_log.compact_what_is_there();
        }
        Ok(loaded)
    }

    /// Replaces all data by those of an intact file, with all shards locked.
    fn replace_locked(
        &self,
        path: &Path,
        locks: &mut ShardLocks<'_>,
        is_empty: bool,
    ) -> Result<LoadReport, ReloadError> {
        // A server that is empty has no old keys to remove. A server without a log, which would need all data at any
        // moment, is emptied first. Recording all names and looking each key up in them takes longer than the load.
        let begins_empty = is_empty || !locks.is_recorded();
        if begins_empty && !is_empty {
            self.empty(locks);
        }
        let mut names = (!begins_empty).then(Names::default);
        let purpose = names.as_mut().map_or(Purpose::Load, Purpose::LoadAndNote);
        let missing = || ReloadError::Missing(path.display().to_string());
        let loaded = read_all(path, locks, &self.log, purpose, Unfit::Refuse)
            .map_err(ReloadError::from)
            .and_then(|loaded| loaded.ok_or_else(missing));
        if let (Ok(_), Some(names)) = (&loaded, &names) {
            remove_all_but(locks, names, NO_TIME_MS);
        }
        if loaded.is_err() {
            if begins_empty {
                self.empty(locks);
            }
            // The file was intact before, but no longer is. With a log, the loaded part stays among the old data, which
            // then has no replication offset.
            if !is_empty {
                locks.move_to(None);
            }
        }
        loaded
    }

    /// Removes all keys and code.
    fn empty(&self, locks: &mut ShardLocks<'_>) {
        flush_dbs(locks, self.keyspace.db_indices(), Freeing::Now);
        for kind in CodeKind::ALL {
            for (name, _) in self.keyspace.code().all().of(kind) {
                CodeEditor::lock(locks).remove(kind, name);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.keyspace.total_len() == 0 && self.keyspace.code().all().is_empty()
    }
}

/// Time before any deadline.
const NO_TIME_MS: i64 = i64::MIN;

fn save(engine: &Engine, locks: &mut ShardLocks<'_>, now_ms: i64) -> Result<(), String> {
    // The saver needs the shards.
    locks.release();
    let begun = engine.begin_save(locks, now_ms, Cause::Foreground, None);
    locks.release();
    let save_id = begun.map_err(|error| error.to_string())?;
    engine.persistence.wait(save_id)
}

/// Loads the file with all shards locked.
fn load_in_place(
    engine: &Engine,
    locks: &mut ShardLocks<'_>,
    now_ms: i64,
    options: ReloadOptions,
) -> Result<(), ReloadError> {
    if engine.persistence.report().running.is_some() {
        return Err(ReloadError::Save(SaveError::InProgress.to_string()));
    }
    let path = snapshot_path(&engine.config.settings());
    let missing = || ReloadError::Missing(path.display().to_string());
    read(&path, locks, &engine.log, true, Purpose::Verify, Unfit::Refuse)?.ok_or_else(missing)?;
    let mut names = Names::default();
    let noting = Purpose::LoadAndNote(&mut names);
    let loaded =
        read(&path, locks, &engine.log, true, noting, Unfit::Refuse)?.ok_or_else(missing)?;
    if !options.keeps_keys {
        remove_all_but(locks, &names, now_ms);
        engine.persistence.note_loaded(loaded, engine.keyspace.stats().changes);
    }
    Ok(())
}

fn remove_all_but(locks: &mut ShardLocks<'_>, names: &Names, now_ms: i64) {
    let keyspace = locks.keyspace();
    for db in keyspace.db_indices() {
        let mut others = Vec::new();
        for_each_entry(locks, db, now_ms, |entry| {
            let name = (db, entry.key().to_vec());
            if !names.keys.contains(&name) {
                others.push(name.1);
            }
        });
        for name in others {
            let key = keyspace.key(&name);
            locks.db(db, key.hash(), now_ms).remove(key);
        }
    }
    for kind in CodeKind::ALL {
        for (name, _) in keyspace.code().all().of(kind) {
            if !names.code.contains(&(kind, name.to_vec())) {
                CodeEditor::lock(locks).remove(kind, name);
            }
        }
    }
}
