//! HEXPIRE and its relatives: the time to live of fields, as in Redis 7.4.

use tierce_collections::Hash;
use tierce_keyspace::{CollectionType, Editor, Event, Missing};
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::{TimeBase, TimeForm, TimeUnit, integer};
use crate::error::CommandError;
use crate::pipeline::{Body, Context, Defined, Done, at_least};
use crate::reply::Reply;

const UPDATE: &[KeySpec] = &[KeySpec::at(1, KeyFlags::UPDATE)];
const READ: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ)];

const fn setter(name: &'static str, body: Body) -> Defined {
    Defined::new(name, Group::Hash, body)
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .keys(UPDATE)
}

const fn getter(name: &'static str, body: Body) -> Defined {
    Defined::new(name, Group::Hash, body).flags(Flags::READONLY.with(Flags::FAST)).keys(READ)
}

const SINCE: &str = "7.4.0";
const COMPLEXITY: &str = "O(N) where N is the number of specified fields";
const FIELDS: &str = "key FIELDS numfields field [field ...]";

pub(super) static COMMANDS: &[Defined] = &[
    setter("hexpire", at_least!(|ctx, args, rest| expire(ctx, args, rest, TimeForm::EX)))
        .since(SINCE, COMPLEXITY)
        .doc(
            "key seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
            "Sets the expiration time of fields of a hash in seconds.",
        )
        .example(
            r#"
            > HSET user:1 name Ada token 8f3a
            (integer) 2
            > HEXPIRE user:1 3600 FIELDS 2 token nosuch
            1) (integer) 1
            2) (integer) -2
            > HTTL user:1 FIELDS 2 token name
            1) (integer) 3...
            2) (integer) -1
            > HEXPIRE user:1 7200 LT FIELDS 1 token
            1) (integer) 0
            "#,
        ),
    setter("hpexpire", at_least!(|ctx, args, rest| expire(ctx, args, rest, TimeForm::PX)))
        .since(SINCE, COMPLEXITY)
        .doc(
            "key milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
            "Sets the expiration time of fields of a hash in milliseconds.",
        )
        .example(
            r#"
            > HSET user:1 name Ada token 8f3a
            (integer) 2
            > HPEXPIRE user:1 3600000 FIELDS 1 token
            1) (integer) 1
            > HPTTL user:1 FIELDS 1 token
            1) (integer) 3...
            "#,
        ),
    setter("hexpireat", at_least!(|ctx, args, rest| expire(ctx, args, rest, TimeForm::EXAT)))
        .since(SINCE, COMPLEXITY)
        .doc(
            "key unix-time-seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
            "Sets the expiration time of fields of a hash to a Unix timestamp in seconds.",
        )
        .example(
            r#"
            > HSET user:1 name Ada token 8f3a
            (integer) 2
            > HEXPIREAT user:1 33177117420 FIELDS 1 token
            1) (integer) 1
            > HEXPIREAT user:1 1 FIELDS 1 token
            1) (integer) 2
            > HGETALL user:1
            1) "name"
            2) "Ada"
            "#,
        ),
    setter("hpexpireat", at_least!(|ctx, args, rest| expire(ctx, args, rest, TimeForm::PXAT)))
        .since(SINCE, COMPLEXITY)
        .doc(
            "key unix-time-milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
            "Sets the expiration time of fields of a hash to a Unix timestamp in milliseconds.",
        )
        .example(
            r#"
            > HSET user:1 name Ada token 8f3a
            (integer) 2
            > HPEXPIREAT user:1 33177117420000 FIELDS 1 token
            1) (integer) 1
            > HPEXPIRETIME user:1 FIELDS 1 token
            1) (integer) 33177117420000
            "#,
        ),
    getter("httl", at_least!(|ctx, args, rest| time_left(ctx, args, rest, TimeForm::EX)))
        .tips(&["nondeterministic_output"])
        .since(SINCE, COMPLEXITY)
        .doc(FIELDS, "Returns the time to live of fields of a hash in seconds.")
        .example(
            r#"
            > HSET user:1 name Ada token 8f3a
            (integer) 2
            > HEXPIRE user:1 3600 FIELDS 1 token
            1) (integer) 1
            > HTTL user:1 FIELDS 3 token name nosuch
            1) (integer) 3...
            2) (integer) -1
            3) (integer) -2
            "#,
        ),
    getter("hpttl", at_least!(|ctx, args, rest| time_left(ctx, args, rest, TimeForm::PX)))
        .tips(&["nondeterministic_output"])
        .since(SINCE, COMPLEXITY)
        .doc(FIELDS, "Returns the time to live of fields of a hash in milliseconds.")
        .example(
            r#"
            > HSET user:1 name Ada token 8f3a
            (integer) 2
            > HPEXPIRE user:1 3600000 FIELDS 1 token
            1) (integer) 1
            > HPTTL user:1 FIELDS 2 token name
            1) (integer) 3...
            2) (integer) -1
            "#,
        ),
    getter("hexpiretime", at_least!(|ctx, args, rest| time_left(ctx, args, rest, TimeForm::EXAT)))
        .since(SINCE, COMPLEXITY)
        .doc(
            FIELDS,
            "Returns the expiration time of fields of a hash as a Unix timestamp in seconds.",
        )
        .example(
            r#"
            > HSET user:1 name Ada token 8f3a
            (integer) 2
            > HEXPIREAT user:1 33177117420 FIELDS 1 token
            1) (integer) 1
            > HEXPIRETIME user:1 FIELDS 2 token name
            1) (integer) 33177117420
            2) (integer) -1
            "#,
        ),
    getter("hpexpiretime", at_least!(|ctx, args, rest| time_left(ctx, args, rest, TimeForm::PXAT)))
        .since(SINCE, COMPLEXITY)
        .doc(
            FIELDS,
            "Returns the expiration time of fields of a hash as a Unix timestamp in milliseconds.",
        )
        .example(
            r#"
            > HSET user:1 name Ada token 8f3a
            (integer) 2
            > HPEXPIREAT user:1 33177117420000 FIELDS 1 token
            1) (integer) 1
            > HPEXPIRETIME user:1 FIELDS 2 token name
            1) (integer) 33177117420000
            2) (integer) -1
            "#,
        ),
    Defined::new("hpersist", Group::Hash, at_least!(persist))
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(UPDATE)
        .since(SINCE, COMPLEXITY)
        .doc(FIELDS, "Removes the expiration time of fields of a hash.")
        .example(
            r#"
            > HSET user:1 name Ada token 8f3a
            (integer) 2
            > HEXPIRE user:1 3600 FIELDS 1 token
            1) (integer) 1
            > HPERSIST user:1 FIELDS 2 token name
            1) (integer) 1
            2) (integer) -1
            > HTTL user:1 FIELDS 1 token
            1) (integer) -1
            "#,
        ),
];

/// Numbers in the reply for each field.
pub(in crate::commands) const NO_FIELD: i64 = -2;
pub(in crate::commands) const NO_DEADLINE: i64 = -1;
pub(in crate::commands) const CONDITION_NOT_MET: i64 = 0;
pub(in crate::commands) const DONE: i64 = 1;
pub(in crate::commands) const DELETED: i64 = 2;

/// Words for the elements in arguments and errors: fields of hashes or members of sets.
pub(in crate::commands) struct Elements {
    pub(in crate::commands) word: &'static str,
    pub(in crate::commands) not_in_place: CommandError,
    pub(in crate::commands) bad_count: CommandError,
    pub(in crate::commands) bad_count_of_expire: CommandError,
    pub(in crate::commands) other_count: CommandError,
}

pub(super) const OF_HASH: Elements = Elements {
    word: "fields",
    not_in_place: CommandError::new(
        "ERR Mandatory argument FIELDS is missing or not at the right position",
    ),
    bad_count: CommandError::new("ERR Number of fields must be a positive integer"),
    bad_count_of_expire: CommandError::new("ERR Parameter `numFields` should be greater than 0"),
    other_count: CommandError::new(
        "ERR The `numfields` parameter must match the number of arguments",
    ),
};

/// Last deadline of a field, as in Redis: 2^46 - 1 milliseconds, more than 2,000 years.
const DEADLINE_MAX_MS: i64 = (1 << 46) - 1;

/// Condition for setting the deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Condition {
    Always,
    IfPersistent,
    IfExpiring,
    IfLater,
    IfEarlier,
}

impl Condition {
    fn named(word: &[u8]) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_slice() {
            b"nx" => Self::IfPersistent,
            b"xx" => Self::IfExpiring,
            b"gt" => Self::IfLater,
            b"lt" => Self::IfEarlier,
            _ => return None,
        })
    }

    /// Checks the condition. A field without a deadline counts as living for ever.
    pub(in crate::commands) fn holds(self, current: Option<i64>, at_ms: i64) -> bool {
        match self {
            Self::Always => true,
            Self::IfPersistent => current.is_none(),
            Self::IfExpiring => current.is_some(),
            Self::IfLater => current.is_some_and(|current| at_ms > current),
            Self::IfEarlier => current.is_none_or(|current| at_ms < current),
        }
    }
}

/// Returns the names after `FIELDS numfields`, or what these are called.
pub(in crate::commands) fn names_of<'a>(
    of: &Elements,
    arguments: Options<'a>,
) -> Result<Rest<'a>, CommandError> {
    names_or(of, arguments, &of.bad_count)
}

fn names_or<'a>(
    of: &Elements,
    mut arguments: Options<'a>,
    bad_count: &CommandError,
) -> Result<Rest<'a>, CommandError> {
    if !arguments.take(of.word) {
        return Err(of.not_in_place.clone());
    }
    let count = arguments.next_value().and_then(|count| integer(count).ok());
    let count = count.filter(|count| *count > 0).ok_or_else(|| bad_count.clone())?;
    let names = arguments.rest();
    if count != names.len() as i64 { Err(of.other_count.clone()) } else { Ok(names) }
}

/// Converts a time argument to a deadline.
pub(in crate::commands) fn deadline(
    arg: &[u8],
    form: TimeForm,
    now_ms: i64,
    command: &str,
) -> Result<i64, CommandError> {
    let value = integer(arg)?;
    if value < 0 {
        return Err(CommandError::new("ERR invalid expire time, must be >= 0"));
    }
    form.to_unix_ms(value, now_ms)
        .filter(|at_ms| *at_ms <= DEADLINE_MAX_MS)
        .ok_or_else(|| CommandError::invalid_expire(command))
}

/// Arguments of HEXPIRE and its relatives after the key.
pub(in crate::commands) struct Expire<'a> {
    pub(in crate::commands) at_ms: i64,
    pub(in crate::commands) condition: Condition,
    pub(in crate::commands) names: Rest<'a>,
}

impl<'a> Expire<'a> {
    pub(in crate::commands) fn parse(
        ctx: &Context<'_, '_>,
        time: &[u8],
        mut arguments: Options<'a>,
        form: TimeForm,
        of: &Elements,
    ) -> Result<Self, CommandError> {
        let at_ms = deadline(time, form, ctx.moment_ms(), ctx.name())?;
        let condition = arguments.clone().next_value().and_then(Condition::named);
        if condition.is_some() {
            arguments.next_value();
        }
        let names = names_or(of, arguments, &of.bad_count_of_expire)?;
        Ok(Self { at_ms, condition: condition.unwrap_or(Condition::Always), names })
    }
}

fn expire(
    ctx: &mut Context<'_, '_>,
    [key, time]: [&[u8]; 2],
    fields: Rest<'_, 3>,
    form: TimeForm,
) -> Done {
    let Expire { at_ms, condition, names } =
        Expire::parse(ctx, time, Options::of(fields), form, &OF_HASH)?;
    // All fields get the same deadline, so either all changed ones keep it or all expire at once.
    let event = if at_ms <= ctx.now_ms { Event::HDel } else { Event::HExpire };
    number_each::<Hash>(ctx, key, names, event, |hash, name, now_ms| {
        let Some(field) = hash.get(name, now_ms) else { return NO_FIELD };
        if !condition.holds(field.deadline_ms, at_ms) {
            CONDITION_NOT_MET
        } else if at_ms <= now_ms {
            hash.remove(name);
            DELETED
        } else {
            hash.set_deadline(name, Some(at_ms));
            DONE
        }
    })
}

fn persist(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], fields: Rest<'_, 3>) -> Done {
    let names = names_of(&OF_HASH, Options::of(fields))?;
    number_each::<Hash>(ctx, key, names, Event::HPersist, |hash, name, now_ms| {
        match hash.get(name, now_ms).map(|field| field.deadline_ms) {
            None => NO_FIELD,
            Some(None) => NO_DEADLINE,
            Some(Some(_)) => {
                hash.set_deadline(name, None);
                DONE
            }
        }
    })
}

/// Edits each field, and replies with the results.
pub(in crate::commands) fn number_each<T: CollectionType>(
    ctx: &mut Context<'_, '_>,
    key: &[u8],
    names: Rest<'_>,
    event: Event,
    mut edit: impl FnMut(&mut Editor<'_, T>, &[u8], i64) -> i64,
) -> Done {
    edit_each::<T>(ctx, key, names, event, |reply, now_ms, found| {
        let outcome = found.map_or(NO_FIELD, |(hash, name)| edit(hash, name, now_ms));
        reply.int(outcome);
        matches!(outcome, DONE | DELETED)
    })
}

/// Calls `edit` for each field with the hash and the name, or without them if there is no hash. It replies, and returns
/// true if it has changed the field. If it has changed any, `event` is reported.
pub(super) fn edit_each<T: CollectionType>(
    ctx: &mut Context<'_, '_>,
    key: &[u8],
    names: Rest<'_>,
    event: Event,
    mut edit: impl FnMut(&mut Reply<'_>, i64, Option<(&mut Editor<'_, T>, &[u8])>) -> bool,
) -> Done {
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(key);
    let edited = db.edit::<T, _, CommandError>(key, Missing::Skip, |hash| {
        reply.array(names.len());
        let mut edited = false;
        for name in names.iter() {
            edited |= edit(reply, now_ms, Some((&mut *hash, name)));
        }
        Ok(edited)
    })?;
    match edited {
        Some(true) => db.event_of_edit(event, key),
        Some(false) => {}
        None => {
            reply.array(names.len());
            names.iter().for_each(|_| _ = edit(reply, now_ms, None));
        }
    }
    Ok(())
}

fn time_left(
    ctx: &mut Context<'_, '_>,
    [key]: [&[u8]; 1],
    fields: Rest<'_, 3>,
    form: TimeForm,
) -> Done {
    let names = names_of(&OF_HASH, Options::of(fields))?;
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(key);
    let hash = db.collection::<Hash>(key)?;
    reply.array(names.len());
    for name in names.iter() {
        let field = hash.as_ref().and_then(|hash| hash.get(name, now_ms));
        reply.int(shown_time(field.map(|field| field.deadline_ms), form, now_ms));
    }
    Ok(())
}

/// Returns the number in the reply for an element with this deadline, if it exists.
pub(in crate::commands) fn shown_time(
    found: Option<Option<i64>>,
    form: TimeForm,
    now_ms: i64,
) -> i64 {
    match found {
        None => NO_FIELD,
        Some(None) => NO_DEADLINE,
        Some(Some(at_ms)) => {
            let ms = if form.base == TimeBase::Epoch { at_ms } else { at_ms - now_ms };
            // Seconds are rounded up here, but not for keys.
            if form.unit == TimeUnit::Seconds { ms.saturating_add(999) / 1000 } else { ms }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_compare_with_the_present_time() {
        for (condition, when_persistent, at_5, at_10, at_15) in [
            (Condition::Always, true, true, true, true),
            (Condition::IfPersistent, true, false, false, false),
            (Condition::IfExpiring, false, true, true, true),
            (Condition::IfLater, false, false, false, true),
            (Condition::IfEarlier, true, true, false, false),
        ] {
            assert_eq!(condition.holds(None, 10), when_persistent);
            assert_eq!([5, 10, 15].map(|at| condition.holds(Some(10), at)), [at_5, at_10, at_15]);
        }
    }
}
