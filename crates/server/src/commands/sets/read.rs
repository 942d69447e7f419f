//! SISMEMBER, SMISMEMBER, SMEMBERS, SCARD, SSCAN: looking at one set.

use tierce_collections::{IntText, Set};
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::sweep::{SweepOptions, cursor};
use crate::error::CommandError;
use crate::execute::Context;

const FAST: Flags = Flags::READONLY.with(Flags::FAST);
const READ: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ)];
const LOOK: &[KeySpec] = &[KeySpec::at(1, KeyFlags::LOOK)];

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("sismember", 3, Group::Set, sismember).flags(FAST).keys(LOOK).element_at(2).doc(
        "1.0.0",
        "O(1)",
        "key member",
        "Determines whether a member belongs to a set.",
    ),
    Spec::new("smismember", -3, Group::Set, smismember).flags(FAST).keys(READ).doc(
        "6.2.0",
        "O(N) where N is the number of members being checked",
        "key member [member ...]",
        "Determines whether multiple members belong to a set.",
    ),
    Spec::new("smembers", 2, Group::Set, smembers)
        .flags(Flags::READONLY)
        .keys(READ)
        .tips(&["nondeterministic_output_order"])
        .doc(
            "1.0.0",
            "O(N) where N is the size of the set",
            "key",
            "Returns all members of a set.",
        ),
    Spec::new("scard", 2, Group::Set, scard).flags(FAST).keys(LOOK).doc(
        "1.0.0",
        "O(1)",
        "key",
        "Returns the number of members in a set.",
    ),
    Spec::new("sscan", -3, Group::Set, sscan)
        .flags(Flags::READONLY)
        .keys(READ)
        .tips(&["nondeterministic_output"])
        .doc(
            "2.8.0",
            "O(1) for every call; O(N) for a complete iteration, N being the number of members",
            "key cursor [MATCH pattern] [COUNT count]",
            "Iterates over members of a set.",
        ),
];

type Done = Result<(), CommandError>;

fn sismember(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    let set = db.collection::<Set>(key)?;
    reply.int(set.is_some_and(|set| set.contains(&args[2])).into());
    Ok(())
}

fn smismember(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    let set = db.collection::<Set>(key)?;
    reply.array(args.len() - 2);
    for member in args.iter().skip(2) {
        reply.int(set.as_ref().is_some_and(|set| set.contains(member)).into());
    }
    Ok(())
}

fn smembers(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    let set = db.collection::<Set>(key)?;
    reply.set(set.as_ref().map_or(0, |set| set.len()));
    set.iter().flat_map(|set| set.iter()).for_each(|member| reply.element(member));
    Ok(())
}

fn scard(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    reply.count(db.collection::<Set>(key)?.map_or(0, |set| set.len()));
    Ok(())
}

fn sscan(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let cursor = cursor(&args[2])?;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let Some(set) = db.collection::<Set>(key)? else {
        // Without a key nobody looks at the options.
        reply.array(2);
        reply.bulk(b"0");
        reply.array(0);
        return Ok(());
    };
    let options = SweepOptions::parse(args.from(3))?;
    if options.only_names {
        return Err(CommandError::SYNTAX);
    }
    let mut found: Vec<Vec<u8>> = Vec::new();
    let cursor = options.run(cursor, |cursor| {
        let mut met = 0;
        let next = set.sweep(cursor, |member| {
            met += 1;
            let mut text = IntText::new();
            let member = member.bytes(&mut text);
            if options.matches(member) {
                found.push(member.to_vec());
            }
        });
        (next, met)
    });
    reply.array(2);
    reply.bulk(cursor.to_string().as_bytes());
    reply.bulks(found);
    Ok(())
}
