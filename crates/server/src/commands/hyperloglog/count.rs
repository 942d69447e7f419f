//! PFADD, PFCOUNT, PFMERGE.

use tierce_collections::hyperloglog::{self, Encoding, HyperLogLog, REGISTERS, Registers};
use tierce_keyspace::{DbIndex, Key};
use tierce_wire::resp::Args;

use super::{copy, look, refused, sparse_len_max, store};
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::check_len;
use crate::error::CommandError;
use crate::execute::{Context, Guard};

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("pfadd", -2, Group::HyperLogLog, pfadd)
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags(&["RW", "insert"]))])
        .doc(
            "2.8.9",
            "O(1) to add every element.",
            "key [element [element ...]]",
            "Adds elements to a HyperLogLog, and returns whether its estimate may have changed. The \
             key is created if it does not exist.",
        ),
    Spec::new("pfcount", -2, Group::HyperLogLog, pfcount)
        .flags(Flags::READONLY)
        .keys(&[KeySpec::all(1, KeyFlags(&["RW", "access"])).note(
            "RW because it may change the internal representation of the key, and propagate to \
             replicas",
        )])
        .doc(
            "2.8.9",
            "O(1) with a very small average constant time when called with a single key. O(N) with N \
             being the number of keys, and much bigger constant times, when called with multiple keys.",
            "key [key ...]",
            "Returns about how many different elements were added to any of some HyperLogLogs.",
        ),
    Spec::new("pfmerge", -2, Group::HyperLogLog, pfmerge)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[
            KeySpec::at(1, KeyFlags(&["RW", "access", "insert"])),
            KeySpec { first: 2, ..KeySpec::all(1, KeyFlags::READ) },
        ])
        .doc(
            "2.8.9",
            "O(N) to merge N HyperLogLogs, but with high constant times.",
            "destkey [sourcekey [sourcekey ...]]",
            "Merges HyperLogLogs into a single one.",
        ),
];

type Done = Result<(), CommandError>;

fn pfadd(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let sparse_len_max = sparse_len_max(&ctx.server.config.settings());
    let (mut db, key, reply) = ctx.open(args.at(1));
    let elements = args.from(2);
    // Most elements change nothing, once a counter has seen many.
    let changes = look(&mut db, key, |bytes| {
        for element in elements.iter() {
            if hyperloglog::would_change(bytes, element)? {
                return Ok(true);
            }
        }
        Ok(false)
    })?;
    if changes == Some(false) {
        reply.int(0);
        return Ok(());
    }
    let before = copy(&mut db, key)?;
    let mut counter = before.clone().unwrap_or_else(HyperLogLog::new);
    for element in elements.iter() {
        counter.add(element, sparse_len_max).map_err(refused)?;
    }
    counter.invalidate();
    store(&mut db, key, before.map(HyperLogLog::into_bytes).as_deref(), counter)?;
    reply.int(1);
    Ok(())
}

fn pfcount(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if args.len() > 2 {
        return count_all(ctx, args);
    }
    let (mut db, key, reply) = ctx.open(args.at(1));
    let cached = look(&mut db, key, |bytes| Ok(hyperloglog::cached(bytes)))?;
    let count = match cached {
        None => 0,
        Some(Some(count)) => count,
        Some(None) => {
            let before = copy(&mut db, key)?.expect("it was there, and is locked");
            let mut counter = before.clone();
            let count = counter.count().map_err(refused)?;
            // The estimate is kept in the string.
            store(&mut db, key, Some(&before.into_bytes()), counter)?;
            count
        }
    };
    reply.int(count as i64);
    Ok(())
}

/// All registers of some counters, each the highest, and whether one of them is dense.
fn united(
    guard: &mut Guard<'_, '_>,
    db: DbIndex,
    keys: &[Key<'_>],
    now_ms: i64,
) -> Result<(Box<Registers>, bool), CommandError> {
    let mut registers = Box::new([0; REGISTERS]);
    let mut has_dense = false;
    for key in keys {
        look(&mut guard.db(db, key.hash(), now_ms), *key, |bytes| {
            has_dense |= hyperloglog::encoding(bytes) == Encoding::Dense;
            hyperloglog::raise_all(bytes, &mut registers)
        })?;
    }
    Ok((registers, has_dense))
}

fn count_all(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let keys = ctx.keys(args.iter().skip(1));
    let (registers, _) = united(&mut ctx.guard, ctx.session.db, &keys, ctx.now_ms)?;
    ctx.reply.int(hyperloglog::count(&registers) as i64);
    Ok(())
}

fn pfmerge(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let sparse_len_max = sparse_len_max(&ctx.server.config.settings());
    let keys = ctx.keys(args.iter().skip(1));
    check_len(keys[0])?;
    let (registers, has_dense) = united(&mut ctx.guard, ctx.session.db, &keys, ctx.now_ms)?;
    let mut db = ctx.guard.db(ctx.session.db, keys[0].hash(), ctx.now_ms);
    let before = copy(&mut db, keys[0])?;
    let mut counter = before.clone().unwrap_or_else(HyperLogLog::new);
    if has_dense {
        counter.make_dense().map_err(refused)?;
    }
    counter.merge(&registers, sparse_len_max).map_err(refused)?;
    store(&mut db, keys[0], before.map(HyperLogLog::into_bytes).as_deref(), counter)?;
    ctx.reply.ok();
    Ok(())
}
