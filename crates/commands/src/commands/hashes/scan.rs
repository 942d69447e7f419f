//! HSCAN: iterates over a hash.

use tierce_collections::{Hash, IntText};
use tierce_keyspace::Entry;
use tierce_wire::resp::Rest;

use crate::command::{Done, Flags, Group, KeyFlags, KeySpec, Spec, at_least};
use crate::commands::cursor::Options;
use crate::commands::sweep::{self, SweepOptions};
use crate::execute::Context;

pub(super) static COMMANDS: &[Spec] = &[Spec::new("hscan", Group::Hash, at_least!(hscan))
    .flags(Flags::READONLY)
    .keys(&[KeySpec::at(1, KeyFlags::READ)])
    .tips(&["nondeterministic_output"])
    .since(
        "2.8.0",
        "O(1) for every call; O(N) for a complete iteration, N being the number of fields",
    )
    .doc(
        "key cursor [MATCH pattern] [COUNT count] [NOVALUES]",
        "Iterates over fields and values of a hash.",
    )
    .example(
        r#"
        > HSET user:1 name Ada born 1815
        (integer) 2
        > HSCAN user:1 0 MATCH n*
        1) "0"
        2) 1) "name"
           2) "Ada"
        "#,
    )];

fn hscan(ctx: &mut Context<'_, '_>, [key, cursor]: [&[u8]; 2], options: Rest<'_>) -> Done {
    let cursor = sweep::cursor(cursor)?;
    let now_ms = ctx.now_ms;
    let scale = ctx.scale();
    let (mut db, key, reply) = ctx.open(key);
    let len = db.peek(key).map_or(0, Entry::element_count);
    let Some(hash) = db.collection::<Hash>(key)? else {
        // Without a key the options are not checked.
        reply.array(2);
        reply.bulk(b"0");
        reply.array(0);
        return Ok(());
    };
    let options = SweepOptions::parse(Options::of(options))?;
    scale.weigh(options.count.min(len))?;
    // Fields are short-lived views within a step, so what is shown is copied.
    let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let cursor = options.run(cursor, |cursor| {
        let mut met = 0;
        let next = hash.scan(cursor, |field| {
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
