//! PSYNC, SYNC: turn a connection into that of a replica.

use std::sync::Arc;

use tierce_rdb::{Writer, WriterOptions};
use tierce_replication::identity::Wish;
use tierce_replication::link::Position;
use tierce_wire::number;
use tierce_wire::resp::Rest;

use crate::caller::ReplyMode;
use crate::clients::ClientFlags;
use crate::command::{Flags, Group, Scope};
use crate::error::CommandError;
use crate::kernel::Kernel;
use crate::persistence::Encoder;
use crate::pipeline::{Context, Defined, Done, at_least, no_arguments};
use crate::replication::role::{Following, LinkState};
use crate::replication::{Accepted, Asked, CopyFilter};

const FLAGS: Flags =
    Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING).with(Flags::NO_MULTI);

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("psync", Group::Server, at_least!(psync))
        .flags(FLAGS)
        .locks(Scope::Unlocked)
        .since("2.8.0", "O(1)")
        .doc("replicationid offset [FAILOVER]", "Begins or continues the stream to a replica.")
        .example(
            r#"
            > PSYNC ?
            (error) ERR wrong number of arguments for 'psync' command
            "#,
        ),
    Defined::new("sync", Group::Server, no_arguments!(sync))
        .flags(FLAGS)
        .locks(Scope::Unlocked)
        .since("1.0.0", "O(1)")
        .doc("", "Begins the stream to a replica of an old version.")
        .example(
            r#"
            > SYNC now
            (error) ERR wrong number of arguments for 'sync' command
            "#,
        ),
];

fn psync(ctx: &mut Context<'_, '_>, [id, offset]: [&[u8]; 2], more: Rest<'_>) -> Done {
    let offset = number::parse_i64(offset).ok_or(CommandError::NOT_AN_INTEGER)?;
    let takes_over =
        more.any().iter().next().is_some_and(|word| word.eq_ignore_ascii_case(b"failover"));
    if takes_over
        && !ctx.is_within()
        && ctx.caller.replica().is_none_or(|replica| !replica.follows())
    {
        take_over(ctx, id)?;
    }
    follow(ctx, Wish::new(id, offset), Asked::Psync)
}

fn sync(ctx: &mut Context<'_, '_>) -> Done {
    follow(ctx, Wish::FullCopy, Asked::Sync)
}

/// Sends a copy without keys, as `redis-cli --functions-rdb` requests it. It is made at once, and the connection
/// continues with requests.
fn copy_without_keys(ctx: &mut Context<'_, '_>, filter: CopyFilter, asked: Asked) -> Done {
    let failed = |error| CommandError::text(format!("ERR The copy cannot be made: {error}"));
    let copy = encode_without_keys(ctx.kernel, filter).map_err(failed)?;
    if asked == Asked::Psync {
        let id = ctx.kernel.primary.identity().id;
        ctx.reply.simple(&format!("FULLRESYNC {id} {}", ctx.kernel.primary.backlog.end()));
    }
    // This adds a line end, but the receiver reads only up to the length.
    ctx.reply.bulk(&copy);
    Ok(())
}

fn encode_without_keys(kernel: &Kernel, filter: CopyFilter) -> tierce_rdb::Result<Vec<u8>> {
    let mut encoder = Encoder::new(Writer::new(Vec::new(), WriterOptions::default())?, &[]);
    encoder.remarks(kernel.keyspace.memory().total(), b"0")?;
    if filter == CopyFilter::Functions {
        encoder.code(&kernel.keyspace.code().all())?;
    }
    encoder.finish().map(|(copy, _)| copy)
}

/// Takes over from the primary, whose replica this server is.
fn take_over(ctx: &mut Context<'_, '_>, id: &[u8]) -> Done {
    const IS_PRIMARY: CommandError =
        CommandError::new("ERR PSYNC FAILOVER can't be sent to a master.");
    const OTHER_STREAM: CommandError =
        CommandError::new("ERR PSYNC FAILOVER replid must match my replid.");
    let _still = ctx.hold_role_still()?;
    let following = ctx.kernel.role.following().ok_or(IS_PRIMARY)?;
    let is_same = |position: Position| position.id.as_bytes().eq_ignore_ascii_case(id);
    if !following.position.is_some_and(is_same) {
        return Err(OTHER_STREAM);
    }
    let (addr, primary) = (&ctx.caller.client.addr, &following.primary);
    ctx.kernel.log.notice(format_args!("{addr} hands over for the primary {primary}"));
    ctx.kernel.replicate(None, ctx.now_ms)?;
    Ok(())
}

/// Makes the connection carry the stream. It gets no replies from now on.
fn follow(ctx: &mut Context<'_, '_>, wish: Wish, asked: Asked) -> Done {
    const FAILS_OVER: CommandError =
        CommandError::new("NOMASTERLINK Can't SYNC while failing over");
    const NOT_SERVED: CommandError =
        CommandError::new("NOMASTERLINK Can't SYNC while not connected with my master");
    const NO_MARKS: CommandError = CommandError::new(
        "ERR Full copies are sent without a length that is known in advance: a replica has to say \
         REPLCONF capa eof first",
    );
    if ctx.is_within() {
        return Err(CommandError::new("ERR A script or transaction cannot become a replica"));
    }
    if ctx.caller.replica().is_some() {
        // As in Redis, it has the stream already.
        return Ok(());
    }
    let replica = Arc::clone(ctx.caller.become_replica());
    let facts = replica.facts.lock().clone();
    // A client that wants the stream as well, as `redis-cli --replica`, gets a full copy, and skips it.
    if let Some(filter) = facts.filter.filter(|_| facts.copy_only) {
        return copy_without_keys(ctx, filter, asked);
    }
    if ctx.kernel.failover.is_on() {
        let following = ctx.kernel.role.following();
        if following.is_some_and(|of| of.hands_over && replica.is_at(&of.primary)) {
            ctx.kernel.failover.note_target_asks();
        }
        return Err(FAILS_OVER);
    }
    if let Some(owner) = ctx.kernel.role.owner() {
        return Err(CommandError::text(format!(
            "NOMASTERLINK This server follows the log in a bucket and has no stream; replicate from its owner {owner}"
        )));
    }
    let has_stream = |following: Following| following.link == LinkState::Connected;
    if !facts.copy_only && !ctx.kernel.role.following().is_none_or(has_stream) {
        return Err(NOT_SERVED);
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
        Accepted::Nothing => return Err(NO_MARKS),
        Accepted::Copy(why) => {
            ctx.kernel.log.notice(format_args!("The replica {addr} gets a full copy: {why}"));
        }
    }
    ctx.caller.client.set(ClientFlags::REPLICA, true);
    ctx.caller.reply_mode = ReplyMode::Off;
    Ok(())
}
