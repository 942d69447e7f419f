//! HGET and its relatives: reading fields.

use tierce_collections::Hash;
use tierce_collections::hash::FieldRef;
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::error::CommandError;
use crate::execute::Context;
use crate::reply::Reply;

const FAST: Flags = Flags::READONLY.with(Flags::FAST);
const ORDER: &[&str] = &["nondeterministic_output_order"];
const READ: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ)];
const LOOK: &[KeySpec] = &[KeySpec::at(1, KeyFlags::LOOK)];

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("hget", 3, Group::Hash, hget).flags(FAST).keys(READ).element_at(2).doc(
        "2.0.0",
        "O(1)",
        "key field",
        "Returns the value of a field in a hash.",
    ),
    Spec::new("hmget", -3, Group::Hash, hmget).flags(FAST).keys(READ).doc(
        "2.0.0",
        "O(N) where N is the number of fields being requested",
        "key field [field ...]",
        "Returns the values of all fields in a hash that are asked for.",
    ),
    Spec::new("hgetall", 2, Group::Hash, |ctx, args| all(ctx, args, Shown::Both))
        .flags(Flags::READONLY)
        .keys(READ)
        .tips(ORDER)
        .doc(
            "2.0.0",
            "O(N) where N is the size of the hash",
            "key",
            "Returns all fields and values in a hash.",
        ),
    Spec::new("hkeys", 2, Group::Hash, |ctx, args| all(ctx, args, Shown::Names))
        .flags(Flags::READONLY)
        .keys(READ)
        .tips(ORDER)
        .doc(
            "2.0.0",
            "O(N) where N is the size of the hash",
            "key",
            "Returns all fields in a hash.",
        ),
    Spec::new("hvals", 2, Group::Hash, |ctx, args| all(ctx, args, Shown::Values))
        .flags(Flags::READONLY)
        .keys(READ)
        .tips(ORDER)
        .doc(
            "2.0.0",
            "O(N) where N is the size of the hash",
            "key",
            "Returns all values in a hash.",
        ),
    Spec::new("hlen", 2, Group::Hash, hlen).flags(FAST).keys(LOOK).doc(
        "2.0.0",
        "O(1)",
        "key",
        "Returns the number of fields in a hash.",
    ),
    Spec::new("hexists", 3, Group::Hash, hexists).flags(FAST).keys(LOOK).element_at(2).doc(
        "2.0.0",
        "O(1)",
        "key field",
        "Determines whether a field exists in a hash.",
    ),
    Spec::new("hstrlen", 3, Group::Hash, hstrlen).flags(FAST).keys(LOOK).element_at(2).doc(
        "3.2.0",
        "O(1)",
        "key field",
        "Returns the length of the value of a field.",
    ),
];

type Done = Result<(), CommandError>;

fn hget(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let hash = db.collection::<Hash>(key)?;
    value_or_null(reply, hash.as_ref().and_then(|hash| hash.get(&args[2], now_ms)));
    Ok(())
}

fn hmget(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let hash = db.collection::<Hash>(key)?;
    reply.array(args.len() - 2);
    for name in args.iter().skip(2) {
        value_or_null(reply, hash.as_ref().and_then(|hash| hash.get(name, now_ms)));
    }
    Ok(())
}

fn value_or_null(reply: &mut Reply<'_>, field: Option<FieldRef<'_>>) {
    match field {
        Some(field) => reply.element(field.value),
        None => reply.null(),
    }
}

/// What is shown of each field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Names,
    Values,
    Both,
}

fn all(ctx: &mut Context<'_, '_>, args: Args<'_>, shown: Shown) -> Done {
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let hash = db.collection::<Hash>(key)?;
    let len = hash.as_ref().map_or(0, |hash| hash.live_len(now_ms));
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
    Ok(())
}

fn hlen(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let hash = db.collection::<Hash>(key)?;
    reply.count(hash.map_or(0, |hash| hash.live_len(now_ms)));
    Ok(())
}

fn hexists(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let hash = db.collection::<Hash>(key)?;
    reply.int(hash.is_some_and(|hash| hash.get(&args[2], now_ms).is_some()).into());
    Ok(())
}

fn hstrlen(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let hash = db.collection::<Hash>(key)?;
    let field = hash.as_ref().and_then(|hash| hash.get(&args[2], now_ms));
    reply.count(field.map_or(0, |field| field.value.len()));
    Ok(())
}
