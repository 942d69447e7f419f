//! MONITOR: every command, as it is executed, to whoever asked for it.

use tierce_wire::resp::Args;
use tierce_wire::words;

use crate::clients::ClientFlags;
use crate::command::{Flags, Group, Spec};
use crate::error::CommandError;
use crate::execute::Context;
use crate::secrets;

pub(super) static COMMANDS: &[Spec] = &[Spec::new("monitor", 1, Group::Server, monitor)
    .flags(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE))
    .doc("1.0.0", "O(1)", "", "Shows every command as the server executes it.")];

fn monitor(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    if !ctx.session.monitor {
        ctx.session.monitor = true;
        ctx.session.client.set(ClientFlags::MONITOR, true);
        ctx.server.clients.count_monitor(true);
    }
    ctx.reply.ok();
    Ok(())
}

/// The line that monitors get for a command: time, database, address, and the quoted arguments,
/// but no passwords.
pub(crate) fn line(unix_micros: u64, db: usize, addr: &str, args: Args<'_>) -> Vec<u8> {
    let (seconds, micros) = (unix_micros / 1_000_000, unix_micros % 1_000_000);
    let mut line = format!("+{seconds}.{micros:06} [{db} {addr}]").into_bytes();
    for arg in secrets::shown(args) {
        line.push(b' ');
        words::quote_into(&mut line, arg);
    }
    line.extend(b"\r\n");
    line
}
