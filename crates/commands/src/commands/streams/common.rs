//! Common parts of commands on streams.

use crate::command::KeyFlags;
use crate::error::CommandError;

/// Adds new elements.
pub(super) const INSERT: KeyFlags = KeyFlags(&["RW", "insert"]);
/// Removes elements.
pub(super) const DELETE: KeyFlags = KeyFlags(&["RW", "delete"]);

/// Returns the error for a missing key or group; `place` is appended to the text.
pub(super) fn no_group(key: &[u8], group: &[u8], place: &str) -> CommandError {
    let (key, group) = (String::from_utf8_lossy(key), String::from_utf8_lossy(group));
    CommandError::text(format!("NOGROUP No such key '{key}' or consumer group '{group}'{place}"))
}

/// Returns the error for a missing group of an existing key.
pub(super) fn no_group_of_key(key: &[u8], group: &[u8]) -> CommandError {
    let (key, group) = (String::from_utf8_lossy(key), String::from_utf8_lossy(group));
    CommandError::text(format!("NOGROUP No such consumer group '{group}' for key name '{key}'"))
}

/// Converts the time of a command to the format of streams.
pub(super) fn unsigned_ms(now_ms: i64) -> u64 {
    u64::try_from(now_ms).unwrap_or(0)
}

/// Returns the elapsed time; 0 if the clock was set back.
pub(super) fn since_ms(now_ms: i64, then_ms: u64) -> u64 {
    unsigned_ms(now_ms).saturating_sub(then_ms)
}
