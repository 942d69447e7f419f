//! LPUSH, RPUSH, LPUSHX and RPUSHX.

use tierce_collections::List;
use tierce_keyspace::Missing;
use tierce_wire::resp::Args;

use super::Side;
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::error::CommandError;
use crate::execute::Context;

const FLAGS: Flags = Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST);
const KEYS: &[KeySpec] = &[KeySpec::at(1, KeyFlags(&["RW", "insert"]))];
const COMPLEXITY: &str = "O(1) for each element added";

const fn spec(
    name: &'static str,
    run: crate::command::Handler,
    since: &'static str,
    summary: &'static str,
) -> Spec {
    Spec::new(name, -3, Group::List, run).flags(FLAGS).keys(KEYS).doc(
        since,
        COMPLEXITY,
        "key element [element ...]",
        summary,
    )
}

pub(super) static COMMANDS: &[Spec] = &[
    spec(
        "lpush",
        |ctx, args| push(ctx, args, Side::Left, Missing::Create),
        "1.0.0",
        "Prepends elements to a list. The key is created if it does not exist.",
    ),
    spec(
        "rpush",
        |ctx, args| push(ctx, args, Side::Right, Missing::Create),
        "1.0.0",
        "Appends elements to a list. The key is created if it does not exist.",
    ),
    spec(
        "lpushx",
        |ctx, args| push(ctx, args, Side::Left, Missing::Skip),
        "2.2.0",
        "Prepends elements to a list only if the list exists.",
    ),
    spec(
        "rpushx",
        |ctx, args| push(ctx, args, Side::Right, Missing::Skip),
        "2.2.0",
        "Appends elements to a list only if the list exists.",
    ),
];

fn push(
    ctx: &mut Context<'_, '_>,
    args: Args<'_>,
    side: Side,
    missing: Missing,
) -> Result<(), CommandError> {
    let elements = args.from(2);
    let (mut db, key, reply) = ctx.open(args.at(1));
    let len = db.edit::<List, _, CommandError>(key, missing, |list| {
        match side {
            Side::Left => list.push_front(elements.iter()),
            Side::Right => list.push_back(elements.iter()),
        }
        Ok(list.len())
    })?;
    reply.count(len.unwrap_or(0));
    Ok(())
}
