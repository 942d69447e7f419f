//! ZPOPMIN, ZPOPMAX and ZMPOP.

use tierce_collections::SortedSet;
use tierce_keyspace::{Editor, Event, Missing};
use tierce_wire::resp::Rest;

use super::scored::Scores;
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::many_pop::many_pop;
use crate::commands::options::{NOT_POSITIVE, count_from};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least, many};
use crate::reply::Reply;

const COMPLEXITY: &str = "O(log(N)*M) with N being the number of elements in the sorted set, and M \
                          being the number of elements popped";

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("zpopmin", Group::SortedSet, at_least!(zpopmin))
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::READ_REMOVE)])
        .since("5.0.0", COMPLEXITY)
        .doc(
            "key [count]",
            "Returns the lowest-scoring members from a sorted set after removing them.",
        )
        .example(
            r#"
            > ZADD jobs 1 urgent 5 normal 9 later
            (integer) 3
            > ZPOPMIN jobs
            1) "urgent"
            2) "1"
            > ZPOPMIN jobs 2
            1) "normal"
            2) "5"
            3) "later"
            4) "9"
            RESP3:
            1) 1) "normal"
               2) (double) 5
            2) 1) "later"
               2) (double) 9
            > ZPOPMIN jobs
            (empty array)
            "#,
        ),
    Defined::new("zpopmax", Group::SortedSet, at_least!(zpopmax))
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::READ_REMOVE)])
        .since("5.0.0", COMPLEXITY)
        .doc(
            "key [count]",
            "Returns the highest-scoring members from a sorted set after removing them.",
        )
        .example(
            r#"
            > ZADD scores 10 Ada 20 Grace 30 Hedy
            (integer) 3
            > ZPOPMAX scores
            1) "Hedy"
            2) "30"
            > ZPOPMAX scores 2
            1) "Grace"
            2) "20"
            3) "Ada"
            4) "10"
            RESP3:
            1) 1) "Grace"
               2) (double) 20
            2) 1) "Ada"
               2) (double) 10
            "#,
        ),
    Defined::new("zmpop", Group::SortedSet, many!(zmpop))
        .flags(Flags::WRITE)
        .keys(&[KeySpec::counted(1, KeyFlags::READ_REMOVE)])
        .since(
            "7.0.0",
            "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of \
             elements in the sorted set, and M being the number of elements popped",
        )
        .doc(
            "numkeys key [key ...] <MIN | MAX> [COUNT count]",
            "Returns the highest- or lowest-scoring members from one of several sorted sets after \
             removing them.",
        )
        .example(
            r#"
            > ZADD low 1 job-1 2 job-2
            (integer) 2
            > ZMPOP 2 high low MIN COUNT 2
            1) "low"
            2) 1) 1) "job-1"
                  2) "1"
               2) 1) "job-2"
                  2) "2"
            > ZMPOP 1 high MIN
            (nil)
            "#,
        ),
];

/// End from which members are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum End {
    Lowest,
    Highest,
}

impl End {
    /// Parses an end.
    pub(super) fn parse(arg: &[u8]) -> Result<Self, CommandError> {
        if arg.eq_ignore_ascii_case(b"min") {
            Ok(End::Lowest)
        } else if arg.eq_ignore_ascii_case(b"max") {
            Ok(End::Highest)
        } else {
            Err(CommandError::SYNTAX)
        }
    }

    pub(super) fn pop_event(self) -> Event {
        match self {
            End::Lowest => Event::ZPopMin,
            End::Highest => Event::ZPopMax,
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

    /// Does the same, with each member and its score as a pair.
    pub(super) fn pop_pairs(
        self,
        set: &mut Editor<'_, SortedSet>,
        count: usize,
        reply: &mut Reply<'_>,
    ) {
        self.pop(set, count, Scores::Pairs, reply);
    }
}

fn zpopmin(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], options: Rest<'_>) -> Done {
    pop_from_key(ctx, key, options, End::Lowest)
}

fn zpopmax(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], options: Rest<'_>) -> Done {
    pop_from_key(ctx, key, options, End::Highest)
}

fn pop_from_key(ctx: &mut Context<'_, '_>, key: &[u8], options: Rest<'_>, end: End) -> Done {
    if options.len() > 1 {
        return Err(CommandError::SYNTAX);
    }
    let count = options.get(0).map(|count| count_from(count, 0, NOT_POSITIVE)).transpose()?;
    let scale = ctx.scale();
    let (mut db, key, reply) = ctx.open(key);
    scale.weigh_some(count.unwrap_or(1), &mut db, key)?;
    // Without a count, the reply is not a list of pairs.
    let scores = if count.is_some() { Scores::wanted(true, reply) } else { Scores::Flat };
    let popped = db.edit::<SortedSet, _, CommandError>(key, Missing::Skip, |set| {
        end.pop(set, count.unwrap_or(1), scores, reply);
        Ok(())
    })?;
    match popped {
        Some(()) if count != Some(0) => db.event_of_edit(end.pop_event(), key),
        Some(()) => {}
        None => reply.array(0),
    }
    Ok(())
}

fn zmpop(ctx: &mut Context<'_, '_>, request: Rest<'_, 3>) -> Done {
    many_pop(ctx, request.any(), None, End::parse, End::pop_pairs, End::pop_event)
}
