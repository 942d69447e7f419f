//! BITOP.

use std::sync::Arc;

use tierce_keyspace::{Event, Expiry, IntText, NewString, Value};
use tierce_wire::resp::Rest;

use super::bits::{self, Combine};
use crate::command::{Flags, Group, KeyFlags, KeySpec, Scope, Weight};
use crate::commands::options::check_len;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least};

pub(super) static COMMANDS: &[Defined] = &[Defined::new("bitop", Group::Bitmap, at_least!(bit_op))
    .weighs(Weight::All)
    .locks(Scope::InTurns)
    .flags(Flags::WRITE.with(Flags::DENYOOM))
    .keys(&[
        KeySpec::at(2, KeyFlags::OVERWRITE),
        KeySpec { first: 3, ..KeySpec::all(1, KeyFlags::READ) },
    ])
    .since("2.6.0", "O(N)")
    .doc(
        "<AND | OR | XOR | NOT | DIFF | DIFF1 | ANDOR | ONE> destkey key [key ...]",
        "Combines the bits of strings, stores the result, and returns its length in bytes. `DIFF` keeps the bits of \
         the first string that no other has, `DIFF1` those that only others have, `ANDOR` those that it shares with \
         others, and `ONE` those that exactly one string has.",
    )
    .example(
        r#"
        > SET key1 abc
        OK
        > SET key2 abd
        OK
        > BITOP AND both key1 key2
        (integer) 3
        > GET both
        "ab`"
        > BITOP NOT inverse key1
        (integer) 3
        > GET inverse
        "\x9e\x9d\x9c"
        > BITOP DIFF1 added key2 key1
        (integer) 3
        > GET added
        "\x00\x00\x03"
        "#,
    )];

/// Operation on the bits.
#[derive(Clone, Copy)]
enum Operation {
    Not,
    /// Combines the first string with each other one.
    Combine(Combine),
    /// Combines the union of the others with the first string.
    CombineUnion(Combine),
    /// Bits that exactly one string has.
    One,
}

impl Operation {
    fn parse(arg: &[u8], sources: usize) -> Result<Self, CommandError> {
        const NOT_ONE: CommandError =
            CommandError::new("ERR BITOP NOT must be called with a single source key.");
        let word = arg.to_ascii_lowercase();
        let operation = match word.as_slice() {
            b"and" => Self::Combine(Combine::And),
            b"or" => Self::Combine(Combine::Or),
            b"xor" => Self::Combine(Combine::Xor),
            b"not" => Self::Not,
            b"diff" => Self::Combine(Combine::AndNot),
            b"diff1" => Self::CombineUnion(Combine::AndNot),
            b"andor" => Self::CombineUnion(Combine::And),
            b"one" => Self::One,
            _ => return Err(CommandError::SYNTAX),
        };
        match operation {
            Self::Not if sources != 1 => Err(NOT_ONE),
            Self::CombineUnion(_) | Self::Combine(Combine::AndNot) if sources < 2 => {
                let name = String::from_utf8_lossy(&word).to_uppercase();
                let text =
                    format!("ERR BITOP {name} must be called with at least two source keys.");
                Err(CommandError::text(text))
            }
            _ => Ok(operation),
        }
    }

    fn run(self, values: &[Option<Value<'_>>]) -> Result<Vec<u8>, CommandError> {
        let mut result: Option<Vec<u8>> = None;
        let mut repeated = Vec::new();
        // The union of the others is complete when the first string comes.
        let skipped = usize::from(matches!(self, Self::CombineUnion(_)));
        let in_order = values.iter().cycle().skip(skipped).take(values.len());
        for (number, value) in in_order.enumerate() {
            let mut text = IntText::new();
            let bytes = match value {
                None => &[],
                Some(Value::Str(value)) => value.bytes(&mut text),
                Some(Value::Collection(_)) => return Err(CommandError::WRONG_TYPE),
            };
            let is_last = number + 1 == values.len();
            match (&mut result, self) {
                (None, _) => result = Some(bytes.to_vec()),
                (Some(result), Self::Combine(how)) => bits::combine(result, bytes, how),
                (Some(result), Self::CombineUnion(how)) => {
                    bits::combine(result, bytes, if is_last { how } else { Combine::Or });
                }
                (Some(result), Self::One) => bits::unite(result, &mut repeated, bytes),
                (Some(_), Self::Not) => {}
            }
        }
        let mut result = result.unwrap_or_default();
        match self {
            Self::Not => result.iter_mut().for_each(|byte| *byte = !*byte),
            Self::One => bits::combine(&mut result, &repeated, Combine::AndNot),
            Self::Combine(_) | Self::CombineUnion(_) => {}
        }
        Ok(result)
    }
}

fn bit_op(
    ctx: &mut Context<'_, '_>,
    [operation, destination]: [&[u8]; 2],
    keys: Rest<'_, 1>,
) -> Done {
    let operation = Operation::parse(operation, keys.len())?;
    let keys = ctx.keys(std::iter::once(destination).chain(keys.iter()));
    let [target, sources @ ..] = &keys[..] else { return Err(CommandError::SYNTAX) };
    check_len(*target)?;
    let make = |values: &[Option<Value<'_>>]| operation.run(values);
    ctx.compute(sources, make, |ctx, result| {
        let len = result.len();
        let mut db = ctx.guard.db(ctx.caller.db, target.hash(), ctx.now_ms);
        if result.is_empty() {
            if db.remove(*target) {
                db.event(Event::Del, *target);
            }
        } else {
            // A large result becomes the value without a copy.
            db.set(*target, NewString::computed(&Arc::new(result)), Expiry::Never)?;
            db.event(Event::Set, *target);
        }
        ctx.reply.count(len);
        Ok(())
    })
}
