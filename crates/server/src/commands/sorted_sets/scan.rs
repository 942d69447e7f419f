//! ZSCAN: going through a sorted set bit by bit.

use tierce_collections::{IntText, SortedSet};
use tierce_wire::number::format_f64;
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::sweep::{SweepOptions, cursor};
use crate::error::CommandError;
use crate::execute::Context;

pub(super) static COMMANDS: &[Spec] = &[Spec::new("zscan", -3, Group::SortedSet, zscan)
    .flags(Flags::READONLY)
    .keys(&[KeySpec::at(1, KeyFlags::READ)])
    .tips(&["nondeterministic_output"])
    .doc(
        "2.8.0",
        "O(1) for every call; O(N) for a complete iteration, N being the number of members",
        "key cursor [MATCH pattern] [COUNT count]",
        "Iterates over members and scores of a sorted set.",
    )];

fn zscan(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let cursor = cursor(&args[2])?;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let Some(set) = db.collection::<SortedSet>(key)? else {
        // Without a key nobody looks at the options.
        reply.array(2);
        reply.bulk(b"0");
        reply.array(0);
        return Ok(());
    };
    let options = SweepOptions::parse(args.from(3))?;
    if options.only_names {
        return Err(CommandError::SYNTAX);
    }
    // How many there are has to be said first, so what is shown is copied.
    let mut found: Vec<(Vec<u8>, f64)> = Vec::new();
    let cursor = options.run(cursor, |cursor| {
        let mut met = 0;
        let next = set.sweep(cursor, |member, score| {
            met += 1;
            let mut text = IntText::new();
            let member = member.bytes(&mut text);
            if options.matches(member) {
                found.push((member.to_vec(), score));
            }
        });
        (next, met)
    });
    reply.array(2);
    reply.bulk(cursor.to_string().as_bytes());
    reply.array(2 * found.len());
    for (member, score) in found {
        reply.bulk(&member);
        reply.bulk(&format_f64(score));
    }
    Ok(())
}
