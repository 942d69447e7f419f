//! LPUSH, RPUSH, LPUSHX and RPUSHX.

use tierce_collections::List;
use tierce_keyspace::Missing;
use tierce_wire::resp::Rest;

use super::side::Side;
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::error::CommandError;
use crate::pipeline::{Body, Context, Defined, Done, at_least};

const FLAGS: Flags = Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST);
const KEYS: &[KeySpec] = &[KeySpec::at(1, KeyFlags(&["RW", "insert"]))];
const COMPLEXITY: &str = "O(1) for each element added";

const fn spec(
    name: &'static str,
    body: Body,
    since: &'static str,
    summary: &'static str,
) -> Defined {
    Defined::new(name, Group::List, body)
        .flags(FLAGS)
        .keys(KEYS)
        .since(since, COMPLEXITY)
        .doc("key element [element ...]", summary)
}

pub(super) static COMMANDS: &[Defined] = &[
    spec(
        "lpush",
        at_least!(|ctx, [key], elements| push(ctx, key, elements, Side::Left, Missing::Create)),
        "1.0.0",
        "Prepends elements to a list. The key is created if it does not exist.",
    )
    .example(
        r#"
            > LPUSH queue c
            (integer) 1
            > LPUSH queue b a
            (integer) 3
            > LRANGE queue 0 -1
            1) "a"
            2) "b"
            3) "c"
            "#,
    ),
    spec(
        "rpush",
        at_least!(|ctx, [key], elements| push(ctx, key, elements, Side::Right, Missing::Create)),
        "1.0.0",
        "Appends elements to a list. The key is created if it does not exist.",
    )
    .example(
        r#"
            > RPUSH queue a b
            (integer) 2
            > RPUSH queue c
            (integer) 3
            > LRANGE queue 0 -1
            1) "a"
            2) "b"
            3) "c"
            "#,
    ),
    spec(
        "lpushx",
        at_least!(|ctx, [key], elements| push(ctx, key, elements, Side::Left, Missing::Skip)),
        "2.2.0",
        "Prepends elements to a list only if the list exists.",
    )
    .example(
        r#"
            > LPUSHX queue a
            (integer) 0
            > RPUSH queue b
            (integer) 1
            > LPUSHX queue a
            (integer) 2
            "#,
    ),
    spec(
        "rpushx",
        at_least!(|ctx, [key], elements| push(ctx, key, elements, Side::Right, Missing::Skip)),
        "2.2.0",
        "Appends elements to a list only if the list exists.",
    )
    .example(
        r#"
            > RPUSHX queue b
            (integer) 0
            > LPUSH queue a
            (integer) 1
            > RPUSHX queue b
            (integer) 2
            > LRANGE queue 0 -1
            1) "a"
            2) "b"
            "#,
    ),
];

fn push(
    ctx: &mut Context<'_, '_>,
    key: &[u8],
    elements: Rest<'_, 1>,
    side: Side,
    missing: Missing,
) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    let len = db.edit::<List, _, CommandError>(key, missing, |list| {
        match side {
            Side::Left => list.push_front(elements.iter()),
            Side::Right => list.push_back(elements.iter()),
        }
        Ok(list.len())
    })?;
    if len.is_some() {
        db.event(side.push_event(), key);
    }
    reply.count(len.unwrap_or(0));
    Ok(())
}
