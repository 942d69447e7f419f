//! ZSCAN: iterates over a sorted set.

use tierce_collections::{IntText, SortedSet};
use tierce_keyspace::Entry;
use tierce_wire::number::format_f64;
use tierce_wire::resp::Rest;

use crate::command::{Done, Flags, Group, KeyFlags, KeySpec, Spec, at_least};
use crate::commands::cursor::Options;
use crate::commands::sweep::{self, SweepOptions};
use crate::error::CommandError;
use crate::execute::Context;

pub(super) static COMMANDS: &[Spec] = &[Spec::new("zscan", Group::SortedSet, at_least!(zscan))
    .flags(Flags::READONLY)
    .keys(&[KeySpec::at(1, KeyFlags::READ)])
    .tips(&["nondeterministic_output"])
    .since(
        "2.8.0",
        "O(1) for every call; O(N) for a complete iteration, N being the number of members",
    )
    .doc(
        "key cursor [MATCH pattern] [COUNT count]",
        "Iterates over members and scores of a sorted set.",
    )
    .example(
        r#"
        > ZADD scores 10 Ada 20 Grace
        (integer) 2
        > ZSCAN scores 0 MATCH A*
        1) "0"
        2) 1) "Ada"
           2) "10"
        "#,
    )];

fn zscan(ctx: &mut Context<'_, '_>, [key, cursor]: [&[u8]; 2], options: Rest<'_>) -> Done {
    let cursor = sweep::cursor(cursor)?;
    let scale = ctx.scale();
    let (mut db, key, reply) = ctx.open(key);
    let len = db.peek(key).map_or(0, Entry::element_count);
    let Some(set) = db.collection::<SortedSet>(key)? else {
        // Without a key the options are not checked.
        reply.array(2);
        reply.bulk(b"0");
        reply.array(0);
        return Ok(());
    };
    let options = SweepOptions::parse(Options::of(options))?;
    scale.weigh(options.count.min(len))?;
    if options.only_names {
        return Err(CommandError::SYNTAX);
    }
    // How many there are has to be said first, so what is shown is copied.
    let mut found: Vec<(Vec<u8>, f64)> = Vec::new();
    let cursor = options.run(cursor, |cursor| {
        let mut met = 0;
        let next = set.scan(cursor, |member, score| {
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
