//! ZSCAN: iterates over a sorted set.

use tierce_collections::SortedSet;
use tierce_wire::number::format_f64;
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::sweep;
use crate::pipeline::{Context, Defined, Done, at_least};

pub(super) static COMMANDS: &[Defined] =
    &[Defined::new("zscan", Group::SortedSet, at_least!(zscan))
        .flags(Flags::READONLY)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .tips(&["nondeterministic_output"])
        .since(
            "2.8.0",
            "O(1) for every call; O(N) for a complete iteration, N being the number of members",
        )
        .doc(
            "key cursor [MATCH pattern] [COUNT count]",
            "Iterates over members and scores of a sorted set.",
        )
        .example(
            r#"
        > ZADD scores 10 Ada 20 Grace
        (integer) 2
        > ZSCAN scores 0 MATCH A*
        1) "0"
        2) 1) "Ada"
           2) "10"
        "#,
        )];

fn zscan(ctx: &mut Context<'_, '_>, args: [&[u8]; 2], options: Rest<'_>) -> Done {
    sweep::reply(ctx, args, options, |set: &SortedSet, cursor, found| {
        set.scan(cursor, |member, score| found.visited(member, || Some(format_f64(score).to_vec())))
    })
}
