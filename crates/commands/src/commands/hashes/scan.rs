//! HSCAN: iterates over a hash.

use tierce_collections::Hash;
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::sweep;
use crate::pipeline::{Context, Defined, Done, at_least};

pub(super) static COMMANDS: &[Defined] = &[Defined::new("hscan", Group::Hash, at_least!(hscan))
    .flags(Flags::READONLY)
    .keys(&[KeySpec::at(1, KeyFlags::READ)])
    .tips(&["nondeterministic_output"])
    .since(
        "2.8.0",
        "O(1) for every call; O(N) for a complete iteration, N being the number of fields",
    )
    .doc(
        "key cursor [MATCH pattern] [COUNT count] [NOVALUES]",
        "Iterates over fields and values of a hash.",
    )
    .example(
        r#"
        > HSET user:1 name Ada born 1815
        (integer) 2
        > HSCAN user:1 0 MATCH n*
        1) "0"
        2) 1) "name"
           2) "Ada"
        "#,
    )];

fn hscan(ctx: &mut Context<'_, '_>, args: [&[u8]; 2], options: Rest<'_>) -> Done {
    let now_ms = ctx.now_ms;
    sweep::reply(ctx, args, options, |hash: &Hash, cursor, found| {
        hash.scan(cursor, |field| {
            if field.is_live(now_ms) {
                found.visited(field.name, || Some(field.value.to_vec()));
            } else {
                found.passed();
            }
        })
    })
}
