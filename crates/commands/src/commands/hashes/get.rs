//! HGET and its relatives: reading fields.

use tierce_collections::Hash;
use tierce_collections::hash::FieldRef;
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Scope, Weight};
use crate::pipeline::{Context, Defined, Done, at_least, exactly};
use crate::reply::Reply;

const FAST: Flags = Flags::READONLY.with(Flags::FAST);
const ORDER: &[&str] = &["nondeterministic_output_order"];
const READ: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ)];
const LOOK: &[KeySpec] = &[KeySpec::at(1, KeyFlags::LOOK)];

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("hget", Group::Hash, exactly!(hget))
        .flags(FAST)
        .keys(READ)
        .element_at(2)
        .since("2.0.0", "O(1)")
        .doc("key field", "Returns the value of a field in a hash.")
        .example(
            r#"
            > HSET user:1 name Ada
            (integer) 1
            > HGET user:1 name
            "Ada"
            > HGET user:1 city
            (nil)
            "#,
        ),
    Defined::new("hmget", Group::Hash, at_least!(hmget))
        .flags(FAST)
        .keys(READ)
        .since("2.0.0", "O(N) where N is the number of fields being requested")
        .doc(
            "key field [field ...]",
            "Returns the values of all fields in a hash that are asked for.",
        )
        .example(
            r#"
            > HSET user:1 name Ada born 1815
            (integer) 2
            > HMGET user:1 name city born
            1) "Ada"
            2) (nil)
            3) "1815"
            "#,
        ),
    Defined::new("hgetall", Group::Hash, exactly!(|ctx, [key]| all(ctx, key, Shown::Both)))
        .weighs(Weight::All)
        .locks(Scope::InTurns)
        .flags(Flags::READONLY)
        .keys(READ)
        .tips(ORDER)
        .since("2.0.0", "O(N) where N is the size of the hash")
        .doc("key", "Returns all fields and values in a hash.")
        .example(
            r#"
            > HSET user:1 name Ada born 1815
            (integer) 2
            > HGETALL user:1
            1) "name"
            2) "Ada"
            3) "born"
            4) "1815"
            > HGETALL nosuch
            (empty array)
            "#,
        ),
    Defined::new("hkeys", Group::Hash, exactly!(|ctx, [key]| all(ctx, key, Shown::Names)))
        .weighs(Weight::All)
        .locks(Scope::InTurns)
        .flags(Flags::READONLY)
        .keys(READ)
        .tips(ORDER)
        .since("2.0.0", "O(N) where N is the size of the hash")
        .doc("key", "Returns all fields in a hash.")
        .example(
            r#"
            > HSET user:1 name Ada born 1815
            (integer) 2
            > HKEYS user:1
            1) "name"
            2) "born"
            "#,
        ),
    Defined::new("hvals", Group::Hash, exactly!(|ctx, [key]| all(ctx, key, Shown::Values)))
        .weighs(Weight::All)
        .locks(Scope::InTurns)
        .flags(Flags::READONLY)
        .keys(READ)
        .tips(ORDER)
        .since("2.0.0", "O(N) where N is the size of the hash")
        .doc("key", "Returns all values in a hash.")
        .example(
            r#"
            > HSET user:1 name Ada born 1815
            (integer) 2
            > HVALS user:1
            1) "Ada"
            2) "1815"
            "#,
        ),
    Defined::new("hlen", Group::Hash, exactly!(hlen))
        .flags(FAST)
        .keys(LOOK)
        .since("2.0.0", "O(1)")
        .doc("key", "Returns the number of fields in a hash.")
        .example(
            r#"
            > HSET user:1 name Ada born 1815
            (integer) 2
            > HLEN user:1
            (integer) 2
            "#,
        ),
    Defined::new("hexists", Group::Hash, exactly!(hexists))
        .flags(FAST)
        .keys(LOOK)
        .element_at(2)
        .since("2.0.0", "O(1)")
        .doc("key field", "Determines whether a field exists in a hash.")
        .example(
            r#"
            > HSET user:1 name Ada
            (integer) 1
            > HEXISTS user:1 name
            (integer) 1
            > HEXISTS user:1 city
            (integer) 0
            "#,
        ),
    Defined::new("hstrlen", Group::Hash, exactly!(hstrlen))
        .flags(FAST)
        .keys(LOOK)
        .element_at(2)
        .since("3.2.0", "O(1)")
        .doc("key field", "Returns the length of the value of a field.")
        .example(
            r#"
            > HSET user:1 name Ada
            (integer) 1
            > HSTRLEN user:1 name
            (integer) 3
            > HSTRLEN user:1 city
            (integer) 0
            "#,
        ),
];

fn hget(ctx: &mut Context<'_, '_>, [key, field]: [&[u8]; 2]) -> Done {
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(key);
    let hash = db.collection::<Hash>(key)?;
    value_or_null(reply, hash.as_ref().and_then(|hash| hash.get(field, now_ms)));
    Ok(())
}

fn hmget(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], fields: Rest<'_, 1>) -> Done {
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(key);
    let hash = db.collection::<Hash>(key)?;
    reply.array(fields.len());
    for name in fields.iter() {
        value_or_null(reply, hash.as_ref().and_then(|hash| hash.get(name, now_ms)));
    }
    Ok(())
}

/// Replies with the value of a field.
pub(super) fn value_or_null(reply: &mut Reply<'_>, field: Option<FieldRef<'_>>) {
    match field {
        Some(field) => reply.element(field.value),
        None => reply.null(),
    }
}

/// Parts of each field in the reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Names,
    Values,
    Both,
}

fn all(ctx: &mut Context<'_, '_>, key: &[u8], shown: Shown) -> Done {
    let now_ms = ctx.now_ms;
    ctx.read_collection(key, |hash: Option<&Hash>, reply| {
        let len = hash.map_or(0, |hash| hash.live_len(now_ms));
        match shown {
            Shown::Both => reply.map(len),
            Shown::Names | Shown::Values => reply.array(len),
        }
        for field in hash.iter().flat_map(|hash| hash.live(now_ms)) {
            if shown != Shown::Values {
                reply.element(field.name);
            }
            if shown != Shown::Names {
                reply.element(field.value);
            }
        }
    })
}

fn hlen(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1]) -> Done {
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(key);
    let hash = db.collection::<Hash>(key)?;
    reply.count(hash.map_or(0, |hash| hash.live_len(now_ms)));
    Ok(())
}

fn hexists(ctx: &mut Context<'_, '_>, [key, field]: [&[u8]; 2]) -> Done {
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(key);
    let hash = db.collection::<Hash>(key)?;
    reply.int(hash.is_some_and(|hash| hash.get(field, now_ms).is_some()).into());
    Ok(())
}

fn hstrlen(ctx: &mut Context<'_, '_>, [key, field]: [&[u8]; 2]) -> Done {
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(key);
    let hash = db.collection::<Hash>(key)?;
    let field = hash.as_ref().and_then(|hash| hash.get(field, now_ms));
    reply.count(field.map_or(0, |field| field.value.len()));
    Ok(())
}
