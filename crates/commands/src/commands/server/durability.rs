//! BGREWRITEAOF, WAITAOF.

use tierce_wire::number;

use crate::barrier::ReplyBarrier;
use crate::command::{Flags, Group, Scope};
use crate::durability::NotCompacted;
use crate::error::CommandError;
use crate::pipeline::blocking::Patience;
use crate::pipeline::{Context, Defined, Done, exactly, no_arguments};
use crate::replication::Wanted;
use crate::waiting::Awaited;

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("bgrewriteaof", Group::Server, no_arguments!(compact))
        .flags(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING))
        .since("1.0.0", "O(1)")
        .doc("", "Starts to compact the log of writes in the background.")
        .example(
            r#"
            > BGREWRITEAOF
            Background append only file rewriting started
            "#,
        ),
    Defined::new("waitaof", Group::Generic, exactly!(wait))
        .flags(Flags::BLOCKING)
        .locks(Scope::Unlocked)
        .categories(&["connection"])
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .since("7.2.0", "O(1)")
        .doc(
            "numlocal numreplicas timeout",
            "Waits until the writes of the connection are on the disk.",
        )
        .example(
            r#"
            > SET order:17 paid
            OK
            > WAITAOF 1 0 1000
            1) (integer) 1
            2) (integer) 0
            "#,
        ),
];

fn compact(ctx: &mut Context<'_, '_>) -> Done {
    let Some(durable_log) = ctx.kernel.durability.durable_log() else {
        return Err(CommandError::new("ERR There is no log to compact: appendonly is off"));
    };
    durable_log.compact().map_err(|why| match why {
        NotCompacted::Underway => {
            CommandError::new("ERR Background append only file rewriting already in progress")
        }
        NotCompacted::Failed(cause) => CommandError::text(format!(
            "ERR The log has failed ({cause}) and cannot be compacted: {}",
            ctx.kernel.durability.way_to_another_log()
        )),
    })?;
    ctx.reply.simple("Background append only file rewriting started");
    Ok(())
}

/// Waits for the log. Without a timeout and replicas, the reply is written at once and sent when the log is on the
/// device, so that a pipeline goes on. Otherwise the connection waits.
fn wait(ctx: &mut Context<'_, '_>, [numlocal, numreplicas, timeout]: [&[u8]; 3]) -> Done {
    let integer = |text: &[u8]| number::parse_i64(text).ok_or(CommandError::NOT_AN_INTEGER);
    let local = integer(numlocal)?;
    if !(0..=1).contains(&local) {
        return Err(CommandError::new("ERR value is out of range, value must between 0 and 1"));
    }
    let replicas = usize::try_from(integer(numreplicas)?)
        .map_err(|_| CommandError::new("ERR value is out of range, must be positive"))?;
    let patience = Patience::from_ms(timeout)?;
    if ctx.kernel.role.is_replica() {
        return Err(CommandError::new("ERR WAITAOF cannot be used with replica instances"));
    }
    // Earlier writes of this connection are in the log, because none of its shards is locked any more.
    let durable_log = ctx.kernel.durability.durable_log();
    if local > 0 && durable_log.is_none() {
        let text = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
        return Err(CommandError::new(text));
    }
    if replicas > 0 || !ctx.mode.may_wait() {
        // A transaction does not wait, and its own writes go to the log at its end.
        let here = durable_log.map(|durable_log| durable_log.appended());
        let wanted = Wanted::Synced { here, needs_here: local > 0, replicas };
        if let Some(durable_log) = durable_log.filter(|_| local > 0) {
            durable_log.demand(durable_log.appended());
        }
        ctx.kernel.confirm(ctx.caller, ctx.mode, &mut ctx.reply, wanted, patience);
        return Ok(());
    }
    if let Some(durable_log) = durable_log.filter(|_| local > 0) {
        let position = durable_log.appended();
        match patience {
            Patience::Ms(patience_ms) if position > durable_log.durable() => {
                ctx.caller.waits.logged.note(position, ReplyBarrier::default());
                ctx.caller.wait_for(Awaited::Device { position, patience_ms });
                return Ok(());
            }
            _ => ctx.caller.waits.logged.note(position, ReplyBarrier::DEVICE),
        }
    }
    ctx.reply.array(2);
    ctx.reply.int(local);
    ctx.reply.int(0);
    Ok(())
}
