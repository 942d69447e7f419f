//! HINCRBY and HINCRBYFLOAT: numbers in fields. The fields keep their deadlines.

use tierce_collections::{Hash, IntText};
use tierce_keyspace::{Event, Missing};
use tierce_wire::number::{LongDouble, parse_i64};

use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, exactly};

const FLAGS: Flags = Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST);
const KEY: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ_UPDATE)];

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("hincrby", Group::Hash, exactly!(hincrby))
        .flags(FLAGS)
        .keys(KEY)
        .element_at(2)
        .since("2.0.0", "O(1)")
        .doc(
            "key field increment",
            "Increments the integer value of a field in a hash by a number. Uses 0 as initial \
                 value if the field does not exist.",
        )
        .example(
            r#"
            > HSET article:1 likes 10
            (integer) 1
            > HINCRBY article:1 likes 5
            (integer) 15
            > HINCRBY article:1 dislikes 1
            (integer) 1
            "#,
        ),
    Defined::new("hincrbyfloat", Group::Hash, exactly!(hincrbyfloat))
        .flags(FLAGS)
        .keys(KEY)
        .element_at(2)
        .since("2.6.0", "O(1)")
        .doc(
            "key field increment",
            "Increments the floating point value of a field by a number. Uses 0 as initial \
                 value if the field does not exist.",
        )
        .example(
            r#"
            > HSET account:1 balance 10.50
            (integer) 1
            > HINCRBYFLOAT account:1 balance 0.1
            "10.6"
            > HINCRBYFLOAT account:1 balance -5e0
            "5.6"
            "#,
        ),
];

fn hincrby(ctx: &mut Context<'_, '_>, [key, field, increment]: [&[u8]; 3]) -> Done {
    const NOT_AN_INTEGER: CommandError = CommandError::new("ERR hash value is not an integer");
    const OVERFLOW: CommandError = CommandError::new("ERR increment or decrement would overflow");
    let increment = integer(increment)?;
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(key);
    let sum = db.edit(key, Missing::Create, |hash: &mut tierce_keyspace::Editor<'_, Hash>| {
        let (value, deadline_ms) = match hash.get(field, now_ms) {
            Some(field) => {
                let value = parse_i64(field.value.bytes(&mut IntText::new()));
                (value.ok_or(NOT_AN_INTEGER)?, field.deadline_ms)
            }
            None => (0, None),
        };
        let sum = value.checked_add(increment).ok_or(OVERFLOW)?;
        hash.put(field, IntText::new().of(sum), deadline_ms);
        Ok::<_, CommandError>(sum)
    })?;
    db.event(Event::HIncrBy, key);
    reply.int(sum.unwrap_or(0));
    Ok(())
}

fn hincrbyfloat(ctx: &mut Context<'_, '_>, [key, field, increment]: [&[u8]; 3]) -> Done {
    let increment = LongDouble::parse(increment).ok_or(CommandError::NOT_A_FLOAT)?;
    if !increment.is_finite() {
        return Err(CommandError::new("ERR value is NaN or Infinity"));
    }
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(key);
    let sum = db.edit(key, Missing::Create, |hash: &mut tierce_keyspace::Editor<'_, Hash>| {
        let (value, deadline_ms) = match hash.get(field, now_ms) {
            Some(field) => {
                let value = LongDouble::parse(field.value.bytes(&mut IntText::new()));
                let value = value.ok_or(CommandError::new("ERR hash value is not a float"))?;
                (Some(value), field.deadline_ms)
            }
            None => (LongDouble::parse(b"0"), None),
        };
        let sum = value
            .and_then(|value| value.checked_add(increment))
            .filter(LongDouble::is_finite)
            .ok_or(CommandError::new("ERR increment would produce NaN or Infinity"))?
            .to_text();
        hash.put(field, sum.as_bytes(), deadline_ms);
        Ok::<_, CommandError>(sum)
    })?;
    db.event(Event::HIncrByFloat, key);
    reply.bulk(sum.unwrap_or_default().as_bytes());
    Ok(())
}
