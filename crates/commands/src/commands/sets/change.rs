//! SADD, SREM, SMOVE: adding, removing and moving members.

use tierce_collections::Set;
use tierce_keyspace::{CollectionType, Event, Missing, Value};
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::options::{check_len, is_of_type};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least, exactly};

const FAST: Flags = Flags::WRITE.with(Flags::FAST);

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("sadd", Group::Set, at_least!(sadd))
        .flags(FAST.with(Flags::DENYOOM))
        .keys(&[KeySpec::at(1, KeyFlags(&["RW", "insert"]))])
        .element_at(2)
        .since("1.0.0", "O(N) where N is the number of members to be added")
        .doc(
            "key member [member ...]",
            "Adds members to a set. Creates the key if it does not exist.",
        )
        .example(
            r#"
            > SADD colors red green
            (integer) 2
            > SADD colors green blue
            (integer) 1
            > SMEMBERS colors
            1) "red"
            2) "green"
            3) "blue"
            "#,
        ),
    Defined::new("srem", Group::Set, at_least!(srem))
        .flags(FAST)
        .keys(&[KeySpec::at(1, KeyFlags(&["RW", "delete"]))])
        .element_at(2)
        .since("1.0.0", "O(N) where N is the number of members to be removed")
        .doc(
            "key member [member ...]",
            "Removes members from a set. Deletes the set if the last member was removed.",
        )
        .example(
            r#"
            > SADD colors red green blue
            (integer) 3
            > SREM colors red yellow
            (integer) 1
            > SMEMBERS colors
            1) "green"
            2) "blue"
            "#,
        ),
    Defined::new("smove", Group::Set, exactly!(smove))
        .flags(FAST)
        .keys(&[
            KeySpec::at(1, KeyFlags(&["RW", "access", "delete"])),
            KeySpec::at(2, KeyFlags(&["RW", "insert"])),
        ])
        .since("1.0.0", "O(1)")
        .doc("source destination member", "Moves a member from one set to another.")
        .example(
            r#"
            > SADD todo write test
            (integer) 2
            > SADD done plan
            (integer) 1
            > SMOVE todo done write
            (integer) 1
            > SMEMBERS done
            1) "plan"
            2) "write"
            > SMOVE todo done sleep
            (integer) 0
            "#,
        ),
];

fn sadd(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], members: Rest<'_, 1>) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    let added = db.edit::<Set, _, CommandError>(key, Missing::Create, |set| {
        if let Some(first) = members.get(0) {
            set.expect(first, members.len());
        }
        Ok(members.iter().filter(|member| set.add(member)).count())
    })?;
    if added.is_some_and(|added| added > 0) {
        db.event(Event::SAdd, key);
    }
    reply.count(added.unwrap_or(0));
    Ok(())
}

fn srem(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], members: Rest<'_, 1>) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    let removed = db.edit::<Set, _, CommandError>(key, Missing::Skip, |set| {
        Ok(members.iter().filter(|member| set.remove(member)).count())
    })?;
    if removed.is_some_and(|removed| removed > 0) {
        db.event_of_edit(Event::SRem, key);
    }
    reply.count(removed.unwrap_or(0));
    Ok(())
}

fn smove(ctx: &mut Context<'_, '_>, [source, destination, member]: [&[u8]; 3]) -> Done {
    let (from, to) = (ctx.kernel.keyspace.key(source), ctx.kernel.keyspace.key(destination));
    let (db, now_ms) = (ctx.caller.db, ctx.now_ms);
    check_len(to)?;
    let mut source = ctx.guard.db(db, from.hash(), now_ms);
    let mut moves = false;
    if is_of_type::<Set>(&mut source, from)? {
        // A destination of another type is an error even if nothing is moved.
        is_of_type::<Set>(&mut ctx.guard.db(db, to.hash(), now_ms), to)?;
        let mut source = ctx.guard.db(db, from.hash(), now_ms);
        moves = match source.value_to_change(from)? {
            Some(Value::Collection(set)) => Set::of(&set).is_some_and(|set| set.contains(member)),
            _ => false,
        };
    }
    if moves && from.bytes() != to.bytes() {
        let mut source = ctx.guard.db(db, from.hash(), now_ms);
        let take = |set: &mut tierce_keyspace::Editor<'_, Set>| {
            let deadline_ms = set.deadline_ms(member);
            set.remove(member);
            Ok::<_, CommandError>(deadline_ms)
        };
        // The deadline moves with the member.
        let deadline_ms = source.edit(from, Missing::Skip, take)?.flatten();
        source.event_of_edit(Event::SRem, from);
        let mut target = ctx.guard.db(db, to.hash(), now_ms);
        let add = |set: &mut tierce_keyspace::Editor<'_, Set>| {
            let is_new = set.add(member);
            if is_new && deadline_ms.is_some() {
                set.set_deadline(member, deadline_ms);
            }
            Ok::<_, CommandError>(is_new)
        };
        if target.edit(to, Missing::Create, add)? == Some(true) {
            target.event(Event::SAdd, to);
        }
    }
    ctx.reply.int(moves.into());
    Ok(())
}
