//! MODULE: there are none, and none can be loaded.

use tierce_wire::resp::Args;

use super::{help, help_spec};
use crate::command::{Flags, Group, Spec};
use crate::error::CommandError;
use crate::execute::Context;

const FLAGS: Flags = Flags::ADMIN.with(Flags::NOSCRIPT);

/// Redis' own loader is off unless the configuration asks for it, and then says the same.
const fn refused(
    name: &'static str,
    arity: i16,
    since: &'static str,
    syntax: &'static str,
) -> Spec {
    Spec::new(name, arity, Group::Server, |_, _| {
        Err(CommandError::new(
            "ERR MODULE command not allowed. There are no modules for this server.",
        ))
    })
    .flags(FLAGS.with(Flags::NO_ASYNC_LOADING))
    .doc(since, "O(1)", syntax, "Refused: there are no modules.")
}

pub(super) static COMMANDS: &[Spec] = &[Spec::container(
    "module",
    Group::Server,
    &[
        Spec::new("list", 2, Group::Server, list)
            .flags(FLAGS)
            .tips(&["nondeterministic_output_order"])
            .doc("4.0.0", "O(1)", "", "Returns the loaded modules, which are none."),
        refused("load", -3, "4.0.0", "path [arg [arg ...]]"),
        refused(
            "loadex",
            -3,
            "7.0.0",
            "path [CONFIG name value [CONFIG name value ...]] [ARGS arg [arg ...]]",
        ),
        refused("unload", 3, "4.0.0", "name"),
        help_spec(Group::Server),
    ],
    help,
)
.doc("4.0.0", "Depends on subcommand.", "", "A container for commands on modules.")];

fn list(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    ctx.reply.array(0);
    Ok(())
}
