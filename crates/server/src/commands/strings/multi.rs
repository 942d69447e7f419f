//! MGET, MSET, MSETNX: several strings at once, all at the same moment.

use tierce_keyspace::{DbIndex, Expiry, Key};
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::check_len;
use crate::error::CommandError;
use crate::execute::{Context, Guard};

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("mget", -2, Group::String, mget)
        .tips(&["request_policy:multi_shard"])
        .flags(Flags::READONLY.with(Flags::FAST))
        .keys(&[KeySpec::all(1, KeyFlags::READ)])
        .doc(
            "1.0.0",
            "O(N) where N is the number of keys to retrieve",
            "key [key ...]",
            "Atomically returns the string values of one or more keys.",
        ),
    Spec::new("mset", -3, Group::String, mset)
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"])
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec::all(2, KeyFlags::OVERWRITE)])
        .doc(
            "1.0.1",
            "O(N) where N is the number of keys to set",
            "key value [key value ...]",
            "Atomically creates or modifies the string values of one or more keys.",
        ),
    Spec::new("msetnx", -3, Group::String, msetnx)
        .tips(&["request_policy:multi_shard", "response_policy:agg_min"])
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec::all(2, KeyFlags::INSERT)])
        .doc(
            "1.0.1",
            "O(N) where N is the number of keys to set",
            "key value [key value ...]",
            "Atomically sets the string values of one or more keys if none of them exists.",
        ),
];

type Done = Result<(), CommandError>;

fn mget(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let keys = ctx.keys(args.iter().skip(1));
    ctx.reply.array(keys.len());
    for key in keys {
        // A key of another type counts as absent here.
        let mut db = ctx.guard.db(ctx.session.db, key.hash(), ctx.now_ms);
        ctx.reply.value_or_null(db.string(key).ok().flatten());
        if ctx.reply.is_in_vain() {
            break;
        }
    }
    Ok(())
}

/// What MSET stores: keys and values, as many of each.
struct Pairs<'a> {
    keys: Vec<Key<'a>>,
    values: Vec<&'a [u8]>,
}

impl<'a> Pairs<'a> {
    fn parse(ctx: &Context<'_, '_>, args: Args<'a>) -> Result<Self, CommandError> {
        if args.len().is_multiple_of(2) {
            return Err(CommandError::arity(ctx.name()));
        }
        let keys = ctx.keys(args.iter().skip(1).step_by(2));
        let values = args.iter().skip(2).step_by(2).collect();
        // All or nothing: what could be refused later is refused now.
        keys.iter().try_for_each(|key| check_len(*key))?;
        Ok(Self { keys, values })
    }

    fn store(self, guard: &mut Guard<'_, '_>, db: DbIndex, now_ms: i64) -> Done {
        for (key, value) in self.keys.into_iter().zip(self.values) {
            guard.db(db, key.hash(), now_ms).set(key, value, Expiry::Never)?;
        }
        Ok(())
    }
}

fn mset(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let pairs = Pairs::parse(ctx, args)?;
    pairs.store(&mut ctx.guard, ctx.session.db, ctx.now_ms)?;
    ctx.reply.ok();
    Ok(())
}

fn msetnx(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let pairs = Pairs::parse(ctx, args)?;
    let (db, now_ms) = (ctx.session.db, ctx.now_ms);
    let occupied = pairs.keys.iter().any(|key| ctx.guard.db(db, key.hash(), now_ms).exists(*key));
    if !occupied {
        pairs.store(&mut ctx.guard, db, now_ms)?;
    }
    ctx.reply.int((!occupied).into());
    Ok(())
}
