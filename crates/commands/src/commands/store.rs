//! Stores the result of a command under its destination key.

use tierce_collections::Collection;
use tierce_keyspace::{Db, Event, Key};

use crate::error::CommandError;

/// Sets a key to a collection, whatever it was before. An empty collection deletes the key, with the event of a
/// deletion instead of `event`.
pub(super) fn store_result(
    db: &mut Db<'_>,
    key: Key<'_>,
    result: Collection,
    event: Event,
) -> Result<(), CommandError> {
    let is_empty = result.len() == 0;
    let has_changed = db.put_collection(key, result, None)?;
    if has_changed {
        db.event(if is_empty { Event::Del } else { event }, key);
    }
    Ok(())
}
