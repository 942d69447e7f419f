//! OBJECT: how a value is stored.

use tierce_keyspace::{Db, Key};
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, Handler, KeyFlags, KeySpec, Spec};
use crate::commands::server::{help, help_spec};
use crate::error::CommandError;
use crate::execute::Context;
use crate::reply::Reply;

const KEY: &[KeySpec] = &[KeySpec::at(2, KeyFlags::LOOK)];

const fn sub(name: &'static str, run: Handler) -> Spec {
    Spec::new(name, 3, Group::Generic, run)
        .flags(Flags::READONLY.with(Flags::KEY_ONLY))
        .keys(KEY)
        .tips(&["nondeterministic_output"])
}

pub(super) static COMMANDS: &[Spec] = &[Spec::container(
    "object",
    Group::Generic,
    &[
        sub("encoding", encoding).doc(
            "2.2.3",
            "O(1)",
            "key",
            "Returns the internal encoding of a value, by the name it has in Redis.",
        ),
        sub("freq", freq).doc(
            "4.0.0",
            "O(1)",
            "key",
            "Returns the logarithmic access frequency counter of a key, under an LFU policy.",
        ),
        sub("idletime", idle_time).doc(
            "2.2.3",
            "O(1)",
            "key",
            "Returns the time since the last access to a key in seconds, exact up to three hours.",
        ),
        sub("refcount", refcount).doc(
            "2.2.3",
            "O(1)",
            "key",
            "Returns the reference count of a value, which is always one.",
        ),
        Spec { since: "6.2.0", ..help_spec(Group::Generic) },
    ],
    help,
)
.doc("2.2.3", "Depends on subcommand.", "", "A container for object introspection commands.")];

type Done = Result<(), CommandError>;

/// Replies what `look` finds, or null for an absent key.
fn inspect<T>(
    ctx: &mut Context<'_, '_>,
    args: Args<'_>,
    look: impl Fn(&mut Db<'_>, Key<'_>) -> Option<T>,
    show: impl Fn(&mut Reply<'_>, T),
) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(2));
    match look(&mut db, key) {
        Some(found) => show(reply, found),
        None => reply.null(),
    }
    Ok(())
}

fn encoding(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let look = |db: &mut Db<'_>, key: Key<'_>| db.encoding(key);
    inspect(ctx, args, look, |reply, name| reply.bulk(name.as_bytes()))
}

fn idle_time(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if ctx.server.keyspace.eviction().policy.counts_frequency() {
        return Err(CommandError::new(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when \
             switching between policies at runtime LRU and LFU data will take some time to adjust.",
        ));
    }
    let look = |db: &mut Db<'_>, key: Key<'_>| db.idle_seconds(key);
    inspect(ctx, args, look, |reply, seconds| reply.int(seconds as i64))
}

fn freq(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let counts = ctx.server.keyspace.eviction().policy.counts_frequency();
    let (mut db, key, reply) = ctx.open(args.at(2));
    let Some(frequency) = db.frequency(key) else {
        reply.null();
        return Ok(());
    };
    if counts {
        reply.int(frequency.into());
        return Ok(());
    }
    Err(CommandError::new(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
         that when switching between policies at runtime LRU and LFU data will take some time to \
         adjust.",
    ))
}

fn refcount(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let look = |db: &mut Db<'_>, key: Key<'_>| db.value_type(key).map(|_| 1);
    inspect(ctx, args, look, |reply, count| reply.int(count))
}
