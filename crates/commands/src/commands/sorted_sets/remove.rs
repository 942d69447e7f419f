//! ZREM and the commands that remove a range.

use std::ops::Range;

use tierce_collections::SortedSet;
use tierce_keyspace::{Event, Missing};
use tierce_wire::resp::Rest;

use super::bounds;
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::options::{index_range, integer};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least, exactly};

const KEY: &[KeySpec] = &[KeySpec::at(1, KeyFlags::SHRINK)];
const COMPLEXITY: &str = "O(log(N)+M) with N being the number of elements in the sorted set and M the \
                          number of elements removed by the operation";

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("zrem", Group::SortedSet, at_least!(zrem))
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(KEY)
        .since(
            "1.2.0",
            "O(M*log(N)) with N being the number of elements in the sorted set and M the number of \
             elements to be removed",
        )
        .doc("key member [member ...]", "Removes one or more members from a sorted set.")
        .example(
            r#"
            > ZADD scores 10 Ada 20 Grace
            (integer) 2
            > ZREM scores Ada Mary
            (integer) 1
            > ZRANGE scores 0 -1
            1) "Grace"
            "#,
        ),
    Defined::new("zremrangebyrank", Group::SortedSet, exactly!(zremrangebyrank))
        .flags(Flags::WRITE)
        .keys(KEY)
        .since("2.0.0", COMPLEXITY)
        .doc("key start stop", "Removes members in a sorted set within a range of indexes.")
        .example(
            r#"
            > ZADD scores 10 Ada 20 Grace 30 Hedy
            (integer) 3
            > ZREMRANGEBYRANK scores 0 1
            (integer) 2
            > ZRANGE scores 0 -1
            1) "Hedy"
            "#,
        ),
    Defined::new("zremrangebyscore", Group::SortedSet, exactly!(zremrangebyscore))
        .flags(Flags::WRITE)
        .keys(KEY)
        .since("1.2.0", COMPLEXITY)
        .doc("key min max", "Removes members in a sorted set within a range of scores.")
        .example(
            r#"
            > ZADD scores 10 Ada 20 Grace 30 Hedy
            (integer) 3
            > ZREMRANGEBYSCORE scores -inf (20
            (integer) 1
            > ZRANGE scores 0 -1
            1) "Grace"
            2) "Hedy"
            "#,
        ),
    Defined::new("zremrangebylex", Group::SortedSet, exactly!(zremrangebylex))
        .flags(Flags::WRITE)
        .keys(KEY)
        .since("2.8.9", COMPLEXITY)
        .doc("key min max", "Removes members in a sorted set within a lexicographical range.")
        .example(
            r#"
            > ZADD names 0 Ada 0 Grace 0 Hedy
            (integer) 3
            > ZREMRANGEBYLEX names [G [H
            (integer) 1
            > ZRANGE names 0 -1
            1) "Ada"
            2) "Hedy"
            "#,
        ),
];

fn zrem(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], members: Rest<'_, 1>) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    let removed = db.edit::<SortedSet, _, CommandError>(key, Missing::Skip, |set| {
        Ok(members.iter().filter(|member| set.remove(member).is_some()).count())
    })?;
    if removed.is_some_and(|removed| removed > 0) {
        db.event_of_edit(Event::ZRem, key);
    }
    reply.count(removed.unwrap_or(0));
    Ok(())
}

fn zremrangebyrank(ctx: &mut Context<'_, '_>, [key, start, stop]: [&[u8]; 3]) -> Done {
    let (start, stop) = (integer(start)?, integer(stop)?);
    remove(ctx, key, Event::ZRemRangeByRank, |set| index_range(set.len(), start, stop))
}

fn zremrangebyscore(ctx: &mut Context<'_, '_>, [key, min, max]: [&[u8]; 3]) -> Done {
    let (min, max) = (bounds::score(min)?, bounds::score(max)?);
    remove(ctx, key, Event::ZRemRangeByScore, |set| set.ranks_of_scores(min, max))
}

fn zremrangebylex(ctx: &mut Context<'_, '_>, [key, min, max]: [&[u8]; 3]) -> Done {
    let (min, max) = (bounds::member(min)?, bounds::member(max)?);
    remove(ctx, key, Event::ZRemRangeByLex, |set| set.ranks_of_members(min, max))
}

/// Removes the members with the ranks that `ranks` returns.
fn remove(
    ctx: &mut Context<'_, '_>,
    key: &[u8],
    event: Event,
    ranks: impl FnOnce(&SortedSet) -> Range<usize>,
) -> Done {
    let scale = ctx.scale();
    let (mut db, key, reply) = ctx.open(key);
    let removed = db.edit::<SortedSet, _, CommandError>(key, Missing::Skip, |set| {
        let ranks = ranks(set);
        let count = ranks.len();
        scale.weigh(count)?;
        set.remove_range(ranks, |_, _| {});
        Ok(count)
    })?;
    if removed.is_some_and(|removed| removed > 0) {
        db.event_of_edit(event, key);
    }
    reply.count(removed.unwrap_or(0));
    Ok(())
}
