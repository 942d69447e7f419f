//! MGET, MSET, MSETNX: several strings at once, all at the same moment.

use tierce_keyspace::{Key, Ttl};
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::error::CommandError;
use crate::execute::Context;

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("mget", -2, Group::String, mget)
        .flags(Flags::READONLY.with(Flags::FAST))
        .keys(&[KeySpec::all(1, KeyFlags::READ)])
        .doc(
            "1.0.0",
            "O(N) where N is the number of keys to retrieve",
            "key [key ...]",
            "Atomically returns the string values of one or more keys.",
        ),
    Spec::new("mset", -3, Group::String, mset)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec::all(2, KeyFlags::OVERWRITE)])
        .doc(
            "1.0.1",
            "O(N) where N is the number of keys to set",
            "key value [key value ...]",
            "Atomically creates or modifies the string values of one or more keys.",
        ),
    Spec::new("msetnx", -3, Group::String, msetnx)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec::all(2, KeyFlags::INSERT)])
        .doc(
            "1.0.1",
            "O(N) where N is the number of keys to set",
            "key value [key value ...]",
            "Atomically sets the string values of one or more keys if none of them exists.",
        ),
];

type Done = Result<(), CommandError>;

fn mget(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let keys: Vec<Key<'_>> = args.iter().skip(1).map(|key| ctx.server.keyspace.key(key)).collect();
    let mut many = ctx.locker.lock_many(keys.iter().map(|key| key.hash()));
    ctx.reply.array(keys.len());
    for key in keys {
        // A key of another type counts as absent here.
        let mut db = many.db(ctx.session.db, key.hash(), ctx.now_ms);
        ctx.reply.value_or_null(db.get(key).ok().flatten());
    }
    Ok(())
}

/// The keys and values after the name; as many of each.
fn pairs<'a>(
    ctx: &Context<'_, '_>,
    args: Args<'a>,
) -> Result<Vec<(Key<'a>, &'a [u8])>, CommandError> {
    if args.len().is_multiple_of(2) {
        return Err(CommandError::arity(ctx.name()));
    }
    let pair = |at| (ctx.server.keyspace.key(args.at(at)), args.at(at + 1));
    Ok((1..args.len()).step_by(2).map(pair).collect())
}

fn mset(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let pairs = pairs(ctx, args)?;
    for (key, _) in &pairs {
        key.check()?;
    }
    let mut many = ctx.locker.lock_many(pairs.iter().map(|(key, _)| key.hash()));
    for (key, value) in pairs {
        many.db(ctx.session.db, key.hash(), ctx.now_ms).set(key, value, Ttl::None)?;
    }
    ctx.reply.ok();
    Ok(())
}

fn msetnx(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let pairs = pairs(ctx, args)?;
    for (key, _) in &pairs {
        key.check()?;
    }
    let (db, now_ms) = (ctx.session.db, ctx.now_ms);
    let mut many = ctx.locker.lock_many(pairs.iter().map(|(key, _)| key.hash()));
    if pairs.iter().any(|(key, _)| many.db(db, key.hash(), now_ms).contains(*key)) {
        ctx.reply.int(0);
        return Ok(());
    }
    for (key, value) in pairs {
        many.db(db, key.hash(), now_ms).set(key, value, Ttl::None)?;
    }
    ctx.reply.int(1);
    Ok(())
}
