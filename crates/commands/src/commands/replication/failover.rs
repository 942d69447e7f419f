//! FAILOVER.

use tierce_wire::number;
use tierce_wire::resp::Rest;

use crate::bucket::State;
use crate::command::{Flags, Group, Scope};
use crate::commands::cursor::Options;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, many};
use crate::replication::failover::Plan;
use crate::replication::role::Address;

pub(super) static COMMANDS: &[Defined] = &[Defined::new("failover", Group::Server, many!(failover))
    .flags(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::STALE))
    .locks(Scope::Unlocked)
    .since("6.2.0", "O(1)")
    .doc(
        "[TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]",
        "Makes a replica of this server the primary, and this server its replica. With `bucket-takeover yes` and without \
         `TO`, ends this server when the bucket has everything, for a server that follows the bucket to take over.",
    )
    .example(
        r#"
            > FAILOVER
            (error) ERR FAILOVER requires connected replicas.
            > FAILOVER ABORT
            (error) ERR No failover in progress.
            "#,
    )];

const IN_PROGRESS: CommandError = CommandError::new("ERR FAILOVER already in progress.");

fn failover(ctx: &mut Context<'_, '_>, options: Rest<'_>) -> Done {
    const NOT_IN_PROGRESS: CommandError = CommandError::new("ERR No failover in progress.");
    let mut options = Options::of(options);
    if options.left() == 1 && options.take("abort") {
        let _still = ctx.hold_role_still()?;
        if !ctx.kernel.abort_failover("a client says FAILOVER ABORT") {
            return Err(NOT_IN_PROGRESS);
        }
        ctx.reply.ok();
        return Ok(());
    }
    let mut plan = plan_of(&mut options, ctx.now_ms)?;
    plan.leaves_bucket = plan.target.is_none() && ctx.kernel.bucket.lease.clock().is_some();
    let _still = ctx.hold_role_still()?;
    check(ctx, &plan)?;
    if !ctx.kernel.begin_failover(plan) {
        return Err(IN_PROGRESS);
    }
    ctx.reply.ok();
    Ok(())
}

/// Parses the options.
fn plan_of(options: &mut Options<'_>, now_ms: i64) -> Result<Plan, CommandError> {
    const TIMEOUT: CommandError = CommandError::new("ERR FAILOVER timeout must be greater than 0");
    let mut plan = Plan { target: None, until_ms: None, is_forced: false, leaves_bucket: false };
    while let Some(word) = options.next_word() {
        match &*word {
            b"timeout" if plan.until_ms.is_none() => {
                let ms = number::parse_i64(options.value()?).ok_or(CommandError::NOT_AN_INTEGER)?;
                if ms <= 0 {
                    return Err(TIMEOUT);
                }
                plan.until_ms = Some(now_ms.saturating_add(ms));
            }
            b"to" if plan.target.is_none() => {
                let [host, port] = options.values()?;
                let port = number::parse_i64(port).ok_or(CommandError::NOT_AN_INTEGER)?;
                // No server listens at an invalid port, so port 0 stands for it.
                let port = u16::try_from(port).unwrap_or(0);
                plan.target = Some(Address { host: host.to_vec(), port });
            }
            b"force" if !plan.is_forced => plan.is_forced = true,
            _ => return Err(CommandError::SYNTAX),
        }
    }
    Ok(plan)
}

/// Checks if a failover may begin.
fn check(ctx: &Context<'_, '_>, plan: &Plan) -> Done {
    const IS_REPLICA: CommandError =
        CommandError::new("ERR FAILOVER is not valid when server is a replica.");
    const NO_REPLICAS: CommandError =
        CommandError::new("ERR FAILOVER requires connected replicas.");
    const FORCE_ALONE: CommandError = CommandError::new(
        "ERR FAILOVER with force option requires both a timeout and target HOST and IP.",
    );
    const NO_REPLICA: CommandError =
        CommandError::new("ERR FAILOVER target HOST and PORT is not a replica.");
    const NOT_ONLINE: CommandError =
        CommandError::new("ERR FAILOVER target replica is not online.");
    const NOT_FOLLOWING: CommandError = CommandError::new(
        "ERR FAILOVER is not possible while the bucket lacks data of this server.",
    );
    const LOG_HAS_FAILED: CommandError = CommandError::new(
        "ERR FAILOVER is not possible while the log has failed: replicas do not get what it refuses. Make the log work \
         again (the error of a write tells how), or promote a replica with REPLICAOF NO ONE",
    );
    let kernel = ctx.kernel;
    if kernel.failover.is_on() {
        return Err(IN_PROGRESS);
    }
    if kernel.role.following().is_some() {
        return Err(IS_REPLICA);
    }
    if plan.leaves_bucket {
        return match (plan.is_forced, kernel.bucket.update(|figures| figures.state)) {
            (true, _) => Err(FORCE_ALONE),
            (false, State::Following) => Ok(()),
            (false, _) => Err(NOT_FOLLOWING),
        };
    }
    if kernel.durability.log_has_failed() {
        return Err(LOG_HAS_FAILED);
    }
    if !kernel.primary.replicas().iter().any(|replica| replica.listens()) {
        return Err(NO_REPLICAS);
    }
    if plan.is_forced && (plan.until_ms.is_none() || plan.target.is_none()) {
        return Err(FORCE_ALONE);
    }
    match &plan.target {
        None => Ok(()),
        Some(target) => match kernel.primary.replica_at(target) {
            None => Err(NO_REPLICA),
            Some(replica) if !replica.is_online() => Err(NOT_ONLINE),
            Some(_) => Ok(()),
        },
    }
}
