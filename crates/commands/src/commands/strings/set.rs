//! SET and its relatives: store a whole string under one key.

use tierce_keyspace::{Event, Expiry};
use tierce_wire::resp::Rest;

use super::compare::Relation;
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::TimeForm;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least, exactly};
use crate::reply::Reply;

const STORE: Flags = Flags::WRITE.with(Flags::DENYOOM);

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("set", Group::String, at_least!(set))
        .flags(STORE.with(Flags::BRIEF))
        .keys(&[KeySpec::at(1, KeyFlags::VARIABLE)
            .note("RW and access because of GET, and of conditions on the value")])
        .since("1.0.0", "O(1)")
        .doc(
            "key value [NX | XX | IFEQ ifeq-value | IFNE ifne-value | IFDEQ ifdeq-digest | \
             IFDNE ifdne-digest] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | KEEPTTL]",
            "Sets the string value of a key, whatever its type was. The key is created if it does \
             not exist. `IFEQ` and `IFNE` are conditions on the old value, `IFDEQ` and `IFDNE` on its \
             `DIGEST`.",
        )
        .example(
            r#"
            > SET greeting Hello
            OK
            > GET greeting
            "Hello"
            > SET greeting Goodbye GET
            "Hello"
            > SET lock:7 worker-1 NX EX 3600
            OK
            > SET lock:7 worker-2 NX EX 3600
            (nil)
            > SET lock:7 worker-1 IFEQ worker-1 EX 7200
            OK
            "#,
        ),
    Defined::new("setnx", Group::String, exactly!(set_nx))
        .deprecated("2.6.12", "`SET` with the `NX` argument")
        .flags(STORE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::INSERT)])
        .since("1.0.0", "O(1)")
        .doc("key value", "Sets the string value of a key only if it is absent.")
        .example(
            r#"
            > SETNX lock:7 worker-1
            (integer) 1
            > SETNX lock:7 worker-2
            (integer) 0
            > GET lock:7
            "worker-1"
            "#,
        ),
    Defined::new("setex", Group::String, exactly!(set_ex))
        .deprecated("2.6.12", "`SET` with the `EX` argument")
        .flags(STORE.with(Flags::BRIEF))
        .keys(&[KeySpec::at(1, KeyFlags::OVERWRITE)])
        .since("2.0.0", "O(1)")
        .doc("key seconds value", "Sets the string value and expiration time of a key.")
        .example(
            r#"
            > SETEX session:7 3600 Ada
            OK
            > GET session:7
            "Ada"
            > TTL session:7
            (integer) 3...
            > SETEX session:7 0 Ada
            (error) ERR invalid expire time in 'setex' command
            "#,
        ),
    Defined::new("psetex", Group::String, exactly!(pset_ex))
        .deprecated("2.6.12", "`SET` with the `PX` argument")
        .flags(STORE.with(Flags::BRIEF))
        .keys(&[KeySpec::at(1, KeyFlags::OVERWRITE)])
        .since("2.6.0", "O(1)")
        .doc(
            "key milliseconds value",
            "Sets the string value and expiration time in milliseconds of a key.",
        )
        .example(
            r#"
            > PSETEX session:7 3600000 Ada
            OK
            > PTTL session:7
            (integer) 3...
            "#,
        ),
    Defined::new("getset", Group::String, exactly!(get_set))
        .deprecated("6.2.0", "`SET` with the `!GET` argument")
        .flags(STORE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::READ_UPDATE)])
        .since("1.0.0", "O(1)")
        .doc(
            "key value",
            "Returns the previous string value of a key after setting it to a new value.",
        )
        .example(
            r#"
            > SET color red
            OK
            > GETSET color blue
            "red"
            > GET color
            "blue"
            "#,
        ),
];

/// Condition of SET and MSETEX.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    Always,
    IfAbsent,
    IfPresent,
}

/// Time for which a string is stored.
#[derive(Clone, Copy)]
enum Lifetime<'a> {
    Endless,
    Kept,
    Until(TimeForm, &'a [u8]),
}

/// Options of SET and MSETEX.
pub(super) struct SetOptions<'a> {
    pub(super) condition: Condition,
    /// Condition on the old value, with its operand. Excludes `condition`.
    pub(super) relation: Option<(Relation, &'a [u8])>,
    pub(super) get: bool,
    lifetime: Lifetime<'a>,
}

impl<'a> SetOptions<'a> {
    /// Parses the options. One may be repeated; then the last one counts.
    pub(super) fn parse(mut options: Options<'a>) -> Result<Self, CommandError> {
        use Condition::{Always, IfAbsent, IfPresent};
        use Lifetime::{Endless, Kept, Until};
        let mut parsed = Self { condition: Always, relation: None, get: false, lifetime: Endless };
        while let Some(word) = options.next_word() {
            let is = |name: &[u8]| *word == *name;
            if is(b"nx") && parsed.condition != IfPresent && parsed.relation.is_none() {
                parsed.condition = IfAbsent;
            } else if is(b"xx") && parsed.condition != IfAbsent && parsed.relation.is_none() {
                parsed.condition = IfPresent;
            } else if is(b"get") {
                parsed.get = true;
            } else if is(b"keepttl") && !matches!(parsed.lifetime, Until(..)) {
                parsed.lifetime = Kept;
            } else if let Some(form) = TimeForm::named(&word)
                && match parsed.lifetime {
                    Endless => true,
                    Kept => false,
                    Until(earlier, _) => earlier == form,
                }
            {
                parsed.lifetime = Until(form, options.value()?);
            } else if let Some(relation) = Relation::named(&word)
                && parsed.condition == Always
                && parsed.relation.is_none_or(|(earlier, _)| earlier == relation)
            {
                parsed.relation = Some((relation, options.value()?));
            } else {
                return Err(CommandError::SYNTAX);
            }
        }
        Ok(parsed)
    }

    /// Parses the time. That comes last, because an invalid word is reported first.
    pub(super) fn expiry(&self, now_ms: i64, command: &str) -> Result<Expiry, CommandError> {
        match self.lifetime {
            Lifetime::Endless => Ok(Expiry::Never),
            Lifetime::Kept => Ok(Expiry::Keep),
            Lifetime::Until(form, value) => Ok(Expiry::At(form.expiry(value, now_ms, command)?)),
        }
    }
}

#[inline]
fn set(ctx: &mut Context<'_, '_>, [key, value]: [&[u8]; 2], options: Rest<'_>) -> Done {
    if options.is_empty() {
        let value = ctx.string_of(value);
        let (mut db, key, reply) = ctx.open(key);
        db.set(key, value, Expiry::Never)?;
        db.event(Event::Set, key);
        reply.ok();
        return Ok(());
    }
    set_with_options(ctx, [key, value], options)
}

/// Apart from the plain SET, which needs fewer registers.
#[inline(never)]
fn set_with_options(
    ctx: &mut Context<'_, '_>,
    [key, value]: [&[u8]; 2],
    options: Rest<'_>,
) -> Done {
    let options = SetOptions::parse(Options::of(options))?;
    let expiry = options.expiry(ctx.moment_ms(), "set")?;
    match options.relation {
        None => set_with(ctx, [key, value], &options, expiry),
        Some(relation) => set_if(ctx, [key, value], relation, options.get, expiry),
    }
}

fn set_with(
    ctx: &mut Context<'_, '_>,
    [key, value]: [&[u8]; 2],
    options: &SetOptions<'_>,
    expiry: Expiry,
) -> Done {
    let value = ctx.string_of(value);
    let (mut db, key, reply) = ctx.open(key);
    let exists = if options.get {
        let old = db.string(key)?;
        reply.value_or_null(old);
        old.is_some()
    } else {
        options.condition != Condition::Always && db.peek(key).is_some()
    };
    let store = match options.condition {
        Condition::Always => true,
        Condition::IfAbsent => !exists,
        Condition::IfPresent => exists,
    };
    if store {
        db.set(key, value, expiry)?;
        db.event_of_store(key, expiry);
    }
    reply_of_set(reply, options.get, store);
    Ok(())
}

/// SET with a condition on the old value.
fn set_if(
    ctx: &mut Context<'_, '_>,
    [key, value]: [&[u8]; 2],
    (relation, operand): (Relation, &[u8]),
    get: bool,
    expiry: Expiry,
) -> Done {
    let (value, scale) = (ctx.string_of(value), ctx.scale());
    let (mut db, key, reply) = ctx.open(key);
    let old = if get { db.string(key)? } else { db.string_to_change(key)? };
    let store = relation.holds(old, operand, scale)?;
    if get {
        reply.value_or_null(old);
    }
    if store {
        db.set(key, value, expiry)?;
        db.event_of_store(key, expiry);
    }
    reply_of_set(reply, get, store);
    Ok(())
}

/// Replies, unless the old value is the reply.
fn reply_of_set(reply: &mut Reply<'_>, get: bool, stored: bool) {
    match (get, stored) {
        (true, _) => {}
        (false, true) => reply.ok(),
        (false, false) => reply.null(),
    }
}

fn set_nx(ctx: &mut Context<'_, '_>, [key, value]: [&[u8]; 2]) -> Done {
    let value = ctx.string_of(value);
    let (mut db, key, reply) = ctx.open(key);
    let store = db.peek(key).is_none();
    if store {
        db.set(key, value, Expiry::Never)?;
        db.event(Event::Set, key);
    }
    reply.int(store.into());
    Ok(())
}

fn set_ex(ctx: &mut Context<'_, '_>, [key, seconds, value]: [&[u8]; 3]) -> Done {
    set_timed(ctx, [key, seconds, value], TimeForm::EX)
}

fn pset_ex(ctx: &mut Context<'_, '_>, [key, milliseconds, value]: [&[u8]; 3]) -> Done {
    set_timed(ctx, [key, milliseconds, value], TimeForm::PX)
}

fn set_timed(ctx: &mut Context<'_, '_>, [key, seconds, value]: [&[u8]; 3], form: TimeForm) -> Done {
    let at_ms = form.expiry(seconds, ctx.moment_ms(), ctx.name())?;
    let value = ctx.string_of(value);
    let (mut db, key, reply) = ctx.open(key);
    db.set(key, value, Expiry::At(at_ms))?;
    db.event_of_store(key, Expiry::At(at_ms));
    reply.ok();
    Ok(())
}

fn get_set(ctx: &mut Context<'_, '_>, [key, value]: [&[u8]; 2]) -> Done {
    let value = ctx.string_of(value);
    let (mut db, key, reply) = ctx.open(key);
    reply.value_or_null(db.string(key)?);
    db.set(key, value, Expiry::Never)?;
    db.event(Event::Set, key);
    Ok(())
}
