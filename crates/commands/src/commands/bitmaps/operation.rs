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
        "<AND | OR | XOR | NOT> destkey key [key ...]",
        "Combines the bits of strings, stores the result, and returns its length in bytes.",
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
        "#,
    )];

/// Operation on the bits.
#[derive(Clone, Copy)]
enum Operation {
    Not,
    Combine(Combine),
}

impl Operation {
    fn parse(arg: &[u8], sources: usize) -> Result<Self, CommandError> {
        const NOT_ONE: CommandError =
            CommandError::new("ERR BITOP NOT must be called with a single source key.");
        match arg.to_ascii_lowercase().as_slice() {
            b"and" => Ok(Self::Combine(Combine::And)),
            b"or" => Ok(Self::Combine(Combine::Or)),
            b"xor" => Ok(Self::Combine(Combine::Xor)),
            b"not" if sources == 1 => Ok(Self::Not),
            b"not" => Err(NOT_ONE),
            _ => Err(CommandError::SYNTAX),
        }
    }

    fn run(self, values: &[Option<Value<'_>>]) -> Result<Vec<u8>, CommandError> {
        let mut result: Option<Vec<u8>> = None;
        for value in values {
            let mut text = IntText::new();
            let bytes = match value {
                None => &[],
                Some(Value::Str(value)) => value.bytes(&mut text),
                Some(Value::Collection(_)) => return Err(CommandError::WRONG_TYPE),
            };
            match (&mut result, self) {
                (None, _) => result = Some(bytes.to_vec()),
                (Some(result), Self::Combine(how)) => bits::combine(result, bytes, how),
                (Some(_), Self::Not) => {}
            }
        }
        let mut result = result.unwrap_or_default();
        if let Self::Not = self {
            result.iter_mut().for_each(|byte| *byte = !*byte);
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
