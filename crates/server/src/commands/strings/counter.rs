//! INCR and its relatives: strings that are numbers.

use tierce_keyspace::Expiry;
use tierce_wire::number::LongDouble;
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, Handler, KeyFlags, KeySpec, Spec};
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::execute::Context;

const KEY: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ_UPDATE)];

const fn counter(name: &'static str, arity: i16, run: Handler) -> Spec {
    let flags = Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST);
    Spec::new(name, arity, Group::String, run).flags(flags).keys(KEY)
}

pub(super) static COMMANDS: &[Spec] = &[
    counter("incr", 2, |ctx, args| add(ctx, args, 1)).doc(
        "1.0.0",
        "O(1)",
        "key",
        "Increments the integer value of a key by one. Uses 0 as initial value if the key does not \
         exist.",
    ),
    counter("decr", 2, |ctx, args| add(ctx, args, -1)).doc(
        "1.0.0",
        "O(1)",
        "key",
        "Decrements the integer value of a key by one. Uses 0 as initial value if the key does not \
         exist.",
    ),
    counter("incrby", 3, |ctx, args| add(ctx, args, integer(&args[2])?)).doc(
        "1.0.0",
        "O(1)",
        "key increment",
        "Increments the integer value of a key by a number. Uses 0 as initial value if the key does \
         not exist.",
    ),
    counter("decrby", 3, decr_by).doc(
        "1.0.0",
        "O(1)",
        "key decrement",
        "Decrements the integer value of a key by a number. Uses 0 as initial value if the key does \
         not exist.",
    ),
    counter("incrbyfloat", 3, incr_by_float).doc(
        "2.6.0",
        "O(1)",
        "key float",
        "Increments the floating point value of a key by a number. Uses 0 as initial value if the \
         key does not exist.",
    ),
];

type Done = Result<(), CommandError>;

#[inline]
fn add(ctx: &mut Context<'_, '_>, args: Args<'_>, increment: i64) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    reply.int(db.increment(key, increment)?);
    Ok(())
}

fn decr_by(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let decrement = integer(&args[2])?;
    let increment =
        decrement.checked_neg().ok_or(CommandError::new("ERR decrement would overflow"))?;
    add(ctx, args, increment)
}

fn incr_by_float(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    let old = db.string(key)?.map(|value| value.to_vec());
    let old = old.as_deref().unwrap_or(b"0");
    let old = LongDouble::parse(old).ok_or(CommandError::NOT_A_FLOAT)?;
    let increment = LongDouble::parse(&args[2]).ok_or(CommandError::NOT_A_FLOAT)?;
    let sum = old
        .checked_add(increment)
        .filter(LongDouble::is_finite)
        .ok_or(CommandError::new("ERR increment would produce NaN or Infinity"))?
        .to_text();
    db.set(key, sum.as_bytes(), Expiry::Keep)?;
    reply.bulk(sum.as_bytes());
    Ok(())
}
