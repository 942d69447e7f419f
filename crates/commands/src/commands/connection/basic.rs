//! PING, ECHO, SELECT, QUIT, EXIT, RESET.

use tierce_keyspace::DbIndex;
use tierce_wire::resp::{Proto, Rest};

use crate::acl::Rights;
use crate::caller::ReplyMode;
use crate::pipeline::blocking;

use crate::clients::ClientFlags;
use crate::command::{Flags, Group};
use crate::commands::options::small_integer;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, exactly, many, no_arguments};

const FREE: Flags = Flags::NOSCRIPT
    .with(Flags::LOADING)
    .with(Flags::STALE)
    .with(Flags::FAST)
    .with(Flags::NO_AUTH)
    .with(Flags::ALLOW_BUSY)
    .with(Flags::WHILE_SUBSCRIBED)
    .with(Flags::NOT_QUEUED);

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("ping", Group::Connection, many!(ping))
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .flags(Flags::FAST.with(Flags::LOADING).with(Flags::WHILE_SUBSCRIBED))
        .since("1.0.0", "O(1)")
        .doc("[message]", "Returns the server's liveliness response.")
        .example(
            r#"
            > PING
            PONG
            > PING "are you there?"
            "are you there?"
            "#,
        ),
    Defined::new("echo", Group::Connection, exactly!(echo))
        .flags(Flags::LOADING.with(Flags::STALE).with(Flags::FAST))
        .since("1.0.0", "O(1)")
        .doc("message", "Returns the given string.")
        .example(
            r#"
            > ECHO "Hello, world!"
            "Hello, world!"
            "#,
        ),
    Defined::new("select", Group::Connection, exactly!(select))
        .flags(Flags::LOADING.with(Flags::STALE).with(Flags::FAST))
        .since("1.0.0", "O(1)")
        .doc("index", "Changes the selected database.")
        .example(
            r#"
            > SELECT 1
            OK
            > SELECT 10000
            (error) ERR DB index is out of range
            "#,
        ),
    Defined::new("quit", Group::Connection, many!(quit))
        .flags(FREE)
        .deprecated("7.2.0", "just closing the connection")
        .since("1.0.0", "O(1)")
        .doc("", "Closes the connection.")
        .example(
            r#"
            > QUIT
            OK
            "#,
        ),
    Defined::new("exit", Group::Connection, many!(quit))
        .flags(FREE)
        .since("Tierce 0.1.0", "O(1)")
        .doc("", "Closes the connection, like QUIT.")
        .example(
            r#"
            > EXIT
            OK
            "#,
        ),
    Defined::new("reset", Group::Connection, no_arguments!(reset))
        .flags(FREE)
        .since("6.2.0", "O(1)")
        .doc("", "Resets the connection to the state of a new one.")
        .example(
            r#"
            > CLIENT SETNAME importer
            OK
            > RESET
            RESET
            > CLIENT GETNAME
            (nil)
            "#,
        ),
];

fn ping(ctx: &mut Context<'_, '_>, message: Rest<'_>) -> Done {
    if message.len() > 1 {
        return Err(CommandError::arity(ctx.name()));
    }
    match message.get(0) {
        // Subscribed clients expect only arrays.
        message if ctx.caller.reads_messages_only() => {
            ctx.reply.array(2);
            ctx.reply.bulk(b"pong");
            ctx.reply.bulk(message.unwrap_or_default());
        }
        None => ctx.reply.simple("PONG"),
        Some(message) => ctx.reply.bulk(message),
    }
    Ok(())
}

fn echo(ctx: &mut Context<'_, '_>, [message]: [&[u8]; 1]) -> Done {
    ctx.reply.bulk(message);
    Ok(())
}

fn select(ctx: &mut Context<'_, '_>, [index]: [&[u8]; 1]) -> Done {
    let index = small_integer(index)?;
    let db = ctx.kernel.database(index).ok_or(CommandError::DB_OUT_OF_RANGE)?;
    ctx.caller.select(db);
    ctx.guard.select_in_lead(db);
    ctx.reply.ok();
    Ok(())
}

fn quit(ctx: &mut Context<'_, '_>, _: Rest<'_>) -> Done {
    ctx.caller.closing = true;
    ctx.reply.ok();
    Ok(())
}

fn reset(ctx: &mut Context<'_, '_>) -> Done {
    ctx.set_durability(None, None);
    ctx.caller.end_transaction();
    ctx.caller.set_fieldsets(None);
    blocking::client_leaves(ctx.kernel, &ctx.caller.client);
    let (output, proto) = ctx.reply.parts();
    let caller = &mut *ctx.caller;
    caller.unsubscribe_all(&ctx.kernel.pubsub, output, proto);
    if caller.monitor {
        caller.monitor = false;
        ctx.kernel.clients.count_monitor(false);
    }
    for flag in [
        ClientFlags::MONITOR,
        ClientFlags::NO_EVICT,
        ClientFlags::NO_TOUCH,
        ClientFlags::REDIRECTS,
        ClientFlags::READS_REPLICAS,
        ClientFlags::MAINTENANCE,
    ] {
        caller.client.set(flag, false);
    }
    caller.no_touch = false;
    ctx.guard.set_touch(caller.touch());
    if caller.reply_mode != ReplyMode::SkipThis {
        caller.reply_mode = ReplyMode::On;
    }
    let users = &ctx.kernel.acl.users;
    match caller.rights().user() {
        Some(_) => caller.become_user(Rights::of_default_user(users), users.is_open()),
        None => caller.authenticated = users.is_open(),
    }
    caller.select(DbIndex::ZERO);
    caller.set_proto(Proto::Resp2);
    caller.client.identity.lock().name.clear();
    ctx.reply.set_proto(Proto::Resp2);
    ctx.reply.simple("RESET");
    Ok(())
}
