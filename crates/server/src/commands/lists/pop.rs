//! LPOP, RPOP and LMPOP.

use tierce_collections::List;
use tierce_keyspace::Missing;
use tierce_wire::resp::Args;

use super::Side;
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::many_pop::many_pop;
use crate::commands::options::{NOT_POSITIVE, at_least};
use crate::error::CommandError;
use crate::execute::Context;

const FLAGS: Flags = Flags::WRITE.with(Flags::FAST);
const KEYS: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ_REMOVE)];
const COMPLEXITY: &str = "O(N) where N is the number of elements returned";

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("lpop", -2, Group::List, |ctx, args| pop(ctx, args, Side::Left))
        .flags(FLAGS)
        .keys(KEYS)
        .doc(
            "1.0.0",
            COMPLEXITY,
            "key [count]",
            "Removes and returns the first elements of a list. The key is deleted with the last one.",
        ),
    Spec::new("rpop", -2, Group::List, |ctx, args| pop(ctx, args, Side::Right))
        .flags(FLAGS)
        .keys(KEYS)
        .doc(
            "1.0.0",
            COMPLEXITY,
            "key [count]",
            "Removes and returns the last elements of a list. The key is deleted with the last one.",
        ),
    Spec::new("lmpop", -4, Group::List, lmpop)
        .flags(Flags::WRITE)
        .keys(&[KeySpec::counted(1, KeyFlags::READ_REMOVE)])
        .doc(
            "7.0.0",
            "O(N+M) where N is the number of keys and M is the number of elements returned",
            "numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
            "Removes and returns elements of the first list that is not empty.",
        ),
];

type Done = Result<(), CommandError>;

fn pop(ctx: &mut Context<'_, '_>, args: Args<'_>, side: Side) -> Done {
    if args.len() > 3 {
        return Err(CommandError::arity(ctx.name()));
    }
    let Some(count) = args.get(2) else { return pop_one(ctx, args, side) };
    let count = at_least(count, 0, NOT_POSITIVE)?;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let popped = db.edit::<List, _, CommandError>(key, Missing::Skip, |list| {
        side.pop_many(list, count, reply);
        Ok(())
    })?;
    if popped.is_none() {
        reply.null_array();
    }
    Ok(())
}

fn pop_one(ctx: &mut Context<'_, '_>, args: Args<'_>, side: Side) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    let popped = db.edit::<List, _, CommandError>(key, Missing::Skip, |list| {
        side.pop_one(list, reply);
        Ok(())
    })?;
    if popped.is_none() {
        reply.null();
    }
    Ok(())
}

fn lmpop(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    many_pop(ctx, args, args.from(1), None, Side::parse, Side::pop_many)
}
