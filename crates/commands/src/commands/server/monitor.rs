//! MONITOR: shows every executed command to the clients that asked for it.

use crate::clients::ClientFlags;
use crate::command::{Flags, Group};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, no_arguments};

pub(super) static COMMANDS: &[Defined] =
    &[Defined::new("monitor", Group::Server, no_arguments!(monitor))
        .flags(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE))
        .since("1.0.0", "O(1)")
        .doc("", "Shows every command as the server executes it.")
        .example(
            r#"
        > MONITOR
        OK
        "#,
        )];

fn monitor(ctx: &mut Context<'_, '_>) -> Done {
    if ctx.is_within() {
        return Err(CommandError::new("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    if !ctx.caller.monitor {
        ctx.caller.monitor = true;
        ctx.caller.client.set(ClientFlags::MONITOR, true);
        ctx.kernel.clients.count_monitor(true);
    }
    ctx.reply.ok();
    Ok(())
}
