//! DEBUG, as far as test suites of clients use it.

use std::time::Duration;

use tierce_wire::glob::{self, Case};
use tierce_wire::number;
use tierce_wire::resp::{Args, Proto};

use super::help;
use crate::command::{Flags, Group, Spec};
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::execute::Context;

const FLAGS: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);

const fn sub(name: &'static str, arity: i16, run: crate::command::Handler) -> Spec {
    Spec::new(name, arity, Group::Server, run).flags(FLAGS)
}

pub(super) static COMMANDS: &[Spec] = &[Spec::container(
    "debug",
    Group::Server,
    &[
        sub("change-repl-id", 2, accept).doc("1.0.0", "O(1)", "", "Does nothing, successfully."),
        sub("error", 3, error).doc("1.0.0", "O(1)", "message", "Replies with this error."),
        sub("jmap", 2, accept).doc("1.0.0", "O(1)", "", "Does nothing, successfully."),
        sub("log", 3, log).doc("1.0.0", "O(1)", "message", "Writes a line to standard error."),
        sub("object", -3, object).doc(
            "1.0.0",
            "O(1)",
            "key",
            "Returns how the value of a key is stored.",
        ),
        sub("protocol", 3, protocol).doc(
            "1.0.0",
            "O(1)",
            "type",
            "Replies with a value of a protocol type: string, integer, double, null, array, set, \
             map, attrib, push, verbatim, true, false, bignum.",
        ),
        sub("quicklist-packed-threshold", 3, accept).doc(
            "1.0.0",
            "O(1)",
            "size",
            "Does nothing, successfully.",
        ),
        sub("set-active-expire", 3, set_active_expire).doc(
            "1.0.0",
            "O(1)",
            "<0 | 1>",
            "Switches the removal of expired keys that nobody asks for.",
        ),
        sub("sleep", 3, sleep).doc(
            "1.0.0",
            "O(1)",
            "seconds",
            "Stops the worker of this connection for so long.",
        ),
        sub("stringmatch-len", 4, string_match).doc(
            "1.0.0",
            "O(N)",
            "length pattern",
            "Matches so many letters against a pattern.",
        ),
    ],
    help,
)
.flags(FLAGS)
.doc("1.0.0", "Depends on subcommand.", "", "A container for debugging commands.")];

type Done = Result<(), CommandError>;

fn accept(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    ctx.reply.ok();
    Ok(())
}

fn error(_ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    Err(CommandError::text(String::from_utf8_lossy(&args[2])))
}

fn log(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    eprintln!("tierce: debug log: {}", args[2].escape_ascii());
    ctx.reply.ok();
    Ok(())
}

fn object(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(2));
    let idle = db.idle_seconds(key).unwrap_or(0);
    let Some(entry) = db.peek(key) else { return Err(CommandError::NO_SUCH_KEY) };
    let (encoding, len) = (entry.encoding(), entry.string().len());
    reply.simple(&format!(
        "Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{len} lru:0 \
         lru_seconds_idle:{idle}"
    ));
    Ok(())
}

fn sleep(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let seconds = number::parse_f64(&args[2]).ok_or(CommandError::NOT_A_FLOAT)?;
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| CommandError::OUT_OF_RANGE)?;
    // Other workers go on, so no shard may be held.
    ctx.locker.release();
    std::thread::sleep(duration);
    ctx.reply.ok();
    Ok(())
}

fn set_active_expire(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let on = integer(&args[2])? != 0;
    // The reaper needs the shards, to end what it is at.
    ctx.locker.release();
    ctx.server.set_active_expiry(on).map_err(|error| CommandError::text(format!("ERR {error}")))?;
    ctx.reply.ok();
    Ok(())
}

fn string_match(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    const LEN_MAX: i64 = 64 << 20;
    let len = integer(&args[2])?;
    if !(0..=LEN_MAX).contains(&len) {
        return Err(CommandError::OUT_OF_RANGE);
    }
    let text = vec![b'A'; len as usize];
    ctx.reply.int(glob::matches(&args[3], &text, Case::Sensitive).into());
    Ok(())
}

fn protocol(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let reply = &mut ctx.reply;
    match args[2].to_ascii_lowercase().as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.int(12345),
        b"double" => reply.double(3.141),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            (0..3).for_each(|n| reply.int(n));
        }
        b"set" => {
            reply.set(3);
            (0..3).for_each(|n| reply.int(n));
        }
        b"map" => {
            reply.map(3);
            for n in 0..3 {
                reply.int(n);
                reply.boolean(n == 1);
            }
        }
        b"attrib" | b"push" if reply.proto() == Proto::Resp2 => {
            return Err(CommandError::new("ERR RESP2 does not have this type"));
        }
        b"attrib" => {
            reply.attribute("key-popularity", "key:123", 90);
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" => {
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.int(42);
        }
        b"verbatim" => reply.verbatim("This is a verbatim\nstring"),
        b"true" => reply.boolean(true),
        b"false" => reply.boolean(false),
        b"bignum" => reply.big_number("1234567999999999999999999999999999999"),
        _ => {
            return Err(CommandError::new(
                "ERR Wrong protocol type name. Please use one of the following: string|integer|\
                 double|null|array|set|map|attrib|push|verbatim|true|false|bignum",
            ));
        }
    }
    Ok(())
}
