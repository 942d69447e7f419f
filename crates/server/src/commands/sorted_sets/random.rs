//! ZRANDMEMBER: members by chance.

use std::collections::HashSet;

use tierce_collections::SortedSet;
use tierce_collections::random::{Random, Selection};
use tierce_wire::resp::Args;

use super::scored::Scores;
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::{repetitions, symmetric_integer};
use crate::error::CommandError;
use crate::execute::Context;
use crate::reply::Reply;

pub(super) static COMMANDS: &[Spec] =
    &[Spec::new("zrandmember", -2, Group::SortedSet, zrandmember)
        .flags(Flags::READONLY)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .tips(&["nondeterministic_output"])
        .doc(
            "6.2.0",
            "O(N) where N is the number of members returned",
            "key [count [WITHSCORES]]",
            "Returns one or more random members from a sorted set.",
        )];

type Done = Result<(), CommandError>;

fn zrandmember(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let mut random = Random::new(crate::random::word());
    let Some(count) = args.get(2) else {
        let (mut db, key, reply) = ctx.open(args.at(1));
        let set = db.collection::<SortedSet>(key)?;
        match set.as_ref().and_then(|set| set.sample(&mut random)) {
            Some((member, _)) => reply.element(member),
            None => reply.null(),
        }
        return Ok(());
    };
    let count = symmetric_integer(count)?;
    let with_scores = args.get(3).is_some_and(|word| word.eq_ignore_ascii_case(b"withscores"));
    if args.len() > 4 || args.len() == 4 && !with_scores {
        return Err(CommandError::SYNTAX);
    }
    if with_scores && !(-i64::MAX / 2..=i64::MAX / 2).contains(&count) {
        return Err(CommandError::OUT_OF_RANGE);
    }
    let (mut db, key, reply) = ctx.open(args.at(1));
    let scores = Scores::wanted(with_scores, reply);
    let Some(set) = db.collection::<SortedSet>(key)? else {
        reply.array(0);
        return Ok(());
    };
    if count < 0 {
        let wanted = repetitions(count, set.len(), set.allocated_bytes())?;
        scores.begin(reply, wanted);
        set.sample_repeatedly(wanted, &mut random, |(member, score)| {
            scores.entry(reply, member, score);
        });
    } else {
        draw_distinct(&set, (count as usize).min(set.len()), random, scores, reply);
    }
    Ok(())
}

/// Replies with `wanted` different members, of which there are as many.
fn draw_distinct(
    set: &SortedSet,
    wanted: usize,
    mut random: Random,
    scores: Scores,
    reply: &mut Reply<'_>,
) {
    /// So many times as many members are gone through rather than drawn one by one.
    const SPARSE: usize = 8;
    scores.begin(reply, wanted);
    if wanted < set.len() / SPARSE {
        let mut drawn = HashSet::with_capacity(wanted);
        while drawn.len() < wanted {
            let rank = random.below(set.len());
            if drawn.insert(rank) {
                set.range(rank..rank + 1)
                    .for_each(|(member, score)| scores.entry(reply, member, score));
            }
        }
        return;
    }
    let mut selection = Selection::new(random, wanted, set.len());
    for (member, score) in set.iter() {
        if selection.takes_next() {
            scores.entry(reply, member, score);
        }
    }
}
