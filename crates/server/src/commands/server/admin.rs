//! TIME, DBSIZE, FLUSHDB, FLUSHALL, SHUTDOWN, ROLE, WAIT, LOLWUT.

use tierce_keyspace::{DbIndex, Freeing};
use tierce_wire::number;
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, Scope, Spec};
use crate::error::CommandError;
use crate::execute::Context;
use crate::server::{Saving, Shutdown};
use crate::waiting::Awaited;

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("time", 1, Group::Server, time)
        .tips(&["nondeterministic_output"])
        .flags(Flags::LOADING.with(Flags::STALE).with(Flags::FAST))
        .doc("2.6.0", "O(1)", "", "Returns the server time."),
    Spec::new("dbsize", 1, Group::Server, db_size)
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"])
        .flags(Flags::READONLY.with(Flags::FAST))
        .categories(&["keyspace"])
        .locks(Scope::Stepwise)
        .doc("1.0.0", "O(1)", "", "Returns the number of keys in the database."),
    Spec::new("flushdb", -1, Group::Server, flush_db)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .flags(Flags::WRITE)
        .categories(&["keyspace", "dangerous"])
        .locks(Scope::Stepwise)
        .doc(
            "1.0.0",
            "O(N) where N is the number of keys in the selected database",
            "[ASYNC | SYNC]",
            "Removes all keys from the current database.",
        ),
    Spec::new("flushall", -1, Group::Server, flush_all)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .flags(Flags::WRITE)
        .categories(&["keyspace", "dangerous"])
        .locks(Scope::Stepwise)
        .doc(
            "1.0.0",
            "O(N) where N is the total number of keys in all databases",
            "[ASYNC | SYNC]",
            "Removes all keys from all databases.",
        ),
    Spec::new("shutdown", -1, Group::Server, shutdown)
        .flags(
            Flags::ADMIN
                .with(Flags::NOSCRIPT)
                .with(Flags::LOADING)
                .with(Flags::STALE)
                .with(Flags::NO_MULTI)
                .with(Flags::ALLOW_BUSY),
        )
        .doc(
            "1.0.0",
            "O(N) when saving, where N is the total number of keys",
            "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]",
            "Shuts the server down.",
        ),
    Spec::new("role", 1, Group::Server, role)
        .flags(Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST))
        .categories(&["admin", "dangerous"])
        .doc("2.8.12", "O(1)", "", "Returns the replication role."),
    Spec::new("wait", 3, Group::Generic, wait)
        .flags(Flags::BLOCKING)
        .categories(&["connection"])
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .doc(
            "3.0.0",
            "O(1)",
            "numreplicas timeout",
            "Returns how many replicas have acknowledged the writes of the connection.",
        ),
    Spec::new("lolwut", -1, Group::Server, lolwut).flags(Flags::READONLY.with(Flags::FAST)).doc(
        "5.0.0",
        "O(1)",
        "[VERSION version]",
        "Displays a small work of art and the version.",
    ),
];

type Done = Result<(), CommandError>;

fn time(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    let micros = crate::clock::unix_micros();
    ctx.reply.bulks([(micros / 1_000_000).to_string(), (micros % 1_000_000).to_string()]);
    Ok(())
}

fn db_size(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    ctx.reply.int(ctx.server.keyspace.len(ctx.session.db) as i64);
    Ok(())
}

/// `[ASYNC | SYNC]`; without either, `lazyfree-lazy-user-flush` decides.
fn freeing(ctx: &Context<'_, '_>, args: Args<'_>) -> Result<Freeing, CommandError> {
    match args.len() {
        1 if ctx.server.config.live().lazyfree_lazy_user_flush() => Ok(Freeing::Later),
        1 => Ok(Freeing::Now),
        2 if args[1].eq_ignore_ascii_case(b"async") => Ok(Freeing::Later),
        2 if args[1].eq_ignore_ascii_case(b"sync") => Ok(Freeing::Now),
        _ => Err(CommandError::SYNTAX),
    }
}

fn flush_db(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let db = ctx.session.db;
    flush(ctx, args, [db])
}

fn flush_all(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let dbs = ctx.server.keyspace.db_indices();
    flush(ctx, args, dbs)
}

fn flush(
    ctx: &mut Context<'_, '_>,
    args: Args<'_>,
    dbs: impl IntoIterator<Item = DbIndex>,
) -> Done {
    let freeing = freeing(ctx, args)?;
    ctx.guard.flush(dbs, freeing);
    let flushes_all = ctx.command.spec.name == "flushall";
    if flushes_all && !ctx.server.config.settings().save_points().is_empty() {
        // So that a server that is killed now does not come back with what was flushed.
        ctx.server.persistence.schedule();
    }
    ctx.reply.ok();
    Ok(())
}

fn shutdown(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut saving, mut abort, mut now, mut force) = (Saving::IfConfigured, false, false, false);
    for option in args.iter().skip(1) {
        match option.to_ascii_lowercase().as_slice() {
            b"nosave" if saving != Saving::Always => saving = Saving::Never,
            b"save" if saving != Saving::Never => saving = Saving::Always,
            b"now" => now = true,
            b"force" => force = true,
            b"abort" => abort = true,
            _ => return Err(CommandError::SYNTAX),
        }
    }
    if abort && (saving != Saving::IfConfigured || now || force) {
        return Err(CommandError::SYNTAX);
    }
    if abort {
        return Err(CommandError::new("ERR No shutdown in progress."));
    }
    let reason = Shutdown::Command { saving, force };
    // No reply: the client learns of it by the end of its connection. Unless that does not come,
    // because the data cannot be saved.
    if reason.saves(&ctx.server.config) {
        ctx.session.wait_for(Awaited::Shutdown);
    } else {
        ctx.session.closing = true;
    }
    ctx.server.request_shutdown(reason);
    Ok(())
}

fn role(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    ctx.reply.array(3);
    ctx.reply.bulk(b"master");
    ctx.reply.int(0);
    ctx.reply.array(0);
    Ok(())
}

/// There are no replicas to wait for.
fn wait(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    number::parse_i64(&args[1]).ok_or(CommandError::NOT_AN_INTEGER)?;
    let timeout = number::parse_i64(&args[2])
        .ok_or(CommandError::new("ERR timeout is not an integer or out of range"))?;
    if timeout < 0 {
        return Err(CommandError::new("ERR timeout is negative"));
    }
    ctx.reply.int(0);
    Ok(())
}

fn lolwut(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    const CASK: &str = "\
       .-=========-.\n\
      /_____________\\\n\
     |  |    |    |  |\n\
     |==|====|====|==|\n\
     |  |    |    |  |     A tierce holds 42 gallons of wine,\n\
     |  |    |    |  |     or as many keys as you like.\n\
     |==|====|====|==|\n\
     |__|____|____|__|\n\
      \\_____________/\n\n";
    if args.len() > 2 && args[1].eq_ignore_ascii_case(b"version") {
        // There is one picture so far, whatever version is asked for.
        number::parse_i64(&args[2]).ok_or(CommandError::NOT_AN_INTEGER)?;
    }
    ctx.reply.verbatim(&format!(
        "{CASK}Redis ver. {} (Tierce {})\n",
        crate::REDIS_VERSION,
        crate::VERSION
    ));
    Ok(())
}
