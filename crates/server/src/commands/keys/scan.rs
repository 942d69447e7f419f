//! SCAN, KEYS, RANDOMKEY: finding keys.

use tierce_wire::glob::{self, Case};
use tierce_wire::number;
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, Scope, Spec};
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::execute::Context;

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("keys", 2, Group::Generic, keys)
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"])
        .flags(Flags::READONLY)
        .categories(&["dangerous"])
        .locks(Scope::Stepwise)
        .doc(
            "1.0.0",
            "O(N) with N being the number of keys in the database",
            "pattern",
            "Returns all key names that match a pattern.",
        ),
    Spec::new("scan", -2, Group::Generic, scan)
        .tips(&["nondeterministic_output", "request_policy:special"])
        .flags(Flags::READONLY)
        .locks(Scope::Stepwise)
        .doc(
            "2.8.0",
            "O(1) for every call; O(N) for a complete iteration, N being the number of keys",
            "cursor [MATCH pattern] [COUNT count] [TYPE type]",
            "Iterates over the key names in the database.",
        ),
    Spec::new("randomkey", 1, Group::Generic, random_key)
        .tips(&["request_policy:all_shards", "nondeterministic_output"])
        .flags(Flags::READONLY)
        .locks(Scope::Stepwise)
        .doc("1.0.0", "O(1)", "", "Returns a random key name from the database."),
];

type Done = Result<(), CommandError>;

fn keys(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let pattern = &args[1];
    let mut found: Vec<Vec<u8>> = Vec::new();
    ctx.guard.for_each(ctx.session.db, ctx.now_ms, |entry| {
        if glob::matches(pattern, entry.key(), Case::Sensitive) {
            found.push(entry.key().to_vec());
        }
    });
    ctx.reply.bulks(found);
    Ok(())
}

/// What SCAN is to look for, and how long.
struct ScanOptions<'a> {
    pattern: Option<&'a [u8]>,
    count: usize,
    type_name: Option<&'a [u8]>,
}

impl<'a> ScanOptions<'a> {
    const COUNT_DEFAULT: usize = 10;

    fn parse(options: Args<'a>) -> Result<Self, CommandError> {
        let mut parsed = Self { pattern: None, count: Self::COUNT_DEFAULT, type_name: None };
        if !options.len().is_multiple_of(2) {
            return Err(CommandError::SYNTAX);
        }
        for at in (0..options.len()).step_by(2) {
            let value = options.at(at + 1);
            match options[at].to_ascii_lowercase().as_slice() {
                b"match" => parsed.pattern = (value != b"*").then_some(value),
                b"count" => {
                    let count = integer(value)?;
                    if count < 1 {
                        return Err(CommandError::SYNTAX);
                    }
                    parsed.count = count as usize;
                }
                b"type" => parsed.type_name = Some(value),
                _ => return Err(CommandError::SYNTAX),
            }
        }
        Ok(parsed)
    }
}

fn scan(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let cursor = number::parse_u64(&args[1]).ok_or(CommandError::new("ERR invalid cursor"))?;
    let options = ScanOptions::parse(args.from(2))?;
    let mut found: Vec<Vec<u8>> = Vec::new();
    let (db, now_ms) = (ctx.session.db, ctx.now_ms);
    let cursor = ctx.guard.scan(db, cursor, options.count, now_ms, |entry| {
        let named = options
            .pattern
            .is_none_or(|pattern| glob::matches(pattern, entry.key(), Case::Sensitive));
        let type_name = entry.value_type().name().as_bytes();
        let typed = options.type_name.is_none_or(|name| type_name.eq_ignore_ascii_case(name));
        if named && typed {
            found.push(entry.key().to_vec());
        }
    });
    ctx.reply.array(2);
    ctx.reply.bulk(cursor.to_string().as_bytes());
    ctx.reply.bulks(found);
    Ok(())
}

fn random_key(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    let random = crate::random::word();
    let key = ctx.guard.random_key(ctx.session.db, random, ctx.now_ms);
    match key {
        Some(key) => ctx.reply.bulk(&key),
        None => ctx.reply.null(),
    }
    Ok(())
}
