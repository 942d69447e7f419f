//! SLOWLOG.

use tierce_wire::number;
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group};
use crate::commands::help::{help, help_spec};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, many, no_arguments};

const FLAGS: Flags = Flags::ADMIN.with(Flags::LOADING).with(Flags::STALE);
/// Default number of entries that `SLOWLOG GET` shows.
const SHOWN_DEFAULT: usize = 10;

pub(super) static COMMANDS: &[Defined] = &[Defined::container(
    "slowlog",
    Group::Server,
    &[
        Defined::new("get", Group::Server, many!(sub get))
            .tips(&["request_policy:all_nodes", "nondeterministic_output"])
            .flags(FLAGS)
            .since("2.2.12", "O(N) where N is the number of entries returned")
            .doc("[count]", "Returns the newest entries of the log of slow commands.")
            .example(
                r#"
                > CONFIG SET slowlog-log-slower-than 0
                OK
                > SET user:1 Ada
                OK
                > SLOWLOG GET 1
                1) 1) (integer) ...
                   2) (integer) ...
                   3) (integer) ...
                   4) 1) "SET"
                      2) "user:1"
                      3) "Ada"
                   5) "127.0.0.1:..."
                   6) ""
                > CONFIG SET slowlog-log-slower-than 10000
                OK
                "#,
            ),
        Defined::new("len", Group::Server, no_arguments!(sub len))
            .tips(&[
                "request_policy:all_nodes",
                "response_policy:agg_sum",
                "nondeterministic_output",
            ])
            .flags(FLAGS)
            .since("2.2.12", "O(1)")
            .doc("", "Returns the number of entries in the log of slow commands.")
            .example(
                r#"
                > SLOWLOG RESET
                OK
                > SLOWLOG LEN
                (integer) 0
                "#,
            ),
        Defined::new("reset", Group::Server, no_arguments!(sub reset))
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .flags(FLAGS)
            .since("2.2.12", "O(N) where N is the number of entries")
            .doc("", "Clears the log of slow commands.")
            .example(
                r#"
                > SLOWLOG RESET
                OK
                "#,
            ),
        help_spec(Group::Server).since("6.2.0", "O(1)").example(
            r#"
                > SLOWLOG HELP
                1) SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
                2) GET [count]
                3)     Returns the newest entries of the log of slow commands.
                ...
                "#,
        ),
    ],
    help,
)
.since("2.2.12", "Depends on subcommand.")
.doc("", "A container for commands of the slow log.")];

fn get(ctx: &mut Context<'_, '_>, options: Rest<'_>) -> Done {
    if options.len() > 1 {
        return Err(CommandError::subcommand_syntax(ctx.spelled_name(), "slowlog"));
    }
    let wanted = match options.get(0).map(number::parse_i64) {
        None => SHOWN_DEFAULT,
        Some(Some(-1)) => usize::MAX,
        Some(Some(count)) if count >= 0 => count as usize,
        Some(_) => {
            return Err(CommandError::new("ERR count should be greater than or equal to -1"));
        }
    };
    let log = ctx.kernel.slowlog.lock();
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

fn len(ctx: &mut Context<'_, '_>) -> Done {
    ctx.reply.count(ctx.kernel.slowlog.lock().len());
    Ok(())
}

fn reset(ctx: &mut Context<'_, '_>) -> Done {
    ctx.kernel.slowlog.lock().clear();
    ctx.reply.ok();
    Ok(())
}
