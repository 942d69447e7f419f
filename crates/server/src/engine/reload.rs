//! DEBUG RELOAD: what is in memory goes to the disk and comes back, in one step for everybody else.
//!
//! - No write is lost: whoever reloads holds writes back from before the snapshot, and what slips through is
//!   noticed when all shards are locked, which they then are until everything is loaded. Nobody sees half of it.
//! - The log has all data at any moment: it gets each loaded value in the place of the one that is there, and
//!   only at the end the removal of keys that the file lacks. It is never emptied on the way.
//! - A file that is damaged is found out before anything changes.

use tierce_keyspace::Locker;

use super::Engine;
use crate::persistence::{Cause, LoadError, Names, Purpose, SaveError, Unfit, read, snapshot_path};

/// So often a save is made once more, because something has changed meanwhile. With writes held back, that can
/// be only what was under way, or a command that is no write to others, as DEBUG POPULATE.
const ATTEMPTS_MAX: usize = 10;

/// What RELOAD leaves out.
#[derive(Clone, Copy, Default)]
pub(crate) struct ReloadOptions {
    /// Keys that the file lacks stay.
    pub(crate) keeps_keys: bool,
    /// The file is that of the last save.
    pub(crate) skips_save: bool,
}

/// Why nothing was reloaded; all is as it was.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReloadError {
    #[error("{0}")]
    Save(String),
    #[error("databases changed during each of {ATTEMPTS_MAX} saves")]
    Changing,
    #[error("there is no file {0}")]
    Missing(String),
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl Engine {
    /// Saves, empties all databases and loads the file, unless told otherwise. Writes of others are to be
    /// held back meanwhile.
    pub(crate) fn reload(
        &self,
        locker: &mut Locker<'_>,
        now_ms: i64,
        options: ReloadOptions,
    ) -> Result<(), ReloadError> {
        if options.skips_save {
            return load_in_place(self, locker.lock_all().locker(), now_ms, options);
        }
        for _ in 0..ATTEMPTS_MAX {
            save(self, locker, now_ms).map_err(ReloadError::Save)?;
            let mut all = locker.lock_all();
            if self.unsaved_changes() == 0 {
                return load_in_place(self, all.locker(), now_ms, options);
            }
        }
        Err(ReloadError::Changing)
    }
}

fn save(engine: &Engine, locker: &mut Locker<'_>, now_ms: i64) -> Result<(), String> {
    // The saver needs the shards.
    locker.release();
    let begun = engine.begin_save(locker, now_ms, Cause::Foreground, None);
    locker.release();
    let ticket = begun.map_err(|error| error.to_string())?;
    engine.persistence.wait(ticket)
}

/// Loads the file with all shards locked.
fn load_in_place(
    engine: &Engine,
    locker: &mut Locker<'_>,
    now_ms: i64,
    options: ReloadOptions,
) -> Result<(), ReloadError> {
    if engine.persistence.report().running.is_some() {
        return Err(ReloadError::Save(SaveError::InProgress.to_string()));
    }
    let path = snapshot_path(&engine.config.settings());
    let missing = || ReloadError::Missing(path.display().to_string());
    read(&path, locker, &engine.log, true, Purpose::Verify, Unfit::Refuse)?.ok_or_else(missing)?;
    let mut names = Names::new();
    let noting = Purpose::LoadAndNote(&mut names);
    let loaded =
        read(&path, locker, &engine.log, true, noting, Unfit::Refuse)?.ok_or_else(missing)?;
    if !options.keeps_keys {
        remove_all_but(locker, &names, now_ms);
        engine.persistence.note_loaded(loaded, engine.keyspace.stats().changes);
    }
    Ok(())
}

fn remove_all_but(locker: &mut Locker<'_>, names: &Names, now_ms: i64) {
    let keyspace = locker.keyspace();
    for db in keyspace.db_indices() {
        let mut others = Vec::new();
        locker.for_each(db, now_ms, |entry| {
            let name = (db, entry.key().to_vec());
            if !names.contains(&name) {
                others.push(name.1);
            }
        });
        for name in others {
            let key = keyspace.key(&name);
            locker.db(db, key.hash(), now_ms).remove(key);
        }
    }
}
