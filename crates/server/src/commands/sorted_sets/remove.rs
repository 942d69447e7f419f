//! ZREM and the commands that remove a range.

use std::ops::Range;

use tierce_collections::SortedSet;
use tierce_keyspace::Missing;
use tierce_wire::resp::Args;

use super::bounds;
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::{index_range, integer};
use crate::error::CommandError;
use crate::execute::Context;

const KEY: &[KeySpec] = &[KeySpec::at(1, KeyFlags::SHRINK)];
const COMPLEXITY: &str = "O(log(N)+M) with N being the number of elements in the sorted set and M the \
                          number of elements removed by the operation";

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("zrem", -3, Group::SortedSet, zrem)
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(KEY)
        .doc(
            "1.2.0",
            "O(M*log(N)) with N being the number of elements in the sorted set and M the number of \
             elements to be removed",
            "key member [member ...]",
            "Removes one or more members from a sorted set.",
        ),
    Spec::new("zremrangebyrank", 4, Group::SortedSet, zremrangebyrank)
        .flags(Flags::WRITE)
        .keys(KEY)
        .doc(
            "2.0.0",
            COMPLEXITY,
            "key start stop",
            "Removes members in a sorted set within a range of indexes.",
        ),
    Spec::new("zremrangebyscore", 4, Group::SortedSet, zremrangebyscore)
        .flags(Flags::WRITE)
        .keys(KEY)
        .doc(
            "1.2.0",
            COMPLEXITY,
            "key min max",
            "Removes members in a sorted set within a range of scores.",
        ),
    Spec::new("zremrangebylex", 4, Group::SortedSet, zremrangebylex)
        .flags(Flags::WRITE)
        .keys(KEY)
        .doc(
            "2.8.9",
            COMPLEXITY,
            "key min max",
            "Removes members in a sorted set within a lexicographical range.",
        ),
];

type Done = Result<(), CommandError>;

fn zrem(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    let removed = db.edit::<SortedSet, _, CommandError>(key, Missing::Skip, |set| {
        Ok(args.iter().skip(2).filter(|member| set.remove(member).is_some()).count())
    })?;
    reply.count(removed.unwrap_or(0));
    Ok(())
}

fn zremrangebyrank(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (start, stop) = (integer(&args[2])?, integer(&args[3])?);
    remove(ctx, args, |set| index_range(set.len(), start, stop))
}

fn zremrangebyscore(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (min, max) = (bounds::score(&args[2])?, bounds::score(&args[3])?);
    remove(ctx, args, |set| set.ranks_of_scores(min, max))
}

fn zremrangebylex(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (min, max) = (bounds::member(&args[2])?, bounds::member(&args[3])?);
    remove(ctx, args, |set| set.ranks_of_members(min, max))
}

/// Removes the members of the ranks that `ranks` says.
fn remove(
    ctx: &mut Context<'_, '_>,
    args: Args<'_>,
    ranks: impl FnOnce(&SortedSet) -> Range<usize>,
) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    let removed = db.edit::<SortedSet, _, CommandError>(key, Missing::Skip, |set| {
        let ranks = ranks(set);
        let count = ranks.len();
        set.remove_range(ranks, |_, _| {});
        Ok(count)
    })?;
    reply.count(removed.unwrap_or(0));
    Ok(())
}
