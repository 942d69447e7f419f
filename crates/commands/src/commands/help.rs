//! `HELP` of commands with subcommands.

use crate::command::{Flags, Group};
use crate::pipeline::{Context, Defined, Done, no_arguments};

/// Defines the subcommand `HELP` of a container.
pub(super) const fn help_spec(group: Group) -> Defined {
    Defined::new("help", group, no_arguments!(sub help))
        .flags(Flags::LOADING.with(Flags::STALE))
        .since("5.0.0", "O(1)")
        .doc("", "Returns helpful text about the subcommands.")
}

/// Replies to `HELP` of a command with subcommands, from the table.
pub(super) fn help(ctx: &mut Context<'_, '_>) -> Done {
    let container = ctx.command.full_name.split('|').next().unwrap_or_default();
    let command = ctx.kernel.commands.find_original(container.as_bytes());
    let subs = command.into_iter().flat_map(|command| &command.subcommands).map(|sub| sub.spec);
    let subs = subs.filter(|sub| sub.name != "help").map(|sub| (sub.name, sub.syntax, sub.summary));
    write_help(ctx, container, subs);
    Ok(())
}

/// Writes a help text from names, arguments and summaries of subcommands.
pub(super) fn write_help<'a>(
    ctx: &mut Context<'_, '_>,
    container: &str,
    subs: impl Iterator<Item = (&'a str, &'a str, &'a str)>,
) {
    let container = container.to_ascii_uppercase();
    let mut lines =
        vec![format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    for (name, syntax, summary) in subs {
        lines.push(format!("{} {syntax}", name.to_ascii_uppercase()).trim_end().to_owned());
        lines.push(format!("    {summary}"));
    }
    lines.push("HELP".to_owned());
    lines.push("    Print this help.".to_owned());
    ctx.reply.array(lines.len());
    lines.iter().for_each(|line| ctx.reply.simple(line));
}
