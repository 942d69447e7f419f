//! HRANDFIELD: fields by chance.

use tierce_collections::Hash;
use tierce_collections::hash::FieldRef;
use tierce_collections::random::Random;
use tierce_wire::resp::{Args, Proto};

use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::{repetitions, symmetric_integer};
use crate::error::CommandError;
use crate::execute::Context;
use crate::reply::Reply;

pub(super) static COMMANDS: &[Spec] = &[Spec::new("hrandfield", -2, Group::Hash, hrandfield)
    .flags(Flags::READONLY)
    .keys(&[KeySpec::at(1, KeyFlags::READ)])
    .tips(&["nondeterministic_output"])
    .doc(
        "6.2.0",
        "O(N) where N is the number of fields returned",
        "key [count [WITHVALUES]]",
        "Returns one or more random fields from a hash.",
    )];

type Done = Result<(), CommandError>;

fn hrandfield(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if args.len() == 2 {
        return one(ctx, args);
    }
    let count = symmetric_integer(&args[2])?;
    let with_values = args.len() == 4 && args[3].eq_ignore_ascii_case(b"withvalues");
    if args.len() > 3 && !with_values {
        return Err(CommandError::SYNTAX);
    }
    if with_values && !(-i64::MAX / 2..=i64::MAX / 2).contains(&count) {
        return Err(CommandError::OUT_OF_RANGE);
    }
    let now_ms = ctx.now_ms;
    let mut random = Random::new(crate::random::word());
    let (mut db, key, reply) = ctx.open(args.at(1));
    let Some(hash) = db.collection::<Hash>(key)?.filter(|hash| hash.live_len(now_ms) > 0) else {
        reply.array(0);
        return Ok(());
    };
    if count >= 0 {
        let drawn = hash.sample_distinct(count as usize, &mut random, now_ms);
        begin(reply, drawn.len(), with_values);
        drawn.into_iter().for_each(|field| show(reply, field, with_values));
        return Ok(());
    }
    let count = repetitions(count, hash.len(), hash.allocated_bytes())?;
    begin(reply, count, with_values);
    hash.sample_repeatedly(count, &mut random, now_ms, |field| show(reply, field, with_values));
    Ok(())
}

fn one(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let hash = db.collection::<Hash>(key)?;
    let mut random = Random::new(crate::random::word());
    match hash.as_ref().and_then(|hash| hash.sample(&mut random, now_ms)) {
        Some(field) => reply.element(field.name),
        None => reply.null(),
    }
    Ok(())
}

/// RESP2 has no pairs, so names and values come in turn there.
fn begin(reply: &mut Reply<'_>, fields: usize, with_values: bool) {
    let is_flat = with_values && reply.proto() == Proto::Resp2;
    reply.array(if is_flat { fields * 2 } else { fields });
}

fn show(reply: &mut Reply<'_>, field: FieldRef<'_>, with_values: bool) {
    if with_values && reply.proto() != Proto::Resp2 {
        reply.array(2);
    }
    reply.element(field.name);
    if with_values {
        reply.element(field.value);
    }
}
