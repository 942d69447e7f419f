//! Which values a request needs that are on disk.

use tierce_cask::ColdPlace;
use tierce_keyspace::{DbIndex, Locker};
use tierce_wire::resp::Args;

use crate::command::{Command, Flags};

/// The values of a batch are fetched together up to so many, and so many bytes; those of one request in
/// any case.
const WANTED_MAX: usize = 256;
const WANTED_BYTES_MAX: u64 = 4 << 20;

/// A value on disk that a request needs.
#[derive(Debug)]
pub struct Wanted {
    /// The database of the key.
    pub db: DbIndex,
    /// The key.
    pub key: Box<[u8]>,
    /// Where the value is.
    pub place: ColdPlace,
}

/// Whether so many are enough for one wait.
#[must_use]
pub fn is_enough(wanted: &[Wanted]) -> bool {
    wanted.len() >= WANTED_MAX
        || wanted.iter().map(|wanted| wanted.place.stored_len()).sum::<u64>() >= WANTED_BYTES_MAX
}

/// Adds the values on disk that a call of `command` needs.
pub fn add_wanted(
    locker: &mut Locker<'_>,
    db: DbIndex,
    command: &Command,
    args: Args<'_>,
    now_ms: i64,
    wanted: &mut Vec<Wanted>,
) {
    if command.spec.flags.contains(Flags::KEY_ONLY) {
        return;
    }
    for keys in command.spec.keys {
        if !keys.flags.of_call(args).needs_value() {
            continue;
        }
        for index in keys.indexes(args) {
            add_key(locker, db, &args[index], now_ms, wanted);
        }
    }
}

/// Adds the value of a key if it is on disk.
pub fn add_key(
    locker: &mut Locker<'_>,
    db: DbIndex,
    key: &[u8],
    now_ms: i64,
    wanted: &mut Vec<Wanted>,
) {
    let found = locker.keyspace().key(key);
    if let Some(place) = locker.db(db, found.hash(), now_ms).spilled_at(found)
        && !wanted.iter().any(|wanted| wanted.place == place)
    {
        wanted.push(Wanted { db, key: key.into(), place });
    }
}
