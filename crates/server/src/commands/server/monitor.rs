//! MONITOR: every command, as it is executed, to whoever asked for it.

use std::fmt::Write as _;

use tierce_wire::resp::Args;

use crate::clients::ClientFlags;
use crate::command::{Flags, Group, Spec};
use crate::error::CommandError;
use crate::execute::Context;
use crate::secrets::redacted;

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

/// The line that monitors get for a command: time, database, address, and the quoted arguments.
pub(crate) fn line(unix_micros: u64, db: usize, addr: &str, args: Args<'_>) -> String {
    let (seconds, micros) = (unix_micros / 1_000_000, unix_micros % 1_000_000);
    let mut line = format!("+{seconds}.{micros:06} [{db} {addr}]");
    for arg in redacted(args) {
        line.push(' ');
        quote(&mut line, arg);
    }
    line.push_str("\r\n");
    line
}

/// Appends `bytes` in quotes, with escapes for all that is not printable ASCII.
fn quote(out: &mut String, bytes: &[u8]) {
    out.push('"');
    for byte in bytes {
        match byte {
            b'\\' | b'"' => out.extend(['\\', char::from(*byte)]),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            7 => out.push_str("\\a"),
            8 => out.push_str("\\b"),
            b' '..=b'~' => out.push(char::from(*byte)),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting() {
        let mut out = String::new();
        quote(&mut out, b"a\"\\\n\r\t\x07\x08\0\xffz");
        assert_eq!(out, r#""a\"\\\n\r\t\a\b\x00\xffz""#);
    }
}
