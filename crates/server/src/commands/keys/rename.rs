//! RENAME, RENAMENX, COPY, MOVE, SWAPDB: keys that change their name or place.

use tierce_keyspace::{DbIndex, Removal};
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Scope, Spec};
use crate::commands::options::{check_len, small_integer};
use crate::error::CommandError;
use crate::execute::Context;

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("rename", 3, Group::Generic, rename)
        .flags(Flags::WRITE.with(Flags::KEY_ONLY))
        .keys(&[KeySpec::at(1, KeyFlags::READ_REMOVE), KeySpec::at(2, KeyFlags::OVERWRITE)])
        .doc("1.0.0", "O(1)", "key newkey", "Renames a key and overwrites the destination."),
    Spec::new("renamenx", 3, Group::Generic, rename_nx)
        .flags(Flags::WRITE.with(Flags::FAST).with(Flags::KEY_ONLY))
        .keys(&[KeySpec::at(1, KeyFlags::READ_REMOVE), KeySpec::at(2, KeyFlags::INSERT)])
        .doc("1.0.0", "O(1)", "key newkey", "Renames a key only if the target key is absent."),
    Spec::new("copy", -3, Group::Generic, copy)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec::at(1, KeyFlags::READ), KeySpec::at(2, KeyFlags::OVERWRITE)])
        .doc(
            "6.2.0",
            "O(N) where N is the length of the value",
            "source destination [DB destination-db] [REPLACE]",
            "Copies the value of a key to a new key.",
        ),
    Spec::new("move", 3, Group::Generic, move_key)
        .flags(Flags::WRITE.with(Flags::FAST).with(Flags::KEY_ONLY))
        .keys(&[KeySpec::at(1, KeyFlags::READ_UPDATE)])
        .doc("1.0.0", "O(1)", "key db", "Moves a key to another database."),
    Spec::new("swapdb", 3, Group::Server, swap_db)
        .flags(Flags::WRITE.with(Flags::FAST))
        .categories(&["keyspace", "dangerous"])
        .locks(Scope::All)
        .doc(
            "4.0.0",
            "O(N) where N is the number of shards",
            "index1 index2",
            "Swaps two databases.",
        ),
];

type Done = Result<(), CommandError>;

/// What happens to a key that is in the way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Occupied {
    Replace,
    Refuse,
}

fn rename(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    rename_key(ctx, args, Occupied::Replace)?;
    ctx.reply.ok();
    Ok(())
}

fn rename_nx(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let renamed = rename_key(ctx, args, Occupied::Refuse)?;
    ctx.reply.int(renamed.into());
    Ok(())
}

fn rename_key(
    ctx: &mut Context<'_, '_>,
    args: Args<'_>,
    occupied: Occupied,
) -> Result<bool, CommandError> {
    let from = ctx.server.keyspace.key(args.at(1));
    let to = ctx.server.keyspace.key(args.at(2));
    check_len(to)?;
    let (db, now_ms) = (ctx.session.db, ctx.now_ms);
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
    }
    Ok(true)
}

/// Where COPY puts its copy.
struct CopyOptions {
    db: DbIndex,
    occupied: Occupied,
}

impl CopyOptions {
    fn parse(ctx: &Context<'_, '_>, options: Args<'_>) -> Result<Self, CommandError> {
        let mut parsed = Self { db: ctx.session.db, occupied: Occupied::Refuse };
        let mut at = 0;
        while at < options.len() {
            if options[at].eq_ignore_ascii_case(b"replace") {
                parsed.occupied = Occupied::Replace;
            } else if options[at].eq_ignore_ascii_case(b"db") && at + 1 < options.len() {
                at += 1;
                let index = small_integer(&options[at])?;
                parsed.db = ctx.server.database(index).ok_or(CommandError::DB_OUT_OF_RANGE)?;
            } else {
                return Err(CommandError::SYNTAX);
            }
            at += 1;
        }
        Ok(parsed)
    }
}

const SAME_OBJECT: CommandError =
    CommandError::new("ERR source and destination objects are the same");

fn copy(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let options = CopyOptions::parse(ctx, args.from(3))?;
    let from = ctx.server.keyspace.key(args.at(1));
    let to = ctx.server.keyspace.key(args.at(2));
    let (db, now_ms) = (ctx.session.db, ctx.now_ms);
    if from.bytes() == to.bytes() && options.db == db {
        return Err(SAME_OBJECT);
    }
    check_len(to)?;
    let copied = ctx.guard.db(db, from.hash(), now_ms).duplicate(from)?;
    let mut target = ctx.guard.db(options.db, to.hash(), now_ms);
    let done = match copied {
        None => false,
        Some(_) if options.occupied == Occupied::Refuse && target.peek(to).is_some() => false,
        Some(entry) => {
            target.put(to, entry)?;
            true
        }
    };
    ctx.reply.int(done.into());
    Ok(())
}

fn move_key(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let index = small_integer(&args[2])?;
    let target_db = ctx.server.database(index).ok_or(CommandError::DB_OUT_OF_RANGE)?;
    let source_db = ctx.session.db;
    if target_db == source_db {
        return Err(SAME_OBJECT);
    }
    let (mut db, key, reply) = ctx.open(args.at(1));
    db.switch(target_db);
    let occupied = db.peek(key).is_some();
    db.switch(source_db);
    let taken = if occupied { None } else { db.take(key, Removal::Moved) };
    let moved = taken.is_some();
    if let Some(taken) = taken {
        db.switch(target_db);
        db.put(key, taken)?;
    }
    reply.int(moved.into());
    Ok(())
}

fn swap_db(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let index = |arg: &[u8], error| small_integer(arg).map_err(|_| CommandError::new(error));
    let a = index(&args[1], "ERR invalid first DB index")?;
    let b = index(&args[2], "ERR invalid second DB index")?;
    let a = ctx.server.database(a).ok_or(CommandError::DB_OUT_OF_RANGE)?;
    let b = ctx.server.database(b).ok_or(CommandError::DB_OUT_OF_RANGE)?;
    ctx.guard.swap(a, b);
    ctx.reply.ok();
    Ok(())
}
