//! SAVE, BGSAVE, LASTSAVE, BACKUP.

use tierce_wire::resp::Rest;

use tierce_keyspace::SnapshotError;

use crate::command::{Flags, Group, Scope};
use crate::commands::cursor::Options;
use crate::error::CommandError;
use crate::persistence::{Backup, Cause, Install, SaveError, SaveId};
use crate::pipeline::{Context, Defined, Done, at_least, many, no_arguments};
use crate::waiting::Awaited;

const OPERATOR: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING);

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("save", Group::Server, no_arguments!(save))
        .flags(OPERATOR.with(Flags::NO_MULTI))
        .locks(Scope::Unlocked)
        .since("1.0.0", "O(N) where N is the total number of keys in all databases")
        .doc("", "Saves a snapshot of all databases, and replies when it is on disk.")
        .example(
            r#"
            > SET user:1 Ada
            OK
            > SAVE
            OK
            "#,
        ),
    Defined::new("bgsave", Group::Server, many!(bg_save))
        .flags(OPERATOR)
        .locks(Scope::Unlocked)
        .since("1.0.0", "O(1)")
        .doc("[SCHEDULE]", "Begins to save a snapshot of all databases, and replies at once.")
        .example(
            r#"
            > SET user:1 Ada
            OK
            > BGSAVE
            Background saving started
            "#,
        ),
    Defined::new("backup", Group::Server, at_least!(backup))
        .flags(OPERATOR.with(Flags::NO_MULTI))
        .locks(Scope::Unlocked)
        .since("Tierce 0.1.0", "O(N) where N is the total number of keys in all databases")
        .doc(
            "path [REPLACE]",
            "Writes a snapshot of all databases to a file of its own, and replies when it is \
                 on disk.",
        )
        .example(
            r#"
            > SET user:1 Ada
            OK
            > BACKUP monday.rdb REPLACE
            OK
            "#,
        ),
    Defined::new("lastsave", Group::Server, no_arguments!(last_save))
        .flags(Flags::LOADING.with(Flags::STALE).with(Flags::FAST))
        .categories(&["admin", "dangerous"])
        .tips(&["nondeterministic_output"])
        .since("1.0.0", "O(1)")
        .doc("", "Returns the Unix time of the last successful save.")
        .example(
            r#"
            > LASTSAVE
            (integer) ...
            "#,
        ),
];

fn begin(
    ctx: &mut Context<'_, '_>,
    cause: Cause,
    backup: Option<Backup>,
) -> Result<SaveId, CommandError> {
    let (kernel, now_ms) = (ctx.kernel, ctx.now_ms);
    let Some(locks) = ctx.unlocked() else { return Err(CommandError::NOT_WITHIN) };
    if !kernel.has_saver() {
        return Err(CommandError::new(
            "ERR this store was not opened to be saved: nothing writes files",
        ));
    }
    let begun = kernel.begin_save(locks, now_ms, cause, backup);
    begun.map_err(|error| match error {
        SaveError::Snapshot(SnapshotError::Busy(busy)) => busy.into(),
        error => CommandError::text(format!("ERR {error}")),
    })
}

/// Saves a snapshot. Only this client waits while the file is written.
fn save(ctx: &mut Context<'_, '_>) -> Done {
    let save_id = begin(ctx, Cause::Foreground, None)?;
    ctx.caller.wait_for(Awaited::Save(save_id));
    Ok(())
}

fn bg_save(ctx: &mut Context<'_, '_>, options: Rest<'_>) -> Done {
    let mut options = Options::of(options);
    options.take("schedule");
    options.end()?;
    // SCHEDULE has no effect: it means to wait for a rewrite of the log, which is never needed
    // here. As in Redis, no save is scheduled after another save.
    if ctx.is_within() {
        // As in Redis, it begins after the transaction.
        ctx.kernel.persistence.schedule();
        ctx.reply.simple("Background saving scheduled");
        return Ok(());
    }
    begin(ctx, Cause::Background, None)?;
    ctx.reply.simple("Background saving started");
    Ok(())
}

fn last_save(ctx: &mut Context<'_, '_>) -> Done {
    ctx.reply.int(ctx.kernel.persistence.report().last_save_unix_seconds);
    Ok(())
}

/// Writes a backup. As with SAVE, only this client waits. Checking the path takes a few system
/// calls, which an operator's command may.
fn backup(ctx: &mut Context<'_, '_>, [path]: [&[u8]; 1], options: Rest<'_>) -> Done {
    let mut options = Options::of(options);
    let install = if options.take("replace") { Install::Replace } else { Install::New };
    options.end()?;
    let (settings, peer) = (ctx.kernel.config.settings(), ctx.caller.client.peer());
    let start_dir = ctx.kernel.persistence.start_dir();
    let backup = Backup::check(path, install, &settings, start_dir, peer)
        .map_err(|error| CommandError::text(format!("ERR {error}")))?;
    let save_id = begin(ctx, Cause::Backup, Some(backup))?;
    ctx.caller.wait_for(Awaited::Save(save_id));
    Ok(())
}
