//! LMOVE and RPOPLPUSH: move an element to another list, or to the other end of its list.

use tierce_collections::List;
use tierce_keyspace::{DbIndex, Key, Missing};

use super::side::Side;
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::options::{check_len, is_of_type};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, Guard, exactly};

const KEYS: &[KeySpec] =
    &[KeySpec::at(1, KeyFlags::READ_REMOVE), KeySpec::at(2, KeyFlags(&["RW", "insert"]))];

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("lmove", Group::List, exactly!(lmove))
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(KEYS)
        .since("6.2.0", "O(1)")
        .doc(
            "source destination <LEFT | RIGHT> <LEFT | RIGHT>",
            "Moves an element from one list to another, and returns it.",
        )
        .example(
            r#"
            > RPUSH todo write test ship
            (integer) 3
            > LMOVE todo doing LEFT RIGHT
            "write"
            > LRANGE todo 0 -1
            1) "test"
            2) "ship"
            > LRANGE doing 0 -1
            1) "write"
            "#,
        ),
    Defined::new("rpoplpush", Group::List, exactly!(rpoplpush))
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(KEYS)
        .deprecated("6.2.0", "`LMOVE` with the `RIGHT` and `LEFT` arguments")
        .since("1.2.0", "O(1)")
        .doc(
            "source destination",
            "Moves the last element of a list to the beginning of another one, and returns it.",
        )
        .example(
            r#"
            > RPUSH todo write test
            (integer) 2
            > RPOPLPUSH todo doing
            "test"
            > LRANGE doing 0 -1
            1) "test"
            "#,
        ),
];

fn lmove(ctx: &mut Context<'_, '_>, [source, destination, from, to]: [&[u8]; 4]) -> Done {
    let (from, to) = (Side::parse(from)?, Side::parse(to)?);
    move_and_reply(ctx, (source, from), (destination, to))
}

fn rpoplpush(ctx: &mut Context<'_, '_>, [source, destination]: [&[u8]; 2]) -> Done {
    move_and_reply(ctx, (source, Side::Right), (destination, Side::Left))
}

fn move_and_reply(
    ctx: &mut Context<'_, '_>,
    (source, from): (&[u8], Side),
    (destination, to): (&[u8], Side),
) -> Done {
    let source = (ctx.kernel.keyspace.key(source), from);
    let destination = (ctx.kernel.keyspace.key(destination), to);
    check_len(destination.0)?;
    match move_element(&mut ctx.guard, ctx.caller.db, ctx.now_ms, source, destination)? {
        Some(element) => ctx.reply.bulk(&element),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// Moves an element, and returns it; `None` if there is no source. The shards of both keys are
/// locked, and the destination key has been checked.
pub(crate) fn move_element(
    guard: &mut Guard<'_, '_>,
    db: DbIndex,
    now_ms: i64,
    (source, from): (Key<'_>, Side),
    (destination, to): (Key<'_>, Side),
) -> Result<Option<Vec<u8>>, CommandError> {
    if !is_of_type::<List>(&mut guard.db(db, source.hash(), now_ms), source)? {
        return Ok(None);
    }
    is_of_type::<List>(&mut guard.db(db, destination.hash(), now_ms), destination)?;
    let is_rotation = source.bytes() == destination.bytes();
    let mut at_source = guard.db(db, source.hash(), now_ms);
    let taken = at_source.edit::<List, _, CommandError>(source, Missing::Skip, |list| {
        let element = from.peek(list).expect("a list has elements").to_vec();
        from.pop(list, 1);
        if is_rotation {
            to.push(list, &element);
        }
        Ok(element)
    })?;
    if is_rotation {
        at_source.event(to.push_event(), source);
        at_source.event(from.pop_event(), source);
        return Ok(taken);
    }
    let Some(element) = taken else { return Ok(None) };
    let mut at_destination = guard.db(db, destination.hash(), now_ms);
    at_destination.edit::<List, _, CommandError>(destination, Missing::Create, |list| {
        to.push(list, &element);
        Ok(())
    })?;
    at_destination.event(to.push_event(), destination);
    guard.db(db, source.hash(), now_ms).event_of_edit(from.pop_event(), source);
    Ok(Some(element))
}
