//! HEXPIRE and its relatives: the time to live of fields, as in Redis 7.4.

use tierce_collections::Hash;
use tierce_keyspace::{Editor, Missing};
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, Handler, KeyFlags, KeySpec, Spec};
use crate::commands::options::{TimeBase, TimeForm, TimeUnit, integer};
use crate::error::CommandError;
use crate::execute::Context;

const UPDATE: &[KeySpec] = &[KeySpec::at(1, KeyFlags::UPDATE)];
const READ: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ)];

const fn setter(name: &'static str, run: Handler) -> Spec {
    Spec::new(name, -6, Group::Hash, run)
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .keys(UPDATE)
}

const fn getter(name: &'static str, run: Handler) -> Spec {
    Spec::new(name, -5, Group::Hash, run).flags(Flags::READONLY.with(Flags::FAST)).keys(READ)
}

const SINCE: &str = "7.4.0";
const COMPLEXITY: &str = "O(N) where N is the number of specified fields";
const FIELDS: &str = "key FIELDS numfields field [field ...]";

pub(super) static COMMANDS: &[Spec] = &[
    setter("hexpire", |ctx, args| expire(ctx, args, TimeForm::EX)).doc(
        SINCE,
        COMPLEXITY,
        "key seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        "Sets the expiration time of fields of a hash in seconds.",
    ),
    setter("hpexpire", |ctx, args| expire(ctx, args, TimeForm::PX)).doc(
        SINCE,
        COMPLEXITY,
        "key milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        "Sets the expiration time of fields of a hash in milliseconds.",
    ),
    setter("hexpireat", |ctx, args| expire(ctx, args, TimeForm::EXAT)).doc(
        SINCE,
        COMPLEXITY,
        "key unix-time-seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        "Sets the expiration time of fields of a hash to a Unix timestamp in seconds.",
    ),
    setter("hpexpireat", |ctx, args| expire(ctx, args, TimeForm::PXAT)).doc(
        SINCE,
        COMPLEXITY,
        "key unix-time-milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        "Sets the expiration time of fields of a hash to a Unix timestamp in milliseconds.",
    ),
    getter("httl", |ctx, args| time_left(ctx, args, TimeForm::EX))
        .tips(&["nondeterministic_output"])
        .doc(SINCE, COMPLEXITY, FIELDS, "Returns the time to live of fields of a hash in seconds."),
    getter("hpttl", |ctx, args| time_left(ctx, args, TimeForm::PX))
        .tips(&["nondeterministic_output"])
        .doc(
            SINCE,
            COMPLEXITY,
            FIELDS,
            "Returns the time to live of fields of a hash in milliseconds.",
        ),
    getter("hexpiretime", |ctx, args| time_left(ctx, args, TimeForm::EXAT)).doc(
        SINCE,
        COMPLEXITY,
        FIELDS,
        "Returns the expiration time of fields of a hash as a Unix timestamp in seconds.",
    ),
    getter("hpexpiretime", |ctx, args| time_left(ctx, args, TimeForm::PXAT)).doc(
        SINCE,
        COMPLEXITY,
        FIELDS,
        "Returns the expiration time of fields of a hash as a Unix timestamp in milliseconds.",
    ),
    Spec::new("hpersist", -5, Group::Hash, persist)
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(UPDATE)
        .doc(SINCE, COMPLEXITY, FIELDS, "Removes the expiration time of fields of a hash."),
];

type Done = Result<(), CommandError>;

/// What became of a field, as a number.
const NO_FIELD: i64 = -2;
const NO_DEADLINE: i64 = -1;
const CONDITION_NOT_MET: i64 = 0;
const DONE: i64 = 1;
const DELETED: i64 = 2;

/// The last deadline a field can have: 2^46 - 1 milliseconds, like in Redis, more than 2,000 years.
const DEADLINE_MAX_MS: i64 = (1 << 46) - 1;

/// When the time is set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
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

    /// A field without a time to live counts as one that lives for ever.
    fn holds(self, current: Option<i64>, at_ms: i64) -> bool {
        match self {
            Self::Always => true,
            Self::IfPersistent => current.is_none(),
            Self::IfExpiring => current.is_some(),
            Self::IfLater => current.is_some_and(|current| at_ms > current),
            Self::IfEarlier => current.is_none_or(|current| at_ms < current),
        }
    }
}

/// The names behind `FIELDS numfields` at this index.
fn fields<'a>(
    args: Args<'a>,
    at: usize,
    bad_count: CommandError,
) -> Result<Args<'a>, CommandError> {
    let is_there = args.get(at).is_some_and(|word| word.eq_ignore_ascii_case(b"fields"));
    if !is_there {
        return Err(CommandError::new(
            "ERR Mandatory argument FIELDS is missing or not at the right position",
        ));
    }
    let count = args.get(at + 1).and_then(|count| integer(count).ok());
    let count = count.filter(|count| *count > 0).ok_or(bad_count)?;
    let names = args.from(at + 2);
    if count != names.len() as i64 {
        return Err(CommandError::new(
            "ERR The `numfields` parameter must match the number of arguments",
        ));
    }
    Ok(names)
}

/// When a time that was given comes.
fn deadline(arg: &[u8], form: TimeForm, now_ms: i64, command: &str) -> Result<i64, CommandError> {
    let value = integer(arg)?;
    if value < 0 {
        return Err(CommandError::new("ERR invalid expire time, must be >= 0"));
    }
    form.to_unix_ms(value, now_ms)
        .filter(|at_ms| *at_ms <= DEADLINE_MAX_MS)
        .ok_or_else(|| CommandError::invalid_expire(command))
}

fn expire(ctx: &mut Context<'_, '_>, args: Args<'_>, form: TimeForm) -> Done {
    let at_ms = deadline(&args[2], form, ctx.now_ms, ctx.name())?;
    let condition = Condition::named(&args[3]);
    let bad_count = CommandError::new("ERR Parameter `numFields` should be greater than 0");
    let names = fields(args, 3 + usize::from(condition.is_some()), bad_count)?;
    let condition = condition.unwrap_or(Condition::Always);
    edit_each(ctx, args.at(1), names, |hash, name, now_ms| {
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

fn persist(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let names = fields(args, 2, NUMBER_OF_FIELDS)?;
    edit_each(ctx, args.at(1), names, |hash, name, now_ms| {
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

const NUMBER_OF_FIELDS: CommandError =
    CommandError::new("ERR Number of fields must be a positive integer");

/// Does something to each field, and replies with what became of it.
fn edit_each(
    ctx: &mut Context<'_, '_>,
    key: &[u8],
    names: Args<'_>,
    mut edit: impl FnMut(&mut Editor<'_, Hash>, &[u8], i64) -> i64,
) -> Done {
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(key);
    let edited = db.edit::<Hash, _, CommandError>(key, Missing::Skip, |hash| {
        reply.array(names.len());
        names.iter().for_each(|name| reply.int(edit(hash, name, now_ms)));
        Ok(())
    })?;
    if edited.is_none() {
        reply.array(names.len());
        names.iter().for_each(|_| reply.int(NO_FIELD));
    }
    Ok(())
}

fn time_left(ctx: &mut Context<'_, '_>, args: Args<'_>, form: TimeForm) -> Done {
    let names = fields(args, 2, NUMBER_OF_FIELDS)?;
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let hash = db.collection::<Hash>(key)?;
    reply.array(names.len());
    for name in names.iter() {
        let field = hash.as_ref().and_then(|hash| hash.get(name, now_ms));
        reply.int(match field.map(|field| field.deadline_ms) {
            None => NO_FIELD,
            Some(None) => NO_DEADLINE,
            Some(Some(at_ms)) => {
                let ms = if form.base == TimeBase::Epoch { at_ms } else { at_ms - now_ms };
                // Seconds are rounded up, unlike for keys.
                if form.unit == TimeUnit::Seconds { ms.saturating_add(999) / 1000 } else { ms }
            }
        });
    }
    Ok(())
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
