//! WATCH and UNWATCH: EXEC does nothing if a watched key has changed.

use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Scope};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, many, no_arguments};

const FLAGS: Flags = Flags::NOSCRIPT
    .with(Flags::LOADING)
    .with(Flags::STALE)
    .with(Flags::FAST)
    .with(Flags::ALLOW_BUSY);

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("watch", Group::Transactions, many!(watch))
        .flags(FLAGS.with(Flags::NOT_QUEUED).with(Flags::KEY_ONLY))
        .keys(&[KeySpec::all(1, KeyFlags::LOOK)])
        .since("2.2.0", "O(1) for every key")
        .doc("key [key ...]", "Has the next EXEC do nothing if one of the keys changes until then.")
        .example(
            r#"
            > SET balance 10
            OK
            > WATCH balance
            OK
            > SET balance 20
            OK
            > MULTI
            OK
            > INCR balance
            QUEUED
            > EXEC
            (nil)
            > GET balance
            "20"
            "#,
        ),
    Defined::new("unwatch", Group::Transactions, no_arguments!(unwatch))
        .flags(FLAGS)
        .locks(Scope::Unlocked)
        .since("2.2.0", "O(1)")
        .doc("", "Forgets all watched keys, and whether they have changed.")
        .example(
            r#"
            > WATCH balance
            OK
            > SET balance 20
            OK
            > UNWATCH
            OK
            > MULTI
            OK
            > INCR balance
            QUEUED
            > EXEC
            1) (integer) 21
            "#,
        ),
];

fn watch(ctx: &mut Context<'_, '_>, keys: Rest<'_, 1>) -> Done {
    if ctx.caller.is_in_transaction() {
        return Err(CommandError::new("ERR WATCH inside MULTI is not allowed"));
    }
    let keys = ctx.keys(keys.iter());
    let (keyspace, db, now_ms) = (ctx.guard.keyspace(), ctx.caller.db, ctx.now_ms);
    let watch = ctx.caller.watch(keyspace);
    keys.iter().for_each(|key| ctx.guard.watch(watch, db, *key, now_ms));
    ctx.reply.ok();
    Ok(())
}

fn unwatch(ctx: &mut Context<'_, '_>) -> Done {
    ctx.end_watch();
    ctx.reply.ok();
    Ok(())
}
