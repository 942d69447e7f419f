//! MODULE: there are no modules, and none can be loaded.

use crate::command::{Flags, Group};
use crate::commands::help::{help, help_spec};
use crate::error::CommandError;
use crate::pipeline::{Body, Context, Defined, Done, no_arguments};

const FLAGS: Flags = Flags::ADMIN.with(Flags::NOSCRIPT);

/// Defines a refused subcommand. Redis replies so, too, unless loading is enabled.
const fn refused(
    name: &'static str,
    arity: i16,
    since: &'static str,
    syntax: &'static str,
) -> Defined {
    Defined::new(name, Group::Server, Body::refusal(2, arity, not_allowed))
        .flags(FLAGS.with(Flags::NO_ASYNC_LOADING))
        .since(since, "O(1)")
        .doc(syntax, "Refused: there are no modules.")
}

pub(super) static COMMANDS: &[Defined] = &[Defined::container(
    "module",
    Group::Server,
    &[
        Defined::new("list", Group::Server, no_arguments!(sub list))
            .flags(FLAGS)
            .tips(&["nondeterministic_output_order"])
            .since("4.0.0", "O(1)")
            .doc("", "Returns the loaded modules, which are none.")
            .example(
                r#"
                > MODULE LIST
                (empty array)
                "#,
            ),
        refused("load", -3, "4.0.0", "path [arg [arg ...]]").example(
            r#"
                > MODULE LOAD /usr/lib/redis/modules/search.so
                (error) ERR MODULE command not allowed. ...
                "#,
        ),
        refused(
            "loadex",
            -3,
            "7.0.0",
            "path [CONFIG name value [CONFIG name value ...]] [ARGS arg [arg ...]]",
        )
        .example(
            r#"
                > MODULE LOADEX /usr/lib/redis/modules/search.so CONFIG search.workers 4
                (error) ERR MODULE command not allowed. ...
                "#,
        ),
        refused("unload", 3, "4.0.0", "name").example(
            r#"
                > MODULE UNLOAD search
                (error) ERR MODULE command not allowed. ...
                "#,
        ),
        help_spec(Group::Server).example(
            r#"
                > MODULE HELP
                 1) MODULE <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
                 2) LIST
                 3)     Returns the loaded modules, which are none.
                ...
                "#,
        ),
    ],
    help,
)
.since("4.0.0", "Depends on subcommand.")
.doc("", "A container for commands on modules.")];

fn not_allowed(_: &mut Context<'_, '_>) -> Done {
    Err(CommandError::new("ERR MODULE command not allowed. There are no modules for this server."))
}

fn list(ctx: &mut Context<'_, '_>) -> Done {
    ctx.reply.array(0);
    Ok(())
}
