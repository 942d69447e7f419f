//! CLIENT and its subcommands.

use std::sync::atomic::Ordering::Relaxed;

use tierce_wire::number;
use tierce_wire::resp::Args;

use super::auth::clean_name;
use crate::blocking;
use crate::clients::{Client, ClientFlags, Filter, Identity, PauseMode};
use crate::command::{CommandId, Flags, Group, Spec};
use crate::commands::server::{help, help_spec};
use crate::durability::SyncPolicy;
use crate::error::CommandError;
use crate::execute::Context;
use crate::message::Message;
use crate::server::Server;
use crate::session::ReplyMode;

const OPEN: Flags = Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE);
const OPERATOR: Flags = OPEN.with(Flags::ADMIN);

const fn sub(name: &'static str, arity: i16, run: crate::command::Handler) -> Spec {
    Spec::new(name, arity, Group::Connection, run).flags(OPEN)
}

pub(super) static COMMANDS: &[Spec] = &[Spec::container(
    "client",
    Group::Connection,
    &[
        sub("durability", 3, durability).doc(
            "7.2.0",
            "O(1)",
            "<ALWAYS | EVERYSEC | NO | DEFAULT>",
            "Says how durable the writes of the connection are when they are acknowledged.",
        ),
        sub("getname", 2, get_name).doc("2.6.9", "O(1)", "", "Returns the name of the connection."),
        sub("getredir", 2, get_redir).doc(
            "6.0.0",
            "O(1)",
            "",
            "Returns the client to which invalidation messages are redirected.",
        ),
        sub("id", 2, id).doc("5.0.0", "O(1)", "", "Returns the unique id of the connection."),
        sub("info", 2, info).tips(&["nondeterministic_output"]).doc(
            "6.2.0",
            "O(1)",
            "",
            "Returns information about the connection.",
        ),
        sub("kill", -3, kill).flags(OPERATOR).doc(
            "2.4.0",
            "O(N) where N is the number of client connections",
            "<ip:port | <[ID client-id] [TYPE <NORMAL | MASTER | SLAVE | REPLICA | PUBSUB>] \
             [USER username] [ADDR address] [LADDR address] [SKIPME yes/no] [MAXAGE maxage]>>",
            "Closes connections.",
        ),
        sub("list", -2, list).tips(&["nondeterministic_output"]).flags(OPERATOR).doc(
            "2.4.0",
            "O(N) where N is the number of client connections",
            "[TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] [ID client-id [client-id ...]]",
            "Lists open connections.",
        ),
        sub("no-evict", 3, no_evict).flags(OPERATOR).doc(
            "7.0.0",
            "O(1)",
            "<ON | OFF>",
            "Exempts the connection from client eviction.",
        ),
        sub("no-touch", 3, no_touch).doc(
            "7.2.0",
            "O(1)",
            "<ON | OFF>",
            "Lets commands of the connection leave the access times of keys alone.",
        ),
        sub("pause", -3, pause).flags(OPERATOR).doc(
            "3.0.0",
            "O(1)",
            "timeout [WRITE | ALL]",
            "Suspends the processing of commands.",
        ),
        sub("reply", 3, reply).doc(
            "3.2.0",
            "O(1)",
            "<ON | OFF | SKIP>",
            "Says whether the server replies to commands.",
        ),
        sub("setinfo", 4, set_info).doc(
            "7.2.0",
            "O(1)",
            "<LIB-NAME libname | LIB-VER libver>",
            "Sets information about the client library.",
        ),
        sub("setname", 3, set_name).doc(
            "2.6.9",
            "O(1)",
            "connection-name",
            "Names the connection.",
        ),
        sub("trackinginfo", 2, tracking_info).doc(
            "6.2.0",
            "O(1)",
            "",
            "Returns whether the connection tracks keys.",
        ),
        sub("unblock", -3, unblock).flags(OPERATOR).doc(
            "5.0.0",
            "O(log N) where N is the number of client connections",
            "client-id [TIMEOUT | ERROR]",
            "Ends the waiting of a client that is blocked by a command.",
        ),
        sub("unpause", 2, unpause).flags(OPERATOR).doc(
            "6.2.0",
            "O(N) Where N is the number of paused clients",
            "",
            "Resumes the processing of commands.",
        ),
        help_spec(Group::Connection),
    ],
    help,
)
.doc("2.4.0", "Depends on subcommand.", "", "A container for client connection commands.")];

type Done = Result<(), CommandError>;

fn get_name(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    let identity = ctx.session.client.identity.lock();
    if identity.name.is_empty() {
        ctx.reply.null();
    } else {
        ctx.reply.bulk(identity.name.as_bytes());
    }
    Ok(())
}

fn set_name(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    ctx.session.client.identity.lock().name = clean_name(&args[2])?;
    ctx.reply.ok();
    Ok(())
}

fn set_info(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let attribute = String::from_utf8_lossy(&args[2]).to_ascii_lowercase();
    let value = Identity::clean(&args[3]).ok_or_else(|| {
        CommandError::text(format!(
            "ERR {attribute} cannot contain spaces, newlines or special characters."
        ))
    });
    let mut identity = ctx.session.client.identity.lock();
    match attribute.as_str() {
        "lib-name" => identity.library = value?,
        "lib-ver" => identity.library_version = value?,
        _ => {
            let name = String::from_utf8_lossy(&args[2]);
            return Err(CommandError::text(format!("ERR Unrecognized option '{name}'")));
        }
    }
    drop(identity);
    ctx.reply.ok();
    Ok(())
}

/// Nothing is tracked, so nothing is redirected.
fn get_redir(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    ctx.reply.int(-1);
    Ok(())
}

fn tracking_info(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    ctx.reply.map(3);
    ctx.reply.bulk(b"flags");
    ctx.reply.set(1);
    ctx.reply.bulk(b"off");
    ctx.reply.bulk(b"redirect");
    ctx.reply.int(-1);
    ctx.reply.bulk(b"prefixes");
    ctx.reply.array(0);
    Ok(())
}

fn id(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    ctx.reply.int(ctx.session.client.id as i64);
    Ok(())
}

fn info(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    let line = line_of(ctx.server, &ctx.session.client, ctx.now_ms);
    ctx.reply.verbatim(&line);
    Ok(())
}

fn line_of(server: &Server, client: &Client, now_ms: i64) -> String {
    let command = match client.last_command.load(Relaxed) {
        0 => "NULL",
        id => server.command_name(CommandId(id - 1)),
    };
    client.describe(now_ms, command) + "\n"
}

fn list(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let filter = Filter::for_list(args.from(2))?;
    let clients = ctx.server.clients.matching(&filter, ctx.now_ms);
    let lines: String = clients.iter().map(|c| line_of(ctx.server, c, ctx.now_ms)).collect();
    ctx.reply.verbatim(&lines);
    Ok(())
}

fn kill(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if args.len() == 3 {
        let victims = ctx.server.clients.matching(&Filter::for_address(&args[2]), ctx.now_ms);
        let victim = victims.first().ok_or(CommandError::new("ERR No such client"))?;
        end(ctx, victim);
        ctx.reply.ok();
        return Ok(());
    }
    let filter = Filter::for_kill(args.from(2), ctx.session.client.id)?;
    let victims = ctx.server.clients.matching(&filter, ctx.now_ms);
    victims.iter().for_each(|victim| end(ctx, victim));
    ctx.reply.count(victims.len());
    Ok(())
}

/// Ends a connection; the caller's own one after this reply.
fn end(ctx: &mut Context<'_, '_>, victim: &Client) {
    victim.set(ClientFlags::CLOSING, true);
    if victim.id == ctx.session.client.id {
        ctx.session.closing = true;
    } else {
        ctx.server.end_connection(victim);
    }
}

fn on_off(arg: &[u8]) -> Result<bool, CommandError> {
    match arg.to_ascii_lowercase().as_slice() {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => Err(CommandError::SYNTAX),
    }
}

fn no_evict(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    ctx.session.client.set(ClientFlags::NO_EVICT, on_off(&args[2])?);
    ctx.reply.ok();
    Ok(())
}

fn durability(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    ctx.session.durability = match args[2].to_ascii_lowercase().as_slice() {
        b"default" => None,
        word => Some(SyncPolicy::parse(word).ok_or(CommandError::SYNTAX)?),
    };
    ctx.reply.ok();
    Ok(())
}

fn no_touch(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    ctx.session.no_touch = on_off(&args[2])?;
    ctx.guard.set_touch(ctx.session.touch());
    ctx.session.client.set(ClientFlags::NO_TOUCH, ctx.session.no_touch);
    ctx.reply.ok();
    Ok(())
}

fn reply(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    match args[2].to_ascii_lowercase().as_slice() {
        b"on" => {
            ctx.session.reply_mode = ReplyMode::On;
            ctx.reply.ok();
        }
        b"off" => ctx.session.reply_mode = ReplyMode::Off,
        b"skip" if ctx.session.reply_mode != ReplyMode::Off => {
            ctx.session.reply_mode = ReplyMode::SkipNext;
        }
        b"skip" => {}
        _ => return Err(CommandError::SYNTAX),
    }
    Ok(())
}

fn pause(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let mode = match args.len() {
        3 => PauseMode::All,
        4 if args[3].eq_ignore_ascii_case(b"write") => PauseMode::Write,
        4 if args[3].eq_ignore_ascii_case(b"all") => PauseMode::All,
        4 => return Err(CommandError::new("ERR CLIENT PAUSE mode must be WRITE or ALL")),
        _ => return Err(CommandError::subcommand_syntax(&args[1], "client")),
    };
    let timeout = number::parse_i64(&args[2])
        .ok_or(CommandError::new("ERR timeout is not an integer or out of range"))?;
    if timeout < 0 {
        return Err(CommandError::new("ERR timeout is negative"));
    }
    let until_ms = ctx.now_ms.saturating_add(timeout);
    ctx.server.pause.begin(until_ms, mode, ctx.now_ms);
    ctx.reply.ok();
    Ok(())
}

fn unpause(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    ctx.server.pause.end();
    ctx.server.post_to_all(&Message::Resume);
    ctx.reply.ok();
    Ok(())
}

/// Ends the wait of a blocked client, as if its timeout had passed or with an error.
fn unblock(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let known = |reason: &[u8]| {
        reason.eq_ignore_ascii_case(b"timeout") || reason.eq_ignore_ascii_case(b"error")
    };
    if args.len() > 4 {
        return Err(CommandError::subcommand_syntax(&args[1], "client"));
    }
    if args.len() == 4 && !known(&args[3]) {
        return Err(CommandError::new("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
    }
    let id = number::parse_i64(&args[2]).ok_or(CommandError::NOT_AN_INTEGER)?;
    let with_error = args.get(3).is_some_and(|reason| reason.eq_ignore_ascii_case(b"error"));
    let client = u64::try_from(id).ok().and_then(|id| ctx.server.clients.get(id));
    let unblocked = client.is_some_and(|client| blocking::unblock(ctx.server, &client, with_error));
    ctx.reply.int(unblocked.into());
    Ok(())
}
