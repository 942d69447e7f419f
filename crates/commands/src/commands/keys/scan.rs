//! SCAN, KEYS, RANDOMKEY: finding keys.

use tierce_wire::glob::{self, Case};
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, Scope};
use crate::commands::sweep;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least, exactly, no_arguments};

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("keys", Group::Generic, exactly!(keys))
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"])
        .flags(Flags::READONLY)
        .categories(&["dangerous"])
        .locks(Scope::Stepwise)
        .since("1.0.0", "O(N) with N being the number of keys in the database")
        .doc("pattern", "Returns all key names that match a pattern.")
        .example(
            r#"
            > MSET user:1 Ada user:2 Grace order:1 open
            OK
            > KEYS user:*
            1) "user:1"
            2) "user:2"
            > KEYS order:?
            1) "order:1"
            "#,
        ),
    Defined::new("scan", Group::Generic, at_least!(scan))
        .tips(&["nondeterministic_output", "request_policy:special"])
        .flags(Flags::READONLY)
        .locks(Scope::Stepwise)
        .since(
            "2.8.0",
            "O(1) for every call; O(N) for a complete iteration, N being the number of keys",
        )
        .doc(
            "cursor [MATCH pattern] [COUNT count] [TYPE type]",
            "Iterates over the key names in the database.",
        )
        .example(
            r#"
            > MSET user:1 Ada order:1 open
            OK
            > SCAN 0 MATCH user:* COUNT 100
            1) "0"
            2) 1) "user:1"
            > SCAN 0 COUNT 100 TYPE list
            1) "0"
            2) (empty array)
            "#,
        ),
    Defined::new("randomkey", Group::Generic, no_arguments!(random_key))
        .tips(&["request_policy:all_shards", "nondeterministic_output"])
        .flags(Flags::READONLY)
        .locks(Scope::Stepwise)
        .since("1.0.0", "O(1)")
        .doc("", "Returns a random key name from the database.")
        .example(
            r#"
            > RANDOMKEY
            (nil)
            > SET user:1 Ada
            OK
            > RANDOMKEY
            "user:1"
            "#,
        ),
];

fn keys(ctx: &mut Context<'_, '_>, [pattern]: [&[u8]; 1]) -> Done {
    let mut found: Vec<Vec<u8>> = Vec::new();
    ctx.weigh(ctx.kernel.keyspace.len(ctx.caller.db) as usize)?;
    ctx.guard.for_each(ctx.caller.db, ctx.now_ms, |entry| {
        if glob::matches(pattern, entry.key(), Case::Sensitive) {
            found.push(entry.key().to_vec());
        }
    })?;
    ctx.reply.bulks(found);
    Ok(())
}

/// Options of SCAN: filters and amount of work.
struct ScanOptions<'a> {
    pattern: Option<&'a [u8]>,
    count: usize,
    type_name: Option<&'a [u8]>,
}

impl<'a> ScanOptions<'a> {
    const COUNT_DEFAULT: usize = 10;

    fn parse(options: Rest<'a>) -> Result<Self, CommandError> {
        let mut parsed = Self { pattern: None, count: Self::COUNT_DEFAULT, type_name: None };
        // A word without a value is reported before any other mistake.
        for [word, value] in options.groups().ok_or(CommandError::SYNTAX)? {
            match word.to_ascii_lowercase().as_slice() {
                b"match" => parsed.pattern = sweep::pattern(value),
                b"count" => parsed.count = sweep::count(value)?,
                b"type" => parsed.type_name = Some(value),
                _ => return Err(CommandError::SYNTAX),
            }
        }
        Ok(parsed)
    }
}

fn scan(ctx: &mut Context<'_, '_>, [cursor]: [&[u8]; 1], options: Rest<'_>) -> Done {
    let cursor = sweep::cursor(cursor)?;
    let options = ScanOptions::parse(options)?;
    let mut found: Vec<Vec<u8>> = Vec::new();
    let (db, now_ms) = (ctx.caller.db, ctx.now_ms);
    ctx.weigh(options.count.min(ctx.kernel.keyspace.len(db) as usize))?;
    let cursor = ctx.guard.scan(db, cursor, options.count, now_ms, |entry| {
        let named = options
            .pattern
            .is_none_or(|pattern| glob::matches(pattern, entry.key(), Case::Sensitive));
        let type_name = entry.value_type().name().as_bytes();
        let typed = options.type_name.is_none_or(|name| type_name.eq_ignore_ascii_case(name));
        if named && typed {
            found.push(entry.key().to_vec());
        }
    })?;
    ctx.reply.array(2);
    ctx.reply.bulk(cursor.to_string().as_bytes());
    ctx.reply.bulks(found);
    Ok(())
}

fn random_key(ctx: &mut Context<'_, '_>) -> Done {
    let random = crate::random::word();
    let key = ctx.guard.random_key(ctx.caller.db, random, ctx.now_ms)?;
    match key {
        Some(key) => ctx.reply.bulk(&key),
        None => ctx.reply.null(),
    }
    Ok(())
}
