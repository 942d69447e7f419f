//! SADDEX, SEXPIRE and their relatives: members with a time to live, as in Redis 8.12.

use tierce_collections::Set;
use tierce_keyspace::{Editor, Event, Missing};
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::hashes::combined::{Condition, Grammar, Request, Ttl};
use crate::commands::hashes::deadline::{
    CONDITION_NOT_MET, DELETED, DONE, Elements, Expire, NO_DEADLINE, NO_FIELD, names_of,
    number_each, shown_time,
};
use crate::commands::options::TimeForm;
use crate::error::CommandError;
use crate::pipeline::{Body, Context, Defined, Done, at_least};

const UPDATE: &[KeySpec] = &[KeySpec::at(1, KeyFlags::UPDATE)];
const READ: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ)];

const fn setter(name: &'static str, body: Body) -> Defined {
    Defined::new(name, Group::Set, body)
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .keys(UPDATE)
}

const fn getter(name: &'static str, body: Body) -> Defined {
    Defined::new(name, Group::Set, body).flags(Flags::READONLY.with(Flags::FAST)).keys(READ)
}

const SINCE: &str = "8.12.0";
const COMPLEXITY: &str = "O(N) where N is the number of specified members";
const MEMBERS: &str = "key MEMBERS nummembers member [member ...]";

pub(super) static COMMANDS: &[Defined] = &[
    setter("saddex", at_least!(saddex))
        .since(SINCE, "O(N) where N is the number of members being added")
        .doc(
            "key [MNX | MXX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | KEEPTTL] MEMBERS nummembers member [member ...]",
            "Adds members to a set and sets their expiration time, if none of them exists (MNX) or all exist (MXX).",
        )
        .example(
            r#"
            > SADDEX online EX 3600 MEMBERS 1 Ada
            (integer) 1
            > STTL online MEMBERS 1 Ada
            1) (integer) 3...
            > SADDEX online MNX MEMBERS 2 Ada Grace
            (integer) 0
            > SMEMBERS online
            1) "Ada"
            "#,
        ),
    setter("sexpire", at_least!(|ctx, args, rest| expire(ctx, args, rest, TimeForm::EX)))
        .since(SINCE, COMPLEXITY)
        .doc("key seconds [NX | XX | GT | LT] MEMBERS nummembers member [member ...]", "Sets the expiration time of members of a set in seconds.")
        .example(
            r#"
            > SADD online Ada Grace
            (integer) 2
            > SEXPIRE online 3600 MEMBERS 2 Ada nosuch
            1) (integer) 1
            2) (integer) -2
            > STTL online MEMBERS 2 Ada Grace
            1) (integer) 3...
            2) (integer) -1
            > SEXPIRE online 7200 LT MEMBERS 1 Ada
            1) (integer) 0
            "#,
        ),
    setter("spexpire", at_least!(|ctx, args, rest| expire(ctx, args, rest, TimeForm::PX)))
        .since(SINCE, COMPLEXITY)
        .doc("key milliseconds [NX | XX | GT | LT] MEMBERS nummembers member [member ...]", "Sets the expiration time of members of a set in milliseconds.")
        .example(
            r#"
            > SADD online Ada Grace
            (integer) 2
            > SPEXPIRE online 3600000 MEMBERS 1 Ada
            1) (integer) 1
            > SPTTL online MEMBERS 1 Ada
            1) (integer) 3...
            "#,
        ),
    setter("sexpireat", at_least!(|ctx, args, rest| expire(ctx, args, rest, TimeForm::EXAT)))
        .since(SINCE, COMPLEXITY)
        .doc("key unix-time-seconds [NX | XX | GT | LT] MEMBERS nummembers member [member ...]", "Sets the expiration time of members of a set to a Unix timestamp in seconds.")
        .example(
            r#"
            > SADD online Ada Grace
            (integer) 2
            > SEXPIREAT online 33177117420 MEMBERS 1 Ada
            1) (integer) 1
            > SEXPIREAT online 1 MEMBERS 1 Ada
            1) (integer) 2
            > SMEMBERS online
            1) "Grace"
            "#,
        ),
    setter("spexpireat", at_least!(|ctx, args, rest| expire(ctx, args, rest, TimeForm::PXAT)))
        .since(SINCE, COMPLEXITY)
        .doc("key unix-time-milliseconds [NX | XX | GT | LT] MEMBERS nummembers member [member ...]", "Sets the expiration time of members of a set to a Unix timestamp in milliseconds.")
        .example(
            r#"
            > SADD online Ada Grace
            (integer) 2
            > SPEXPIREAT online 33177117420000 MEMBERS 1 Ada
            1) (integer) 1
            > SPEXPIRETIME online MEMBERS 1 Ada
            1) (integer) 33177117420000
            "#,
        ),
    getter("sttl", at_least!(|ctx, args, rest| time_left(ctx, args, rest, TimeForm::EX)))
        .tips(&["nondeterministic_output"])
        .since(SINCE, COMPLEXITY)
        .doc(MEMBERS, "Returns the time to live of members of a set in seconds.")
        .example(
            r#"
            > SADD online Ada Grace
            (integer) 2
            > SEXPIRE online 3600 MEMBERS 1 Ada
            1) (integer) 1
            > STTL online MEMBERS 3 Ada Grace nosuch
            1) (integer) 3...
            2) (integer) -1
            3) (integer) -2
            "#,
        ),
    getter("spttl", at_least!(|ctx, args, rest| time_left(ctx, args, rest, TimeForm::PX)))
        .tips(&["nondeterministic_output"])
        .since(SINCE, COMPLEXITY)
        .doc(MEMBERS, "Returns the time to live of members of a set in milliseconds.")
        .example(
            r#"
            > SADD online Ada Grace
            (integer) 2
            > SPEXPIRE online 3600000 MEMBERS 1 Ada
            1) (integer) 1
            > SPTTL online MEMBERS 2 Ada Grace
            1) (integer) 3...
            2) (integer) -1
            "#,
        ),
    getter("sexpiretime", at_least!(|ctx, args, rest| time_left(ctx, args, rest, TimeForm::EXAT)))
        .since(SINCE, COMPLEXITY)
        .doc(MEMBERS, "Returns the expiration time of members of a set as a Unix timestamp in seconds.")
        .example(
            r#"
            > SADD online Ada Grace
            (integer) 2
            > SEXPIREAT online 33177117420 MEMBERS 1 Ada
            1) (integer) 1
            > SEXPIRETIME online MEMBERS 2 Ada Grace
            1) (integer) 33177117420
            2) (integer) -1
            "#,
        ),
    getter("spexpiretime", at_least!(|ctx, args, rest| time_left(ctx, args, rest, TimeForm::PXAT)))
        .since(SINCE, COMPLEXITY)
        .doc(MEMBERS, "Returns the expiration time of members of a set as a Unix timestamp in milliseconds.")
        .example(
            r#"
            > SADD online Ada Grace
            (integer) 2
            > SPEXPIREAT online 33177117420000 MEMBERS 1 Ada
            1) (integer) 1
            > SPEXPIRETIME online MEMBERS 2 Ada Grace
            1) (integer) 33177117420000
            2) (integer) -1
            "#,
        ),
    Defined::new("spersist", Group::Set, at_least!(persist))
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(UPDATE)
        .since(SINCE, COMPLEXITY)
        .doc(MEMBERS, "Removes the expiration time of members of a set.")
        .example(
            r#"
            > SADD online Ada Grace
            (integer) 2
            > SEXPIRE online 3600 MEMBERS 1 Ada
            1) (integer) 1
            > SPERSIST online MEMBERS 2 Ada Grace
            1) (integer) 1
            2) (integer) -1
            > STTL online MEMBERS 1 Ada
            1) (integer) -1
            "#,
        ),
];

const OF_SET: Elements = Elements {
    word: "members",
    not_in_place: CommandError::new(
        "ERR Mandatory argument MEMBERS is missing or not at the right position",
    ),
    bad_count: CommandError::new("ERR Number of members must be a positive integer"),
    bad_count_of_expire: CommandError::new("ERR Parameter `numMembers` should be greater than 0"),
    other_count: CommandError::new(
        "ERR The `nummembers` parameter must match the number of arguments",
    ),
};

const ADDER: Grammar = Grammar {
    elements: b"members",
    twice: CommandError::new("ERR MEMBERS keyword specified multiple times"),
    missing: CommandError::new("ERR missing MEMBERS argument"),
    bad_count: CommandError::new("ERR invalid number of members"),
    per_field: 1,
    word: b"keepttl",
    conditions: &[(b"mnx", Condition::None), (b"mxx", Condition::All)],
    two_times: CommandError::new(
        "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
    ),
    two_conditions: CommandError::new("ERR Only one of MXX or MNX arguments can be specified"),
};

/// Effect of SADDEX on a set.
struct Added {
    is_allowed: bool,
    has_changed: bool,
}

fn saddex(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], options: Rest<'_, 3>) -> Done {
    let Request { ttl, condition, fields: members } =
        Request::parse(ctx, Options::of(options), &ADDER)?;
    let is_due = matches!(ttl, Ttl::At(at_ms) if at_ms <= ctx.now_ms);
    let needs_all = condition == Some(Condition::All);
    let (mut db, key, reply) = ctx.open(key);
    let missing = if needs_all || is_due { Missing::Skip } else { Missing::Create };
    let added = db.edit::<Set, _, CommandError>(key, missing, |set| {
        let is_allowed =
            condition.is_none() || members.iter().all(|member| set.contains(member) == needs_all);
        if !is_allowed {
            return Ok(Added { is_allowed, has_changed: false });
        }
        if let Some(first) = members.get(0).filter(|_| !is_due) {
            set.expect(first, members.len());
        }
        let mut has_changed = false;
        for member in members.iter() {
            has_changed |= if is_due { set.remove(member) } else { put(set, member, ttl) };
        }
        Ok(Added { is_allowed, has_changed })
    })?;
    // Without a set there is no member to delete.
    let added = added.unwrap_or(Added { is_allowed: !needs_all, has_changed: false });
    if added.has_changed {
        match ttl {
            Ttl::At(_) if is_due => db.event_of_edit(Event::SRem, key),
            Ttl::At(_) => {
                db.event(Event::SAdd, key);
                db.event(Event::SExpire, key);
            }
            Ttl::Unstated | Ttl::Word => db.event(Event::SAdd, key),
        }
    }
    reply.int(added.is_allowed.into());
    Ok(())
}

/// Adds a member with a deadline in the future. Returns true if that changes the set.
fn put(set: &mut Editor<'_, Set>, member: &[u8], ttl: Ttl) -> bool {
    let is_new = set.add(member);
    match ttl {
        Ttl::At(at_ms) => set.set_deadline(member, Some(at_ms)),
        Ttl::Unstated if set.deadline_ms(member).is_some() => set.set_deadline(member, None),
        Ttl::Unstated | Ttl::Word => is_new,
    }
}

fn expire(
    ctx: &mut Context<'_, '_>,
    [key, time]: [&[u8]; 2],
    members: Rest<'_, 3>,
    form: TimeForm,
) -> Done {
    let Expire { at_ms, condition, names } =
        Expire::parse(ctx, time, Options::of(members), form, &OF_SET)?;
    let event = if at_ms <= ctx.now_ms { Event::SRem } else { Event::SExpire };
    number_each::<Set>(ctx, key, names, event, |set, member, now_ms| {
        if !set.contains(member) {
            NO_FIELD
        } else if !condition.holds(set.deadline_ms(member), at_ms) {
            CONDITION_NOT_MET
        } else if at_ms <= now_ms {
            set.remove(member);
            DELETED
        } else {
            set.set_deadline(member, Some(at_ms));
            DONE
        }
    })
}

fn persist(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], members: Rest<'_, 3>) -> Done {
    let names = names_of(&OF_SET, Options::of(members))?;
    number_each::<Set>(ctx, key, names, Event::SPersist, |set, member, _| {
        if !set.contains(member) {
            NO_FIELD
        } else if set.deadline_ms(member).is_none() {
            NO_DEADLINE
        } else {
            set.set_deadline(member, None);
            DONE
        }
    })
}

fn time_left(
    ctx: &mut Context<'_, '_>,
    [key]: [&[u8]; 1],
    members: Rest<'_, 3>,
    form: TimeForm,
) -> Done {
    let names = names_of(&OF_SET, Options::of(members))?;
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(key);
    let set = db.collection::<Set>(key)?;
    reply.array(names.len());
    for name in names.iter() {
        let set = set.as_ref().filter(|set| set.contains(name));
        reply.int(shown_time(set.map(|set| set.deadline_ms(name)), form, now_ms));
    }
    Ok(())
}
