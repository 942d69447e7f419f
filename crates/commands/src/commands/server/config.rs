//! CONFIG.

use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, Scope};
use crate::commands::help::{help, help_spec};
use crate::config::DirectiveId;
use crate::durability::Reached;
use crate::error::CommandError;
use crate::pipeline::{Body, Context, Defined, Done, many, no_arguments};
use crate::waiting::{self, Awaited};

const FLAGS: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);

const REQUIREPASS: DirectiveId = DirectiveId::of("requirepass");

const fn sub(name: &'static str, body: Body) -> Defined {
    Defined::new(name, Group::Server, body).flags(FLAGS)
}

pub(super) static COMMANDS: &[Defined] = &[Defined::container(
    "config",
    Group::Server,
    &[
        sub("get", many!(sub get))
            .since("2.0.0", "O(N) when N is the number of configuration parameters provided")
            .doc("parameter [parameter ...]", "Returns the values of configuration parameters.")
            .example(
                r#"
                > CONFIG GET slowlog-m*
                1) "slowlog-max-len"
                2) "128"
                > CONFIG GET nosuch
                (empty array)
                "#,
            ),
        sub("resetstat", no_arguments!(sub reset_stat))
            .since("2.0.0", "O(1)")
            .doc("", "Resets the server's statistics.")
            .example(
                r#"
                > CONFIG RESETSTAT
                OK
                "#,
            ),
        sub("rewrite", no_arguments!(sub rewrite))
            .since("2.8.0", "O(1)")
            .doc("", "Writes the present configuration into the configuration file.")
            .example(
                r#"
                > CONFIG REWRITE
                (error) ERR The server is running without a config file
                "#,
            ),
        sub("set", many!(sub set))
            .locks(Scope::Unlocked)
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .since("2.0.0", "O(N) when N is the number of configuration parameters provided")
            .doc(
                "parameter value [parameter value ...]",
                "Sets configuration parameters in the running server, all or none.",
            )
            .example(
                r#"
                > CONFIG SET slowlog-max-len 64 timeout 300
                OK
                > CONFIG GET slowlog-max-len
                1) "slowlog-max-len"
                2) "64"
                > CONFIG SET slowlog-max-len many
                (error) ERR CONFIG SET failed (possibly related to argument 'slowlog-max-len') - ...
                > CONFIG SET slowlog-max-len 128 timeout 0
                OK
                "#,
            ),
        help_spec(Group::Server).example(
            r#"
                > CONFIG HELP
                 1) CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
                 2) GET parameter [parameter ...]
                 3)     Returns the values of configuration parameters.
                ...
                "#,
        ),
    ],
    help,
)
.since("2.0.0", "Depends on subcommand.")
.doc("", "A container for server configuration commands.")];

fn get(ctx: &mut Context<'_, '_>, parameters: Rest<'_, 1>) -> Done {
    let patterns: Vec<&[u8]> = parameters.iter().collect();
    let found = ctx.kernel.config.get(&patterns);
    ctx.reply.map(found.len());
    for (name, value) in found {
        ctx.reply.bulk(&name);
        ctx.reply.bulk(&value);
    }
    Ok(())
}

fn set(ctx: &mut Context<'_, '_>, pairs: Rest<'_, 2>) -> Done {
    let pairs = pairs.groups().ok_or(CommandError::SYNTAX)?;
    let pairs: Vec<_> = pairs.map(|[name, value]| (name, value)).collect();
    if ctx.is_within() && pairs.iter().any(waits_for_log) {
        return Err(CommandError::new(
            "ERR maxmemory-policy spill cannot be set within a transaction: it waits for the log",
        ));
    }
    let peer = ctx.caller.client.peer();
    let changes = ctx.kernel.config.set(&pairs, peer);
    let changes = changes.map_err(|error| CommandError::text(error.to_string()))?;
    if changes.iter().any(|change| change.id == REQUIREPASS) {
        ctx.kernel.apply_password();
    }
    let appendonly = pairs.iter().find(|(name, _)| name.eq_ignore_ascii_case(b"appendonly"));
    if let Some((_, value)) = appendonly {
        const APPENDONLY: DirectiveId = DirectiveId::of("appendonly");
        let has_changed = changes.iter().any(|change| change.id == APPENDONLY);
        return await_log(ctx, value.eq_ignore_ascii_case(b"yes"), has_changed);
    }
    ctx.reply.ok();
    Ok(())
}

/// Returns true for a switch to the policy `spill`. The first one waits for the log, which may need a shard.
fn waits_for_log((name, value): &(&[u8], &[u8])) -> bool {
    name.eq_ignore_ascii_case(b"maxmemory-policy") && value.eq_ignore_ascii_case(b"spill")
}

/// Replies once the log is on or off as requested. Only this client waits for the disk. If the log cannot be started,
/// the configuration may already be another one.
fn await_log(ctx: &mut Context<'_, '_>, on: bool, has_changed: bool) -> Done {
    if !has_changed && ctx.kernel.loading.is_on() {
        // The log starts after loading; until then a change is refused.
        ctx.reply.ok();
        return Ok(());
    }
    match ctx.kernel.durability.reached(on, has_changed) {
        Reached::Now => ctx.reply.ok(),
        // A transaction never waits.
        Reached::Later(_) if ctx.is_within() => ctx.reply.ok(),
        Reached::Later(switch_id) => ctx.caller.wait_for(Awaited::LogSwitch { switch_id, on }),
        Reached::Never(cause) => return Err(waiting::not_switched(&cause)),
    }
    Ok(())
}

fn rewrite(ctx: &mut Context<'_, '_>) -> Done {
    ctx.kernel
        .config
        .rewrite(|| ctx.kernel.user_lines())
        .map_err(|error| CommandError::text(error.to_string()))?;
    ctx.reply.ok();
    Ok(())
}

fn reset_stat(ctx: &mut Context<'_, '_>) -> Done {
    ctx.kernel.reset_stats();
    ctx.reply.ok();
    Ok(())
}
