//! SAVE, BGSAVE, LASTSAVE, BACKUP.

use tierce_wire::resp::Args;

use crate::command::{Flags, Group, Scope, Spec};
use crate::error::CommandError;
use crate::execute::Context;
use crate::persistence::{Backup, Cause, Install, Ticket};
use crate::waiting::Awaited;

const OPERATOR: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING);

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("save", 1, Group::Server, save).flags(OPERATOR.with(Flags::NO_MULTI)).locks(Scope::Apart).doc(
        "1.0.0",
        "O(N) where N is the total number of keys in all databases",
        "",
        "Saves a snapshot of all databases, and replies when it is on disk.",
    ),
    Spec::new("bgsave", -1, Group::Server, bg_save).flags(OPERATOR).locks(Scope::Apart).doc(
        "1.0.0",
        "O(1)",
        "[SCHEDULE]",
        "Begins to save a snapshot of all databases, and replies at once.",
    ),
    Spec::new("backup", -2, Group::Server, backup).flags(OPERATOR.with(Flags::NO_MULTI)).locks(Scope::Apart).doc(
        "1.0.0",
        "O(N) where N is the total number of keys in all databases",
        "path [REPLACE]",
        "Writes a snapshot of all databases to a file of its own, and replies when it is on disk.",
    ),
    Spec::new("lastsave", 1, Group::Server, last_save)
        .flags(Flags::LOADING.with(Flags::STALE).with(Flags::FAST))
        .categories(&["admin", "dangerous"])
        .tips(&["nondeterministic_output"])
        .doc("1.0.0", "O(1)", "", "Returns the Unix time of the last successful save."),
];

type Done = Result<(), CommandError>;

fn begin(
    ctx: &mut Context<'_, '_>,
    cause: Cause,
    backup: Option<Backup>,
) -> Result<Ticket, CommandError> {
    let (server, now_ms) = (ctx.server, ctx.now_ms);
    let Some(locker) = ctx.apart() else { return Err(CommandError::NOT_WITHIN) };
    let begun = server.begin_save(locker, now_ms, cause, backup);
    begun.map_err(|error| CommandError::text(format!("ERR {error}")))
}

/// The client waits, and nobody else: others go on while the file is written.
fn save(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    let ticket = begin(ctx, Cause::Foreground, None)?;
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
    if ctx.is_within() {
        // It is begun when the transaction is through: as in Redis.
        ctx.server.persistence.schedule();
        ctx.reply.simple("Background saving scheduled");
        return Ok(());
    }
    begin(ctx, Cause::Background, None)?;
    ctx.reply.simple("Background saving started");
    Ok(())
}

fn last_save(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    ctx.reply.int(ctx.server.persistence.report().last_save_unix_seconds);
    Ok(())
}

/// As SAVE, the client waits and nobody else. Looking at the path takes a few calls of the system,
/// which an operator's command may.
fn backup(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let install = match args.get(2) {
        None => Install::New,
        Some(word) if args.len() == 3 && word.eq_ignore_ascii_case(b"replace") => Install::Replace,
        Some(_) => return Err(CommandError::SYNTAX),
    };
    let (settings, peer) = (ctx.server.config.settings(), ctx.session.client.peer());
    let home = ctx.server.persistence.home();
    let backup = Backup::check(&args[1], install, &settings, home, peer)
        .map_err(|error| CommandError::text(format!("ERR {error}")))?;
    let ticket = begin(ctx, Cause::Backup, Some(backup))?;
    ctx.session.wait_for(Awaited::Save(ticket));
    Ok(())
}
