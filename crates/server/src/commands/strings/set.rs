//! SET and its relatives: storing a whole string under one key.

use tierce_keyspace::Expiry;
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::TimeForm;
use crate::error::CommandError;
use crate::execute::Context;

const STORE: Flags = Flags::WRITE.with(Flags::DENYOOM);

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("set", -3, Group::String, set)
        .flags(STORE.with(Flags::BRIEF))
        .keys(&[KeySpec::at(1, KeyFlags::VARIABLE).note("RW and access because of the option GET")])
        .doc(
            "1.0.0",
            "O(1)",
            "key value [NX | XX] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | KEEPTTL]",
            "Sets the string value of a key, whatever its type was. The key is created if it does \
             not exist.",
        ),
    Spec::new("setnx", 3, Group::String, set_nx)
        .deprecated("2.6.12", "`SET` with the `NX` argument")
        .flags(STORE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::INSERT)])
        .doc("1.0.0", "O(1)", "key value", "Sets the string value of a key only if it is absent."),
    Spec::new("setex", 4, Group::String, set_ex)
        .deprecated("2.6.12", "`SET` with the `EX` argument")
        .flags(STORE.with(Flags::BRIEF))
        .keys(&[KeySpec::at(1, KeyFlags::OVERWRITE)])
        .doc(
            "2.0.0",
            "O(1)",
            "key seconds value",
            "Sets the string value and expiration time of a key.",
        ),
    Spec::new("psetex", 4, Group::String, pset_ex)
        .deprecated("2.6.12", "`SET` with the `PX` argument")
        .flags(STORE.with(Flags::BRIEF))
        .keys(&[KeySpec::at(1, KeyFlags::OVERWRITE)])
        .doc(
            "2.6.0",
            "O(1)",
            "key milliseconds value",
            "Sets the string value and expiration time in milliseconds of a key.",
        ),
    Spec::new("getset", 3, Group::String, get_set)
        .deprecated("6.2.0", "`SET` with the `!GET` argument")
        .flags(STORE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::READ_UPDATE)])
        .doc(
            "1.0.0",
            "O(1)",
            "key value",
            "Returns the previous string value of a key after setting it to a new value.",
        ),
];

type Done = Result<(), CommandError>;

/// When SET stores.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Always,
    IfAbsent,
    IfPresent,
}

struct SetOptions {
    condition: Condition,
    get: bool,
    expiry: Expiry,
}

impl SetOptions {
    fn parse(options: Args<'_>, now_ms: i64) -> Result<Self, CommandError> {
        let mut parsed = Self { condition: Condition::Always, get: false, expiry: Expiry::Never };
        // Looked at last, because a word that makes no sense is the worse mistake.
        let mut time: Option<(TimeForm, &[u8])> = None;
        let mut at = 0;
        while at < options.len() {
            let word = &options[at];
            let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
            if is(b"nx") && parsed.condition != Condition::IfPresent {
                parsed.condition = Condition::IfAbsent;
            } else if is(b"xx") && parsed.condition != Condition::IfAbsent {
                parsed.condition = Condition::IfPresent;
            } else if is(b"get") {
                parsed.get = true;
            } else if is(b"keepttl") && time.is_none() {
                parsed.expiry = Expiry::Keep;
            } else if let Some(form) = TimeForm::named(word)
                && time.is_none_or(|(earlier, _)| earlier == form)
                && parsed.expiry == Expiry::Never
                && at + 1 < options.len()
            {
                at += 1;
                time = Some((form, options.at(at)));
            } else {
                return Err(CommandError::SYNTAX);
            }
            at += 1;
        }
        if let Some((form, value)) = time {
            parsed.expiry = Expiry::At(form.expiry(value, now_ms, "set")?);
        }
        Ok(parsed)
    }
}

#[inline]
fn set(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if args.len() == 3 {
        let value = ctx.string_of(args.at(2));
        let (mut db, key, reply) = ctx.open(args.at(1));
        db.set(key, value, Expiry::Never)?;
        reply.ok();
        return Ok(());
    }
    let options = SetOptions::parse(args.from(3), ctx.now_ms)?;
    set_with(ctx, args, &options)
}

fn set_with(ctx: &mut Context<'_, '_>, args: Args<'_>, options: &SetOptions) -> Done {
    let value = ctx.string_of(args.at(2));
    let (mut db, key, reply) = ctx.open(args.at(1));
    let exists = if options.get {
        let old = db.string(key)?;
        reply.value_or_null(old);
        old.is_some()
    } else {
        options.condition != Condition::Always && db.exists(key)
    };
    let store = match options.condition {
        Condition::Always => true,
        Condition::IfAbsent => !exists,
        Condition::IfPresent => exists,
    };
    if store {
        db.set(key, value, options.expiry)?;
    }
    match (options.get, store) {
        (true, _) => {}
        (false, true) => reply.ok(),
        (false, false) => reply.null(),
    }
    Ok(())
}

fn set_nx(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let value = ctx.string_of(args.at(2));
    let (mut db, key, reply) = ctx.open(args.at(1));
    let store = !db.exists(key);
    if store {
        db.set(key, value, Expiry::Never)?;
    }
    reply.int(store.into());
    Ok(())
}

fn set_ex(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    set_timed(ctx, args, TimeForm::EX)
}

fn pset_ex(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    set_timed(ctx, args, TimeForm::PX)
}

fn set_timed(ctx: &mut Context<'_, '_>, args: Args<'_>, form: TimeForm) -> Done {
    let at_ms = form.expiry(&args[2], ctx.now_ms, ctx.name())?;
    let value = ctx.string_of(args.at(3));
    let (mut db, key, reply) = ctx.open(args.at(1));
    db.set(key, value, Expiry::At(at_ms))?;
    reply.ok();
    Ok(())
}

fn get_set(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let value = ctx.string_of(args.at(2));
    let (mut db, key, reply) = ctx.open(args.at(1));
    reply.value_or_null(db.string(key)?);
    db.set(key, value, Expiry::Never)?;
    Ok(())
}
