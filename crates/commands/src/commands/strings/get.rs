//! GET and its relatives: reading a string, and changing its deadline or deleting it at the same
//! time.

use tierce_keyspace::Event;
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::{TimeForm, integer};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least, exactly};

const READ: Flags = Flags::READONLY.with(Flags::FAST);
const TAKE: Flags = Flags::WRITE.with(Flags::FAST);

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("get", Group::String, exactly!(get))
        .flags(READ)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .since("1.0.0", "O(1)")
        .doc("key", "Returns the string value of a key.")
        .example(
            r#"
            > SET greeting Hello
            OK
            > GET greeting
            "Hello"
            > GET nosuch
            (nil)
            > RPUSH queue a
            (integer) 1
            > GET queue
            (error) WRONGTYPE Operation against a key holding the wrong kind of value
            "#,
        ),
    Defined::new("strlen", Group::String, exactly!(strlen))
        .flags(READ)
        .keys(&[KeySpec::at(1, KeyFlags::LOOK)])
        .since("2.2.0", "O(1)")
        .doc("key", "Returns the length of a string value.")
        .example(
            r#"
            > SET greeting Hello
            OK
            > STRLEN greeting
            (integer) 5
            > STRLEN nosuch
            (integer) 0
            "#,
        ),
    Defined::new("getrange", Group::String, exactly!(get_range))
        .flags(Flags::READONLY)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .since("2.4.0", "O(N) where N is the length of the returned string")
        .doc("key start end", "Returns a substring of the string stored at a key.")
        .example(
            r#"
            > SET greeting "Hello, world"
            OK
            > GETRANGE greeting 0 4
            "Hello"
            > GETRANGE greeting -5 -1
            "world"
            "#,
        ),
    Defined::new("substr", Group::String, exactly!(get_range))
        .deprecated("2.0.0", "`GETRANGE`")
        .flags(Flags::READONLY)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .since("1.0.0", "O(N) where N is the length of the returned string")
        .doc(
            "key start end",
            "Returns a substring of the string stored at a key; the old name of GETRANGE.",
        )
        .example(
            r#"
            > SET greeting "Hello, world"
            OK
            > SUBSTR greeting 7 11
            "world"
            "#,
        ),
    Defined::new("getdel", Group::String, exactly!(get_del))
        .flags(TAKE)
        .keys(&[KeySpec::at(1, KeyFlags::READ_REMOVE)])
        .since("6.2.0", "O(1)")
        .doc("key", "Returns the string value of a key after deleting the key.")
        .example(
            r#"
            > SET token 8f3a
            OK
            > GETDEL token
            "8f3a"
            > GETDEL token
            (nil)
            "#,
        ),
    Defined::new("getex", Group::String, at_least!(get_ex))
        .flags(TAKE)
        .keys(&[KeySpec::at(1, KeyFlags::READ_UPDATE)
            .note("RW and update because the time to live may change")])
        .since("6.2.0", "O(1)")
        .doc(
            "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | PERSIST]",
            "Returns the string value of a key after setting its expiration time.",
        )
        .example(
            r#"
            > SET token 8f3a
            OK
            > GETEX token EX 3600
            "8f3a"
            > TTL token
            (integer) 3...
            > GETEX token PERSIST
            "8f3a"
            > TTL token
            (integer) -1
            "#,
        ),
];

#[inline]
fn get(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1]) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    reply.value_or_null(db.string(key)?);
    Ok(())
}

fn strlen(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1]) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    reply.count(db.string(key)?.map_or(0, |value| value.len()));
    Ok(())
}

fn get_range(ctx: &mut Context<'_, '_>, [key, start, end]: [&[u8]; 3]) -> Done {
    let (start, end) = (integer(start)?, integer(end)?);
    let (mut db, key, reply) = ctx.open(key);
    match db.string(key)? {
        Some(value) => reply.range_of(value, start, end),
        None => reply.bulk(b""),
    }
    Ok(())
}

fn get_del(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1]) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    reply.value_or_null(db.string(key)?);
    if db.remove(key) {
        db.event(Event::Del, key);
    }
    Ok(())
}

/// Effect of GETEX on the deadline of the key.
#[derive(Clone, Copy)]
enum Ttl<'a> {
    Keep,
    Set(TimeForm, &'a [u8]),
    Persist,
}

impl<'a> Ttl<'a> {
    fn parse(mut options: Options<'a>) -> Result<Self, CommandError> {
        let mut ttl = Self::Keep;
        while let Some(word) = options.next_word() {
            ttl = match (ttl, TimeForm::named(&word)) {
                (Self::Keep | Self::Persist, None) if *word == *b"persist" => Self::Persist,
                (Self::Keep, Some(form)) => Self::Set(form, options.value()?),
                (Self::Set(earlier, _), Some(form)) if earlier == form => {
                    Self::Set(form, options.value()?)
                }
                _ => return Err(CommandError::SYNTAX),
            };
        }
        Ok(ttl)
    }
}

fn get_ex(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], options: Rest<'_>) -> Done {
    let ttl = Ttl::parse(Options::of(options))?;
    let (now_ms, name) = (ctx.moment_ms(), ctx.name());
    let (mut db, key, reply) = ctx.open(key);
    let Some(value) = db.string(key)? else {
        reply.null();
        return Ok(());
    };
    // An invalid time is no error if the key does not exist.
    let deadline_ms = match ttl {
        Ttl::Set(form, time) => Some(form.expiry(time, now_ms, name)?),
        Ttl::Keep | Ttl::Persist => None,
    };
    reply.value(value);
    match (ttl, deadline_ms) {
        (_, Some(at_ms)) => {
            let set = db.set_deadline(key, at_ms);
            db.event_of_deadline(key, set);
        }
        (Ttl::Persist, None) if db.clear_deadline(key) => db.event(Event::Persist, key),
        (_, None) => {}
    }
    Ok(())
}
