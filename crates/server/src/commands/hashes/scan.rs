//! HSCAN: going through a hash bit by bit.

use tierce_collections::{Hash, IntText};
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::sweep::{SweepOptions, cursor};
use crate::error::CommandError;
use crate::execute::Context;

pub(super) static COMMANDS: &[Spec] = &[Spec::new("hscan", -3, Group::Hash, hscan)
    .flags(Flags::READONLY)
    .keys(&[KeySpec::at(1, KeyFlags::READ)])
    .tips(&["nondeterministic_output"])
    .doc(
        "2.8.0",
        "O(1) for every call; O(N) for a complete iteration, N being the number of fields",
        "key cursor [MATCH pattern] [COUNT count] [NOVALUES]",
        "Iterates over fields and values of a hash.",
    )];

fn hscan(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let cursor = cursor(&args[2])?;
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let Some(hash) = db.collection::<Hash>(key)? else {
        // Without a key nobody looks at the options.
        reply.array(2);
        reply.bulk(b"0");
        reply.array(0);
        return Ok(());
    };
    let options = SweepOptions::parse(args.from(3))?;
    // Fields are short-lived views within a step, so what is shown is copied.
    let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let cursor = options.run(cursor, |cursor| {
        let mut met = 0;
        let next = hash.sweep(cursor, |field| {
            met += 1;
            let mut text = IntText::new();
            let name = field.name.bytes(&mut text);
            if field.is_live(now_ms) && options.matches(name) {
                let value = if options.only_names { Vec::new() } else { field.value.to_vec() };
                found.push((name.to_vec(), value));
            }
        });
        (next, met)
    });
    reply.array(2);
    reply.bulk(cursor.to_string().as_bytes());
    reply.array(if options.only_names { found.len() } else { found.len() * 2 });
    for (name, value) in found {
        reply.bulk(&name);
        if !options.only_names {
            reply.bulk(&value);
        }
    }
    Ok(())
}
