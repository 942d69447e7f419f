//! RENAME, RENAMENX, COPY, MOVE, SWAPDB: keys that change their name or database.

use tierce_keyspace::{DbIndex, Event, Removal};
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Scope, Weight};
use crate::commands::cursor::Options;
use crate::commands::options::{check_len, small_integer};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least, exactly};

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("rename", Group::Generic, exactly!(rename))
        .flags(Flags::WRITE.with(Flags::KEY_ONLY))
        .keys(&[KeySpec::at(1, KeyFlags::READ_REMOVE), KeySpec::at(2, KeyFlags::OVERWRITE)])
        .since("1.0.0", "O(1)")
        .doc("key newkey", "Renames a key and overwrites the destination.")
        .example(
            r#"
            > SET draft "A title"
            OK
            > RENAME draft article
            OK
            > GET article
            "A title"
            > RENAME draft article
            (error) ERR no such key
            "#,
        ),
    Defined::new("renamenx", Group::Generic, exactly!(rename_nx))
        .flags(Flags::WRITE.with(Flags::FAST).with(Flags::KEY_ONLY))
        .keys(&[KeySpec::at(1, KeyFlags::READ_REMOVE), KeySpec::at(2, KeyFlags::INSERT)])
        .since("1.0.0", "O(1)")
        .doc("key newkey", "Renames a key only if the target key is absent.")
        .example(
            r#"
            > MSET draft "A title" article "Another one"
            OK
            > RENAMENX draft article
            (integer) 0
            > RENAMENX draft article:2
            (integer) 1
            "#,
        ),
    Defined::new("copy", Group::Generic, at_least!(copy))
        .weighs(Weight::All)
        .locks(Scope::InTurns)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec::at(1, KeyFlags::READ), KeySpec::at(2, KeyFlags::OVERWRITE)])
        .since("6.2.0", "O(N) where N is the length of the value")
        .doc(
            "source destination [DB destination-db] [REPLACE]",
            "Copies the value of a key to a new key.",
        )
        .example(
            r#"
            > SET article "A title"
            OK
            > COPY article backup
            (integer) 1
            > COPY article backup
            (integer) 0
            > COPY article backup REPLACE
            (integer) 1
            > GET backup
            "A title"
            "#,
        ),
    Defined::new("move", Group::Generic, exactly!(move_key))
        .flags(Flags::WRITE.with(Flags::FAST).with(Flags::KEY_ONLY))
        .keys(&[KeySpec::at(1, KeyFlags::READ_UPDATE)])
        .since("1.0.0", "O(1)")
        .doc("key db", "Moves a key to another database.")
        .example(
            r#"
            > SET article "A title"
            OK
            > MOVE article 11
            (integer) 1
            > EXISTS article
            (integer) 0
            > SELECT 11
            OK
            > GET article
            "A title"
            "#,
        ),
    Defined::new("swapdb", Group::Server, exactly!(swap_db))
        .flags(Flags::WRITE.with(Flags::FAST))
        .categories(&["keyspace", "dangerous"])
        .locks(Scope::All)
        .since("4.0.0", "O(N) where N is the number of shards")
        .doc("index1 index2", "Swaps two databases.")
        .example(
            r#"
            > SELECT 12
            OK
            > SET article draft
            OK
            > SWAPDB 12 13
            OK
            > GET article
            (nil)
            > SELECT 13
            OK
            > GET article
            "draft"
            "#,
        ),
];

/// Policy for an existing destination key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Occupied {
    Replace,
    Refuse,
}

fn rename(ctx: &mut Context<'_, '_>, [key, newkey]: [&[u8]; 2]) -> Done {
    rename_key(ctx, [key, newkey], Occupied::Replace)?;
    ctx.reply.ok();
    Ok(())
}

fn rename_nx(ctx: &mut Context<'_, '_>, [key, newkey]: [&[u8]; 2]) -> Done {
    let renamed = rename_key(ctx, [key, newkey], Occupied::Refuse)?;
    ctx.reply.int(renamed.into());
    Ok(())
}

fn rename_key(
    ctx: &mut Context<'_, '_>,
    [key, newkey]: [&[u8]; 2],
    occupied: Occupied,
) -> Result<bool, CommandError> {
    let from = ctx.kernel.keyspace.key(key);
    let to = ctx.kernel.keyspace.key(newkey);
    check_len(to)?;
    let (db, now_ms) = (ctx.caller.db, ctx.now_ms);
    if ctx.guard.db(db, from.hash(), now_ms).peek(from).is_none() {
        return Err(CommandError::NO_SUCH_KEY);
    }
    if from.bytes() == to.bytes() {
        return Ok(occupied == Occupied::Replace);
    }
    if occupied == Occupied::Refuse && ctx.guard.db(db, to.hash(), now_ms).peek(to).is_some() {
        return Ok(false);
    }
    if let Some(entry) = ctx.guard.db(db, from.hash(), now_ms).take(from, Removal::Moved) {
        ctx.guard.db(db, to.hash(), now_ms).put(to, entry)?;
        ctx.guard.db(db, from.hash(), now_ms).event(Event::RenameFrom, from);
        ctx.guard.db(db, to.hash(), now_ms).event(Event::RenameTo, to);
    }
    Ok(true)
}

/// Destination options of COPY.
struct CopyOptions {
    db: DbIndex,
    occupied: Occupied,
}

impl CopyOptions {
    fn parse(ctx: &Context<'_, '_>, mut options: Options<'_>) -> Result<Self, CommandError> {
        let mut parsed = Self { db: ctx.caller.db, occupied: Occupied::Refuse };
        while let Some(word) = options.next_word() {
            match &*word {
                b"replace" => parsed.occupied = Occupied::Replace,
                b"db" => {
                    let index = small_integer(options.value()?)?;
                    parsed.db = ctx.kernel.database(index).ok_or(CommandError::DB_OUT_OF_RANGE)?;
                }
                _ => return Err(CommandError::SYNTAX),
            }
        }
        Ok(parsed)
    }
}

const SAME_OBJECT: CommandError =
    CommandError::new("ERR source and destination objects are the same");

fn copy(ctx: &mut Context<'_, '_>, [source, destination]: [&[u8]; 2], options: Rest<'_>) -> Done {
    let options = CopyOptions::parse(ctx, Options::of(options))?;
    let from = ctx.kernel.keyspace.key(source);
    let to = ctx.kernel.keyspace.key(destination);
    if from.bytes() == to.bytes() && options.db == ctx.caller.db {
        return Err(SAME_OBJECT);
    }
    check_len(to)?;
    ctx.duplicate(from, |ctx, copied| {
        ctx.guard.db(ctx.caller.db, from.hash(), ctx.now_ms).count_read(from, copied.is_some());
        let mut target = ctx.guard.db(options.db, to.hash(), ctx.now_ms);
        let done = match copied {
            None => false,
            Some(_) if options.occupied == Occupied::Refuse && target.peek(to).is_some() => false,
            Some(entry) => {
                target.put(to, entry)?;
                target.event(Event::CopyTo, to);
                true
            }
        };
        ctx.reply.int(done.into());
        Ok(())
    })
}

fn move_key(ctx: &mut Context<'_, '_>, [key, db]: [&[u8]; 2]) -> Done {
    let index = small_integer(db)?;
    let target_db = ctx.kernel.database(index).ok_or(CommandError::DB_OUT_OF_RANGE)?;
    let source_db = ctx.caller.db;
    if target_db == source_db {
        return Err(SAME_OBJECT);
    }
    let (mut db, key, reply) = ctx.open(key);
    db.switch(target_db);
    let occupied = db.peek(key).is_some();
    db.switch(source_db);
    let taken = if occupied { None } else { db.take(key, Removal::Moved) };
    let moved = taken.is_some();
    if let Some(taken) = taken {
        db.switch(target_db);
        db.put(key, taken)?;
        db.switch(source_db);
        db.event(Event::MoveFrom, key);
        db.switch(target_db);
        db.event(Event::MoveTo, key);
    }
    reply.int(moved.into());
    Ok(())
}

fn swap_db(ctx: &mut Context<'_, '_>, [index1, index2]: [&[u8]; 2]) -> Done {
    let index = |arg: &[u8], error| small_integer(arg).map_err(|_| CommandError::new(error));
    let a = index(index1, "ERR invalid first DB index")?;
    let b = index(index2, "ERR invalid second DB index")?;
    let a = ctx.kernel.database(a).ok_or(CommandError::DB_OUT_OF_RANGE)?;
    let b = ctx.kernel.database(b).ok_or(CommandError::DB_OUT_OF_RANGE)?;
    ctx.guard.swap(a, b, ctx.now_ms);
    ctx.reply.ok();
    Ok(())
}
