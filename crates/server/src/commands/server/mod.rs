//! Commands about the server as a whole.

mod admin;
mod command;
mod config;
mod debug;
mod info;
mod latency;
mod memory;
mod monitor;
mod slowlog;

use tierce_wire::resp::Args;

use crate::command::Spec;
use crate::error::CommandError;
use crate::execute::Context;

pub(super) const COMMANDS: &[&[Spec]] = &[
    admin::COMMANDS,
    command::COMMANDS,
    config::COMMANDS,
    debug::COMMANDS,
    info::COMMANDS,
    latency::COMMANDS,
    memory::COMMANDS,
    monitor::COMMANDS,
    slowlog::COMMANDS,
];

pub(crate) use self::monitor::line as monitor_line;

/// `HELP` of any command with subcommands, made from the table.
pub(super) fn help(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    let container = ctx.command.spec.name.to_ascii_uppercase();
    let mut lines =
        vec![format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    for sub in ctx.command.spec.subcommands {
        lines.push(
            format!("{} {}", sub.name.to_ascii_uppercase(), sub.syntax).trim_end().to_owned(),
        );
        lines.push(format!("    {}", sub.summary));
    }
    lines.push("HELP".to_owned());
    lines.push("    Print this help.".to_owned());
    ctx.reply.array(lines.len());
    lines.iter().for_each(|line| ctx.reply.simple(line));
    Ok(())
}
