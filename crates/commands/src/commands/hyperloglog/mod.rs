//! HyperLogLogs: approximate counts of distinct elements, stored as strings.

mod count;
mod debug;

use std::sync::Arc;

use tierce_collections::hyperloglog::{self, Error, HyperLogLog};
use tierce_keyspace::{Db, Expiry, IntText, Key, NewString, StrView};

use crate::config::{DirectiveId, Settings};
use crate::error::CommandError;
use crate::pipeline::Defined;

pub(super) static COMMANDS: &[&[Defined]] = &[count::COMMANDS, debug::COMMANDS];

const NOT_ONE: CommandError =
    CommandError::new("WRONGTYPE Key is not a valid HyperLogLog string value.");
const CORRUPT: CommandError = CommandError::new("INVALIDOBJ Corrupted HLL object detected");

fn refused(error: Error) -> CommandError {
    match error {
        Error::NotOne => NOT_ONE,
        Error::Corrupt => CORRUPT,
    }
}

/// Maximum length of a sparse counter.
fn sparse_len_max(settings: &Settings) -> usize {
    const DIRECTIVE: DirectiveId = DirectiveId::of("hll-sparse-max-bytes");
    settings.bytes(DIRECTIVE) as usize
}

/// Calls `look` with the bytes of a counter; `None` if there is none.
fn read<R>(
    db: &mut Db<'_>,
    key: Key<'_>,
    look: impl FnOnce(&[u8]) -> Result<R, Error>,
) -> Result<Option<R>, CommandError> {
    show(db.string(key)?, look)
}

/// Does the same for a counter that will be changed.
fn read_to_change<R>(
    db: &mut Db<'_>,
    key: Key<'_>,
    look: impl FnOnce(&[u8]) -> Result<R, Error>,
) -> Result<Option<R>, CommandError> {
    show(db.string_to_change(key)?, look)
}

fn show<R>(
    value: Option<StrView<'_>>,
    look: impl FnOnce(&[u8]) -> Result<R, Error>,
) -> Result<Option<R>, CommandError> {
    let Some(value) = value else { return Ok(None) };
    let mut text = IntText::new();
    let bytes = value.bytes(&mut text);
    hyperloglog::check(bytes).and_then(|()| look(bytes)).map(Some).map_err(refused)
}

/// Returns a copy of a counter.
fn copy(db: &mut Db<'_>, key: Key<'_>) -> Result<Option<HyperLogLog>, CommandError> {
    read_to_change(db, key, |bytes| HyperLogLog::from_bytes(bytes.to_vec()))
}

/// Stores a counter whose old value is `before`. If the length is unchanged, only the differences
/// are written and logged.
fn store(
    db: &mut Db<'_>,
    key: Key<'_>,
    before: Option<&[u8]>,
    counter: HyperLogLog,
) -> Result<(), CommandError> {
    /// The header is separate: it nearly always changes, often far from changed registers.
    const HEADER_LEN: usize = 16;
    let bytes = Arc::new(counter.into_bytes());
    let Some(before) = before.filter(|before| before.len() == bytes.len()) else {
        db.set(key, NewString::computed(&bytes), Expiry::Keep)?;
        return Ok(());
    };
    for range in [0..HEADER_LEN, HEADER_LEN..bytes.len()] {
        let (old, new) = (&before[range.clone()], &bytes[range.clone()]);
        let differs = |(old, new): (&u8, &u8)| old != new;
        let Some(first) = old.iter().zip(new).position(differs) else { continue };
        let last = old.iter().zip(new).rposition(differs).unwrap_or(first);
        db.set_range(key, (range.start + first) as u64, &new[first..=last])?;
    }
    Ok(())
}
