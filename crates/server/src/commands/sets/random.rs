//! SPOP and SRANDMEMBER: members by chance.

use tierce_collections::random::Random;
use tierce_collections::{Element, Set};
use tierce_keyspace::{Editor, Missing};
use tierce_wire::number::parse_i64;
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::{repetitions, symmetric_integer};
use crate::error::CommandError;
use crate::execute::Context;

const TIPS: &[&str] = &["nondeterministic_output"];

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("spop", -2, Group::Set, spop)
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::READ_REMOVE)])
        .tips(TIPS)
        .doc(
            "1.0.0",
            "O(1) without a count, otherwise O(N) where N is the count",
            "key [count]",
            "Returns one or more random members from a set after removing them. Deletes the set if \
             the last member was popped.",
        ),
    Spec::new("srandmember", -2, Group::Set, srandmember)
        .flags(Flags::READONLY)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .tips(TIPS)
        .doc(
            "1.0.0",
            "O(1) without a count, otherwise O(N) where N is the absolute count",
            "key [count]",
            "Returns one or more random members from a set.",
        ),
];

type Done = Result<(), CommandError>;

fn spop(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if args.len() > 2 {
        return spop_some(ctx, args);
    }
    let mut random = Random::new(crate::random::word());
    let (mut db, key, reply) = ctx.open(args.at(1));
    let popped = db.edit::<Set, _, CommandError>(key, Missing::Skip, |set| {
        if let Some(member) = set.sample(&mut random) {
            let member = member.to_vec();
            reply.bulk(&member);
            set.remove(&member);
        }
        Ok(())
    })?;
    if popped.is_none() {
        reply.null();
    }
    Ok(())
}

fn spop_some(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if args.len() > 3 {
        return Err(CommandError::SYNTAX);
    }
    let count = parse_i64(&args[2]).filter(|count| *count >= 0);
    let count = count.ok_or(CommandError::new("ERR value is out of range, must be positive"))?;
    let mut random = Random::new(crate::random::word());
    let (mut db, key, reply) = ctx.open(args.at(1));
    let len = db.collection::<Set>(key)?.map_or(0, |set| set.len());
    if count as usize >= len {
        // Nothing is left of it, which one removal says.
        let set = db.collection::<Set>(key)?;
        reply.set(len);
        set.iter().flat_map(|set| set.iter()).for_each(|member| reply.element(member));
        db.remove(key);
        return Ok(());
    }
    db.edit(key, Missing::Skip, |set: &mut Editor<'_, Set>| {
        let popped = set.sample_distinct(count as usize, &mut random);
        let popped: Vec<Vec<u8>> = popped.iter().map(Element::to_vec).collect();
        reply.set(popped.len());
        for member in popped {
            reply.bulk(&member);
            set.remove(&member);
        }
        Ok::<_, CommandError>(())
    })?;
    Ok(())
}

fn srandmember(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let count = match args.len() {
        2 => None,
        3 => Some(symmetric_integer(&args[2])?),
        _ => return Err(CommandError::SYNTAX),
    };
    let mut random = Random::new(crate::random::word());
    let (mut db, key, reply) = ctx.open(args.at(1));
    let set = db.collection::<Set>(key)?;
    match (set, count) {
        (None, None) => reply.null(),
        (None, Some(_)) => reply.array(0),
        (Some(set), None) => {
            set.sample(&mut random).into_iter().for_each(|member| reply.element(member));
        }
        (Some(set), Some(count @ 0..)) => {
            let drawn = set.sample_distinct(count as usize, &mut random);
            reply.array(drawn.len());
            drawn.into_iter().for_each(|member| reply.element(member));
        }
        (Some(set), Some(count)) => {
            let count = repetitions(count, set.len(), set.allocated_bytes())?;
            reply.array(count);
            set.sample_repeatedly(count, &mut random, |member| reply.element(member));
        }
    }
    Ok(())
}
