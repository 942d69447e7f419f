//! Streams: entries that are only added at the end, and groups of consumers that share them.

mod add;
mod claim;
mod group;
mod id;
mod info;
mod pending;
mod range;
mod read;
mod reply;

use crate::command::KeyFlags;
use crate::error::CommandError;
use crate::execute::Defined;

pub(super) static COMMANDS: &[&[Defined]] = &[
    add::COMMANDS,
    range::COMMANDS,
    read::COMMANDS,
    group::COMMANDS,
    pending::COMMANDS,
    claim::COMMANDS,
    info::COMMANDS,
];

/// Puts something in that was not there.
const INSERT: KeyFlags = KeyFlags(&["RW", "insert"]);
/// Takes something out.
const DELETE: KeyFlags = KeyFlags(&["RW", "delete"]);

/// Neither the key nor its group may be missing; `place` is appended to the text.
fn no_group(key: &[u8], group: &[u8], place: &str) -> CommandError {
    let (key, group) = (String::from_utf8_lossy(key), String::from_utf8_lossy(group));
    CommandError::text(format!("NOGROUP No such key '{key}' or consumer group '{group}'{place}"))
}

/// The key is there, and its group is missing.
fn no_group_of_key(key: &[u8], group: &[u8]) -> CommandError {
    let (key, group) = (String::from_utf8_lossy(key), String::from_utf8_lossy(group));
    CommandError::text(format!("NOGROUP No such consumer group '{group}' for key name '{key}'"))
}

/// The time of a command as streams keep it.
fn unsigned_ms(now_ms: i64) -> u64 {
    u64::try_from(now_ms).unwrap_or(0)
}

/// How much time has passed; none, if the clock was set back.
fn since_ms(now_ms: i64, then_ms: u64) -> u64 {
    unsigned_ms(now_ms).saturating_sub(then_ms)
}
