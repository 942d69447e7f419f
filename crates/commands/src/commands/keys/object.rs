//! OBJECT: storage details of a value.

use tierce_keyspace::{Db, Key};

use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::help::{help, help_spec};
use crate::error::CommandError;
use crate::pipeline::{Body, Context, Defined, Done, exactly};
use crate::reply::Reply;

const KEY: &[KeySpec] = &[KeySpec::at(2, KeyFlags::LOOK)];

const fn sub(name: &'static str, body: Body) -> Defined {
    Defined::new(name, Group::Generic, body)
        .flags(Flags::READONLY.with(Flags::KEY_ONLY))
        .keys(KEY)
        .tips(&["nondeterministic_output"])
}

pub(super) static COMMANDS: &[Defined] = &[Defined::container(
    "object",
    Group::Generic,
    &[
        sub("encoding", exactly!(sub encoding))
            .since("2.2.3", "O(1)")
            .doc("key", "Returns the internal encoding of a value, by the name it has in Redis.")
            .example(
                r#"
                > SET counter 10
                OK
                > OBJECT ENCODING counter
                "int"
                > SADD ids 1 2 3
                (integer) 3
                > OBJECT ENCODING ids
                "intset"
                > OBJECT ENCODING nosuch
                (nil)
                "#,
            ),
        sub("freq", exactly!(sub freq))
            .since("4.0.0", "O(1)")
            .doc(
                "key",
                "Returns the logarithmic access frequency counter of a key, under an LFU \
                 policy.",
            )
            .example(
                r#"
                > CONFIG SET maxmemory-policy allkeys-lfu
                OK
                > SET user:1 Ada
                OK
                > OBJECT FREQ user:1
                (integer) 5
                > CONFIG SET maxmemory-policy noeviction
                OK
                > OBJECT FREQ user:1
                (error) ERR An LFU maxmemory policy is not selected, ...
                "#,
            ),
        sub("idletime", exactly!(sub idle_time))
            .since("2.2.3", "O(1)")
            .doc(
                "key",
                "Returns the time since the last access to a key in seconds, exact up to \
                 three hours.",
            )
            .example(
                r#"
                > RESTORE counter 0 "\x00\xc0\n\n\x00n\x9fWE\x0e\xaec\xbb" IDLETIME 1000
                OK
                > OBJECT IDLETIME counter
                (integer) 1...
                > GET counter
                "10"
                > OBJECT IDLETIME nosuch
                (nil)
                "#,
            ),
        sub("refcount", exactly!(sub refcount))
            .since("2.2.3", "O(1)")
            .doc("key", "Returns the reference count of a value, which is always one.")
            .example(
                r#"
                > SET user:1 Ada
                OK
                > OBJECT REFCOUNT user:1
                (integer) 1
                "#,
            ),
        help_spec(Group::Generic).since("6.2.0", "O(1)").example(
            r#"
                > OBJECT HELP
                 1) OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
                 2) ENCODING key
                 3)     Returns the internal encoding of a value, by the name it has in Redis.
                ...
                "#,
        ),
    ],
    help,
)
.since("2.2.3", "Depends on subcommand.")
.doc("", "A container for object introspection commands.")];

/// Replies with the result of `read`, or null for an absent key.
fn inspect<T>(
    ctx: &mut Context<'_, '_>,
    key: &[u8],
    refusal: Option<CommandError>,
    read: impl Fn(&mut Db<'_>, Key<'_>) -> Option<T>,
    show: impl Fn(&mut Reply<'_>, T),
) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    let found = read(&mut db, key);
    db.count_look(found.is_some());
    match found {
        Some(found) => match refusal {
            Some(error) => return Err(error),
            None => show(reply, found),
        },
        None => reply.null(),
    }
    Ok(())
}

fn encoding(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1]) -> Done {
    let read = |db: &mut Db<'_>, key: Key<'_>| db.encoding(key);
    inspect(ctx, key, None, read, |reply, name| reply.bulk(name.as_bytes()))
}

fn idle_time(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1]) -> Done {
    const NOT_TRACKED: CommandError = CommandError::new(
        "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when \
         switching between policies at runtime LRU and LFU data will take some time to adjust.",
    );
    let counts_frequency = ctx.kernel.keyspace.eviction().policy.counts_frequency();
    let read = |db: &mut Db<'_>, key: Key<'_>| db.idle_seconds(key);
    inspect(ctx, key, counts_frequency.then_some(NOT_TRACKED), read, |reply, seconds| {
        reply.int(seconds as i64);
    })
}

fn freq(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1]) -> Done {
    const NOT_TRACKED: CommandError = CommandError::new(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
         that when switching between policies at runtime LRU and LFU data will take some time to \
         adjust.",
    );
    let counts_frequency = ctx.kernel.keyspace.eviction().policy.counts_frequency();
    let read = |db: &mut Db<'_>, key: Key<'_>| db.frequency(key);
    inspect(ctx, key, (!counts_frequency).then_some(NOT_TRACKED), read, |reply, frequency| {
        reply.int(frequency.into());
    })
}

fn refcount(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1]) -> Done {
    let read = |db: &mut Db<'_>, key: Key<'_>| db.value_type(key).map(|_| 1);
    inspect(ctx, key, None, read, |reply, count| reply.int(count))
}
