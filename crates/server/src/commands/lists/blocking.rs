//! BLPOP, BRPOP, BLMPOP, BLMOVE and BRPOPLPUSH: the same as without the B, for clients that wait until
//! there is something.

use tierce_collections::List;
use tierce_keyspace::Missing;
use tierce_wire::resp::Args;

use super::Side;
use super::relay::relay;
use crate::blocking::{self, Patience, Terms, Wait};
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::many_pop::many_pop;
use crate::commands::options::check_len;
use crate::error::CommandError;
use crate::execute::Context;

const FLAGS: Flags = Flags::WRITE.with(Flags::BLOCKING);
const POP_KEYS: &[KeySpec] = &[KeySpec::all(1, KeyFlags::READ_REMOVE).but_last()];
const MOVE_KEYS: &[KeySpec] =
    &[KeySpec::at(1, KeyFlags::READ_REMOVE), KeySpec::at(2, KeyFlags(&["RW", "insert"]))];

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("blpop", -3, Group::List, |ctx, args| pop(ctx, args, Side::Left))
        .flags(FLAGS)
        .keys(POP_KEYS)
        .doc(
            "2.0.0",
            "O(N) where N is the number of provided keys.",
            "key [key ...] timeout",
            "Removes and returns the first element of a list; waits until there is one.",
        ),
    Spec::new("brpop", -3, Group::List, |ctx, args| pop(ctx, args, Side::Right))
        .flags(FLAGS)
        .keys(POP_KEYS)
        .doc(
            "2.0.0",
            "O(N) where N is the number of provided keys.",
            "key [key ...] timeout",
            "Removes and returns the last element of a list; waits until there is one.",
        ),
    Spec::new("blmpop", -5, Group::List, blmpop)
        .flags(FLAGS)
        .keys(&[KeySpec::counted(2, KeyFlags::READ_REMOVE)])
        .doc(
            "7.0.0",
            "O(N+M) where N is the number of keys and M is the number of elements returned",
            "timeout numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
            "Removes and returns elements of the first list that is not empty; waits until there is \
             one.",
        ),
    Spec::new("blmove", 6, Group::List, blmove)
        .flags(FLAGS.with(Flags::DENYOOM))
        .keys(MOVE_KEYS)
        .doc(
            "6.2.0",
            "O(1)",
            "source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout",
            "Moves an element from one list to another, and returns it; waits until there is one.",
        ),
    Spec::new("brpoplpush", 4, Group::List, brpoplpush)
        .flags(FLAGS.with(Flags::DENYOOM))
        .keys(MOVE_KEYS)
        .deprecated("6.2.0", "`BLMOVE` with the `RIGHT` and `LEFT` arguments")
        .doc(
            "2.2.0",
            "O(1)",
            "source destination timeout",
            "Moves the last element of a list to the beginning of another one, and returns it; waits \
             until there is one.",
        ),
];

type Done = Result<(), CommandError>;

fn pop(ctx: &mut Context<'_, '_>, args: Args<'_>, side: Side) -> Done {
    let keys = args.len() - 2;
    let patience = Some(Patience::from_seconds(args.at(args.len() - 1))?);
    let terms = Terms { command: args, patience };
    blocking::first_of(ctx, args.iter().skip(1).take(keys), terms, |db, key, reply| {
        let popped = db.edit::<List, _, CommandError>(key, Missing::Skip, |list| {
            reply.array(2);
            reply.bulk(key.bytes());
            side.pop_one(list, reply);
            Ok(())
        })?;
        Ok(popped.is_some())
    })
}

fn blmpop(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    many_pop(ctx, args, args.from(2), Some(args.at(1)), Side::parse, Side::pop_many)
}

fn blmove(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (from, to) = (Side::parse(&args[3])?, Side::parse(&args[4])?);
    let patience = Patience::from_seconds(args.at(5))?;
    relay_or_wait(ctx, args, from, to, patience)
}

fn brpoplpush(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let patience = Patience::from_seconds(args.at(3))?;
    relay_or_wait(ctx, args, Side::Right, Side::Left, patience)
}

fn relay_or_wait(
    ctx: &mut Context<'_, '_>,
    args: Args<'_>,
    from: Side,
    to: Side,
    patience: Patience,
) -> Done {
    let (source, destination) =
        (ctx.server.keyspace.key(args.at(1)), ctx.server.keyspace.key(args.at(2)));
    check_len(destination)?;
    let Context { guard, session, reply, now_ms, mode, .. } = ctx;
    // Only what is at the source decides whether there is something for those who wait.
    let is_there = match guard.db(session.db, source.hash(), *now_ms).collection::<List>(source) {
        Ok(list) => list.is_some(),
        Err(error) if mode.passes_over(&error.into()) => false,
        Err(error) => return Err(error.into()),
    };
    if is_there {
        let moved = relay(guard, session.db, *now_ms, (source, from), (destination, to))?;
        if let Some(element) = moved {
            reply.bulk(&element);
            return Ok(());
        }
    }
    let wait = Wait { keys: &[source], command: args.to_owned(), patience, minds_removal: false };
    blocking::wait(*mode, session, reply, guard, wait);
    Ok(())
}
