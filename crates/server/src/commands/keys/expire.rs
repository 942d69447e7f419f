//! EXPIRE and TTL in all their forms, and PERSIST.

use tierce_keyspace::{DeadlineSet, Ttl};
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, Handler, KeyFlags, KeySpec, Spec};
use crate::commands::options::{TimeBase, TimeForm, TimeUnit, integer};
use crate::error::CommandError;
use crate::execute::Context;

const SET_KEY: &[KeySpec] = &[KeySpec::at(1, KeyFlags::UPDATE)];
const GET_KEY: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ)];

const fn setter(name: &'static str, run: Handler) -> Spec {
    let flags = Flags::WRITE.with(Flags::FAST).with(Flags::KEY_ONLY);
    Spec::new(name, -3, Group::Generic, run).flags(flags).keys(SET_KEY)
}

const fn getter(name: &'static str, run: Handler) -> Spec {
    let flags = Flags::READONLY.with(Flags::FAST).with(Flags::KEY_ONLY);
    Spec::new(name, 2, Group::Generic, run).flags(flags).keys(GET_KEY)
}

pub(super) static COMMANDS: &[Spec] = &[
    setter("expire", |ctx, args| expire(ctx, args, TimeForm::EX)).doc(
        "1.0.0",
        "O(1)",
        "key seconds [NX | XX | GT | LT]",
        "Sets the expiration time of a key in seconds.",
    ),
    setter("expireat", |ctx, args| expire(ctx, args, TimeForm::EXAT)).doc(
        "1.2.0",
        "O(1)",
        "key unix-time-seconds [NX | XX | GT | LT]",
        "Sets the expiration time of a key to a Unix timestamp.",
    ),
    setter("pexpire", |ctx, args| expire(ctx, args, TimeForm::PX)).doc(
        "2.6.0",
        "O(1)",
        "key milliseconds [NX | XX | GT | LT]",
        "Sets the expiration time of a key in milliseconds.",
    ),
    setter("pexpireat", |ctx, args| expire(ctx, args, TimeForm::PXAT)).doc(
        "2.6.0",
        "O(1)",
        "key unix-time-milliseconds [NX | XX | GT | LT]",
        "Sets the expiration time of a key to a Unix timestamp in milliseconds.",
    ),
    getter("ttl", |ctx, args| time_left(ctx, args, TimeForm::EX))
        .tips(&["nondeterministic_output"])
        .doc("1.0.0", "O(1)", "key", "Returns the time to live of a key in seconds."),
    getter("pttl", |ctx, args| time_left(ctx, args, TimeForm::PX))
        .tips(&["nondeterministic_output"])
        .doc("2.6.0", "O(1)", "key", "Returns the time to live of a key in milliseconds."),
    getter("expiretime", |ctx, args| time_left(ctx, args, TimeForm::EXAT)).doc(
        "7.0.0",
        "O(1)",
        "key",
        "Returns the expiration time of a key as a Unix timestamp.",
    ),
    getter("pexpiretime", |ctx, args| time_left(ctx, args, TimeForm::PXAT)).doc(
        "7.0.0",
        "O(1)",
        "key",
        "Returns the expiration time of a key as a Unix timestamp in milliseconds.",
    ),
    Spec::new("persist", 2, Group::Generic, persist)
        .flags(Flags::WRITE.with(Flags::FAST).with(Flags::KEY_ONLY))
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
        .doc("2.2.0", "O(1)", "key", "Removes the expiration time of a key."),
];

type Done = Result<(), CommandError>;

/// When EXPIRE sets the time; all that are given must hold.
#[derive(Clone, Copy, Default)]
struct Conditions {
    if_persistent: bool,
    if_expiring: bool,
    if_later: bool,
    if_earlier: bool,
}

impl Conditions {
    fn parse(options: Args<'_>) -> Result<Self, CommandError> {
        let mut conditions = Self::default();
        for option in options.iter() {
            match option.to_ascii_lowercase().as_slice() {
                b"nx" => conditions.if_persistent = true,
                b"xx" => conditions.if_expiring = true,
                b"gt" => conditions.if_later = true,
                b"lt" => conditions.if_earlier = true,
                _ => {
                    let option = String::from_utf8_lossy(option);
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

    /// A key without a time to live counts as one that lives for ever.
    fn hold(self, current: Ttl, at_ms: i64) -> bool {
        let (expiring, current_ms) = match current {
            Ttl::Until(ms) => (true, ms),
            _ => (false, i64::MAX),
        };
        !(self.if_persistent && expiring
            || self.if_expiring && !expiring
            || self.if_later && (!expiring || at_ms <= current_ms)
            || self.if_earlier && expiring && at_ms >= current_ms)
    }
}

fn expire(ctx: &mut Context<'_, '_>, args: Args<'_>, form: TimeForm) -> Done {
    let conditions = Conditions::parse(args.from(3))?;
    let at_ms = form
        .to_unix_ms(integer(&args[2])?, ctx.now_ms)
        .ok_or_else(|| CommandError::invalid_expire(ctx.name()))?;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let set = match db.ttl(key) {
        Ttl::Absent => false,
        current => {
            conditions.hold(current, at_ms) && db.set_deadline(key, at_ms) != DeadlineSet::Absent
        }
    };
    reply.int(set.into());
    Ok(())
}

fn time_left(ctx: &mut Context<'_, '_>, args: Args<'_>, form: TimeForm) -> Done {
    const ABSENT: i64 = -2;
    const PERSISTENT: i64 = -1;
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let ttl = db.ttl(key);
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

fn persist(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    reply.int(db.clear_deadline(key).into());
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
            assert_eq!(conditions.hold(Ttl::Persistent, 10), when_persistent);
            assert_eq!(conditions.hold(Ttl::Until(10), 5), at_5);
            assert_eq!(conditions.hold(Ttl::Until(10), 10), at_10);
            assert_eq!(conditions.hold(Ttl::Until(10), 15), at_15);
        }
    }
}
