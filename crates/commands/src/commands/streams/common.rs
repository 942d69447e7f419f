//! What commands on streams have in common.

use crate::command::KeyFlags;
use crate::error::CommandError;

/// Puts something in that was not there.
pub(super) const INSERT: KeyFlags = KeyFlags(&["RW", "insert"]);
/// Takes something out.
pub(super) const DELETE: KeyFlags = KeyFlags(&["RW", "delete"]);

/// Neither the key nor its group may be missing; `place` is appended to the text.
pub(super) fn no_group(key: &[u8], group: &[u8], place: &str) -> CommandError {
    let (key, group) = (String::from_utf8_lossy(key), String::from_utf8_lossy(group));
    CommandError::text(format!("NOGROUP No such key '{key}' or consumer group '{group}'{place}"))
}

/// The key is there, and its group is missing.
pub(super) fn no_group_of_key(key: &[u8], group: &[u8]) -> CommandError {
    let (key, group) = (String::from_utf8_lossy(key), String::from_utf8_lossy(group));
    CommandError::text(format!("NOGROUP No such consumer group '{group}' for key name '{key}'"))
}

/// The time of a command as streams keep it.
pub(super) fn unsigned_ms(now_ms: i64) -> u64 {
    u64::try_from(now_ms).unwrap_or(0)
}

/// How much time has passed; none, if the clock was set back.
pub(super) fn since_ms(now_ms: i64, then_ms: u64) -> u64 {
    unsigned_ms(now_ms).saturating_sub(then_ms)
}
