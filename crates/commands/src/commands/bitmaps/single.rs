//! SETBIT, GETBIT.

use tierce_keyspace::{Event, IntText};
use tierce_wire::number;

use super::{bit_offset, bits};
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, exactly};

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("setbit", Group::Bitmap, exactly!(set_bit))
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec::at(1, KeyFlags::READ_UPDATE)])
        .since("2.2.0", "O(1)")
        .doc(
            "key offset value",
            "Sets or clears a bit of a string, and returns what it was. The key is created if \
                 it does not exist.",
        )
        .example(
            r#"
            > SETBIT seen 7 1
            (integer) 0
            > SETBIT seen 7 0
            (integer) 1
            > GETBIT seen 7
            (integer) 0
            "#,
        ),
    Defined::new("getbit", Group::Bitmap, exactly!(get_bit))
        .flags(Flags::READONLY.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .since("2.2.0", "O(1)")
        .doc("key offset", "Returns a bit of a string.")
        .example(
            r#"
            > SETBIT seen 7 1
            (integer) 0
            > GETBIT seen 7
            (integer) 1
            > GETBIT seen 100
            (integer) 0
            "#,
        ),
];

fn set_bit(ctx: &mut Context<'_, '_>, [key, offset, value]: [&[u8]; 3]) -> Done {
    const BAD_BIT: CommandError = CommandError::new("ERR bit is not an integer or out of range");
    let bit = bit_offset(offset, ctx.kernel.keyspace.value_len_max())?;
    let on = match number::parse_i64(value) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(BAD_BIT),
    };
    let (mut db, key, reply) = ctx.open(key);
    let byte = match db.string_to_change(key)? {
        Some(value) => value.bytes(&mut IntText::new()).get((bit / 8) as usize).copied(),
        None => None,
    };
    let mask = bits::mask(bit);
    let was_on = byte.is_some_and(|byte| byte & mask != 0);
    if byte.is_none() || was_on != on {
        let byte = byte.unwrap_or(0);
        let changed = if on { byte | mask } else { byte & !mask };
        db.set_range(key, bit / 8, &[changed])?;
        db.event(Event::SetBit, key);
    }
    reply.int(was_on.into());
    Ok(())
}

fn get_bit(ctx: &mut Context<'_, '_>, [key, offset]: [&[u8]; 2]) -> Done {
    let bit = bit_offset(offset, ctx.kernel.keyspace.value_len_max())?;
    let (mut db, key, reply) = ctx.open(key);
    let is_set = match db.string(key)? {
        Some(value) => bits::is_set(value.bytes(&mut IntText::new()), bit),
        None => false,
    };
    reply.int(is_set.into());
    Ok(())
}
