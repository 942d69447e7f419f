//! TIME, DBSIZE, FLUSHDB, FLUSHALL, SHUTDOWN, ROLE, WAIT, LOLWUT.

use tierce_keyspace::{DbIndex, Freeing};
use tierce_wire::number;
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, Scope};
use crate::commands::cursor::Options;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, many, no_arguments};
use crate::replication::role::LinkState;
use crate::shutdown::{Saving, Shutdown};
use crate::waiting::Awaited;

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("time", Group::Server, no_arguments!(time))
        .tips(&["nondeterministic_output"])
        .flags(Flags::LOADING.with(Flags::STALE).with(Flags::FAST))
        .since("2.6.0", "O(1)")
        .doc("", "Returns the server time.")
        .example(
            r#"
            > TIME
            1) "1..."
            2) "..."
            "#,
        ),
    Defined::new("dbsize", Group::Server, no_arguments!(db_size))
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"])
        .flags(Flags::READONLY.with(Flags::FAST))
        .categories(&["keyspace"])
        .locks(Scope::Stepwise)
        .since("1.0.0", "O(1)")
        .doc("", "Returns the number of keys in the database.")
        .example(
            r#"
            > DBSIZE
            (integer) 0
            > MSET user:1 Ada user:2 Grace
            OK
            > DBSIZE
            (integer) 2
            "#,
        ),
    Defined::new("flushdb", Group::Server, many!(flush_db))
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .flags(Flags::WRITE)
        .categories(&["keyspace", "dangerous"])
        .locks(Scope::Stepwise)
        .since("1.0.0", "O(N) where N is the number of keys in the selected database")
        .doc("[ASYNC | SYNC]", "Removes all keys from the current database.")
        .example(
            r#"
            > SET user:1 Ada
            OK
            > FLUSHDB
            OK
            > DBSIZE
            (integer) 0
            "#,
        ),
    Defined::new("flushall", Group::Server, many!(flush_all))
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .flags(Flags::WRITE)
        .categories(&["keyspace", "dangerous"])
        .locks(Scope::Stepwise)
        .since("1.0.0", "O(N) where N is the total number of keys in all databases")
        .doc("[ASYNC | SYNC]", "Removes all keys from all databases.")
        .example(
            r#"
            > SET user:1 Ada
            OK
            > FLUSHALL
            OK
            > DBSIZE
            (integer) 0
            "#,
        ),
    Defined::new("shutdown", Group::Server, many!(shutdown))
        .flags(
            Flags::ADMIN
                .with(Flags::NOSCRIPT)
                .with(Flags::LOADING)
                .with(Flags::STALE)
                .with(Flags::NO_MULTI)
                .with(Flags::ALLOW_BUSY),
        )
        .since("1.0.0", "O(N) when saving, where N is the total number of keys")
        .doc("[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]", "Shuts the server down.")
        .example(
            r#"
            > SHUTDOWN ABORT
            (error) ERR No shutdown in progress.
            > SHUTDOWN NOSAVE
            "#,
        ),
    Defined::new("role", Group::Server, no_arguments!(role))
        .flags(Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST))
        .categories(&["admin", "dangerous"])
        .since("2.8.12", "O(1)")
        .doc("", "Returns the replication role.")
        .example(
            r#"
            > ROLE
            1) "master"
            2) (integer) 0
            3) (empty array)
            "#,
        ),
    Defined::new("lolwut", Group::Server, many!(lolwut))
        .flags(Flags::READONLY.with(Flags::FAST))
        .since("5.0.0", "O(1)")
        .doc("[VERSION version]", "Displays a small work of art and the version.")
        .example(
            r#"
            > LOLWUT
            ...
            Redis ver. 7...
            "#,
        ),
];

fn time(ctx: &mut Context<'_, '_>) -> Done {
    let micros = crate::clock::unix_micros();
    ctx.reply.bulks([(micros / 1_000_000).to_string(), (micros % 1_000_000).to_string()]);
    Ok(())
}

fn db_size(ctx: &mut Context<'_, '_>) -> Done {
    ctx.reply.int(ctx.kernel.keyspace.len(ctx.caller.db) as i64);
    Ok(())
}

/// Parses `[ASYNC | SYNC]`. `lazyfree-lazy-user-flush` sets the default.
fn freeing(ctx: &Context<'_, '_>, options: Rest<'_>) -> Result<Freeing, CommandError> {
    let mut options = Options::of(options);
    let freeing = match options.next_word().as_deref() {
        None if ctx.kernel.config.live().lazyfree_lazy_user_flush() => Freeing::Later,
        None | Some(b"sync") => Freeing::Now,
        Some(b"async") => Freeing::Later,
        Some(_) => return Err(CommandError::SYNTAX),
    };
    options.end()?;
    Ok(freeing)
}

fn flush_db(ctx: &mut Context<'_, '_>, options: Rest<'_>) -> Done {
    let db = ctx.caller.db;
    flush(ctx, options, [db])
}

fn flush_all(ctx: &mut Context<'_, '_>, options: Rest<'_>) -> Done {
    let dbs = ctx.kernel.keyspace.db_indices();
    flush(ctx, options, dbs)
}

fn flush(
    ctx: &mut Context<'_, '_>,
    options: Rest<'_>,
    dbs: impl IntoIterator<Item = DbIndex>,
) -> Done {
    let freeing = freeing(ctx, options)?;
    if freeing == Freeing::Now {
        ctx.weigh(ctx.kernel.keyspace.estimated_len() as usize)?;
    }
    let check = ctx.check_again();
    ctx.guard.flush(dbs, freeing, check)?;
    let flushes_all = ctx.command.spec.name == "flushall";
    if flushes_all && !ctx.kernel.config.settings().save_points().is_empty() {
        // Otherwise, a server that is killed now would restore the flushed data.
        ctx.kernel.persistence.schedule();
    }
    ctx.reply.ok();
    Ok(())
}

fn shutdown(ctx: &mut Context<'_, '_>, options: Rest<'_>) -> Done {
    let (mut saving, mut abort, mut now, mut force) = (Saving::IfConfigured, false, false, false);
    let mut options = Options::of(options);
    while let Some(word) = options.next_word() {
        match &*word {
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
        if !ctx.kernel.shutdown().abort() {
            return Err(CommandError::new("ERR No shutdown in progress."));
        }
        ctx.reply.ok();
        return Ok(());
    }
    if ctx.kernel.loading.is_on() {
        // As in Redis, nothing is saved, because the data are incomplete.
        ctx.caller.closing = true;
        ctx.kernel.request_shutdown(Shutdown::Command { saving: Saving::Never, force, now });
        ctx.kernel.loading.give_up();
        return Ok(());
    }
    let reason = Shutdown::Command { saving, force, now };
    if saving != Saving::Never
        && let Some(error) = ctx.kernel.scripts.running.any_for(ctx.kernel.busy_threshold())
    {
        return Err(error);
    }
    // There is no reply: the connection closes with all others. An error is sent if the data cannot be saved, or if
    // another client aborts the shutdown while it waits for replicas.
    ctx.caller.wait_for(Awaited::Shutdown);
    ctx.kernel.request_shutdown(reason);
    Ok(())
}

fn role(ctx: &mut Context<'_, '_>) -> Done {
    if let Some(following) = ctx.kernel.role.following() {
        ctx.reply.array(5);
        ctx.reply.bulk(b"slave");
        ctx.reply.bulk(&following.primary.host);
        ctx.reply.int(following.primary.port.into());
        ctx.reply.bulk(following.link.name().as_bytes());
        let is_known = following.link == LinkState::Connected;
        let offset = following.applied_offset().filter(|_| is_known);
        ctx.reply.int(offset.map_or(-1, |offset| offset as i64));
        return Ok(());
    }
    let replicas = ctx.kernel.primary.replicas();
    let online: Vec<_> = replicas.iter().filter(|replica| replica.is_online()).collect();
    ctx.reply.array(3);
    ctx.reply.bulk(b"master");
    ctx.reply.int(ctx.kernel.primary.backlog.end() as i64);
    ctx.reply.array(online.len());
    for replica in online {
        ctx.reply.array(3);
        ctx.reply.bulk(replica.ip().as_bytes());
        ctx.reply.bulk(replica.port().to_string().as_bytes());
        ctx.reply.bulk(replica.acknowledged().to_string().as_bytes());
    }
    Ok(())
}

fn lolwut(ctx: &mut Context<'_, '_>, options: Rest<'_>) -> Done {
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
    let mut options = Options::of(options);
    if options.left() > 1 && options.take("version") {
        // All versions show this picture.
        number::parse_i64(options.value()?).ok_or(CommandError::NOT_AN_INTEGER)?;
    }
    ctx.reply.verbatim(&format!(
        "{CASK}Redis ver. {} (Tierce {})\n",
        crate::REDIS_VERSION,
        crate::VERSION
    ));
    Ok(())
}
