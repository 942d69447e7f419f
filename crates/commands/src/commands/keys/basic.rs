//! DEL, UNLINK, EXISTS, TOUCH, TYPE: deletes keys and checks if they exist.

use tierce_keyspace::{Db, Event, Key};
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::pipeline::{Context, Defined, Done, exactly, many};

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("del", Group::Generic, many!(del))
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .flags(Flags::WRITE)
        .keys(&[KeySpec::all(1, KeyFlags::REMOVE)])
        .since("1.0.0", "O(N) where N is the number of keys")
        .doc("key [key ...]", "Deletes one or more keys.")
        .example(
            r#"
            > MSET user:1 Ada user:2 Grace
            OK
            > DEL user:1 user:2 user:3
            (integer) 2
            > EXISTS user:1
            (integer) 0
            "#,
        ),
    Defined::new("unlink", Group::Generic, many!(del))
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::all(1, KeyFlags::REMOVE)])
        .since("4.0.0", "O(1) for each key")
        .doc(
            "key [key ...]",
            "Deletes one or more keys; large values are freed in the background, as by DEL.",
        )
        .example(
            r#"
            > RPUSH queue a b c
            (integer) 3
            > UNLINK queue nosuch
            (integer) 1
            "#,
        ),
    Defined::new("exists", Group::Generic, many!(exists))
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .flags(Flags::READONLY.with(Flags::FAST).with(Flags::KEY_ONLY))
        .keys(&[KeySpec::all(1, KeyFlags::LOOK)])
        .since("1.0.0", "O(N) where N is the number of keys")
        .doc("key [key ...]", "Returns how many of the keys exist.")
        .example(
            r#"
            > SET user:1 Ada
            OK
            > EXISTS user:1
            (integer) 1
            > EXISTS user:1 user:1 nosuch
            (integer) 2
            "#,
        ),
    Defined::new("touch", Group::Generic, many!(touch))
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .flags(Flags::READONLY.with(Flags::FAST).with(Flags::KEY_ONLY))
        .keys(&[KeySpec::all(1, KeyFlags::LOOK)])
        .since("3.2.1", "O(N) where N is the number of keys")
        .doc(
            "key [key ...]",
            "Returns how many of the keys exist after renewing their access times.",
        )
        .example(
            r#"
            > MSET user:1 Ada user:2 Grace
            OK
            > TOUCH user:1 user:2 nosuch
            (integer) 2
            "#,
        ),
    Defined::new("type", Group::Generic, exactly!(type_of))
        .flags(Flags::READONLY.with(Flags::FAST).with(Flags::KEY_ONLY))
        .keys(&[KeySpec::at(1, KeyFlags::LOOK)])
        .since("1.0.0", "O(1)")
        .doc("key", "Returns the type of value stored at a key.")
        .example(
            r#"
            > SET user:1 Ada
            OK
            > RPUSH queue a
            (integer) 1
            > TYPE user:1
            string
            > TYPE queue
            list
            > TYPE nosuch
            none
            "#,
        ),
];

fn del(ctx: &mut Context<'_, '_>, keys: Rest<'_, 1>) -> Done {
    count(ctx, keys, |db, key| {
        let was_there = db.remove(key);
        if was_there {
            db.event(Event::Del, key);
        }
        was_there
    });
    Ok(())
}

fn exists(ctx: &mut Context<'_, '_>, keys: Rest<'_, 1>) -> Done {
    count(ctx, keys, |db, key| db.exists(key));
    Ok(())
}

fn touch(ctx: &mut Context<'_, '_>, keys: Rest<'_, 1>) -> Done {
    count(ctx, keys, |db, key| db.touch(key));
    Ok(())
}

/// Replies with the number of keys for which `action` returns true. All keys are locked together.
fn count(
    ctx: &mut Context<'_, '_>,
    keys: Rest<'_, 1>,
    action: impl Fn(&mut Db<'_>, Key<'_>) -> bool,
) {
    if let Some([key]) = keys.exactly() {
        let (mut db, key, reply) = ctx.open(key);
        reply.int(action(&mut db, key).into());
        return;
    }
    let keys = ctx.keys(keys.iter());
    let (db, now_ms) = (ctx.caller.db, ctx.now_ms);
    let hits = keys.iter().filter(|key| action(&mut ctx.guard.db(db, key.hash(), now_ms), **key));
    ctx.reply.count(hits.count());
}

fn type_of(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1]) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    let value_type = db.value_type(key);
    db.count_read(key, value_type.is_some());
    reply.simple(value_type.map_or("none", |value_type| value_type.name()));
    Ok(())
}
