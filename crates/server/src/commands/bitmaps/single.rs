//! SETBIT, GETBIT.

use tierce_keyspace::IntText;
use tierce_wire::number;
use tierce_wire::resp::Args;

use super::{bit_offset, bits};
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::error::CommandError;
use crate::execute::Context;

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("setbit", 4, Group::Bitmap, set_bit)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec::at(1, KeyFlags::READ_UPDATE)])
        .doc(
            "2.2.0",
            "O(1)",
            "key offset value",
            "Sets or clears a bit of a string, and returns what it was. The key is created if it does \
             not exist.",
        ),
    Spec::new("getbit", 3, Group::Bitmap, get_bit)
        .flags(Flags::READONLY.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .doc("2.2.0", "O(1)", "key offset", "Returns a bit of a string."),
];

type Done = Result<(), CommandError>;

fn set_bit(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    const BAD_BIT: CommandError = CommandError::new("ERR bit is not an integer or out of range");
    let bit = bit_offset(&args[2], ctx.server.keyspace.value_len_max())?;
    let on = match number::parse_i64(&args[3]) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(BAD_BIT),
    };
    let (mut db, key, reply) = ctx.open(args.at(1));
    let byte = match db.string(key)? {
        Some(value) => value.bytes(&mut IntText::new()).get((bit / 8) as usize).copied(),
        None => None,
    };
    let mask = bits::mask(bit);
    let was_on = byte.is_some_and(|byte| byte & mask != 0);
    if byte.is_none() || was_on != on {
        let byte = byte.unwrap_or(0);
        let changed = if on { byte | mask } else { byte & !mask };
        db.set_range(key, bit / 8, &[changed])?;
    }
    reply.int(was_on.into());
    Ok(())
}

fn get_bit(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let bit = bit_offset(&args[2], ctx.server.keyspace.value_len_max())?;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let is_set = match db.string(key)? {
        Some(value) => bits::is_set(value.bytes(&mut IntText::new()), bit),
        None => false,
    };
    reply.int(is_set.into());
    Ok(())
}
