//! HINCRBY and HINCRBYFLOAT: fields that are numbers. Their deadlines stay.

use tierce_collections::{Hash, IntText};
use tierce_keyspace::Missing;
use tierce_wire::number::{LongDouble, parse_i64};
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::execute::Context;

const FLAGS: Flags = Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST);
const KEY: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ_UPDATE)];

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("hincrby", 4, Group::Hash, hincrby).flags(FLAGS).keys(KEY).element_at(2).doc(
        "2.0.0",
        "O(1)",
        "key field increment",
        "Increments the integer value of a field in a hash by a number. Uses 0 as initial value if \
         the field does not exist.",
    ),
    Spec::new("hincrbyfloat", 4, Group::Hash, hincrbyfloat).flags(FLAGS).keys(KEY).element_at(2).doc(
        "2.6.0",
        "O(1)",
        "key field increment",
        "Increments the floating point value of a field by a number. Uses 0 as initial value if the \
         field does not exist.",
    ),
];

type Done = Result<(), CommandError>;

fn hincrby(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    const NOT_AN_INTEGER: CommandError = CommandError::new("ERR hash value is not an integer");
    const OVERFLOW: CommandError = CommandError::new("ERR increment or decrement would overflow");
    let increment = integer(&args[3])?;
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let sum = db.edit(key, Missing::Create, |hash: &mut tierce_keyspace::Editor<'_, Hash>| {
        let (value, deadline_ms) = match hash.get(&args[2], now_ms) {
            Some(field) => {
                let value = parse_i64(field.value.bytes(&mut IntText::new()));
                (value.ok_or(NOT_AN_INTEGER)?, field.deadline_ms)
            }
            None => (0, None),
        };
        let sum = value.checked_add(increment).ok_or(OVERFLOW)?;
        hash.put(&args[2], IntText::new().of(sum), deadline_ms);
        Ok::<_, CommandError>(sum)
    })?;
    reply.int(sum.unwrap_or(0));
    Ok(())
}

fn hincrbyfloat(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let increment = LongDouble::parse(&args[3]).ok_or(CommandError::NOT_A_FLOAT)?;
    if !increment.is_finite() {
        return Err(CommandError::new("ERR value is NaN or Infinity"));
    }
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let sum = db.edit(key, Missing::Create, |hash: &mut tierce_keyspace::Editor<'_, Hash>| {
        let (value, deadline_ms) = match hash.get(&args[2], now_ms) {
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
        hash.put(&args[2], sum.as_bytes(), deadline_ms);
        Ok::<_, CommandError>(sum)
    })?;
    reply.bulk(sum.unwrap_or_default().as_bytes());
    Ok(())
}
