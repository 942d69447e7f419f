//! BITOP.

use std::sync::Arc;

use tierce_keyspace::{Expiry, IntText, NewString};
use tierce_wire::resp::Args;

use super::bits::{self, Combine};
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::check_len;
use crate::error::CommandError;
use crate::execute::Context;

pub(super) static COMMANDS: &[Spec] = &[Spec::new("bitop", -4, Group::Bitmap, bit_op)
    .flags(Flags::WRITE.with(Flags::DENYOOM))
    .keys(&[
        KeySpec::at(2, KeyFlags::OVERWRITE),
        KeySpec { first: 3, ..KeySpec::all(1, KeyFlags::READ) },
    ])
    .doc(
        "2.6.0",
        "O(N)",
        "<AND | OR | XOR | NOT> destkey key [key ...]",
        "Combines the bits of strings, stores the result, and returns its length in bytes.",
    )];

/// What is done with the bits.
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
}

fn bit_op(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let operation = Operation::parse(&args[1], args.len() - 3)?;
    let keys = ctx.keys(args.iter().skip(2));
    let (target, sources) = (keys[0], &keys[1..]);
    check_len(target)?;
    let mut result: Option<Vec<u8>> = None;
    for key in sources {
        let mut db = ctx.guard.db(ctx.session.db, key.hash(), ctx.now_ms);
        let value = db.string(*key)?;
        let mut text = IntText::new();
        let bytes = value.as_ref().map_or(&b""[..], |value| value.bytes(&mut text));
        match (&mut result, operation) {
            (None, _) => result = Some(bytes.to_vec()),
            (Some(result), Operation::Combine(how)) => bits::combine(result, bytes, how),
            (Some(_), Operation::Not) => {}
        }
    }
    let mut result = result.unwrap_or_default();
    if let Operation::Not = operation {
        result.iter_mut().for_each(|byte| *byte = !*byte);
    }
    let len = result.len();
    let mut db = ctx.guard.db(ctx.session.db, target.hash(), ctx.now_ms);
    if result.is_empty() {
        db.remove(target);
    } else {
        // A large one becomes the value as it is.
        db.set(target, NewString::computed(&Arc::new(result)), Expiry::Never)?;
    }
    ctx.reply.count(len);
    Ok(())
}
