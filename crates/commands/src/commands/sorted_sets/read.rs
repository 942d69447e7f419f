//! Reads single members, and counts.

use tierce_collections::SortedSet;
use tierce_wire::resp::Rest;

use super::bounds;
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least, exactly};

const READ: Flags = Flags::READONLY.with(Flags::FAST);
const ACCESS: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ)];

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("zcard", Group::SortedSet, exactly!(zcard))
        .flags(READ)
        .keys(&[KeySpec::at(1, KeyFlags::LOOK)])
        .since("1.2.0", "O(1)")
        .doc("key", "Returns the number of members in a sorted set.")
        .example(
            r#"
            > ZADD scores 10 Ada 20 Grace
            (integer) 2
            > ZCARD scores
            (integer) 2
            "#,
        ),
    Defined::new("zscore", Group::SortedSet, exactly!(zscore))
        .flags(READ)
        .keys(ACCESS)
        .since("1.2.0", "O(1)")
        .doc("key member", "Returns the score of a member in a sorted set.")
        .example(
            r#"
            > ZADD scores 10.5 Ada
            (integer) 1
            > ZSCORE scores Ada
            "10.5"
            > ZSCORE scores Hedy
            (nil)
            "#,
        ),
    Defined::new("zmscore", Group::SortedSet, at_least!(zmscore))
        .flags(READ)
        .keys(ACCESS)
        .since("6.2.0", "O(N) where N is the number of members being requested")
        .doc("key member [member ...]", "Returns the score of one or more members in a sorted set.")
        .example(
            r#"
            > ZADD scores 10 Ada 20 Grace
            (integer) 2
            > ZMSCORE scores Ada Hedy Grace
            1) "10"
            2) (nil)
            3) "20"
            "#,
        ),
    Defined::new("zrank", Group::SortedSet, at_least!(zrank))
        .flags(READ)
        .keys(ACCESS)
        .since("2.0.0", "O(log(N))")
        .doc(
            "key member [WITHSCORE]",
            "Returns the index of a member in a sorted set ordered by ascending scores.",
        )
        .example(
            r#"
            > ZADD scores 10 Ada 20 Grace 30 Hedy
            (integer) 3
            > ZRANK scores Hedy
            (integer) 2
            > ZRANK scores Mary
            (nil)
            "#,
        ),
    Defined::new("zrevrank", Group::SortedSet, at_least!(zrevrank))
        .flags(READ)
        .keys(ACCESS)
        .since("2.0.0", "O(log(N))")
        .doc(
            "key member [WITHSCORE]",
            "Returns the index of a member in a sorted set ordered by descending scores.",
        )
        .example(
            r#"
            > ZADD scores 10 Ada 20 Grace 30 Hedy
            (integer) 3
            > ZREVRANK scores Ada
            (integer) 2
            > ZREVRANK scores Mary
            (nil)
            "#,
        ),
    Defined::new("zcount", Group::SortedSet, exactly!(zcount))
        .flags(READ)
        .keys(ACCESS)
        .since("2.0.0", "O(log(N)) with N being the number of elements in the sorted set")
        .doc(
            "key min max",
            "Returns the count of members in a sorted set that have scores within a range.",
        )
        .example(
            r#"
            > ZADD scores 10 Ada 20 Grace 30 Hedy
            (integer) 3
            > ZCOUNT scores 10 20
            (integer) 2
            > ZCOUNT scores (10 +inf
            (integer) 2
            "#,
        ),
    Defined::new("zlexcount", Group::SortedSet, exactly!(zlexcount))
        .flags(READ)
        .keys(ACCESS)
        .since("2.8.9", "O(log(N)) with N being the number of elements in the sorted set")
        .doc(
            "key min max",
            "Returns the number of members in a sorted set within a lexicographical range.",
        )
        .example(
            r#"
            > ZADD names 0 Ada 0 Grace 0 Hedy
            (integer) 3
            > ZLEXCOUNT names [B +
            (integer) 2
            "#,
        ),
];

fn zcard(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1]) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    reply.count(db.collection::<SortedSet>(key)?.map_or(0, |set| set.len()));
    Ok(())
}

fn zscore(ctx: &mut Context<'_, '_>, [key, member]: [&[u8]; 2]) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    match db.collection::<SortedSet>(key)?.and_then(|set| set.score(member)) {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
    Ok(())
}

fn zmscore(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], members: Rest<'_, 1>) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    let set = db.collection::<SortedSet>(key)?;
    reply.array(members.len());
    for member in members.iter() {
        match set.as_ref().and_then(|set| set.score(member)) {
            Some(score) => reply.double(score),
            None => reply.null(),
        }
    }
    Ok(())
}

fn zrank(ctx: &mut Context<'_, '_>, [key, member]: [&[u8]; 2], options: Rest<'_>) -> Done {
    rank(ctx, [key, member], options, |rank, _| rank)
}

fn zrevrank(ctx: &mut Context<'_, '_>, [key, member]: [&[u8]; 2], options: Rest<'_>) -> Done {
    rank(ctx, [key, member], options, |rank, len| len - 1 - rank)
}

/// Replies with the result of `count`, from the rank of a member and the number of members.
fn rank(
    ctx: &mut Context<'_, '_>,
    [key, member]: [&[u8]; 2],
    options: Rest<'_>,
    count: impl FnOnce(usize, usize) -> usize,
) -> Done {
    if options.len() > 1 {
        return Err(CommandError::arity(ctx.name()));
    }
    let mut options = Options::of(options);
    let with_score = options.take("withscore");
    options.end()?;
    let (mut db, key, reply) = ctx.open(key);
    let found = db
        .collection::<SortedSet>(key)?
        .and_then(|set| set.rank(member).map(|(rank, score)| (count(rank, set.len()), score)));
    match found {
        Some((rank, score)) if with_score => {
            reply.array(2);
            reply.count(rank);
            reply.double(score);
        }
        Some((rank, _)) => reply.count(rank),
        None if with_score => reply.null_array(),
        None => reply.null(),
    }
    Ok(())
}

fn zcount(ctx: &mut Context<'_, '_>, [key, min, max]: [&[u8]; 3]) -> Done {
    let (min, max) = (bounds::score(min)?, bounds::score(max)?);
    let (mut db, key, reply) = ctx.open(key);
    let set = db.collection::<SortedSet>(key)?;
    reply.count(set.map_or(0, |set| set.ranks_of_scores(min, max).len()));
    Ok(())
}

fn zlexcount(ctx: &mut Context<'_, '_>, [key, min, max]: [&[u8]; 3]) -> Done {
    let (min, max) = (bounds::member(min)?, bounds::member(max)?);
    let (mut db, key, reply) = ctx.open(key);
    let set = db.collection::<SortedSet>(key)?;
    reply.count(set.map_or(0, |set| set.ranks_of_members(min, max).len()));
    Ok(())
}
