//! MGET, MSET, MSETNX, MSETEX: several strings at once, atomically.

use tierce_keyspace::{DbIndex, Expiry, Key};
use tierce_wire::resp::Rest;

use super::set::{Condition, SetOptions};
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::{check_len, count_from};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, Guard, at_least, many};

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
    Defined::new("msetex", Group::String, at_least!(msetex))
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"])
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec { step: 2, ..KeySpec::counted(1, KeyFlags::OVERWRITE) }])
        .since("8.4.0", "O(N) where N is the number of keys to set")
        .doc(
            "numkeys key value [key value ...] [NX | XX] [EX seconds | PX milliseconds | \
             EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
            "Atomically sets the string values of one or more keys, and their expiration times.",
        )
        .example(
            r#"
            > MSETEX 2 session:1 Ada session:2 Grace EX 3600
            (integer) 1
            > TTL session:2
            (integer) 3...
            > MSETEX 2 session:2 Grace session:3 Hedy XX
            (integer) 0
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
    args: Rest<'a>,
}

impl<'a> Pairs<'a> {
    fn parse(ctx: &Context<'_, '_>, args: Rest<'a>) -> Result<Self, CommandError> {
        let Some(pairs) = args.groups() else { return Err(CommandError::arity(ctx.name())) };
        let keys = ctx.keys(pairs.map(|[key, _]| key));
        // All or nothing: reasons to refuse are checked before the first change.
        keys.iter().try_for_each(|key| check_len(*key))?;
        Ok(Self { keys, args })
    }

    /// Returns true if the keys meet a condition: none of them exists, or all do.
    fn meet(&self, condition: Condition, ctx: &mut Context<'_, '_>) -> bool {
        let (db, now_ms) = (ctx.caller.db, ctx.now_ms);
        let mut exists = |key: &Key<'_>| ctx.guard.db(db, key.hash(), now_ms).peek(*key).is_some();
        match condition {
            Condition::Always => true,
            Condition::IfAbsent => !self.keys.iter().any(exists),
            Condition::IfPresent => self.keys.iter().all(&mut exists),
        }
    }

    /// Stores the values. Inlined, so that MSET does not look at its constant expiry for each key.
    #[inline(always)]
    fn store(self, guard: &mut Guard<'_, '_>, db: DbIndex, now_ms: i64, expiry: Expiry) -> Done {
        let values = self.args.groups().into_iter().flatten().map(|[_, value]| value);
        for (key, value) in self.keys.into_iter().zip(values) {
            let mut db = guard.db(db, key.hash(), now_ms);
            db.set(key, value, expiry)?;
            db.event_of_store(key, expiry);
        }
        Ok(())
    }
}

fn mset(ctx: &mut Context<'_, '_>, pairs: Rest<'_, 2>) -> Done {
    let pairs = Pairs::parse(ctx, pairs.any())?;
    pairs.store(&mut ctx.guard, ctx.caller.db, ctx.now_ms, Expiry::Never)?;
    ctx.reply.ok();
    Ok(())
}

fn msetnx(ctx: &mut Context<'_, '_>, pairs: Rest<'_, 2>) -> Done {
    let pairs = Pairs::parse(ctx, pairs.any())?;
    let is_met = pairs.meet(Condition::IfAbsent, ctx);
    if is_met {
        pairs.store(&mut ctx.guard, ctx.caller.db, ctx.now_ms, Expiry::Never)?;
    }
    ctx.reply.int(is_met.into());
    Ok(())
}

fn msetex(ctx: &mut Context<'_, '_>, [numkeys]: [&[u8]; 1], arguments: Rest<'_, 2>) -> Done {
    const TOO_FEW: CommandError = CommandError::new("ERR wrong number of key-value pairs");
    const BAD_NUMBER: &str = "ERR invalid numkeys value";
    let number = count_from(numkeys, 1, BAD_NUMBER)?;
    if i32::try_from(number).is_err() {
        return Err(CommandError::new(BAD_NUMBER));
    }
    let (pairs, options) = arguments.split_at(number * 2).ok_or(TOO_FEW)?;
    let options = SetOptions::parse(Options::of(options))?;
    if options.get || options.relation.is_some() {
        return Err(CommandError::SYNTAX);
    }
    let expiry = options.expiry(ctx.moment_ms(), ctx.name())?;
    let pairs = Pairs::parse(ctx, pairs)?;
    let is_met = pairs.meet(options.condition, ctx);
    if is_met {
        pairs.store(&mut ctx.guard, ctx.caller.db, ctx.now_ms, expiry)?;
    }
    ctx.reply.int(is_met.into());
    Ok(())
}
