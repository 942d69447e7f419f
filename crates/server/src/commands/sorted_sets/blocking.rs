//! BZPOPMIN, BZPOPMAX and BZMPOP: the same as without the B, for clients that wait until there is
//! something.

use tierce_collections::SortedSet;
use tierce_keyspace::Missing;
use tierce_wire::resp::Args;

use super::pop::End;
use super::scored::Scores;
use crate::blocking::{self, Patience, Terms};
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::many_pop::many_pop;
use crate::error::CommandError;
use crate::execute::Context;

const FLAGS: Flags = Flags::WRITE.with(Flags::BLOCKING);
const KEYS: &[KeySpec] = &[KeySpec::all(1, KeyFlags::READ_REMOVE).but_last()];

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("bzpopmin", -3, Group::SortedSet, |ctx, args| pop_one(ctx, args, End::Lowest))
        .flags(FLAGS.with(Flags::FAST))
        .keys(KEYS)
        .doc(
            "5.0.0",
            "O(log(N)) with N being the number of elements in the sorted set.",
            "key [key ...] timeout",
            "Removes and returns the member with the lowest score; waits until there is one.",
        ),
    Spec::new("bzpopmax", -3, Group::SortedSet, |ctx, args| pop_one(ctx, args, End::Highest))
        .flags(FLAGS.with(Flags::FAST))
        .keys(KEYS)
        .doc(
            "5.0.0",
            "O(log(N)) with N being the number of elements in the sorted set.",
            "key [key ...] timeout",
            "Removes and returns the member with the highest score; waits until there is one.",
        ),
    Spec::new("bzmpop", -5, Group::SortedSet, bzmpop)
        .flags(FLAGS)
        .keys(&[KeySpec::counted(2, KeyFlags::READ_REMOVE)])
        .doc(
            "7.0.0",
            "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of \
             elements in the sorted set, and M being the number of elements popped",
            "timeout numkeys key [key ...] <MIN | MAX> [COUNT count]",
            "Removes and returns members of the first sorted set that is not empty; waits until \
             there is one.",
        ),
];

type Done = Result<(), CommandError>;

fn pop_one(ctx: &mut Context<'_, '_>, args: Args<'_>, end: End) -> Done {
    let keys = args.len() - 2;
    let patience = Some(Patience::from_seconds(args.at(args.len() - 1))?);
    let terms = Terms { command: args, patience };
    blocking::first_of(ctx, args.iter().skip(1).take(keys), terms, |db, key, reply| {
        let popped = db.edit::<SortedSet, _, CommandError>(key, Missing::Skip, |set| {
            reply.array(3);
            reply.bulk(key.bytes());
            let at = if end == End::Lowest { 0 } else { set.len() - 1 };
            set.remove_range(at..at + 1, |member, score| Scores::Flat.entry(reply, member, score));
            Ok(())
        })?;
        Ok(popped.is_some())
    })
}

fn bzmpop(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    many_pop(ctx, args, args.from(2), Some(args.at(1)), End::parse, End::pop_pairs)
}
