//! HSET, HMSET, HSETNX, HDEL: setting fields and removing them.

use tierce_collections::Hash;
use tierce_keyspace::Missing;
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::error::CommandError;
use crate::execute::Context;

const STORE: Flags = Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST);

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("hset", -4, Group::Hash, hset)
        .flags(STORE)
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
        .element_at(2)
        .doc(
            "2.0.0",
            "O(N) where N is the number of field and value pairs",
            "key field value [field value ...]",
            "Creates or modifies the values of fields in a hash.",
        ),
    Spec::new("hmset", -4, Group::Hash, hmset)
        .deprecated("4.0.0", "`HSET` with multiple field-value pairs")
        .flags(STORE)
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
        .doc(
            "2.0.0",
            "O(N) where N is the number of field and value pairs",
            "key field value [field value ...]",
            "Sets the values of fields in a hash.",
        ),
    Spec::new("hsetnx", 4, Group::Hash, hsetnx)
        .flags(STORE)
        .keys(&[KeySpec::at(1, KeyFlags(&["RW", "insert"]))])
        .element_at(2)
        .doc(
            "2.0.0",
            "O(1)",
            "key field value",
            "Sets the value of a field in a hash only when the field does not exist.",
        ),
    Spec::new("hdel", -3, Group::Hash, hdel)
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags(&["RW", "delete"]))])
        .element_at(2)
        .doc(
            "2.0.0",
            "O(N) where N is the number of fields to be removed",
            "key field [field ...]",
            "Deletes fields and their values from a hash. Deletes the hash if no fields remain.",
        ),
];

type Done = Result<(), CommandError>;

fn hset(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let added = put_all(ctx, args)?;
    ctx.reply.count(added);
    Ok(())
}

fn hmset(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    put_all(ctx, args)?;
    ctx.reply.ok();
    Ok(())
}

/// Sets all fields and returns how many are new.
#[inline]
fn put_all(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Result<usize, CommandError> {
    if !args.len().is_multiple_of(2) {
        return Err(CommandError::arity(ctx.name()));
    }
    let now_ms = ctx.now_ms;
    let (mut db, key, _) = ctx.open(args.at(1));
    let added = db.edit::<Hash, _, CommandError>(key, Missing::Create, |hash| {
        let (mut added, mut at) = (0, 2);
        while at < args.len() {
            let former = hash.put(&args[at], &args[at + 1], None);
            added += usize::from(!former.was_live(now_ms));
            at += 2;
        }
        Ok(added)
    })?;
    Ok(added.unwrap_or(0))
}

fn hsetnx(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let added = db.edit::<Hash, _, CommandError>(key, Missing::Create, |hash| {
        let is_new = hash.get(&args[2], now_ms).is_none();
        if is_new {
            hash.put(&args[2], &args[3], None);
        }
        Ok(is_new)
    })?;
    reply.int((added == Some(true)).into());
    Ok(())
}

fn hdel(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let removed = db.edit::<Hash, _, CommandError>(key, Missing::Skip, |hash| {
        let names = args.iter().skip(2);
        Ok(names.filter(|name| hash.remove(name).was_live(now_ms)).count())
    })?;
    reply.count(removed.unwrap_or(0));
    Ok(())
}
