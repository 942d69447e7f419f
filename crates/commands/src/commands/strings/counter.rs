//! INCR and its relatives: strings that are numbers.

use tierce_keyspace::{Event, Expiry};
use tierce_wire::number::LongDouble;

use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::pipeline::{Body, Context, Defined, Done, exactly};

const KEY: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ_UPDATE)];

const fn counter(name: &'static str, body: Body) -> Defined {
    let flags = Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST);
    Defined::new(name, Group::String, body).flags(flags).keys(KEY)
}

pub(super) static COMMANDS: &[Defined] = &[
    counter("incr", exactly!(|ctx, [key]| add(ctx, key, 1)))
        .since("1.0.0", "O(1)")
        .doc(
            "key",
            "Increments the integer value of a key by one. Uses 0 as initial value if the key \
                 does not exist.",
        )
        .example(
            r#"
            > INCR visits
            (integer) 1
            > INCR visits
            (integer) 2
            > SET name Ada
            OK
            > INCR name
            (error) ERR value is not an integer or out of range
            "#,
        ),
    counter("decr", exactly!(|ctx, [key]| add(ctx, key, -1)))
        .since("1.0.0", "O(1)")
        .doc(
            "key",
            "Decrements the integer value of a key by one. Uses 0 as initial value if the key \
                 does not exist.",
        )
        .example(
            r#"
            > SET stock 10
            OK
            > DECR stock
            (integer) 9
            > GET stock
            "9"
            "#,
        ),
    counter("incrby", exactly!(|ctx, [key, increment]| add(ctx, key, integer(increment)?)))
        .since("1.0.0", "O(1)")
        .doc(
            "key increment",
            "Increments the integer value of a key by a number. Uses 0 as initial value if the \
                 key does not exist.",
        )
        .example(
            r#"
            > SET visits 10
            OK
            > INCRBY visits 5
            (integer) 15
            > INCRBY visits -20
            (integer) -5
            "#,
        ),
    counter("decrby", exactly!(decr_by))
        .since("1.0.0", "O(1)")
        .doc(
            "key decrement",
            "Decrements the integer value of a key by a number. Uses 0 as initial value if the \
                 key does not exist.",
        )
        .example(
            r#"
            > SET stock 10
            OK
            > DECRBY stock 3
            (integer) 7
            "#,
        ),
    counter("incrbyfloat", exactly!(incr_by_float))
        .since("2.6.0", "O(1)")
        .doc(
            "key float",
            "Increments the floating point value of a key by a number. Uses 0 as initial value \
                 if the key does not exist.",
        )
        .example(
            r#"
            > SET price 10.50
            OK
            > INCRBYFLOAT price 0.1
            "10.6"
            > INCRBYFLOAT price -5e0
            "5.6"
            "#,
        ),
];

#[inline]
fn add(ctx: &mut Context<'_, '_>, key: &[u8], increment: i64) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    reply.int(db.increment(key, increment)?);
    db.event(Event::IncrBy, key);
    Ok(())
}

fn decr_by(ctx: &mut Context<'_, '_>, [key, decrement]: [&[u8]; 2]) -> Done {
    let decrement = integer(decrement)?;
    let increment =
        decrement.checked_neg().ok_or(CommandError::new("ERR decrement would overflow"))?;
    add(ctx, key, increment)
}

fn incr_by_float(ctx: &mut Context<'_, '_>, [key, float]: [&[u8]; 2]) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    let old = db.string_to_change(key)?.map(|value| value.to_vec());
    let old = old.as_deref().unwrap_or(b"0");
    let old = LongDouble::parse(old).ok_or(CommandError::NOT_A_FLOAT)?;
    let increment = LongDouble::parse(float).ok_or(CommandError::NOT_A_FLOAT)?;
    let sum = old
        .checked_add(increment)
        .filter(LongDouble::is_finite)
        .ok_or(CommandError::new("ERR increment would produce NaN or Infinity"))?
        .to_text();
    db.set(key, sum.as_bytes(), Expiry::Keep)?;
    db.event(Event::IncrByFloat, key);
    reply.bulk(sum.as_bytes());
    Ok(())
}
