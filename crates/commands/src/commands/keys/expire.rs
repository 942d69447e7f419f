//! EXPIRE and TTL in all their forms, and PERSIST.

use tierce_keyspace::{DeadlineSet, Event, Ttl};
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::{TimeBase, TimeForm, TimeUnit, integer};
use crate::error::CommandError;
use crate::pipeline::{Body, Context, Defined, Done, at_least, exactly};

const SET_KEY: &[KeySpec] = &[KeySpec::at(1, KeyFlags::UPDATE)];
const GET_KEY: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ)];

const fn setter(name: &'static str, body: Body) -> Defined {
    let flags = Flags::WRITE.with(Flags::FAST).with(Flags::KEY_ONLY);
    Defined::new(name, Group::Generic, body).flags(flags).keys(SET_KEY)
}

const fn getter(name: &'static str, body: Body) -> Defined {
    let flags = Flags::READONLY.with(Flags::FAST).with(Flags::KEY_ONLY);
    Defined::new(name, Group::Generic, body).flags(flags).keys(GET_KEY)
}

pub(super) static COMMANDS: &[Defined] = &[
    setter("expire", at_least!(|ctx, args, rest| expire(ctx, args, rest, TimeForm::EX)))
        .since("1.0.0", "O(1)")
        .doc("key seconds [NX | XX | GT | LT]", "Sets the expiration time of a key in seconds.")
        .example(
            r#"
            > SET session:7 Ada
            OK
            > EXPIRE session:7 3600
            (integer) 1
            > TTL session:7
            (integer) 3...
            > EXPIRE session:7 7200 LT
            (integer) 0
            > EXPIRE nosuch 3600
            (integer) 0
            "#,
        ),
    setter("expireat", at_least!(|ctx, args, rest| expire(ctx, args, rest, TimeForm::EXAT)))
        .since("1.2.0", "O(1)")
        .doc(
            "key unix-time-seconds [NX | XX | GT | LT]",
            "Sets the expiration time of a key to a Unix timestamp.",
        )
        .example(
            r#"
            > SET session:7 Ada
            OK
            > EXPIREAT session:7 33177117420
            (integer) 1
            > EXPIRETIME session:7
            (integer) 33177117420
            > EXPIREAT session:7 1
            (integer) 1
            > EXISTS session:7
            (integer) 0
            "#,
        ),
    setter("pexpire", at_least!(|ctx, args, rest| expire(ctx, args, rest, TimeForm::PX)))
        .since("2.6.0", "O(1)")
        .doc(
            "key milliseconds [NX | XX | GT | LT]",
            "Sets the expiration time of a key in milliseconds.",
        )
        .example(
            r#"
            > SET session:7 Ada
            OK
            > PEXPIRE session:7 3600000
            (integer) 1
            > PTTL session:7
            (integer) 3...
            "#,
        ),
    setter("pexpireat", at_least!(|ctx, args, rest| expire(ctx, args, rest, TimeForm::PXAT)))
        .since("2.6.0", "O(1)")
        .doc(
            "key unix-time-milliseconds [NX | XX | GT | LT]",
            "Sets the expiration time of a key to a Unix timestamp in milliseconds.",
        )
        .example(
            r#"
            > SET session:7 Ada
            OK
            > PEXPIREAT session:7 33177117420000
            (integer) 1
            > PEXPIRETIME session:7
            (integer) 33177117420000
            "#,
        ),
    getter("ttl", exactly!(|ctx, [key]| time_left(ctx, key, TimeForm::EX)))
        .tips(&["nondeterministic_output"])
        .since("1.0.0", "O(1)")
        .doc("key", "Returns the time to live of a key in seconds.")
        .example(
            r#"
            > SET session:7 Ada EX 3600
            OK
            > TTL session:7
            (integer) 3...
            > SET user:1 Ada
            OK
            > TTL user:1
            (integer) -1
            > TTL nosuch
            (integer) -2
            "#,
        ),
    getter("pttl", exactly!(|ctx, [key]| time_left(ctx, key, TimeForm::PX)))
        .tips(&["nondeterministic_output"])
        .since("2.6.0", "O(1)")
        .doc("key", "Returns the time to live of a key in milliseconds.")
        .example(
            r#"
            > SET session:7 Ada PX 3600000
            OK
            > PTTL session:7
            (integer) 3...
            > PTTL nosuch
            (integer) -2
            "#,
        ),
    getter("expiretime", exactly!(|ctx, [key]| time_left(ctx, key, TimeForm::EXAT)))
        .since("7.0.0", "O(1)")
        .doc("key", "Returns the expiration time of a key as a Unix timestamp.")
        .example(
            r#"
            > SET session:7 Ada EXAT 33177117420
            OK
            > EXPIRETIME session:7
            (integer) 33177117420
            > EXPIRETIME nosuch
            (integer) -2
            "#,
        ),
    getter("pexpiretime", exactly!(|ctx, [key]| time_left(ctx, key, TimeForm::PXAT)))
        .since("7.0.0", "O(1)")
        .doc("key", "Returns the expiration time of a key as a Unix timestamp in milliseconds.")
        .example(
            r#"
            > SET session:7 Ada PXAT 33177117420000
            OK
            > PEXPIRETIME session:7
            (integer) 33177117420000
            "#,
        ),
    Defined::new("persist", Group::Generic, exactly!(persist))
        .flags(Flags::WRITE.with(Flags::FAST).with(Flags::KEY_ONLY))
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
        .since("2.2.0", "O(1)")
        .doc("key", "Removes the expiration time of a key.")
        .example(
            r#"
            > SET session:7 Ada EX 3600
            OK
            > PERSIST session:7
            (integer) 1
            > TTL session:7
            (integer) -1
            > PERSIST session:7
            (integer) 0
            "#,
        ),
];

/// Conditions of EXPIRE; all that are given must hold.
#[derive(Clone, Copy, Default)]
struct Conditions {
    if_persistent: bool,
    if_expiring: bool,
    if_later: bool,
    if_earlier: bool,
}

impl Conditions {
    fn parse(mut options: Options<'_>) -> Result<Self, CommandError> {
        let mut conditions = Self::default();
        while let Some(word) = options.next_word() {
            match &*word {
                b"nx" => conditions.if_persistent = true,
                b"xx" => conditions.if_expiring = true,
                b"gt" => conditions.if_later = true,
                b"lt" => conditions.if_earlier = true,
                _ => {
                    let option = String::from_utf8_lossy(word.spelled);
                    return Err(CommandError::text(format!("ERR Unsupported option {option}")));
                }
            }
        }
        let Self { if_persistent, if_expiring, if_later, if_earlier } = conditions;
        if if_persistent && (if_expiring || if_later || if_earlier) {
            return Err(CommandError::new(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if if_later && if_earlier {
            return Err(CommandError::new(
                "ERR GT and LT options at the same time are not compatible",
            ));
        }
        Ok(conditions)
    }

    /// Checks the conditions. A key without a deadline counts as living for ever.
    fn hold(self, current_ms: Option<i64>, at_ms: i64) -> bool {
        let (expiring, current_ms) = (current_ms.is_some(), current_ms.unwrap_or(i64::MAX));
        !(self.if_persistent && expiring
            || self.if_expiring && !expiring
            || self.if_later && (!expiring || at_ms <= current_ms)
            || self.if_earlier && expiring && at_ms >= current_ms)
    }
}

fn expire(
    ctx: &mut Context<'_, '_>,
    [key, time]: [&[u8]; 2],
    options: Rest<'_>,
    form: TimeForm,
) -> Done {
    let conditions = Conditions::parse(Options::of(options))?;
    let at_ms = form
        .to_unix_ms(integer(time)?, ctx.moment_ms())
        .ok_or_else(|| CommandError::invalid_expire(ctx.name()))?;
    let (mut db, key, reply) = ctx.open(key);
    let set = db.set_deadline_if(key, at_ms, |current_ms| conditions.hold(current_ms, at_ms));
    db.event_of_deadline(key, set);
    reply.int((set != DeadlineSet::Absent).into());
    Ok(())
}

fn time_left(ctx: &mut Context<'_, '_>, key: &[u8], form: TimeForm) -> Done {
    const ABSENT: i64 = -2;
    const PERSISTENT: i64 = -1;
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(key);
    let ttl = db.ttl(key);
    db.count_read(key, ttl != Ttl::Absent);
    reply.int(match ttl {
        Ttl::Absent => ABSENT,
        Ttl::Persistent => PERSISTENT,
        Ttl::Until(at_ms) => {
            let ms = if form.base == TimeBase::Epoch { at_ms } else { (at_ms - now_ms).max(0) };
            match form.unit {
                TimeUnit::Seconds => ms.saturating_add(500) / 1000,
                TimeUnit::Milliseconds => ms,
            }
        }
    });
    Ok(())
}

fn persist(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1]) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    let cleared = db.clear_deadline(key);
    if cleared {
        db.event(Event::Persist, key);
    }
    reply.int(cleared.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_compare_with_the_present_time() {
        let none = Conditions::default();
        let only = |set: fn(&mut Conditions)| {
            let mut conditions = none;
            set(&mut conditions);
            conditions
        };
        let later = only(|c| c.if_later = true);
        let earlier = only(|c| c.if_earlier = true);
        let persistent = only(|c| c.if_persistent = true);
        let expiring = only(|c| c.if_expiring = true);
        for (conditions, when_persistent, at_5, at_10, at_15) in [
            (none, true, true, true, true),
            (persistent, true, false, false, false),
            (expiring, false, true, true, true),
            (later, false, false, false, true),
            (earlier, true, true, false, false),
        ] {
            assert_eq!(conditions.hold(None, 10), when_persistent);
            assert_eq!(conditions.hold(Some(10), 5), at_5);
            assert_eq!(conditions.hold(Some(10), 10), at_10);
            assert_eq!(conditions.hold(Some(10), 15), at_15);
        }
    }
}
