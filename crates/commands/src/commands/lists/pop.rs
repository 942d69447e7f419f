//! LPOP, RPOP and LMPOP.

use tierce_collections::List;
use tierce_keyspace::Missing;
use tierce_wire::resp::Rest;

use super::side::Side;
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::many_pop::many_pop;
use crate::commands::options::{NOT_POSITIVE, count_from};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least, many};

const FLAGS: Flags = Flags::WRITE.with(Flags::FAST);
const KEYS: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ_REMOVE)];
const COMPLEXITY: &str = "O(N) where N is the number of elements returned";

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new(
        "lpop",
        Group::List,
        at_least!(|ctx, [key], count| pop(ctx, key, count, Side::Left)),
    )
    .flags(FLAGS)
    .keys(KEYS)
    .since("1.0.0", COMPLEXITY)
    .doc(
        "key [count]",
        "Removes and returns the first elements of a list. The key is deleted with the \
                 last one.",
    )
    .example(
        r#"
            > RPUSH queue a b c d
            (integer) 4
            > LPOP queue
            "a"
            > LPOP queue 2
            1) "b"
            2) "c"
            > LPOP nosuch
            (nil)
            "#,
    ),
    Defined::new(
        "rpop",
        Group::List,
        at_least!(|ctx, [key], count| pop(ctx, key, count, Side::Right)),
    )
    .flags(FLAGS)
    .keys(KEYS)
    .since("1.0.0", COMPLEXITY)
    .doc(
        "key [count]",
        "Removes and returns the last elements of a list. The key is deleted with the last \
                 one.",
    )
    .example(
        r#"
            > RPUSH queue a b c d
            (integer) 4
            > RPOP queue
            "d"
            > RPOP queue 2
            1) "c"
            2) "b"
            > LRANGE queue 0 -1
            1) "a"
            "#,
    ),
    Defined::new("lmpop", Group::List, many!(lmpop))
        .flags(Flags::WRITE)
        .keys(&[KeySpec::counted(1, KeyFlags::READ_REMOVE)])
        .since(
            "7.0.0",
            "O(N+M) where N is the number of keys and M is the number of elements returned",
        )
        .doc(
            "numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
            "Removes and returns elements of the first list that is not empty.",
        )
        .example(
            r#"
            > RPUSH low e f g
            (integer) 3
            > LMPOP 2 high low LEFT COUNT 2
            1) "low"
            2) 1) "e"
               2) "f"
            > LMPOP 1 high LEFT
            (nil)
            "#,
        ),
];

fn pop(ctx: &mut Context<'_, '_>, key: &[u8], count: Rest<'_>, side: Side) -> Done {
    if count.len() > 1 {
        return Err(CommandError::arity(ctx.name()));
    }
    let Some(count) = count.get(0) else { return pop_one(ctx, key, side) };
    let count = count_from(count, 0, NOT_POSITIVE)?;
    let scale = ctx.scale();
    let (mut db, key, reply) = ctx.open(key);
    scale.weigh_some(count, &mut db, key)?;
    let popped = db.edit::<List, _, CommandError>(key, Missing::Skip, |list| {
        side.pop_many(list, count, reply);
        Ok(())
    })?;
    match popped {
        Some(()) if count > 0 => db.event_of_edit(side.pop_event(), key),
        Some(()) => {}
        None => reply.null_array(),
    }
    Ok(())
}

fn pop_one(ctx: &mut Context<'_, '_>, key: &[u8], side: Side) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    let popped = db.edit::<List, _, CommandError>(key, Missing::Skip, |list| {
        side.pop_one(list, reply);
        Ok(())
    })?;
    match popped {
        Some(()) => db.event_of_edit(side.pop_event(), key),
        None => reply.null(),
    }
    Ok(())
}

fn lmpop(ctx: &mut Context<'_, '_>, request: Rest<'_, 3>) -> Done {
    many_pop(ctx, request.any(), None, Side::parse, Side::pop_many, Side::pop_event)
}
