//! WAIT.

use tierce_wire::number;

use crate::command::{Flags, Group, Scope};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, exactly};
use crate::replication::Wanted;
use crate::waiting::Patience;

pub(super) static COMMANDS: &[Defined] = &[Defined::new("wait", Group::Generic, exactly!(wait))
    .flags(Flags::BLOCKING)
    .locks(Scope::Unlocked)
    .categories(&["connection"])
    .tips(&["request_policy:all_shards", "response_policy:agg_min"])
    .since("3.0.0", "O(1)")
    .doc(
        "numreplicas timeout",
        "Returns how many replicas have acknowledged the writes of the connection.",
    )
    .example(
        r#"
            > SET order:17 paid
            OK
            > WAIT 0 100
            (integer) 0
            "#,
    )];

/// Waits for the writes of all connections so far, which include those of this one.
fn wait(ctx: &mut Context<'_, '_>, [numreplicas, timeout]: [&[u8]; 2]) -> Done {
    const ON_REPLICA: CommandError = CommandError::new(
        "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is \
         configured to be writable (which is not the default) writes to replicas are just local and are not \
         propagated.",
    );
    if ctx.kernel.role.is_replica() {
        return Err(ON_REPLICA);
    }
    let replicas = number::parse_i64(numreplicas).ok_or(CommandError::NOT_AN_INTEGER)?;
    let patience = Patience::from_ms(timeout)?;
    let wanted = Wanted::Received { replicas: usize::try_from(replicas).unwrap_or(0) };
    ctx.kernel.confirm(ctx.caller, ctx.mode, &mut ctx.reply, wanted, patience);
    Ok(())
}
