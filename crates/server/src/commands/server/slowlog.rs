//! SLOWLOG.

use tierce_wire::number;
use tierce_wire::resp::Args;

use super::{help, help_spec};
use crate::command::{Flags, Group, Spec};
use crate::error::CommandError;
use crate::execute::Context;

const FLAGS: Flags = Flags::ADMIN.with(Flags::LOADING).with(Flags::STALE);
/// Entries that `SLOWLOG GET` shows when it is not told how many.
const SHOWN_DEFAULT: usize = 10;

pub(super) static COMMANDS: &[Spec] = &[Spec::container(
    "slowlog",
    Group::Server,
    &[
        Spec::new("get", -2, Group::Server, get)
            .tips(&["request_policy:all_nodes", "nondeterministic_output"])
            .flags(FLAGS)
            .doc(
                "2.2.12",
                "O(N) where N is the number of entries returned",
                "[count]",
                "Returns the newest entries of the log of slow commands.",
            ),
        Spec::new("len", 2, Group::Server, len)
            .tips(&[
                "request_policy:all_nodes",
                "response_policy:agg_sum",
                "nondeterministic_output",
            ])
            .flags(FLAGS)
            .doc(
                "2.2.12",
                "O(1)",
                "",
                "Returns the number of entries in the log of slow commands.",
            ),
        Spec::new("reset", 2, Group::Server, reset)
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .flags(FLAGS)
            .doc(
                "2.2.12",
                "O(N) where N is the number of entries",
                "",
                "Clears the log of slow commands.",
            ),
        Spec { since: "6.2.0", ..help_spec(Group::Server) },
    ],
    help,
)
.doc("2.2.12", "Depends on subcommand.", "", "A container for commands of the slow log.")];

type Done = Result<(), CommandError>;

fn get(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let wanted = match args.len() {
        2 => SHOWN_DEFAULT,
        3 => match number::parse_i64(&args[2]) {
            Some(-1) => usize::MAX,
            Some(count) if count >= 0 => count as usize,
            _ => {
                return Err(CommandError::new("ERR count should be greater than or equal to -1"));
            }
        },
        _ => return Err(CommandError::subcommand_syntax(&args[1], "slowlog")),
    };
    let log = ctx.server.slowlog.lock();
    ctx.reply.array(log.len().min(wanted));
    for entry in log.iter().take(wanted) {
        ctx.reply.array(6);
        ctx.reply.int(entry.id as i64);
        ctx.reply.int(entry.unix_seconds);
        ctx.reply.int(entry.micros as i64);
        ctx.reply.bulks(&entry.args);
        ctx.reply.bulk(entry.client_addr.as_bytes());
        ctx.reply.bulk(entry.client_name.as_bytes());
    }
    Ok(())
}

fn len(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    ctx.reply.count(ctx.server.slowlog.lock().len());
    Ok(())
}

fn reset(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    ctx.server.slowlog.lock().clear();
    ctx.reply.ok();
    Ok(())
}
