//! HSET, HMSET, HSETNX, HDEL: setting fields and removing them.

use tierce_collections::Hash;
use tierce_collections::hash::Former;
use tierce_keyspace::{Event, Missing};
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least, exactly};

const STORE: Flags = Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST);

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("hset", Group::Hash, at_least!(hset))
        .flags(STORE)
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
        .element_at(2)
        .since("2.0.0", "O(N) where N is the number of field and value pairs")
        .doc(
            "key field value [field value ...]",
            "Creates or modifies the values of fields in a hash.",
        )
        .example(
            r#"
            > HSET user:1 name Ada born 1815
            (integer) 2
            > HSET user:1 name "Ada Lovelace" city London
            (integer) 1
            > HGETALL user:1
            1) "name"
            2) "Ada Lovelace"
            3) "born"
            4) "1815"
            5) "city"
            6) "London"
            "#,
        ),
    Defined::new("hmset", Group::Hash, at_least!(hmset))
        .deprecated("4.0.0", "`HSET` with multiple field-value pairs")
        .flags(STORE)
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
        .since("2.0.0", "O(N) where N is the number of field and value pairs")
        .doc("key field value [field value ...]", "Sets the values of fields in a hash.")
        .example(
            r#"
            > HMSET user:1 name Ada born 1815
            OK
            > HGET user:1 born
            "1815"
            "#,
        ),
    Defined::new("hsetnx", Group::Hash, exactly!(hsetnx))
        .flags(STORE)
        .keys(&[KeySpec::at(1, KeyFlags(&["RW", "insert"]))])
        .element_at(2)
        .since("2.0.0", "O(1)")
        .doc(
            "key field value",
            "Sets the value of a field in a hash only when the field does not exist.",
        )
        .example(
            r#"
            > HSETNX user:1 name Ada
            (integer) 1
            > HSETNX user:1 name Grace
            (integer) 0
            > HGET user:1 name
            "Ada"
            "#,
        ),
    Defined::new("hdel", Group::Hash, at_least!(hdel))
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags(&["RW", "delete"]))])
        .element_at(2)
        .since("2.0.0", "O(N) where N is the number of fields to be removed")
        .doc(
            "key field [field ...]",
            "Deletes fields and their values from a hash. Deletes the hash if no fields remain.",
        )
        .example(
            r#"
            > HSET user:1 name Ada born 1815
            (integer) 2
            > HDEL user:1 born city
            (integer) 1
            > HGETALL user:1
            1) "name"
            2) "Ada"
            "#,
        ),
];

fn hset(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], pairs: Rest<'_, 2>) -> Done {
    let added = put_all(ctx, key, pairs)?;
    ctx.reply.count(added);
    Ok(())
}

fn hmset(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], pairs: Rest<'_, 2>) -> Done {
    put_all(ctx, key, pairs)?;
    ctx.reply.ok();
    Ok(())
}

/// Sets all fields and returns how many are new.
#[inline]
fn put_all(
    ctx: &mut Context<'_, '_>,
    key: &[u8],
    pairs: Rest<'_, 2>,
) -> Result<usize, CommandError> {
    let Some(pairs) = pairs.groups() else { return Err(CommandError::arity(ctx.name())) };
    let now_ms = ctx.now_ms;
    let (mut db, key, _) = ctx.open(key);
    let added = db.edit::<Hash, _, CommandError>(key, Missing::Create, |hash| {
        let mut added = 0;
        for [name, value] in pairs {
            let former = hash.put(name, value, None);
            added += usize::from(!former.was_live(now_ms));
        }
        Ok(added)
    })?;
    db.event(Event::HSet, key);
    Ok(added.unwrap_or(0))
}

fn hsetnx(ctx: &mut Context<'_, '_>, [key, field, value]: [&[u8]; 3]) -> Done {
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(key);
    let added = db.edit::<Hash, _, CommandError>(key, Missing::Create, |hash| {
        let is_new = hash.get(field, now_ms).is_none();
        if is_new {
            hash.put(field, value, None);
        }
        Ok(is_new)
    })?;
    if added == Some(true) {
        db.event(Event::HSet, key);
    }
    reply.int((added == Some(true)).into());
    Ok(())
}

fn hdel(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], fields: Rest<'_, 1>) -> Done {
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(key);
    let removed = db.edit::<Hash, _, CommandError>(key, Missing::Skip, |hash| {
        // An expired field counts as absent: removing it would be a change to clients that watch the key.
        let may_be_due = hash.next_deadline_ms().is_some_and(|at| at <= now_ms);
        let mut deleted = 0;
        for name in fields.iter() {
            if !(may_be_due && hash.get(name, now_ms).is_none()) {
                deleted += usize::from(hash.remove(name) != Former::Absent);
            }
        }
        Ok(deleted)
    })?;
    let deleted = removed.unwrap_or(0);
    if deleted > 0 {
        db.event_of_edit(Event::HDel, key);
    }
    reply.count(deleted);
    Ok(())
}
