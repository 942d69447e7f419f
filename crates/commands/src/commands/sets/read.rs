//! SISMEMBER, SMISMEMBER, SMEMBERS, SCARD, SSCAN: reading one set.

use tierce_collections::Set;
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Scope, Weight};
use crate::commands::sweep;
use crate::pipeline::{Context, Defined, Done, at_least, exactly};

const FAST: Flags = Flags::READONLY.with(Flags::FAST);
const READ: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ)];
const LOOK: &[KeySpec] = &[KeySpec::at(1, KeyFlags::LOOK)];

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("sismember", Group::Set, exactly!(sismember))
        .flags(FAST)
        .keys(LOOK)
        .element_at(2)
        .since("1.0.0", "O(1)")
        .doc("key member", "Determines whether a member belongs to a set.")
        .example(
            r#"
            > SADD colors red
            (integer) 1
            > SISMEMBER colors red
            (integer) 1
            > SISMEMBER colors blue
            (integer) 0
            "#,
        ),
    Defined::new("smismember", Group::Set, at_least!(smismember))
        .flags(FAST)
        .keys(READ)
        .since("6.2.0", "O(N) where N is the number of members being checked")
        .doc("key member [member ...]", "Determines whether multiple members belong to a set.")
        .example(
            r#"
            > SADD colors red green
            (integer) 2
            > SMISMEMBER colors red blue green
            1) (integer) 1
            2) (integer) 0
            3) (integer) 1
            "#,
        ),
    Defined::new("smembers", Group::Set, exactly!(smembers))
        .weighs(Weight::All)
        .locks(Scope::InTurns)
        .flags(Flags::READONLY)
        .keys(READ)
        .tips(&["nondeterministic_output_order"])
        .since("1.0.0", "O(N) where N is the size of the set")
        .doc("key", "Returns all members of a set.")
        .example(
            r#"
            > SADD colors red green
            (integer) 2
            > SMEMBERS colors
            1) "red"
            2) "green"
            > SMEMBERS nosuch
            (empty array)
            "#,
        ),
    Defined::new("scard", Group::Set, exactly!(scard))
        .flags(FAST)
        .keys(LOOK)
        .since("1.0.0", "O(1)")
        .doc("key", "Returns the number of members in a set.")
        .example(
            r#"
            > SADD colors red green red
            (integer) 2
            > SCARD colors
            (integer) 2
            "#,
        ),
    Defined::new("sscan", Group::Set, at_least!(sscan))
        .flags(Flags::READONLY)
        .keys(READ)
        .tips(&["nondeterministic_output"])
        .since(
            "2.8.0",
            "O(1) for every call; O(N) for a complete iteration, N being the number of members",
        )
        .doc("key cursor [MATCH pattern] [COUNT count]", "Iterates over members of a set.")
        .example(
            r#"
            > SADD colors red green blue
            (integer) 3
            > SSCAN colors 0 MATCH r*
            1) "0"
            2) 1) "red"
            "#,
        ),
];

fn sismember(ctx: &mut Context<'_, '_>, [key, member]: [&[u8]; 2]) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    let set = db.collection::<Set>(key)?;
    reply.int(set.is_some_and(|set| set.contains(member)).into());
    Ok(())
}

fn smismember(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], members: Rest<'_, 1>) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    let set = db.collection::<Set>(key)?;
    reply.array(members.len());
    for member in members.iter() {
        reply.int(set.as_ref().is_some_and(|set| set.contains(member)).into());
    }
    Ok(())
}

fn smembers(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1]) -> Done {
    ctx.read_collection(key, |set: Option<&Set>, reply| {
        reply.set(set.map_or(0, Set::live_len));
        set.iter().flat_map(|set| set.iter()).for_each(|member| reply.element(member));
    })
}

fn scard(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1]) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    reply.count(db.collection::<Set>(key)?.map_or(0, |set| set.live_len()));
    Ok(())
}

fn sscan(ctx: &mut Context<'_, '_>, args: [&[u8]; 2], options: Rest<'_>) -> Done {
    sweep::reply(ctx, args, options, |set: &Set, cursor, found| {
        set.scan(cursor, |member| found.visited(member, || None))
    })
}
