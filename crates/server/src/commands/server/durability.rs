//! BGREWRITEAOF, WAITAOF.

use tierce_wire::number;
use tierce_wire::resp::Args;

use crate::blocking::Patience;
use crate::command::{Flags, Group, Scope, Spec};
use crate::durability::{NotCompacted, SyncPolicy};
use crate::error::CommandError;
use crate::execute::Context;
use crate::waiting::Awaited;

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("bgrewriteaof", 1, Group::Server, compact)
        .flags(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING))
        .doc("1.0.0", "O(1)", "", "Starts to compact the log of writes in the background."),
    Spec::new("waitaof", 4, Group::Generic, wait)
        .flags(Flags::BLOCKING)
        .locks(Scope::Apart)
        .categories(&["connection"])
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .doc(
            "7.2.0",
            "O(1)",
            "numlocal numreplicas timeout",
            "Waits until the writes of the connection are on the disk.",
        ),
];

type Done = Result<(), CommandError>;

fn compact(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    let Some(journal) = ctx.server.durability.journal() else {
        return Err(CommandError::new("ERR There is no log to compact: appendonly is off"));
    };
    journal.compact().map_err(|why| match why {
        NotCompacted::Underway => {
            CommandError::new("ERR Background append only file rewriting already in progress")
        }
        NotCompacted::Failed(cause) => CommandError::text(format!(
            "ERR The log has failed ({cause}) and cannot be compacted: CONFIG SET appendonly no and then \
             yes begins another one"
        )),
    })?;
    ctx.reply.simple("Background append only file rewriting started");
    Ok(())
}

/// Without a timeout it replies at once that the log is on the device, and keeps the reply back until it
/// is, so that a pipeline goes on. With one, the session waits. There are no replicas: who asks for some
/// learns that there is none without waiting for the timeout.
fn wait(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let integer = |text: &[u8]| number::parse_i64(text).ok_or(CommandError::NOT_AN_INTEGER);
    let local = integer(&args[1])?;
    if !(0..=1).contains(&local) {
        return Err(CommandError::new("ERR value is out of range, value must between 0 and 1"));
    }
    if integer(&args[2])? < 0 {
        return Err(CommandError::new("ERR value is out of range, must be positive"));
    }
    let patience = Patience::from_ms(&args[3])?;
    // What this connection did before is in the log, for none of its shards is locked any more.
    let Some(journal) = ctx.server.durability.journal() else {
        if local > 0 {
            let text =
                "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
            return Err(CommandError::new(text));
        }
        ctx.reply.array(2);
        ctx.reply.int(0);
        ctx.reply.int(0);
        return Ok(());
    };
    if !ctx.mode.may_wait() {
        // A transaction does not wait, and what it has changed itself goes to the log at its end.
        let is_durable = journal.appended() <= journal.durable();
        ctx.reply.array(2);
        ctx.reply.int(is_durable.into());
        ctx.reply.int(0);
        return Ok(());
    }
    if local > 0 {
        let position = journal.appended();
        match patience {
            Patience::Ms(patience_ms) if position > journal.durable() => {
                ctx.session.acknowledgements.note(position, SyncPolicy::No);
                ctx.session.wait_for(Awaited::Device { position, patience_ms });
                return Ok(());
            }
            _ => ctx.session.acknowledgements.note(position, SyncPolicy::Always),
        }
    }
    ctx.reply.array(2);
    ctx.reply.int(local);
    ctx.reply.int(0);
    Ok(())
}
