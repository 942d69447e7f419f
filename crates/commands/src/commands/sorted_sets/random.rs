//! ZRANDMEMBER: random members.

use std::collections::HashSet;

use tierce_collections::SortedSet;
use tierce_collections::random::{Random, Selection};
use tierce_wire::resp::Rest;

use super::scored::Scores;
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::{repetitions, symmetric_integer};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least};
use crate::reply::Reply;

pub(super) static COMMANDS: &[Defined] =
    &[Defined::new("zrandmember", Group::SortedSet, at_least!(zrandmember))
        .flags(Flags::READONLY)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .tips(&["nondeterministic_output"])
        .since("6.2.0", "O(N) where N is the number of members returned")
        .doc("key [count [WITHSCORES]]", "Returns one or more random members from a sorted set.")
        .example(
            r#"
            > ZADD raffle 1 Ada
            (integer) 1
            > ZRANDMEMBER raffle
            "Ada"
            > ZRANDMEMBER raffle 5 WITHSCORES
            1) "Ada"
            2) "1"
            RESP3:
            1) 1) "Ada"
               2) (double) 1
            > ZRANDMEMBER raffle -2
            1) "Ada"
            2) "Ada"
            > ZRANDMEMBER nosuch
            (nil)
            "#,
        )];

fn zrandmember(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], options: Rest<'_>) -> Done {
    let mut random = Random::new(crate::random::word());
    let mut options = Options::of(options);
    let Some(count) = options.next_value() else {
        let (mut db, key, reply) = ctx.open(key);
        let set = db.collection::<SortedSet>(key)?;
        match set.as_ref().and_then(|set| set.sample(&mut random)) {
            Some((member, _)) => reply.element(member),
            None => reply.null(),
        }
        return Ok(());
    };
    let count = symmetric_integer(count)?;
    let with_scores = options.take("withscores");
    options.end()?;
    if with_scores && !(-i64::MAX / 2..=i64::MAX / 2).contains(&count) {
        return Err(CommandError::OUT_OF_RANGE);
    }
    let scale = ctx.scale();
    let (mut db, key, reply) = ctx.open(key);
    scale.weigh_some(count.unsigned_abs() as usize, &mut db, key)?;
    let scores = Scores::wanted(with_scores, reply);
    let Some(set) = db.collection::<SortedSet>(key)? else {
        reply.array(0);
        return Ok(());
    };
    if count < 0 {
        let wanted = repetitions(count, set.len(), set.allocated_bytes())?;
        scale.weigh(wanted)?;
        scores.begin(reply, wanted);
        set.sample_repeatedly(wanted, &mut random, |(member, score)| {
            scores.entry(reply, member, score);
        });
    } else {
        draw_distinct(&set, (count as usize).min(set.len()), random, scores, reply);
    }
    Ok(())
}

/// Replies with `wanted` distinct members, which must exist.
fn draw_distinct(
    set: &SortedSet,
    wanted: usize,
    mut random: Random,
    scores: Scores,
    reply: &mut Reply<'_>,
) {
    /// Below this ratio of members to wanted ones, all members are visited instead of drawn.
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
