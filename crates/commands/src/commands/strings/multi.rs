//! MGET, MSET, MSETNX: several strings at once, atomically.

use tierce_keyspace::{DbIndex, Event, Expiry, Key};
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::options::check_len;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, Guard, many};

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("mget", Group::String, many!(mget))
        .tips(&["request_policy:multi_shard"])
        .flags(Flags::READONLY.with(Flags::FAST))
        .keys(&[KeySpec::all(1, KeyFlags::READ)])
        .since("1.0.0", "O(N) where N is the number of keys to retrieve")
        .doc("key [key ...]", "Atomically returns the string values of one or more keys.")
        .example(
            r#"
            > MSET user:1 Ada user:2 Grace
            OK
            > MGET user:1 user:2 user:3
            1) "Ada"
            2) "Grace"
            3) (nil)
            "#,
        ),
    Defined::new("mset", Group::String, many!(mset))
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"])
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec::all(2, KeyFlags::OVERWRITE)])
        .since("1.0.1", "O(N) where N is the number of keys to set")
        .doc(
            "key value [key value ...]",
            "Atomically creates or modifies the string values of one or more keys.",
        )
        .example(
            r#"
            > MSET user:1 Ada user:2 Grace
            OK
            > GET user:2
            "Grace"
            "#,
        ),
    Defined::new("msetnx", Group::String, many!(msetnx))
        .tips(&["request_policy:multi_shard", "response_policy:agg_min"])
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec::all(2, KeyFlags::INSERT)])
        .since("1.0.1", "O(N) where N is the number of keys to set")
        .doc(
            "key value [key value ...]",
            "Atomically sets the string values of one or more keys if none of them exists.",
        )
        .example(
            r#"
            > MSETNX user:1 Ada user:2 Grace
            (integer) 1
            > MSETNX user:2 Katherine user:3 Hedy
            (integer) 0
            > MGET user:2 user:3
            1) "Grace"
            2) (nil)
            "#,
        ),
];

fn mget(ctx: &mut Context<'_, '_>, keys: Rest<'_, 1>) -> Done {
    ctx.reply.array(keys.len());
    for (number, key) in keys.iter().enumerate() {
        let key = ctx.key(number, key);
        // A key of another type counts as absent here.
        let mut db = ctx.guard.db(ctx.caller.db, key.hash(), ctx.now_ms);
        ctx.reply.value_or_null(db.string(key).ok().flatten());
        if ctx.reply.is_in_vain() {
            break;
        }
    }
    Ok(())
}

/// Arguments of MSET: keys, and all arguments, in which each key is followed by its value.
struct Pairs<'a> {
    keys: Vec<Key<'a>>,
    args: Rest<'a, 2>,
}

impl<'a> Pairs<'a> {
    fn parse(ctx: &Context<'_, '_>, args: Rest<'a, 2>) -> Result<Self, CommandError> {
        let Some(pairs) = args.groups() else { return Err(CommandError::arity(ctx.name())) };
        let keys = ctx.keys(pairs.map(|[key, _]| key));
        // All or nothing: reasons to refuse are checked before the first change.
        keys.iter().try_for_each(|key| check_len(*key))?;
        Ok(Self { keys, args })
    }

    fn store(self, guard: &mut Guard<'_, '_>, db: DbIndex, now_ms: i64) -> Done {
        let values = self.args.groups().into_iter().flatten().map(|[_, value]| value);
        for (key, value) in self.keys.into_iter().zip(values) {
            let mut db = guard.db(db, key.hash(), now_ms);
            db.set(key, value, Expiry::Never)?;
            db.event(Event::Set, key);
        }
        Ok(())
    }
}

fn mset(ctx: &mut Context<'_, '_>, pairs: Rest<'_, 2>) -> Done {
    let pairs = Pairs::parse(ctx, pairs)?;
    pairs.store(&mut ctx.guard, ctx.caller.db, ctx.now_ms)?;
    ctx.reply.ok();
    Ok(())
}

fn msetnx(ctx: &mut Context<'_, '_>, pairs: Rest<'_, 2>) -> Done {
    let pairs = Pairs::parse(ctx, pairs)?;
    let (db, now_ms) = (ctx.caller.db, ctx.now_ms);
    let occupied =
        pairs.keys.iter().any(|key| ctx.guard.db(db, key.hash(), now_ms).peek(*key).is_some());
    if !occupied {
        pairs.store(&mut ctx.guard, db, now_ms)?;
    }
    ctx.reply.int((!occupied).into());
    Ok(())
}
