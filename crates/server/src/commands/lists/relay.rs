//! LMOVE and RPOPLPUSH: from one list to another, or to the other end of the same.

use tierce_collections::List;
use tierce_keyspace::{DbIndex, Key, Missing};
use tierce_wire::resp::Args;

use super::Side;
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::{check_len, is_of_type};
use crate::error::CommandError;
use crate::execute::{Context, Guard};

const KEYS: &[KeySpec] =
    &[KeySpec::at(1, KeyFlags::READ_REMOVE), KeySpec::at(2, KeyFlags(&["RW", "insert"]))];

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("lmove", 5, Group::List, lmove)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(KEYS)
        .doc(
            "6.2.0",
            "O(1)",
            "source destination <LEFT | RIGHT> <LEFT | RIGHT>",
            "Moves an element from one list to another, and returns it.",
        ),
    Spec::new("rpoplpush", 3, Group::List, rpoplpush)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(KEYS)
        .deprecated("6.2.0", "`LMOVE` with the `RIGHT` and `LEFT` arguments")
        .doc(
            "1.2.0",
            "O(1)",
            "source destination",
            "Moves the last element of a list to the beginning of another one, and returns it.",
        ),
];

type Done = Result<(), CommandError>;

fn lmove(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (from, to) = (Side::parse(&args[3])?, Side::parse(&args[4])?);
    relay_and_reply(ctx, args, from, to)
}

fn rpoplpush(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    relay_and_reply(ctx, args, Side::Right, Side::Left)
}

fn relay_and_reply(ctx: &mut Context<'_, '_>, args: Args<'_>, from: Side, to: Side) -> Done {
    let source = (ctx.server.keyspace.key(args.at(1)), from);
    let destination = (ctx.server.keyspace.key(args.at(2)), to);
    check_len(destination.0)?;
    match relay(&mut ctx.guard, ctx.session.db, ctx.now_ms, source, destination)? {
        Some(element) => ctx.reply.bulk(&element),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// Moves an element, and returns it; `None` if there is no source. The shards of both keys are locked,
/// and the destination is no key that would be refused.
pub(crate) fn relay(
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
        return Ok(taken);
    }
    let Some(element) = taken else { return Ok(None) };
    let mut at_destination = guard.db(db, destination.hash(), now_ms);
    at_destination.edit::<List, _, CommandError>(destination, Missing::Create, |list| {
        to.push(list, &element);
        Ok(())
    })?;
    Ok(Some(element))
}
