//! ZPOPMIN, ZPOPMAX and ZMPOP.

use tierce_collections::SortedSet;
use tierce_keyspace::{Editor, Missing};
use tierce_wire::resp::Args;

use super::scored::Scores;
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::many_pop::many_pop;
use crate::commands::options::{NOT_POSITIVE, at_least};
use crate::error::CommandError;
use crate::execute::Context;
use crate::reply::Reply;

const COMPLEXITY: &str = "O(log(N)*M) with N being the number of elements in the sorted set, and M \
                          being the number of elements popped";

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("zpopmin", -2, Group::SortedSet, zpopmin)
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::READ_REMOVE)])
        .doc(
            "5.0.0",
            COMPLEXITY,
            "key [count]",
            "Returns the lowest-scoring members from a sorted set after removing them.",
        ),
    Spec::new("zpopmax", -2, Group::SortedSet, zpopmax)
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::READ_REMOVE)])
        .doc(
            "5.0.0",
            COMPLEXITY,
            "key [count]",
            "Returns the highest-scoring members from a sorted set after removing them.",
        ),
    Spec::new("zmpop", -4, Group::SortedSet, zmpop)
        .flags(Flags::WRITE)
        .keys(&[KeySpec::counted(1, KeyFlags::READ_REMOVE)])
        .doc(
            "7.0.0",
            "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of \
             elements in the sorted set, and M being the number of elements popped",
            "numkeys key [key ...] <MIN | MAX> [COUNT count]",
            "Returns the highest- or lowest-scoring members from one of several sorted sets after \
             removing them.",
        ),
];

type Done = Result<(), CommandError>;

/// From which end members are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum End {
    Lowest,
    Highest,
}

impl End {
    /// The end that an argument names.
    pub(super) fn parse(arg: &[u8]) -> Result<Self, CommandError> {
        if arg.eq_ignore_ascii_case(b"min") {
            Ok(End::Lowest)
        } else if arg.eq_ignore_ascii_case(b"max") {
            Ok(End::Highest)
        } else {
            Err(CommandError::SYNTAX)
        }
    }

    /// Takes up to `count` members from this end, and replies with them.
    pub(in crate::commands) fn pop(
        self,
        set: &mut Editor<'_, SortedSet>,
        count: usize,
        scores: Scores,
        reply: &mut Reply<'_>,
    ) {
        let count = count.min(set.len());
        scores.begin(reply, count);
        match self {
            End::Lowest => {
                set.remove_range(0..count, |member, score| scores.entry(reply, member, score));
            }
            End::Highest => {
                for last in (set.len() - count..set.len()).rev() {
                    set.remove_range(last..last + 1, |member, score| {
                        scores.entry(reply, member, score);
                    });
                }
            }
        }
    }

    /// The same, each member with its score as a pair.
    pub(super) fn pop_pairs(
        self,
        set: &mut Editor<'_, SortedSet>,
        count: usize,
        reply: &mut Reply<'_>,
    ) {
        self.pop(set, count, Scores::Pairs, reply);
    }
}

fn zpopmin(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    pop_from_key(ctx, args, End::Lowest)
}

fn zpopmax(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    pop_from_key(ctx, args, End::Highest)
}

fn pop_from_key(ctx: &mut Context<'_, '_>, args: Args<'_>, end: End) -> Done {
    if args.len() > 3 {
        return Err(CommandError::SYNTAX);
    }
    let count = args.get(2).map(|count| at_least(count, 0, NOT_POSITIVE)).transpose()?;
    let (mut db, key, reply) = ctx.open(args.at(1));
    // One member and its score are no list of pairs.
    let scores = if count.is_some() { Scores::wanted(true, reply) } else { Scores::Flat };
    let popped = db.edit::<SortedSet, _, CommandError>(key, Missing::Skip, |set| {
        end.pop(set, count.unwrap_or(1), scores, reply);
        Ok(())
    })?;
    if popped.is_none() {
        reply.array(0);
    }
    Ok(())
}

fn zmpop(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    many_pop(ctx, args, args.from(1), None, End::parse, End::pop_pairs)
}
