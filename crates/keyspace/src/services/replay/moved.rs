//! Values that get another key, by RENAME or MOVE. The log does not repeat the contents of a large value in memory, and
//! states only the location of one on disk, which may be another server's disk. So the value is taken from the key that
//! had it.

use crate::access::cold::fetch;
use crate::access::db::Db;
use crate::change::Removal;
use crate::change::log::op::Effect;
use crate::data::entry::{Entry, Spilled};
use crate::data::key::Key;
use crate::services::replay::ReplayError;

/// Values taken by related operations, which have no key yet.
#[derive(Default)]
pub(super) struct Moved(Vec<(Spilled, Entry)>);

impl Moved {
    /// Applies a [`Effect::Taken`] or [`Effect::Spilled`].
    pub(super) fn apply(
        &mut self,
        db: &mut Db<'_>,
        key: Key<'_>,
        effect: Effect<'_>,
    ) -> Result<(), ReplayError> {
        match effect {
            Effect::Taken(spilled) => self.take(db, key, spilled),
            Effect::Spilled { spilled, deadline_ms, .. } => {
                let entry = self.find(spilled).ok_or(ReplayError::Elsewhere)?;
                db.put(key, entry).expect("a key of a log is not too long");
                match deadline_ms {
                    Some(deadline_ms) => _ = db.set_deadline(key, deadline_ms),
                    None => _ = db.clear_deadline(key),
                }
                Ok(())
            }
            _ => Err(ReplayError::Elsewhere),
        }
    }

    fn take(&mut self, db: &mut Db<'_>, key: Key<'_>, spilled: Spilled) -> Result<(), ReplayError> {
        if spilled == Spilled::IN_MEMORY {
            // One value at a time is between two keys.
            self.0.retain(|(of, _)| *of != spilled);
            self.0.extend(db.take(key, Removal::Moved).map(|entry| (spilled, entry)));
            return Ok(());
        }
        fetch(db, key).map_err(|_| ReplayError::NoColdStore)?;
        let entry = db.duplicate(key).map_err(|_| ReplayError::NoColdStore)?;
        if let Some(entry) = entry {
            db.remove(key);
            self.0.push((spilled, entry));
        }
        Ok(())
    }

    fn find(&mut self, spilled: Spilled) -> Option<Entry> {
        let at = self.0.iter().position(|(of, _)| *of == spilled)?;
        Some(self.0.swap_remove(at).1)
    }
}
