//! What is known of single members, and how many there are.

use tierce_collections::SortedSet;
use tierce_wire::resp::Args;

use super::bounds;
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::error::CommandError;
use crate::execute::Context;

const READ: Flags = Flags::READONLY.with(Flags::FAST);
const ACCESS: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ)];

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("zcard", 2, Group::SortedSet, zcard)
        .flags(READ)
        .keys(&[KeySpec::at(1, KeyFlags::LOOK)])
        .doc("1.2.0", "O(1)", "key", "Returns the number of members in a sorted set."),
    Spec::new("zscore", 3, Group::SortedSet, zscore).flags(READ).keys(ACCESS).doc(
        "1.2.0",
        "O(1)",
        "key member",
        "Returns the score of a member in a sorted set.",
    ),
    Spec::new("zmscore", -3, Group::SortedSet, zmscore).flags(READ).keys(ACCESS).doc(
        "6.2.0",
        "O(N) where N is the number of members being requested",
        "key member [member ...]",
        "Returns the score of one or more members in a sorted set.",
    ),
    Spec::new("zrank", -3, Group::SortedSet, zrank).flags(READ).keys(ACCESS).doc(
        "2.0.0",
        "O(log(N))",
        "key member [WITHSCORE]",
        "Returns the index of a member in a sorted set ordered by ascending scores.",
    ),
    Spec::new("zrevrank", -3, Group::SortedSet, zrevrank).flags(READ).keys(ACCESS).doc(
        "2.0.0",
        "O(log(N))",
        "key member [WITHSCORE]",
        "Returns the index of a member in a sorted set ordered by descending scores.",
    ),
    Spec::new("zcount", 4, Group::SortedSet, zcount).flags(READ).keys(ACCESS).doc(
        "2.0.0",
        "O(log(N)) with N being the number of elements in the sorted set",
        "key min max",
        "Returns the count of members in a sorted set that have scores within a range.",
    ),
    Spec::new("zlexcount", 4, Group::SortedSet, zlexcount).flags(READ).keys(ACCESS).doc(
        "2.8.9",
        "O(log(N)) with N being the number of elements in the sorted set",
        "key min max",
        "Returns the number of members in a sorted set within a lexicographical range.",
    ),
];

type Done = Result<(), CommandError>;

fn zcard(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    reply.count(db.collection::<SortedSet>(key)?.map_or(0, |set| set.len()));
    Ok(())
}

fn zscore(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    match db.collection::<SortedSet>(key)?.and_then(|set| set.score(&args[2])) {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
    Ok(())
}

fn zmscore(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    let set = db.collection::<SortedSet>(key)?;
    reply.array(args.len() - 2);
    for member in args.iter().skip(2) {
        match set.as_ref().and_then(|set| set.score(member)) {
            Some(score) => reply.double(score),
            None => reply.null(),
        }
    }
    Ok(())
}

fn zrank(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    rank(ctx, args, |rank, _| rank)
}

fn zrevrank(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    rank(ctx, args, |rank, len| len - 1 - rank)
}

/// Replies with what `count` makes of the rank of a member and the number of members.
fn rank(
    ctx: &mut Context<'_, '_>,
    args: Args<'_>,
    count: impl FnOnce(usize, usize) -> usize,
) -> Done {
    if args.len() > 4 {
        return Err(CommandError::arity(ctx.name()));
    }
    let with_score = args.len() == 4;
    if with_score && !args[3].eq_ignore_ascii_case(b"withscore") {
        return Err(CommandError::SYNTAX);
    }
    let (mut db, key, reply) = ctx.open(args.at(1));
    let found = db
        .collection::<SortedSet>(key)?
        .and_then(|set| set.rank(&args[2]).map(|(rank, score)| (count(rank, set.len()), score)));
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

fn zcount(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (min, max) = (bounds::score(&args[2])?, bounds::score(&args[3])?);
    let (mut db, key, reply) = ctx.open(args.at(1));
    let set = db.collection::<SortedSet>(key)?;
    reply.count(set.map_or(0, |set| set.ranks_of_scores(min, max).len()));
    Ok(())
}

fn zlexcount(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (min, max) = (bounds::member(&args[2])?, bounds::member(&args[3])?);
    let (mut db, key, reply) = ctx.open(args.at(1));
    let set = db.collection::<SortedSet>(key)?;
    reply.count(set.map_or(0, |set| set.ranks_of_members(min, max).len()));
    Ok(())
}
