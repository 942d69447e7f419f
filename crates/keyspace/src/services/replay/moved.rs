//! Values on another server's disk that get another key there: RENAME and MOVE log their locations, not their
//! contents. Here, the value is taken from the key that had it.

use crate::access::cold::fetch;
use crate::access::db::Db;
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
