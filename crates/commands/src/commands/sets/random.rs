//! SPOP and SRANDMEMBER: random members.

use tierce_collections::random::Random;
use tierce_collections::{Element, Set};
use tierce_keyspace::{CollectionType, Editor, Error, Event, Missing, Value};
use tierce_wire::number::parse_i64;
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::{repetitions, symmetric_integer};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least};

const TIPS: &[&str] = &["nondeterministic_output"];

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("spop", Group::Set, at_least!(spop))
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::READ_REMOVE)])
        .tips(TIPS)
        .since("1.0.0", "O(1) without a count, otherwise O(N) where N is the count")
        .doc(
            "key [count]",
            "Returns one or more random members from a set after removing them. Deletes the set if \
             the last member was popped.",
        )
        .example(
            r#"
            > SADD raffle Ada Grace Hedy
            (integer) 3
            > SPOP raffle
            "..."
            > SCARD raffle
            (integer) 2
            > SPOP raffle 2
            1) "..."
            2) "..."
            > EXISTS raffle
            (integer) 0
            "#,
        ),
    Defined::new("srandmember", Group::Set, at_least!(srandmember))
        .flags(Flags::READONLY)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .tips(TIPS)
        .since("1.0.0", "O(1) without a count, otherwise O(N) where N is the absolute count")
        .doc("key [count]", "Returns one or more random members from a set.")
        .example(
            r#"
            > SADD raffle Ada
            (integer) 1
            > SRANDMEMBER raffle
            "Ada"
            > SRANDMEMBER raffle 5
            1) "Ada"
            > SRANDMEMBER raffle -3
            1) "Ada"
            2) "Ada"
            3) "Ada"
            "#,
        ),
];

fn spop(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], options: Rest<'_>) -> Done {
    if !options.is_empty() {
        let [count] = options.exactly().ok_or(CommandError::SYNTAX)?;
        return spop_some(ctx, key, count);
    }
    let (mut db, key, reply) = ctx.open(key);
    let popped = db.edit::<Set, _, CommandError>(key, Missing::Skip, |set| {
        let mut random = Random::new(crate::random::word());
        Ok(set.pop(&mut random, |member| reply.element(member)))
    })?;
    match popped {
        Some(true) => db.event_of_edit(Event::SPop, key),
        Some(false) | None => reply.null(),
    }
    Ok(())
}

fn spop_some(ctx: &mut Context<'_, '_>, key: &[u8], count: &[u8]) -> Done {
    let count = parse_i64(count).filter(|count| *count >= 0);
    let count = count.ok_or(CommandError::new("ERR value is out of range, must be positive"))?;
    let mut random = Random::new(crate::random::word());
    let scale = ctx.scale();
    let (mut db, key, reply) = ctx.open(key);
    scale.weigh_some(count as usize, &mut db, key)?;
    // This does not count as a read, since a write has no misses.
    let value = db.value_to_change(key)?;
    let collection = match &value {
        None => None,
        Some(Value::Collection(collection)) => Some(collection),
        Some(_) => return Err(Error::WrongType.into()),
    };
    let set = collection.map(|it| Set::of(it).ok_or(Error::WrongType)).transpose()?;
    let len = set.map_or(0, |set| set.live_len());
    if count as usize >= len {
        // Nothing is left, so removing the key is enough.
        reply.set(len);
        set.into_iter().flat_map(|set| set.iter()).for_each(|member| reply.element(member));
        if db.remove(key) {
            // Redis reads a set that it takes as a whole.
            db.count_look(true);
            db.event_of_edit(Event::SPop, key);
        }
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
    if count > 0 {
        db.event(Event::SPop, key);
    }
    Ok(())
}

fn srandmember(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], options: Rest<'_>) -> Done {
    let mut options = Options::of(options);
    let count = options.next_value().map(symmetric_integer).transpose();
    options.end()?;
    let count = count?;
    let mut random = Random::new(crate::random::word());
    let scale = ctx.scale();
    let (mut db, key, reply) = ctx.open(key);
    scale.weigh_some(count.map_or(1, i64::unsigned_abs) as usize, &mut db, key)?;
    let set = db.collection::<Set>(key)?;
    match (set, count) {
        (None, None) => reply.null(),
        (None, Some(_)) => reply.array(0),
        (Some(set), None) => match set.sample(&mut random) {
            Some(member) => reply.element(member),
            None => reply.null(),
        },
        (Some(set), Some(count @ 0..)) => {
            let drawn = set.sample_distinct(count as usize, &mut random);
            reply.array(drawn.len());
            drawn.into_iter().for_each(|member| reply.element(member));
        }
        (Some(set), Some(_)) if set.live_len() == 0 => reply.array(0),
        (Some(set), Some(count)) => {
            let count = repetitions(count, set.len(), set.allocated_bytes())?;
            scale.weigh(count)?;
            reply.array(count);
            set.sample_repeatedly(count, &mut random, |member| reply.element(member));
        }
    }
    Ok(())
}
