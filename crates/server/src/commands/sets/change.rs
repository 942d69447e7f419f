//! SADD, SREM, SMOVE: members that come and go.

use tierce_collections::Set;
use tierce_keyspace::Missing;
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::check_len;
use crate::error::CommandError;
use crate::execute::Context;

const FAST: Flags = Flags::WRITE.with(Flags::FAST);

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("sadd", -3, Group::Set, sadd)
        .flags(FAST.with(Flags::DENYOOM))
        .keys(&[KeySpec::at(1, KeyFlags(&["RW", "insert"]))])
        .element_at(2)
        .doc(
            "1.0.0",
            "O(N) where N is the number of members to be added",
            "key member [member ...]",
            "Adds members to a set. Creates the key if it does not exist.",
        ),
    Spec::new("srem", -3, Group::Set, srem)
        .flags(FAST)
        .keys(&[KeySpec::at(1, KeyFlags(&["RW", "delete"]))])
        .element_at(2)
        .doc(
            "1.0.0",
            "O(N) where N is the number of members to be removed",
            "key member [member ...]",
            "Removes members from a set. Deletes the set if the last member was removed.",
        ),
    Spec::new("smove", 4, Group::Set, smove)
        .flags(FAST)
        .keys(&[
            KeySpec::at(1, KeyFlags(&["RW", "access", "delete"])),
            KeySpec::at(2, KeyFlags(&["RW", "insert"])),
        ])
        .doc(
            "1.0.0",
            "O(1)",
            "source destination member",
            "Moves a member from one set to another.",
        ),
];

type Done = Result<(), CommandError>;

fn sadd(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    let added = db.edit::<Set, _, CommandError>(key, Missing::Create, |set| {
        set.expect(&args[2], args.len() - 2);
        Ok(args.iter().skip(2).filter(|member| set.add(member)).count())
    })?;
    reply.count(added.unwrap_or(0));
    Ok(())
}

fn srem(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    let removed = db.edit::<Set, _, CommandError>(key, Missing::Skip, |set| {
        Ok(args.iter().skip(2).filter(|member| set.remove(member)).count())
    })?;
    reply.count(removed.unwrap_or(0));
    Ok(())
}

fn smove(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (from, to) = (ctx.server.keyspace.key(args.at(1)), ctx.server.keyspace.key(args.at(2)));
    let (db, now_ms) = (ctx.session.db, ctx.now_ms);
    check_len(to)?;
    let mut source = ctx.guard.db(db, from.hash(), now_ms);
    let has = source.collection::<Set>(from)?.map(|source| source.contains(&args[3]));
    if has.is_some() {
        // Of another type, it is an error even if nothing is to be moved.
        ctx.guard.db(db, to.hash(), now_ms).collection::<Set>(to)?;
    }
    let moves = has == Some(true);
    if moves && from.bytes() != to.bytes() {
        let mut source = ctx.guard.db(db, from.hash(), now_ms);
        source.edit(from, Missing::Skip, |set: &mut tierce_keyspace::Editor<'_, Set>| {
            set.remove(&args[3]);
            Ok::<_, CommandError>(())
        })?;
        let mut target = ctx.guard.db(db, to.hash(), now_ms);
        target.edit(to, Missing::Create, |set: &mut tierce_keyspace::Editor<'_, Set>| {
            set.add(&args[3]);
            Ok::<_, CommandError>(())
        })?;
    }
    ctx.reply.int(moves.into());
    Ok(())
}
