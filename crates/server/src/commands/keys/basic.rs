//! DEL, UNLINK, EXISTS, TOUCH, TYPE: whether keys are there, and away with them.

use tierce_keyspace::{Db, Key};
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::error::CommandError;
use crate::execute::Context;

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("del", -2, Group::Generic, del)
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .flags(Flags::WRITE)
        .keys(&[KeySpec::all(1, KeyFlags::REMOVE)])
        .doc(
            "1.0.0",
            "O(N) where N is the number of keys",
            "key [key ...]",
            "Deletes one or more keys.",
        ),
    Spec::new("unlink", -2, Group::Generic, del)
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::all(1, KeyFlags::REMOVE)])
        .doc(
            "4.0.0",
            "O(1) for each key",
            "key [key ...]",
            "Deletes one or more keys; large values are freed in the background, as by DEL.",
        ),
    Spec::new("exists", -2, Group::Generic, exists)
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .flags(Flags::READONLY.with(Flags::FAST).with(Flags::KEY_ONLY))
        .keys(&[KeySpec::all(1, KeyFlags::LOOK)])
        .doc(
            "1.0.0",
            "O(N) where N is the number of keys",
            "key [key ...]",
            "Returns how many of the keys exist.",
        ),
    Spec::new("touch", -2, Group::Generic, touch)
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .flags(Flags::READONLY.with(Flags::FAST).with(Flags::KEY_ONLY))
        .keys(&[KeySpec::all(1, KeyFlags::LOOK)])
        .doc(
            "3.2.1",
            "O(N) where N is the number of keys",
            "key [key ...]",
            "Returns how many of the keys exist after renewing their access times.",
        ),
    Spec::new("type", 2, Group::Generic, type_of)
        .flags(Flags::READONLY.with(Flags::FAST).with(Flags::KEY_ONLY))
        .keys(&[KeySpec::at(1, KeyFlags::LOOK)])
        .doc("1.0.0", "O(1)", "key", "Returns the type of value stored at a key."),
];

type Done = Result<(), CommandError>;

fn del(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    count(ctx, args, |db, key| db.remove(key));
    Ok(())
}

fn exists(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    count(ctx, args, |db, key| db.exists(key));
    Ok(())
}

fn touch(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    count(ctx, args, |db, key| db.touch(key));
    Ok(())
}

/// Replies for how many of the keys `action` says yes, all of them locked together.
fn count(ctx: &mut Context<'_, '_>, args: Args<'_>, action: impl Fn(&mut Db<'_>, Key<'_>) -> bool) {
    if args.len() == 2 {
        let (mut db, key, reply) = ctx.open(args.at(1));
        reply.int(action(&mut db, key).into());
        return;
    }
    let keys = ctx.keys(args.iter().skip(1));
    let (db, now_ms) = (ctx.session.db, ctx.now_ms);
    let hits = keys.iter().filter(|key| action(&mut ctx.guard.db(db, key.hash(), now_ms), **key));
    ctx.reply.count(hits.count());
}

fn type_of(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    reply.simple(db.value_type(key).map_or("none", |value_type| value_type.name()));
    Ok(())
}
