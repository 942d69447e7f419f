//! BZPOPMIN, BZPOPMAX and BZMPOP: the commands without the B, but they wait while the sorted set is
//! empty.

use tierce_collections::SortedSet;
use tierce_keyspace::Missing;
use tierce_wire::resp::Rest;

use super::pop::End;
use super::scored::Scores;
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::many_pop::many_pop;
use crate::error::CommandError;
use crate::pipeline::blocking::{self, Patience};
use crate::pipeline::{Context, Defined, Done, at_least, many};

const FLAGS: Flags = Flags::WRITE.with(Flags::BLOCKING);
const KEYS: &[KeySpec] = &[KeySpec::all(1, KeyFlags::READ_REMOVE).but_last()];

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new(
        "bzpopmin",
        Group::SortedSet,
        many!(|ctx, arguments| pop_one(ctx, arguments, End::Lowest)),
    )
    .flags(FLAGS.with(Flags::FAST))
    .keys(KEYS)
    .since("5.0.0", "O(log(N)) with N being the number of elements in the sorted set.")
    .doc(
        "key [key ...] timeout",
        "Removes and returns the member with the lowest score; waits until there is one.",
    )
    .example(
        r#"
            > ZADD low 1 job-1 2 job-2
            (integer) 2
            > BZPOPMIN high low 10
            1) "low"
            2) "job-1"
            3) "1"
            > BZPOPMIN high 0.01
            (nil)
            "#,
    ),
    Defined::new(
        "bzpopmax",
        Group::SortedSet,
        many!(|ctx, arguments| pop_one(ctx, arguments, End::Highest)),
    )
    .flags(FLAGS.with(Flags::FAST))
    .keys(KEYS)
    .since("5.0.0", "O(log(N)) with N being the number of elements in the sorted set.")
    .doc(
        "key [key ...] timeout",
        "Removes and returns the member with the highest score; waits until there is one.",
    )
    .example(
        r#"
            > ZADD low 1 job-1 2 job-2
            (integer) 2
            > BZPOPMAX high low 10
            1) "low"
            2) "job-2"
            3) "2"
            > BZPOPMAX high 0.01
            (nil)
            "#,
    ),
    Defined::new("bzmpop", Group::SortedSet, at_least!(bzmpop))
        .flags(FLAGS)
        .keys(&[KeySpec::counted(2, KeyFlags::READ_REMOVE)])
        .since(
            "7.0.0",
            "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of \
             elements in the sorted set, and M being the number of elements popped",
        )
        .doc(
            "timeout numkeys key [key ...] <MIN | MAX> [COUNT count]",
            "Removes and returns members of the first sorted set that is not empty; waits until \
             there is one.",
        )
        .example(
            r#"
            > ZADD low 1 job-1 2 job-2
            (integer) 2
            > BZMPOP 10 2 high low MIN COUNT 2
            1) "low"
            2) 1) 1) "job-1"
                  2) "1"
               2) 1) "job-2"
                  2) "2"
            > BZMPOP 0.01 1 high MIN
            (nil)
            "#,
        ),
];

fn pop_one(ctx: &mut Context<'_, '_>, arguments: Rest<'_, 2>, end: End) -> Done {
    let Some((keys, timeout)) = arguments.split_last() else { return Err(CommandError::SYNTAX) };
    let patience = Some(Patience::from_seconds(timeout)?);
    blocking::first_of(ctx, keys.iter(), patience, |db, key, reply| {
        let popped = db.edit::<SortedSet, _, CommandError>(key, Missing::Skip, |set| {
            reply.array(3);
            reply.bulk(key.bytes());
            let at = if end == End::Lowest { 0 } else { set.len() - 1 };
            set.remove_range(at..at + 1, |member, score| Scores::Flat.entry(reply, member, score));
            Ok(())
        })?;
        if popped.is_some() {
            db.event_of_edit(end.pop_event(), key);
        }
        Ok(popped.is_some())
    })
}

fn bzmpop(ctx: &mut Context<'_, '_>, [timeout]: [&[u8]; 1], request: Rest<'_, 3>) -> Done {
    many_pop(ctx, request.any(), Some(timeout), End::parse, End::pop_pairs, End::pop_event)
}
