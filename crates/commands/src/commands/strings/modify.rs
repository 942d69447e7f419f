//! APPEND and SETRANGE: changing a part of a string.

use tierce_keyspace::{Event, Expiry};
use tierce_replication::note;

use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, exactly};

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("append", Group::String, exactly!(append))
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags(&["RW", "insert"]))])
        .since("2.0.0", "O(1) amortized, for the space of a growing string doubles")
        .doc(
            "key value",
            "Appends a string to the value of a key. The key is created if it does not exist.",
        )
        .example(
            r#"
            > APPEND log "first line;"
            (integer) 11
            > APPEND log "second line;"
            (integer) 23
            > GET log
            "first line;second line;"
            "#,
        ),
    Defined::new("setrange", Group::String, exactly!(set_range))
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
        .since("2.2.0", "O(M) with M being the length of the value argument")
        .doc(
            "key offset value",
            "Overwrites a part of a string value from an offset on. The key is created if it does \
             not exist.",
        )
        .example(
            r#"
            > SET greeting "Hello, world"
            OK
            > SETRANGE greeting 7 Redis
            (integer) 12
            > GET greeting
            "Hello, Redis"
            > SETRANGE padded 3 end
            (integer) 6
            > GET padded
            "\x00\x00\x00end"
            "#,
        ),
];

fn append(ctx: &mut Context<'_, '_>, [key, value]: [&[u8]; 2]) -> Done {
    // Compared with a value in its own vector, a second lookup of the key costs nothing.
    let large = ctx.large.is_some().then(|| ctx.string_of(value));
    let (mut db, key, reply) = ctx.open(key);
    let len = match large {
        Some(large) if db.string_len(key)?.is_none() => {
            db.set(key, large, Expiry::Never)?;
            value.len()
        }
        _ => db.append(key, value)?,
    };
    db.event(Event::Append, key);
    reply.count(len);
    Ok(())
}

fn set_range(ctx: &mut Context<'_, '_>, [key, offset, value]: [&[u8]; 3]) -> Done {
    let offset = integer(offset)?;
    let offset =
        u64::try_from(offset).map_err(|_| CommandError::new("ERR offset is out of range"))?;
    // From a client, such an offset has no special meaning.
    let note = match value.is_empty() && ctx.caller.is_primary() {
        true => note::decode(offset),
        false => None,
    };
    let (mut db, key, reply) = ctx.open(key);
    if let Some((flags, marks)) = note {
        // If the key is not an item, nothing is recorded; nobody reads the reply.
        db.set_note(key, flags, marks);
        reply.count(0);
        return Ok(());
    }
    let len = db.set_range(key, offset, value)?;
    if !value.is_empty() {
        db.event(Event::SetRange, key);
    }
    reply.count(len);
    Ok(())
}
