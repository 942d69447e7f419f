//! GET and its relatives: reading a string, and what may be done to its key on the way.

use tierce_wire::resp::Args;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::{TimeForm, integer};
use crate::error::CommandError;
use crate::execute::Context;

const READ: Flags = Flags::READONLY.with(Flags::FAST);
const TAKE: Flags = Flags::WRITE.with(Flags::FAST);

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("get", 2, Group::String, get)
        .flags(READ)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .doc("1.0.0", "O(1)", "key", "Returns the string value of a key."),
    Spec::new("strlen", 2, Group::String, strlen)
        .flags(READ)
        .keys(&[KeySpec::at(1, KeyFlags::LOOK)])
        .doc("2.2.0", "O(1)", "key", "Returns the length of a string value."),
    Spec::new("getrange", 4, Group::String, get_range)
        .flags(Flags::READONLY)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .doc(
            "2.4.0",
            "O(N) where N is the length of the returned string",
            "key start end",
            "Returns a substring of the string stored at a key.",
        ),
    Spec::new("substr", 4, Group::String, get_range)
        .deprecated("2.0.0", "`GETRANGE`")
        .flags(Flags::READONLY)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .doc(
            "1.0.0",
            "O(N) where N is the length of the returned string",
            "key start end",
            "Returns a substring of the string stored at a key; the old name of GETRANGE.",
        ),
    Spec::new("getdel", 2, Group::String, get_del)
        .flags(TAKE)
        .keys(&[KeySpec::at(1, KeyFlags::READ_REMOVE)])
        .doc("6.2.0", "O(1)", "key", "Returns the string value of a key after deleting the key."),
    Spec::new("getex", -2, Group::String, get_ex)
        .flags(TAKE)
        .keys(&[KeySpec::at(1, KeyFlags::READ_UPDATE)
            .note("RW and update because the time to live may change")])
        .doc(
            "6.2.0",
            "O(1)",
            "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | PERSIST]",
            "Returns the string value of a key after setting its expiration time.",
        ),
];

type Done = Result<(), CommandError>;

#[inline]
fn get(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    reply.value_or_null(db.string(key)?);
    Ok(())
}

fn strlen(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    reply.count(db.string(key)?.map_or(0, |value| value.len()));
    Ok(())
}

fn get_range(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (start, end) = (integer(&args[2])?, integer(&args[3])?);
    let (mut db, key, reply) = ctx.open(args.at(1));
    match db.string(key)? {
        Some(value) => reply.range_of(value, start, end),
        None => reply.bulk(b""),
    }
    Ok(())
}

fn get_del(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    reply.value_or_null(db.string(key)?);
    db.remove(key);
    Ok(())
}

/// What GETEX does to the key's time to live.
#[derive(Clone, Copy)]
enum Ttl<'a> {
    Keep,
    Set(TimeForm, &'a [u8]),
    Persist,
}

impl<'a> Ttl<'a> {
    fn parse(options: Args<'a>) -> Result<Self, CommandError> {
        let mut ttl = Self::Keep;
        let mut at = 0;
        while at < options.len() {
            let form = TimeForm::named(&options[at]);
            ttl = match (ttl, form) {
                (Self::Keep | Self::Persist, None)
                    if options[at].eq_ignore_ascii_case(b"persist") =>
                {
                    Self::Persist
                }
                (Self::Keep, Some(form)) if at + 1 < options.len() => {
                    at += 1;
                    Self::Set(form, options.at(at))
                }
                (Self::Set(earlier, _), Some(form))
                    if earlier == form && at + 1 < options.len() =>
                {
                    at += 1;
                    Self::Set(form, options.at(at))
                }
                _ => return Err(CommandError::SYNTAX),
            };
            at += 1;
        }
        Ok(ttl)
    }
}

fn get_ex(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let ttl = Ttl::parse(args.from(2))?;
    let (now_ms, name) = (ctx.now_ms, ctx.name());
    let (mut db, key, reply) = ctx.open(args.at(1));
    let Some(value) = db.string(key)? else {
        reply.null();
        return Ok(());
    };
    // A time that makes no sense is no mistake as long as there is no key.
    let deadline_ms = match ttl {
        Ttl::Set(form, time) => Some(form.expiry(time, now_ms, name)?),
        Ttl::Keep | Ttl::Persist => None,
    };
    reply.value(value);
    match (ttl, deadline_ms) {
        (_, Some(at_ms)) => _ = db.set_deadline(key, at_ms),
        (Ttl::Persist, None) => _ = db.clear_deadline(key),
        (_, None) => {}
    }
    Ok(())
}
