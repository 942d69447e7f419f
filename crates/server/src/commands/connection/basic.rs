//! PING, ECHO, SELECT, QUIT, EXIT, RESET.

use tierce_keyspace::DbIndex;
use tierce_wire::resp::{Args, Proto};

use crate::clients::ClientFlags;
use crate::command::{Flags, Group, Spec};
use crate::commands::options::small_integer;
use crate::error::CommandError;
use crate::execute::Context;
use crate::session::ReplyMode;

const FREE: Flags = Flags::NOSCRIPT
    .with(Flags::LOADING)
    .with(Flags::STALE)
    .with(Flags::FAST)
    .with(Flags::NO_AUTH)
    .with(Flags::ALLOW_BUSY);

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("ping", -1, Group::Connection, ping)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .flags(Flags::FAST)
        .doc("1.0.0", "O(1)", "[message]", "Returns the server's liveliness response."),
    Spec::new("echo", 2, Group::Connection, echo)
        .flags(Flags::LOADING.with(Flags::STALE).with(Flags::FAST))
        .doc("1.0.0", "O(1)", "message", "Returns the given string."),
    Spec::new("select", 2, Group::Connection, select)
        .flags(Flags::LOADING.with(Flags::STALE).with(Flags::FAST))
        .doc("1.0.0", "O(1)", "index", "Changes the selected database."),
    Spec::new("quit", -1, Group::Connection, quit)
        .flags(FREE)
        .deprecated("7.2.0", "just closing the connection")
        .doc("1.0.0", "O(1)", "", "Closes the connection."),
    Spec::new("exit", -1, Group::Connection, quit).flags(FREE).doc(
        "1.0.0",
        "O(1)",
        "",
        "Closes the connection, like QUIT.",
    ),
    Spec::new("reset", 1, Group::Connection, reset).flags(FREE).doc(
        "6.2.0",
        "O(1)",
        "",
        "Resets the connection to the state of a new one.",
    ),
];

fn ping(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    match args.len() {
        1 => ctx.reply.simple("PONG"),
        2 => ctx.reply.bulk(&args[1]),
        _ => return Err(CommandError::arity(ctx.name())),
    }
    Ok(())
}

fn echo(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    ctx.reply.bulk(&args[1]);
    Ok(())
}

fn select(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let index = small_integer(&args[1])?;
    let db = ctx.server.database(index).ok_or(CommandError::DB_OUT_OF_RANGE)?;
    ctx.session.select(db);
    ctx.reply.ok();
    Ok(())
}

fn quit(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    ctx.session.closing = true;
    ctx.reply.ok();
    Ok(())
}

fn reset(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let session = &mut *ctx.session;
    if session.monitor {
        session.monitor = false;
        ctx.server.clients.count_monitor(false);
    }
    for flag in [ClientFlags::MONITOR, ClientFlags::NO_EVICT, ClientFlags::NO_TOUCH] {
        session.client.set(flag, false);
    }
    session.no_touch = false;
    ctx.guard.set_touch(session.touch());
    if session.reply_mode != ReplyMode::SkipThis {
        session.reply_mode = ReplyMode::On;
    }
    session.authenticated = ctx.server.is_open();
    session.select(DbIndex::ZERO);
    session.set_proto(Proto::Resp2);
    session.client.identity.lock().name.clear();
    ctx.reply.set_proto(Proto::Resp2);
    ctx.reply.simple("RESET");
    Ok(())
}
