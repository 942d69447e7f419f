//! DEBUG: the subcommands that test suites of clients use.
//!
//! It is no container: as in Redis, its subcommands have no facts and no counters of their own.

use std::time::Duration;

use tierce_keyspace::Expiry;
use tierce_wire::glob::{self, Case};
use tierce_wire::number;
use tierce_wire::resp::{Proto, Rest};

use crate::command::{Access, Flags, Group, Scope};
use crate::commands::help::write_help;
use crate::commands::options::{NOT_POSITIVE, integer};
use crate::config::DirectiveId;
use crate::engine::{ReloadError, ReloadOptions};
use crate::error::CommandError;
use crate::memory::total_system_bytes;
use crate::pipeline::{Body, Context, Defined, Done, at_least, exactly, many, no_arguments};

const FLAGS: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);

pub(super) static COMMANDS: &[Defined] = &[Defined::new("debug", Group::Server, at_least!(debug))
    .flags(FLAGS.with(Flags::SYSTEM))
    .locks(Scope::OfCall(scope))
    .since("1.0.0", "Depends on subcommand.")
    .doc(
        "subcommand [arg [arg ...]]",
        "A container for debugging commands; DEBUG HELP lists them. Needs enable-debug-command.",
    )
    .example(
        r#"
        > SET user:1 Ada
        OK
        > DEBUG RELOAD
        OK
        > GET user:1
        "Ada"
        "#,
    )];

/// A subcommand.
struct Sub {
    name: &'static str,
    syntax: &'static str,
    about: &'static str,
    body: Body,
}

const fn sub(name: &'static str, syntax: &'static str, about: &'static str, body: Body) -> Sub {
    Sub { name, syntax, about, body }
}

#[rustfmt::skip]
const SUBCOMMANDS: &[Sub] = &[
    sub("change-repl-id", "", "Does nothing, successfully.", no_arguments!(sub accept)),
    sub("error", "message", "Replies with this error.", exactly!(sub error)),
    sub("jmap", "", "Does nothing, successfully.", no_arguments!(sub accept)),
    sub("listpack", "key", "Shows a listpack. No value is stored as one.", exactly!(sub listpack)),
    sub("loadaof", "", "Refused: the log is read when the server starts.", no_arguments!(sub no_load)),
    sub("log", "message", "Writes a message into the log.", exactly!(sub log)),
    sub("object", "key", "Returns how the value of a key is stored.", at_least!(sub object)),
    sub("populate", "count [prefix] [size]",
        "Creates string keys prefix:0, prefix:1, ..., but for those that exist.", at_least!(sub populate)),
    sub("protocol", "type",
        "Replies with a value of a protocol type: string, integer, double, null, array, set, map, \
         attrib, push, verbatim, true, false, bignum.", exactly!(sub protocol)),
    sub("quicklist-packed-threshold", "size", "Does nothing, successfully.",
        exactly!(sub |ctx, [_]| accept(ctx))),
    sub("reload", "[MERGE] [NOFLUSH] [NOSAVE]",
        "Saves a snapshot and loads it in the place of all databases. Others wait meanwhile.", many!(sub reload)),
    sub("set-active-expire", "<0 | 1>",
        "Switches the removal of expired keys in the background.", exactly!(sub set_active_expire)),
    sub("sleep", "seconds", "Keeps this connection waiting for so long.", exactly!(sub sleep)),
    sub("stringmatch-len", "length pattern", "Matches so many letters against a pattern.",
        exactly!(sub string_match)),
    sub("ziplist", "key", "Shows a ziplist. No value is stored as one.", exactly!(sub listpack)),
];

fn debug(ctx: &mut Context<'_, '_>, [name]: [&[u8]; 1], arguments: Rest<'_>) -> Done {
    const ENABLED: DirectiveId = DirectiveId::of("enable-debug-command");
    if !ctx.kernel.config.settings().allows(ENABLED, ctx.caller.client.peer()) {
        return Err(CommandError::new(
            "ERR DEBUG command not allowed. If the enable-debug-command option is set to \
             \"local\", you can run it from a local connection, otherwise you need to set this \
             option in the configuration file, and then restart the server.",
        ));
    }
    if name.eq_ignore_ascii_case(b"help") && arguments.is_empty() {
        write_help(ctx, "debug", SUBCOMMANDS.iter().map(|sub| (sub.name, sub.syntax, sub.about)));
        return Ok(());
    }
    let named = |sub: &&Sub| sub.name.as_bytes().eq_ignore_ascii_case(name);
    let argc = 2 + arguments.len();
    match SUBCOMMANDS.iter().find(named).filter(|sub| sub.body.accepts(argc)) {
        Some(sub) => sub.body.enter(ctx),
        None => Err(CommandError::subcommand_syntax(name, "debug")),
    }
}

fn scope(arguments: Rest<'_>) -> Scope {
    let sub = arguments.get(0).unwrap_or_default();
    let is = |names: &[&str]| names.iter().any(|name| sub.eq_ignore_ascii_case(name.as_bytes()));
    match () {
        () if is(&["listpack", "object", "populate", "ziplist"]) => Scope::Stepwise,
        () if is(&["reload", "set-active-expire", "sleep"]) => Scope::Unlocked,
        () => Scope::Nothing,
    }
}

fn accept(ctx: &mut Context<'_, '_>) -> Done {
    ctx.reply.ok();
    Ok(())
}

fn error(_: &mut Context<'_, '_>, [message]: [&[u8]; 1]) -> Done {
    Err(CommandError::text(String::from_utf8_lossy(message)))
}

fn log(ctx: &mut Context<'_, '_>, [message]: [&[u8]; 1]) -> Done {
    ctx.kernel.log.warning(format_args!("DEBUG LOG: {}", message.escape_ascii()));
    ctx.reply.ok();
    Ok(())
}

fn no_load(_: &mut Context<'_, '_>) -> Done {
    Err(CommandError::new(
        "ERR the log is read when the server starts; DEBUG RELOAD loads a snapshot",
    ))
}

fn reload_options(options: Rest<'_>) -> Result<ReloadOptions, CommandError> {
    let mut parsed = ReloadOptions::default();
    for option in options.iter() {
        match option.to_ascii_lowercase().as_slice() {
            // Existing keys are always replaced.
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

fn reload(ctx: &mut Context<'_, '_>, options: Rest<'_>) -> Done {
    let options = reload_options(options)?;
    ctx.weigh(usize::MAX)?;
    let kernel = ctx.kernel;
    let now_ms = ctx.now_ms;
    let Some(locks) = ctx.unlocked() else { return Err(CommandError::NOT_WITHIN) };
    // The server may have become a replica meanwhile, or be about to.
    let hands_over = || kernel.role.following().is_some_and(|following| following.hands_over);
    let may_change = || !kernel.role.is_read_only() && !hands_over();
    let done = {
        let _held = kernel.hold_writes();
        kernel.reload(locks, now_ms, options, may_change)
    };
    done.map_err(|error| {
        kernel.log.warning(format_args!("DEBUG RELOAD: {error}"));
        match error {
            ReloadError::Load(_) | ReloadError::Missing(_) => {
                CommandError::new("ERR Error trying to load the RDB dump, check server logs.")
            }
            ReloadError::NotWanted => CommandError::REPLICA_IS_READ_ONLY,
            error => CommandError::text(format!("ERR {error}")),
        }
    })?;
    ctx.reply.ok();
    Ok(())
}

fn listpack(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1]) -> Done {
    ctx.reach(key)?;
    let (mut db, key, _) = ctx.open(key);
    Err(match db.peek(key) {
        Some(_) => CommandError::new("ERR Not a listpack encoded object."),
        None => CommandError::NO_SUCH_KEY,
    })
}

/// Minimum memory of a key, with its entry in the index.
const KEY_BYTES_MIN: u64 = 64;

const TOO_MANY: CommandError =
    CommandError::new("ERR so many keys do not fit into the memory of this machine");

/// Error that nobody reads.
const ENDED: CommandError = CommandError::new("ERR the connection has ended");

/// Creates many keys on another thread than a worker. It stops when `CLIENT KILL` closes the connection.
fn populate(ctx: &mut Context<'_, '_>, [count]: [&[u8]; 1], options: Rest<'_>) -> Done {
    if options.len() > 2 {
        return Err(CommandError::subcommand_syntax(ctx.call.word(1), "debug"));
    }
    let positive = |arg: &[u8]| {
        let number = number::parse_i64(arg).and_then(|n| u64::try_from(n).ok());
        number.ok_or(CommandError::new(NOT_POSITIVE))
    };
    let count = positive(count)?;
    let prefix = options.get(0).unwrap_or(b"key");
    let size = options.get(1).map(positive).transpose()?;
    if size.is_some_and(|size| size > ctx.kernel.config.live().proto_max_bulk_len()) {
        return Err(CommandError::STRING_TOO_LONG);
    }
    let bytes_each = size.unwrap_or(0).saturating_add(prefix.len() as u64).max(KEY_BYTES_MIN);
    let memory_bytes = total_system_bytes() as u64;
    if memory_bytes > 0 && count.saturating_mul(bytes_each) > memory_bytes {
        return Err(TOO_MANY);
    }
    ctx.weigh(count as usize)?;
    for number in 0..count {
        if ctx.caller.client.is_gone() {
            return Err(ENDED);
        }
        let name = [prefix, b":", number.to_string().as_bytes()].concat();
        let mut value = format!("value:{number}").into_bytes();
        if let Some(size) = size {
            value.resize(size as usize, 0);
        }
        ctx.reach(&name)?;
        // The server may have become a replica meanwhile.
        if ctx.kernel.role.is_read_only() {
            return Err(CommandError::REPLICA_IS_READ_ONLY);
        }
        ctx.check_again_as(Access::CHANGE)()?;
        let (mut db, key, _) = ctx.open(&name);
        if db.peek(key).is_none() {
            db.set(key, &value, Expiry::Never)?;
        }
    }
    ctx.reply.ok();
    Ok(())
}

fn object(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], _: Rest<'_>) -> Done {
    ctx.reach(key)?;
    let (mut db, key, reply) = ctx.open(key);
    let idle = db.idle_seconds(key).unwrap_or(0);
    let Some(entry) = db.peek(key) else { return Err(CommandError::NO_SUCH_KEY) };
    let (encoding, len) = (entry.encoding(), entry.string_len());
    let position = if entry.is_spilled() { " on_disk:1" } else { "" };
    reply.simple(&format!(
        "Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{len} lru:0 \
         lru_seconds_idle:{idle}{position}"
    ));
    Ok(())
}

fn sleep(ctx: &mut Context<'_, '_>, [seconds]: [&[u8]; 1]) -> Done {
    let seconds = number::parse_f64(seconds).ok_or(CommandError::NOT_A_FLOAT)?;
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| CommandError::OUT_OF_RANGE)?;
    if !duration.is_zero() {
        // No worker sleeps, and no shard is locked meanwhile.
        ctx.weigh(usize::MAX)?;
    }
    std::thread::sleep(duration);
    ctx.reply.ok();
    Ok(())
}

fn set_active_expire(ctx: &mut Context<'_, '_>, [on]: [&[u8]; 1]) -> Done {
    let on = integer(on)? != 0;
    if ctx.is_within() {
        // The reaper needs the shards to finish its work.
        return Err(CommandError::NOT_WITHIN);
    }
    ctx.kernel.set_active_expiry(on).map_err(|error| CommandError::text(format!("ERR {error}")))?;
    ctx.reply.ok();
    Ok(())
}

fn string_match(ctx: &mut Context<'_, '_>, [len, pattern]: [&[u8]; 2]) -> Done {
    const LEN_MAX: i64 = 64 << 20;
    let len = integer(len)?;
    if !(0..=LEN_MAX).contains(&len) {
        return Err(CommandError::OUT_OF_RANGE);
    }
    let text = vec![b'A'; len as usize];
    ctx.reply.int(glob::matches(pattern, &text, Case::Sensitive).into());
    Ok(())
}

/// Value that clients expect from `DEBUG PROTOCOL double`.
#[expect(clippy::approx_constant, reason = "it is this number and not pi")]
const DOUBLE: f64 = 3.141;

fn protocol(ctx: &mut Context<'_, '_>, [kind]: [&[u8]; 1]) -> Done {
    let reply = &mut ctx.reply;
    match kind.to_ascii_lowercase().as_slice() {
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
        // RESP2 has no attributes, so only the reply itself is sent.
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
