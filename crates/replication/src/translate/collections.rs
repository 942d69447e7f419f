//! Edits of lists, sets, sorted sets and hashes as commands.

use tierce_keyspace::ListSide;
use tierce_keyspace::log::{FieldDeadline, HashEdit, ListEdit, Malformed, SetEdit, SortedSetEdit};
use tierce_keyspace::planted::{self, Fault};

use super::Dialect;
use super::commands::{Arg, Commands, push, push_newer};

/// What a change in the middle of a list is that could be anywhere, as nothing there is named.
const NAMELESS: Malformed =
    Malformed { offset: 0, what: "a change in the middle of a list that names no element there" };

/// A list. With `is_new` there is nothing before the edit.
pub(super) fn list(
    key: &[u8],
    edit: &ListEdit<'_>,
    is_new: bool,
    commands: &mut Commands<'_>,
) -> Result<(), Malformed> {
    match *edit {
        ListEdit::PushBack(elements) => push_back(key, elements, commands),
        ListEdit::Insert { index: 0, elements } if is_new => push_back(key, elements, commands),
        ListEdit::Insert { index: 0, elements } => {
            let mut elements: Vec<_> = elements.collect();
            if planted::is(Fault::TranslationOfHeads) {
                elements.reverse();
            }
            let head = [Arg::from("LPUSH"), Arg::from(key)];
            let from_last = elements.iter().rev().map(|element| [Arg::from(*element)]);
            commands.push_chunks(&head, from_last, &[]);
        }
        ListEdit::Remove { index: 0, count: 1 } => push!(commands, "LPOP", key),
        ListEdit::Remove { index: 0, count } => push!(commands, "LTRIM", key, count, -1_i64),
        ListEdit::PopBack { count: 1, .. } => push!(commands, "RPOP", key),
        ListEdit::PopBack { index, .. } => {
            push!(commands, "LTRIM", key, 0_u64, index.saturating_sub(1));
        }
        ListEdit::Set { index, element } => push!(commands, "LSET", key, index, element),
        ListEdit::Beside { side, neighbour, element, .. } => {
            let side = if side == ListSide::Front { "BEFORE" } else { "AFTER" };
            push!(commands, "LINSERT", key, side, neighbour, element);
        }
        ListEdit::Equal { from, element, indexes } => {
            let count = indexes.len() as i64;
            let count = if from == ListSide::Front { count } else { -count };
            push!(commands, "LREM", key, count, element);
        }
        ListEdit::Insert { .. } | ListEdit::Remove { .. } => return Err(NAMELESS),
        // Of a checkpoint, which changes nothing.
        ListEdit::Part { .. } | ListEdit::Adopt => {}
    }
    Ok(())
}

fn push_back<'a>(
    key: &'a [u8],
    elements: impl Iterator<Item = &'a [u8]>,
    commands: &mut Commands<'_>,
) {
    let elements = elements.map(|element| [Arg::from(element)]);
    commands.push_chunks(&[Arg::from("RPUSH"), Arg::from(key)], elements, &[]);
}

pub(super) fn set(key: &[u8], edit: &SetEdit<'_>, commands: &mut Commands<'_>) {
    match *edit {
        SetEdit::Members(members) => {
            let members = members.map(|member| [Arg::from(member)]);
            commands.push_chunks(&[Arg::from("SADD"), Arg::from(key)], members, &[]);
        }
        SetEdit::Remove(member) => push!(commands, "SREM", key, member),
    }
}

pub(super) fn sorted_set(key: &[u8], edit: &SortedSetEdit<'_>, commands: &mut Commands<'_>) {
    match *edit {
        SortedSetEdit::Scores(members) => {
            let members = members.map(|(score, member)| [Arg::from(score), Arg::from(member)]);
            commands.push_chunks(&[Arg::from("ZADD"), Arg::from(key)], members, &[]);
        }
        SortedSetEdit::Remove(member) => push!(commands, "ZREM", key, member),
    }
}

pub(super) fn hash(key: &[u8], edit: &HashEdit<'_>, dialect: Dialect, commands: &mut Commands<'_>) {
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
