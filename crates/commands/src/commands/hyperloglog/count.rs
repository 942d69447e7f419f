//! PFADD, PFCOUNT, PFMERGE.

use tierce_collections::hyperloglog::{self, Encoding, HyperLogLog, REGISTERS, Registers};
use tierce_keyspace::{DbIndex, Event, Key};
use tierce_wire::resp::Rest;

use super::{copy, read, read_to_change, refused, sparse_len_max, store};
use crate::command::{Flags, Group, KeyFlags, KeySpec, Weight};
use crate::commands::options::check_len;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, Guard, at_least, many};

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("pfadd", Group::HyperLogLog, at_least!(pfadd))
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags(&["RW", "insert"]))])
        .since("2.8.9", "O(1) to add every element.")
        .doc(
            "key [element [element ...]]",
            "Adds elements to a HyperLogLog, and returns whether its estimate may have \
                 changed. The key is created if it does not exist.",
        )
        .example(
            r#"
            > PFADD visitors Ada Grace
            (integer) 1
            > PFADD visitors Ada
            (integer) 0
            "#,
        ),
    Defined::new("pfcount", Group::HyperLogLog, many!(pfcount))
        .weighs(Weight::All)
        .flags(Flags::READONLY.with(Flags::MAY_WRITE))
        .keys(&[KeySpec::all(1, KeyFlags(&["RW", "access"])).note(
            "RW because it may change the internal representation of the key, and propagate to \
             replicas",
        )])
        .since(
            "2.8.9",
            "O(1) with a very small average constant time when called with a single key. O(N) \
                 with N being the number of keys, and much bigger constant times, when called with \
                 multiple keys.",
        )
        .doc(
            "key [key ...]",
            "Returns about how many different elements were added to any of some \
                 HyperLogLogs.",
        )
        .example(
            r#"
            > PFADD monday Ada Grace
            (integer) 1
            > PFADD tuesday Grace Hedy
            (integer) 1
            > PFCOUNT monday
            (integer) 2
            > PFCOUNT monday tuesday
            (integer) 3
            "#,
        ),
    Defined::new("pfmerge", Group::HyperLogLog, at_least!(pfmerge))
        .weighs(Weight::All)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[
            KeySpec::at(1, KeyFlags(&["RW", "access", "insert"])),
            KeySpec { first: 2, ..KeySpec::all(1, KeyFlags::READ) },
        ])
        .since("2.8.9", "O(N) to merge N HyperLogLogs, but with high constant times.")
        .doc("destkey [sourcekey [sourcekey ...]]", "Merges HyperLogLogs into a single one.")
        .example(
            r#"
            > PFADD monday Ada Grace
            (integer) 1
            > PFADD tuesday Grace Hedy
            (integer) 1
            > PFMERGE both monday tuesday
            OK
            > PFCOUNT both
            (integer) 3
            "#,
        ),
];

fn pfadd(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], elements: Rest<'_>) -> Done {
    let sparse_len_max = sparse_len_max(&ctx.kernel.config.settings());
    let (mut db, key, reply) = ctx.open(key);
    // Once a counter has seen many elements, most new ones change nothing.
    let changes = read_to_change(&mut db, key, |bytes| {
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
    db.event(Event::PfAdd, key);
    reply.int(1);
    Ok(())
}

fn pfcount(ctx: &mut Context<'_, '_>, keys: Rest<'_, 1>) -> Done {
    let Some([key]) = keys.exactly() else { return count_all(ctx, keys) };
    let (mut db, key, reply) = ctx.open(key);
    let cached = read(&mut db, key, |bytes| Ok(hyperloglog::cached(bytes)))?;
    let count = match cached {
        None => 0,
        Some(Some(count)) => count,
        Some(None) => {
            let before = copy(&mut db, key)?.expect("it was there, and is locked");
            let mut counter = before.clone();
            let count = counter.count().map_err(refused)?;
            // The string caches the estimate.
            store(&mut db, key, Some(&before.into_bytes()), counter)?;
            db.event(Event::PfCount, key);
            count
        }
    };
    reply.int(count as i64);
    Ok(())
}

/// Returns the maximum of all registers of some counters, and whether one of them is dense.
fn united(
    guard: &mut Guard<'_, '_>,
    db: DbIndex,
    keys: &[Key<'_>],
    now_ms: i64,
) -> Result<(Box<Registers>, bool), CommandError> {
    let mut registers = Box::new([0; REGISTERS]);
    let mut has_dense = false;
    for key in keys {
        read(&mut guard.db(db, key.hash(), now_ms), *key, |bytes| {
            has_dense |= hyperloglog::encoding(bytes) == Encoding::Dense;
            hyperloglog::raise_all(bytes, &mut registers)
        })?;
    }
    Ok((registers, has_dense))
}

fn count_all(ctx: &mut Context<'_, '_>, keys: Rest<'_, 1>) -> Done {
    let keys = ctx.keys(keys.iter());
    let (registers, _) = united(&mut ctx.guard, ctx.caller.db, &keys, ctx.now_ms)?;
    ctx.reply.int(hyperloglog::count(&registers) as i64);
    Ok(())
}

fn pfmerge(ctx: &mut Context<'_, '_>, [destination]: [&[u8]; 1], sources: Rest<'_>) -> Done {
    let sparse_len_max = sparse_len_max(&ctx.kernel.config.settings());
    let target = ctx.kernel.keyspace.key(destination);
    check_len(target)?;
    // The current value of the destination is merged as well.
    let keys = ctx.keys(std::iter::once(destination).chain(sources.iter()));
    let (registers, has_dense) = united(&mut ctx.guard, ctx.caller.db, &keys, ctx.now_ms)?;
    let mut db = ctx.guard.db(ctx.caller.db, target.hash(), ctx.now_ms);
    let before = copy(&mut db, target)?;
    let mut counter = before.clone().unwrap_or_else(HyperLogLog::new);
    if has_dense {
        counter.make_dense().map_err(refused)?;
    }
    counter.merge(&registers, sparse_len_max).map_err(refused)?;
    store(&mut db, target, before.map(HyperLogLog::into_bytes).as_deref(), counter)?;
    db.touch_watchers(target);
    db.event(Event::PfAdd, target);
    ctx.reply.ok();
    Ok(())
}
