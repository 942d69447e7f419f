//! APPEND and SETRANGE: changing a part of a string.

use tierce_keyspace::Expiry;
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::execute::Context;

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("append", 3, Group::String, append)
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags(&["RW", "insert"]))])
        .doc(
            "2.0.0",
            "O(1) amortized, for the space of a growing string doubles",
            "key value",
            "Appends a string to the value of a key. The key is created if it does not exist.",
        ),
    Spec::new("setrange", 4, Group::String, set_range)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
        .doc(
            "2.2.0",
            "O(M) with M being the length of the value argument",
            "key offset value",
            "Overwrites a part of a string value from an offset on. The key is created if it does \
             not exist.",
        ),
];

fn append(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    // Beside a value that came in a vector of its own, a second look for the key weighs nothing.
    let large = ctx.large.is_some().then(|| ctx.string_of(args.at(2)));
    let (mut db, key, reply) = ctx.open(args.at(1));
    let len = match large {
        Some(value) if db.string_len(key)?.is_none() => {
            db.set(key, value, Expiry::Never)?;
            args[2].len()
        }
        _ => db.append(key, &args[2])?,
    };
    reply.count(len);
    Ok(())
}

fn set_range(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let offset = integer(&args[2])?;
    let offset =
        u64::try_from(offset).map_err(|_| CommandError::new("ERR offset is out of range"))?;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let len = db.set_range(key, offset, &args[3])?;
    reply.count(len);
    Ok(())
}
