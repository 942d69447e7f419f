//! Edits of hashes as commands.

use tierce_keyspace::log::{FieldDeadline, HashEdit};
use tierce_keyspace::planted::{self, Fault};

use super::Dialect;
use super::commands::{Arg, Commands, push, push_newer};

pub(super) fn edit(key: &[u8], edit: &HashEdit<'_>, dialect: Dialect, commands: &mut Commands<'_>) {
    let head = [Arg::from("HSET"), Arg::from(key)];
    let pair = |(name, value): (_, _)| [Arg::Bytes(name), Arg::Bytes(value)];
    match *edit {
        HashEdit::Fields(fields) => commands.push_chunks(&head, fields.map(pair), &[]),
        HashEdit::TimedFields(fields) => {
            commands.push_chunks(&head, fields.map(|(field, _)| pair(field)), &[]);
            for ((name, _), deadline) in fields {
                if deadline.0.is_some() && !planted::is(Fault::TranslationOfFieldDeadlines) {
                    field_deadline(key, name, deadline, dialect, commands);
                }
            }
        }
        HashEdit::Deadline(name, deadline) => {
            field_deadline(key, name, deadline, dialect, commands);
        }
        HashEdit::Remove(name) => push!(commands, "HDEL", key, name),
    }
}

fn field_deadline(
    key: &[u8],
    name: &[u8],
    deadline: FieldDeadline,
    dialect: Dialect,
    commands: &mut Commands<'_>,
) {
    if dialect < Dialect::Redis7_4 {
        return;
    }
    match deadline.0 {
        Some(at_ms) => push_newer!(commands, "HPEXPIREAT", key, at_ms, "FIELDS", 1_u64, name),
        None => push_newer!(commands, "HPERSIST", key, "FIELDS", 1_u64, name),
    }
}
