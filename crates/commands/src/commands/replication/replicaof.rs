//! REPLICAOF, and SLAVEOF, which Sentinel uses.

use tierce_wire::number;

use crate::command::{Flags, Group, Scope};
use crate::error::CommandError;
use crate::pipeline::quiet::{await_quiet, awaits_quiet};
use crate::pipeline::{Context, Defined, Done, exactly};
use crate::replication::role::Address;

pub(super) static COMMANDS: &[Defined] = &[
    defined("replicaof").since("5.0.0", "O(1)").example(
        r#"
            > REPLICAOF NO ONE
            OK
            "#,
    ),
    defined("slaveof").since("1.0.0", "O(1)").deprecated("5.0.0", "`REPLICAOF`").example(
        r#"
            > SLAVEOF NO ONE
            OK
            "#,
    ),
];

const fn defined(name: &'static str) -> Defined {
    Defined::new(name, Group::Server, exactly!(replicaof))
        .flags(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::STALE).with(Flags::NO_ASYNC_LOADING))
        .locks(Scope::Unlocked)
        .doc("<host port | NO ONE>", "Makes the server a replica of another one, or a primary.")
}

fn replicaof(ctx: &mut Context<'_, '_>, [host, port]: [&[u8]; 2]) -> Done {
    let primary = match host.eq_ignore_ascii_case(b"no") && port.eq_ignore_ascii_case(b"one") {
        true => None,
        false => {
            let port = number::parse_i64(port).and_then(|port| u16::try_from(port).ok());
            let port = port.filter(|port| *port != 0);
            let port = port.ok_or(CommandError::new("ERR Invalid master port"))?;
            Some(Address { host: host.to_vec(), port })
        }
    };
    let is_to_follow = primary.is_some();
    let is_changed = awaits_quiet(ctx) || {
        let _still = ctx.hold_role_still()?;
        ctx.kernel.replicate(primary, ctx.now_ms)?
    };
    // From here on, no client write is acknowledged, unless the role changes back.
    if is_changed && is_to_follow && ctx.kernel.role.is_replica() {
        await_quiet(ctx, false)?;
    }
    ctx.caller.quiet = None;
    if is_changed || !is_to_follow {
        ctx.reply.ok();
    } else {
        ctx.reply.simple("OK Already connected to specified master");
    }
    Ok(())
}
