//! SAVE, BGSAVE, LASTSAVE.

use tierce_wire::resp::Args;

use crate::command::{Flags, Group, Spec};
use crate::error::CommandError;
use crate::execute::Context;
use crate::persistence::{Cause, Ticket};
use crate::waiting::Awaited;

const OPERATOR: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING);

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("save", 1, Group::Server, save).flags(OPERATOR.with(Flags::NO_MULTI)).doc(
        "1.0.0",
        "O(N) where N is the total number of keys in all databases",
        "",
        "Saves a snapshot of all databases, and replies when it is on disk.",
    ),
    Spec::new("bgsave", -1, Group::Server, bg_save).flags(OPERATOR).doc(
        "1.0.0",
        "O(1)",
        "[SCHEDULE]",
        "Begins to save a snapshot of all databases, and replies at once.",
    ),
    Spec::new("lastsave", 1, Group::Server, last_save)
        .flags(Flags::LOADING.with(Flags::STALE).with(Flags::FAST))
        .categories(&["admin", "dangerous"])
        .tips(&["nondeterministic_output"])
        .doc("1.0.0", "O(1)", "", "Returns the Unix time of the last successful save."),
];

type Done = Result<(), CommandError>;

fn begin(ctx: &mut Context<'_, '_>, cause: Cause) -> Result<Ticket, CommandError> {
    let begun = ctx.server.begin_save(ctx.locker, ctx.now_ms, cause);
    begun.map_err(|error| CommandError::text(format!("ERR {error}")))
}

/// The client waits, and nobody else: others go on while the file is written.
fn save(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    let ticket = begin(ctx, Cause::Foreground)?;
    ctx.session.wait_for(Awaited::Save(ticket));
    Ok(())
}

fn bg_save(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let is_known = args.len() == 1 || args.len() == 2 && args[1].eq_ignore_ascii_case(b"schedule");
    if !is_known {
        return Err(CommandError::SYNTAX);
    }
    // SCHEDULE means to wait for the end of a rewrite of the log, of which there is none. Behind
    // another save nothing is scheduled, in Redis neither.
    begin(ctx, Cause::Background)?;
    ctx.reply.simple("Background saving started");
    Ok(())
}

fn last_save(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    ctx.reply.int(ctx.server.persistence.report().last_save_unix_seconds);
    Ok(())
}
