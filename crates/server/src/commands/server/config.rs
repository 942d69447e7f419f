//! CONFIG.

use tierce_wire::resp::Args;

use super::{help, help_spec};
use crate::command::{Flags, Group, Scope, Spec};
use crate::config::DirectiveId;
use crate::durability::Reached;
use crate::error::CommandError;
use crate::execute::Context;
use crate::waiting::{self, Awaited};

const FLAGS: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);

const fn sub(name: &'static str, arity: i16, run: crate::command::Handler) -> Spec {
    Spec::new(name, arity, Group::Server, run).flags(FLAGS)
}

pub(super) static COMMANDS: &[Spec] = &[Spec::container(
    "config",
    Group::Server,
    &[
        sub("get", -3, get).doc(
            "2.0.0",
            "O(N) when N is the number of configuration parameters provided",
            "parameter [parameter ...]",
            "Returns the values of configuration parameters.",
        ),
        sub("resetstat", 2, reset_stat).doc("2.0.0", "O(1)", "", "Resets the server's statistics."),
        sub("rewrite", 2, rewrite).doc(
            "2.8.0",
            "O(1)",
            "",
            "Writes the present configuration into the configuration file.",
        ),
        sub("set", -4, set)
            .locks(Scope::Apart)
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .doc(
                "2.0.0",
                "O(N) when N is the number of configuration parameters provided",
                "parameter value [parameter value ...]",
                "Sets configuration parameters in the running server, all or none.",
            ),
        help_spec(Group::Server),
    ],
    help,
)
.doc("2.0.0", "Depends on subcommand.", "", "A container for server configuration commands.")];

type Done = Result<(), CommandError>;

fn get(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let patterns: Vec<&[u8]> = args.iter().skip(2).collect();
    let found = ctx.server.config.get(&patterns);
    ctx.reply.map(found.len());
    for (name, value) in found {
        ctx.reply.bulk(&name);
        ctx.reply.bulk(&value);
    }
    Ok(())
}

fn set(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if !args.len().is_multiple_of(2) {
        return Err(CommandError::SYNTAX);
    }
    let pairs: Vec<_> =
        (2..args.len()).step_by(2).map(|at| (args.at(at), args.at(at + 1))).collect();
    if ctx.is_within() && pairs.iter().any(waits_for_log) {
        return Err(CommandError::new(
            "ERR maxmemory-policy spill cannot be set within a transaction: it waits for the log",
        ));
    }
    let peer = ctx.session.client.peer();
    let changes = ctx.server.config.set(&pairs, peer);
    let changes = changes.map_err(|error| CommandError::text(error.to_string()))?;
    let appendonly = pairs.iter().find(|(name, _)| name.eq_ignore_ascii_case(b"appendonly"));
    if let Some((_, value)) = appendonly {
        const APPENDONLY: DirectiveId = DirectiveId::of("appendonly");
        let has_changed = changes.iter().any(|change| change.id == APPENDONLY);
        return await_log(ctx, value.eq_ignore_ascii_case(b"yes"), has_changed);
    }
    ctx.reply.ok();
    Ok(())
}

/// The first switch to the policy `spill` waits for what the log is at, which may need a shard.
fn waits_for_log((name, value): &(&[u8], &[u8])) -> bool {
    name.eq_ignore_ascii_case(b"maxmemory-policy") && value.eq_ignore_ascii_case(b"spill")
}

/// Replies when there is a log, or none, as the client wants it; only the client waits for the disk. The
/// configuration may be another one already, if there can be no log.
fn await_log(ctx: &mut Context<'_, '_>, on: bool, has_changed: bool) -> Done {
    match ctx.server.durability.reached(on, has_changed) {
        Reached::Now => ctx.reply.ok(),
        // A transaction does not wait for anything.
        Reached::Later(_) if !ctx.mode.may_wait() => ctx.reply.ok(),
        Reached::Later(ticket) => ctx.session.wait_for(Awaited::LogSwitch { ticket, on }),
        Reached::Never(cause) => return Err(waiting::not_switched(&cause)),
    }
    Ok(())
}

fn rewrite(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    ctx.server.config.rewrite().map_err(|error| CommandError::text(error.to_string()))?;
    ctx.reply.ok();
    Ok(())
}

fn reset_stat(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    ctx.server.reset_stats();
    ctx.reply.ok();
    Ok(())
}
