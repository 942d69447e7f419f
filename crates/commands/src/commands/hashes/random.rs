//! HRANDFIELD: random fields.

use tierce_collections::Hash;
use tierce_collections::hash::FieldRef;
use tierce_collections::random::Random;
use tierce_wire::resp::{Proto, Rest};

use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::{repetitions, symmetric_integer};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least};
use crate::reply::Reply;

pub(super) static COMMANDS: &[Defined] =
    &[Defined::new("hrandfield", Group::Hash, at_least!(hrandfield))
        .flags(Flags::READONLY)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .tips(&["nondeterministic_output"])
        .since("6.2.0", "O(N) where N is the number of fields returned")
        .doc("key [count [WITHVALUES]]", "Returns one or more random fields from a hash.")
        .example(
            r#"
        > HSET user:1 name Ada
        (integer) 1
        > HRANDFIELD user:1
        "name"
        > HRANDFIELD user:1 5 WITHVALUES
        1) "name"
        2) "Ada"
        RESP3:
        1) 1) "name"
           2) "Ada"
        > HRANDFIELD user:1 -2
        1) "name"
        2) "name"
        > HRANDFIELD nosuch
        (nil)
        "#,
        )];

fn hrandfield(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], options: Rest<'_>) -> Done {
    let mut options = Options::of(options);
    let Some(count) = options.next_value() else { return one(ctx, key) };
    let count = symmetric_integer(count)?;
    let with_values = options.take("withvalues");
    options.end()?;
    if with_values && !(-i64::MAX / 2..=i64::MAX / 2).contains(&count) {
        return Err(CommandError::OUT_OF_RANGE);
    }
    let now_ms = ctx.now_ms;
    let mut random = Random::new(crate::random::word());
    let scale = ctx.scale();
    let (mut db, key, reply) = ctx.open(key);
    scale.weigh_some(count.unsigned_abs() as usize, &mut db, key)?;
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
    scale.weigh(count)?;
    begin(reply, count, with_values);
    hash.sample_repeatedly(count, &mut random, now_ms, |field| show(reply, field, with_values));
    Ok(())
}

fn one(ctx: &mut Context<'_, '_>, key: &[u8]) -> Done {
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(key);
    let hash = db.collection::<Hash>(key)?;
    let mut random = Random::new(crate::random::word());
    match hash.as_ref().and_then(|hash| hash.sample(&mut random, now_ms)) {
        Some(field) => reply.element(field.name),
        None => reply.null(),
    }
    Ok(())
}

/// Begins the reply. RESP2 has no pairs, so names and values alternate there.
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
