//! BLPOP, BRPOP, BLMPOP, BLMOVE and BRPOPLPUSH: the commands without the B, but they wait while the
//! list is empty.

use tierce_collections::List;
use tierce_keyspace::{Missing, Wakes};
use tierce_wire::resp::Rest;

use super::lmove::move_element;
use super::side::Side;
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::many_pop::many_pop;
use crate::commands::options::{check_len, is_of_type};
use crate::error::CommandError;
use crate::pipeline::blocking::{self, Patience, Wait};
use crate::pipeline::{Context, Defined, Done, Mode, at_least, exactly, many};

const FLAGS: Flags = Flags::WRITE.with(Flags::BLOCKING);
const POP_KEYS: &[KeySpec] = &[KeySpec::all(1, KeyFlags::READ_REMOVE).but_last()];
const MOVE_KEYS: &[KeySpec] =
    &[KeySpec::at(1, KeyFlags::READ_REMOVE), KeySpec::at(2, KeyFlags(&["RW", "insert"]))];

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("blpop", Group::List, many!(|ctx, arguments| pop(ctx, arguments, Side::Left)))
        .flags(FLAGS)
        .keys(POP_KEYS)
        .since("2.0.0", "O(N) where N is the number of provided keys.")
        .doc(
            "key [key ...] timeout",
            "Removes and returns the first element of a list; waits until there is one.",
        )
        .example(
            r#"
            > RPUSH low job-1 job-2
            (integer) 2
            > BLPOP high low 10
            1) "low"
            2) "job-1"
            > BLPOP high 0.01
            (nil)
            "#,
        ),
    Defined::new("brpop", Group::List, many!(|ctx, arguments| pop(ctx, arguments, Side::Right)))
        .flags(FLAGS)
        .keys(POP_KEYS)
        .since("2.0.0", "O(N) where N is the number of provided keys.")
        .doc(
            "key [key ...] timeout",
            "Removes and returns the last element of a list; waits until there is one.",
        )
        .example(
            r#"
            > RPUSH low job-1 job-2
            (integer) 2
            > BRPOP high low 10
            1) "low"
            2) "job-2"
            > BRPOP high 0.01
            (nil)
            "#,
        ),
    Defined::new("blmpop", Group::List, at_least!(blmpop))
        .flags(FLAGS)
        .keys(&[KeySpec::counted(2, KeyFlags::READ_REMOVE)])
        .since(
            "7.0.0",
            "O(N+M) where N is the number of keys and M is the number of elements returned",
        )
        .doc(
            "timeout numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
            "Removes and returns elements of the first list that is not empty; waits until \
                 there is one.",
        )
        .example(
            r#"
            > RPUSH low job-1 job-2 job-3
            (integer) 3
            > BLMPOP 10 2 high low LEFT COUNT 2
            1) "low"
            2) 1) "job-1"
               2) "job-2"
            > BLMPOP 0.01 1 high LEFT
            (nil)
            "#,
        ),
    Defined::new("blmove", Group::List, exactly!(blmove))
        .flags(FLAGS.with(Flags::DENYOOM))
        .keys(MOVE_KEYS)
        .since("6.2.0", "O(1)")
        .doc(
            "source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout",
            "Moves an element from one list to another, and returns it; waits until there is \
                 one.",
        )
        .example(
            r#"
            > RPUSH todo write test
            (integer) 2
            > BLMOVE todo doing LEFT RIGHT 10
            "write"
            > LRANGE doing 0 -1
            1) "write"
            > BLMOVE nosuch doing LEFT RIGHT 0.01
            (nil)
            "#,
        ),
    Defined::new("brpoplpush", Group::List, exactly!(brpoplpush))
        .flags(FLAGS.with(Flags::DENYOOM))
        .keys(MOVE_KEYS)
        .deprecated("6.2.0", "`BLMOVE` with the `RIGHT` and `LEFT` arguments")
        .since("2.2.0", "O(1)")
        .doc(
            "source destination timeout",
            "Moves the last element of a list to the beginning of another one, and returns it; \
                 waits until there is one.",
        )
        .example(
            r#"
            > RPUSH todo write test
            (integer) 2
            > BRPOPLPUSH todo doing 10
            "test"
            > BRPOPLPUSH nosuch doing 0.01
            (nil)
            "#,
        ),
];

fn pop(ctx: &mut Context<'_, '_>, arguments: Rest<'_, 2>, side: Side) -> Done {
    let Some((keys, timeout)) = arguments.split_last() else { return Err(CommandError::SYNTAX) };
    let patience = Some(Patience::from_seconds(timeout)?);
    blocking::first_of(ctx, keys.iter(), patience, |db, key, reply| {
        let popped = db.edit::<List, _, CommandError>(key, Missing::Skip, |list| {
            reply.array(2);
            reply.bulk(key.bytes());
            side.pop_one(list, reply);
            Ok(())
        })?;
        if popped.is_some() {
            db.event_of_edit(side.pop_event(), key);
        }
        Ok(popped.is_some())
    })
}

fn blmpop(ctx: &mut Context<'_, '_>, [timeout]: [&[u8]; 1], request: Rest<'_, 3>) -> Done {
    many_pop(ctx, request.any(), Some(timeout), Side::parse, Side::pop_many, Side::pop_event)
}

fn blmove(ctx: &mut Context<'_, '_>, [source, destination, from, to, timeout]: [&[u8]; 5]) -> Done {
    let (from, to) = (Side::parse(from)?, Side::parse(to)?);
    let patience = Patience::from_seconds(timeout)?;
    move_or_wait(ctx, (source, from), (destination, to), patience)
}

fn brpoplpush(ctx: &mut Context<'_, '_>, [source, destination, timeout]: [&[u8]; 3]) -> Done {
    let patience = Patience::from_seconds(timeout)?;
    move_or_wait(ctx, (source, Side::Right), (destination, Side::Left), patience)
}

fn move_or_wait(
    ctx: &mut Context<'_, '_>,
    (source, from): (&[u8], Side),
    (destination, to): (&[u8], Side),
    patience: Patience,
) -> Done {
    let (source, destination) =
        (ctx.kernel.keyspace.key(source), ctx.kernel.keyspace.key(destination));
    check_len(destination)?;
    let Context { guard, caller, call, reply, now_ms, mode, .. } = ctx;
    // Only the source determines if a waiting client can be served.
    let is_there =
        match is_of_type::<List>(&mut guard.db(caller.db, source.hash(), *now_ms), source) {
            Ok(is_there) => is_there,
            Err(error) if mode.passes_over(&error) => false,
            Err(error) => return Err(error),
        };
    if is_there {
        let moved = move_element(guard, caller.db, *now_ms, (source, from), (destination, to))?;
        if let Some(element) = moved {
            reply.bulk(&element);
            return Ok(());
        }
    }
    let (command, wakes) = (call.to_owned(), Wakes::Creation);
    let (group, claims) = (None, None);
    let wait = Wait { keys: &[source], command, patience, group, wakes, claims };
    match mode {
        // The reply is an element; other commands reply with an array.
        Mode::Never | Mode::OfProgram | Mode::Long { to: None } => reply.null(),
        _ => blocking::wait(ctx, wait),
    }
    Ok(())
}
