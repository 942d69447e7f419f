//! DEBUG, as far as test suites of clients use it.
//!
//! Not a container: as in Redis, the subcommands have no facts of their own, and no counters.

use std::time::Duration;

use tierce_keyspace::Expiry;
use tierce_wire::glob::{self, Case};
use tierce_wire::number;
use tierce_wire::resp::{Args, Proto};

use super::write_help;
use crate::command::{Flags, Group, Handler, Scope, Spec};
use crate::commands::options::integer;
use crate::config::DirectiveId;
use crate::engine::{ReloadError, ReloadOptions};
use crate::error::CommandError;
use crate::execute::Context;

const FLAGS: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);

pub(super) static COMMANDS: &[Spec] = &[Spec::new("debug", -2, Group::Server, debug)
    .flags(FLAGS.with(Flags::SYSTEM))
    .locks(Scope::OfCall(scope))
    .doc(
        "1.0.0",
        "Depends on subcommand.",
        "subcommand [arg [arg ...]]",
        "A container for debugging commands; DEBUG HELP lists them. Needs enable-debug-command.",
    )];

/// One subcommand.
struct Sub {
    name: &'static str,
    /// Number of arguments with both names; negative: at least that many.
    arity: i16,
    syntax: &'static str,
    about: &'static str,
    run: Handler,
}

const fn sub(
    name: &'static str,
    arity: i16,
    syntax: &'static str,
    about: &'static str,
    run: Handler,
) -> Sub {
    Sub { name, arity, syntax, about, run }
}

#[rustfmt::skip]
const SUBCOMMANDS: &[Sub] = &[
    sub("change-repl-id", 2, "", "Does nothing, successfully.", accept),
    sub("error", 3, "message", "Replies with this error.", error),
    sub("jmap", 2, "", "Does nothing, successfully.", accept),
    sub("listpack", 3, "key", "Shows a listpack. No value is stored as one.", listpack),
    sub("loadaof", 2, "", "Refused: this version has no log of writes.", no_log),
    sub("log", 3, "message", "Writes a message into the log.", log),
    sub("object", -3, "key", "Returns how the value of a key is stored.", object),
    sub("populate", -3, "count [prefix] [size]",
        "Creates string keys prefix:0, prefix:1, ..., but for those that exist.", populate),
    sub("protocol", 3, "type",
        "Replies with a value of a protocol type: string, integer, double, null, array, set, map, \
         attrib, push, verbatim, true, false, bignum.", protocol),
    sub("quicklist-packed-threshold", 3, "size", "Does nothing, successfully.", accept),
    sub("reload", -2, "[MERGE] [NOFLUSH] [NOSAVE]",
        "Saves a snapshot and loads it in the place of all databases. Others wait meanwhile.", reload),
    sub("set-active-expire", 3, "<0 | 1>",
        "Switches the removal of expired keys that nobody asks for.", set_active_expire),
    sub("sleep", 3, "seconds", "Stops the worker of this connection for so long.", sleep),
    sub("stringmatch-len", 4, "length pattern", "Matches so many letters against a pattern.",
        string_match),
    sub("ziplist", 3, "key", "Shows a ziplist. No value is stored as one.", listpack),
];

fn debug(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    const ENABLED: DirectiveId = DirectiveId::of("enable-debug-command");
    if !ctx.server.config.settings().allows(ENABLED, ctx.session.client.peer()) {
        return Err(CommandError::new(
            "ERR DEBUG command not allowed. If the enable-debug-command option is set to \
             \"local\", you can run it from a local connection, otherwise you need to set this \
             option in the configuration file, and then restart the server.",
        ));
    }
    if args[1].eq_ignore_ascii_case(b"help") && args.len() == 2 {
        write_help(ctx, "debug", SUBCOMMANDS.iter().map(|sub| (sub.name, sub.syntax, sub.about)));
        return Ok(());
    }
    let named = |sub: &&Sub| sub.name.as_bytes().eq_ignore_ascii_case(&args[1]);
    match SUBCOMMANDS.iter().find(named).filter(|sub| sub.accepts(args.len())) {
        Some(sub) => (sub.run)(ctx, args),
        None => Err(CommandError::subcommand_syntax(&args[1], "debug")),
    }
}

fn scope(args: Args<'_>) -> Scope {
    let is =
        |names: &[&str]| names.iter().any(|name| args[1].eq_ignore_ascii_case(name.as_bytes()));
    match () {
        () if is(&["listpack", "object", "populate", "ziplist"]) => Scope::Stepwise,
        () if is(&["reload", "set-active-expire", "sleep"]) => Scope::Apart,
        () => Scope::Nothing,
    }
}

impl Sub {
    fn accepts(&self, argc: usize) -> bool {
        if self.arity >= 0 { argc == self.arity as usize } else { argc >= -self.arity as usize }
    }
}

type Done = Result<(), CommandError>;

fn accept(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    ctx.reply.ok();
    Ok(())
}

fn error(_ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    Err(CommandError::text(String::from_utf8_lossy(&args[2])))
}

fn log(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    ctx.server.log.warning(format_args!("DEBUG LOG: {}", args[2].escape_ascii()));
    ctx.reply.ok();
    Ok(())
}

fn no_log(_ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    Err(CommandError::new("ERR DEBUG LOADAOF needs a log of writes, and this version has none"))
}

fn reload_options(options: Args<'_>) -> Result<ReloadOptions, CommandError> {
    let mut parsed = ReloadOptions::default();
    for option in options.iter() {
        match option.to_ascii_lowercase().as_slice() {
            // Keys that are there already are replaced in any case.
            b"merge" => {}
            b"noflush" => parsed.keeps_keys = true,
            b"nosave" => parsed.skips_save = true,
            _ => {
                return Err(CommandError::new(
                    "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
                ));
            }
        }
    }
    Ok(parsed)
}

fn reload(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let options = reload_options(args.from(2))?;
    let server = ctx.server;
    let now_ms = ctx.now_ms;
    let Some(locker) = ctx.apart() else { return Err(CommandError::NOT_WITHIN) };
    let done = {
        let _held = server.hold_writes();
        server.reload(locker, now_ms, options)
    };
    done.map_err(|error| {
        server.log.warning(format_args!("DEBUG RELOAD: {error}"));
        match error {
            ReloadError::Load(_) | ReloadError::Missing(_) => {
                CommandError::new("ERR Error trying to load the RDB dump, check server logs.")
            }
            error => CommandError::text(format!("ERR {error}")),
        }
    })?;
    ctx.reply.ok();
    Ok(())
}

fn listpack(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, _) = ctx.open(args.at(2));
    Err(match db.peek(key) {
        Some(_) => CommandError::new("ERR Not a listpack encoded object."),
        None => CommandError::NO_SUCH_KEY,
    })
}

fn populate(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if args.len() > 5 {
        return Err(CommandError::subcommand_syntax(&args[1], "debug"));
    }
    let positive = |arg: &[u8]| {
        integer(arg).and_then(|n| u64::try_from(n).map_err(|_| CommandError::OUT_OF_RANGE))
    };
    let count = positive(&args[2])?;
    let prefix = args.get(3).unwrap_or(b"key");
    let size = args.get(4).map(positive).transpose()?;
    if size.is_some_and(|size| size > ctx.server.config.live().proto_max_bulk_len()) {
        return Err(CommandError::STRING_TOO_LONG);
    }
    for number in 0..count {
        let name = [prefix, b":", number.to_string().as_bytes()].concat();
        let mut value = format!("value:{number}").into_bytes();
        if let Some(size) = size {
            value.resize(size as usize, 0);
        }
        let (mut db, key, _) = ctx.open(&name);
        if db.peek(key).is_none() {
            db.set(key, &value, Expiry::Never)?;
        }
    }
    ctx.reply.ok();
    Ok(())
}

fn object(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(2));
    let idle = db.idle_seconds(key).unwrap_or(0);
    let Some(entry) = db.peek(key) else { return Err(CommandError::NO_SUCH_KEY) };
    let (encoding, len) = (entry.encoding(), entry.string_len());
    let place = if entry.is_spilled() { " on_disk:1" } else { "" };
    reply.simple(&format!(
        "Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{len} lru:0 \
         lru_seconds_idle:{idle}{place}"
    ));
    Ok(())
}

fn sleep(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let seconds = number::parse_f64(&args[2]).ok_or(CommandError::NOT_A_FLOAT)?;
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| CommandError::OUT_OF_RANGE)?;
    // Other workers go on, for no shard is held.
    std::thread::sleep(duration);
    ctx.reply.ok();
    Ok(())
}

fn set_active_expire(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let on = integer(&args[2])? != 0;
    if ctx.is_within() {
        // The reaper needs the shards, to end what it is at.
        return Err(CommandError::NOT_WITHIN);
    }
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

/// What clients expect `DEBUG PROTOCOL double` to be.
#[expect(clippy::approx_constant, reason = "it is this number and not pi")]
const DOUBLE: f64 = 3.141;

fn protocol(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let reply = &mut ctx.reply;
    match args[2].to_ascii_lowercase().as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.int(12345),
        b"double" => reply.double(DOUBLE),
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
        // Without a type for the attribute, only the reply itself is left.
        b"attrib" if reply.proto() == Proto::Resp2 => {
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" if reply.proto() == Proto::Resp2 => {
            return Err(CommandError::new("ERR RESP2 is not supported by this command"));
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
                 double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}
