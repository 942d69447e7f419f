//! PSYNC, SYNC: a connection becomes that of a replica.

use std::sync::Arc;

use tierce_replication::identity::Wish;
use tierce_wire::number;

use crate::caller::ReplyMode;
use crate::clients::ClientFlags;
use crate::command::{Done, Flags, Group, Scope, Spec, exactly, no_arguments};
use crate::error::CommandError;
use crate::execute::Context;
use crate::replication::{Accepted, Asked};

const FLAGS: Flags =
    Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING).with(Flags::NO_MULTI);

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("psync", Group::Server, exactly!(psync))
        .flags(FLAGS)
        .locks(Scope::Apart)
        .since("2.8.0", "O(1)")
        .doc("replicationid offset", "Begins or continues the stream to a replica.")
        .example(
            r#"
            > PSYNC ?
            (error) ERR wrong number of arguments for 'psync' command
            "#,
        ),
    Spec::new("sync", Group::Server, no_arguments!(sync))
        .flags(FLAGS)
        .locks(Scope::Apart)
        .since("1.0.0", "O(1)")
        .doc("", "Begins the stream to a replica of an old version.")
        .example(
            r#"
            > SYNC now
            (error) ERR wrong number of arguments for 'sync' command
            "#,
        ),
];

fn psync(ctx: &mut Context<'_, '_>, [id, offset]: [&[u8]; 2]) -> Done {
    let offset = number::parse_i64(offset).ok_or(CommandError::NOT_AN_INTEGER)?;
    follow(ctx, Wish::new(id, offset), Asked::Psync)
}

fn sync(ctx: &mut Context<'_, '_>) -> Done {
    follow(ctx, Wish::FullCopy, Asked::Sync)
}

/// From now on the connection carries the stream, and no replies.
fn follow(ctx: &mut Context<'_, '_>, wish: Wish, asked: Asked) -> Done {
    const NOT_SERVED: CommandError = CommandError::new(
        "ERR A replica cannot have replicas of its own; it only sends full copies (redis-cli --rdb)",
    );
    const NO_MARKS: CommandError = CommandError::new(
        "ERR Full copies are sent without a length that is known in advance: a replica has to say \
         REPLCONF capa eof first",
    );
    if ctx.is_within() {
        return Err(CommandError::new("ERR A script or transaction cannot become a replica"));
    }
    if ctx.caller.replica().is_some() {
        // As in Redis: it has what it asks for.
        return Ok(());
    }
    let replica = Arc::clone(ctx.caller.become_replica());
    let facts = replica.facts.lock().clone();
    if !facts.copy_only && ctx.kernel.role.is_read_only() {
        return Err(NOT_SERVED);
    }
    if !facts.takes_marks {
        return Err(NO_MARKS);
    }
    let addr = &ctx.caller.client.addr;
    match ctx.kernel.primary.accept(&replica, wish, asked, ctx.now_ms) {
        Accepted::Rest(id) => {
            ctx.kernel.log.notice(format_args!("The replica {addr} goes on in the stream"));
            match facts.takes_ids {
                true => ctx.reply.simple(&format!("CONTINUE {id}")),
                false => ctx.reply.simple("CONTINUE"),
            }
        }
        Accepted::Copy(why) => {
            ctx.kernel.log.notice(format_args!("The replica {addr} gets a full copy: {why}"));
        }
    }
    ctx.caller.client.set(ClientFlags::REPLICA, true);
    ctx.caller.reply_mode = ReplyMode::Off;
    Ok(())
}
