//! SLOWLOG, and COMMANDLOG for logs of all kinds.

use tierce_wire::number;
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group};
use crate::command_log::LogKind;
use crate::commands::help::{help, help_spec};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, exactly, many, no_arguments};

const FLAGS: Flags = Flags::ADMIN.with(Flags::LOADING).with(Flags::STALE);
/// Default number of entries that `SLOWLOG GET` shows.
const SHOWN_DEFAULT: usize = 10;

pub(super) static COMMANDS: &[Defined] = &[SLOWLOG, COMMANDLOG];

const SLOWLOG: Defined = Defined::container(
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
.doc("", "A container for commands of the slow log.");

const COMMANDLOG: Defined = Defined::container(
    "commandlog",
    Group::Server,
    &[
        Defined::new("get", Group::Server, exactly!(sub get_of))
            .tips(&["request_policy:all_nodes", "nondeterministic_output"])
            .flags(FLAGS)
            .since("8.1.0", "O(N) where N is the number of entries returned")
            .doc(
                "count <SLOW | LARGE-REQUEST | LARGE-REPLY>",
                "Returns the newest entries of a log of commands: id, Unix seconds, microseconds or bytes, \
                 arguments, address and name of the client. A count of -1 is for all.",
            )
            .example(
                r#"
                > CONFIG SET commandlog-reply-larger-than 100
                OK
                > SETRANGE k 200 x
                (integer) 201
                > GET k
                ...
                > COMMANDLOG GET 1 large-reply
                1) 1) (integer) ...
                   2) (integer) ...
                   3) (integer) 209
                   4) 1) "GET"
                      2) "k"
                   5) "127.0.0.1:..."
                   6) ""
                > CONFIG SET commandlog-reply-larger-than 1048576
                OK
                "#,
            ),
        Defined::new("len", Group::Server, exactly!(sub len_of))
            .tips(&[
                "request_policy:all_nodes",
                "response_policy:agg_sum",
                "nondeterministic_output",
            ])
            .flags(FLAGS)
            .since("8.1.0", "O(1)")
            .doc("<SLOW | LARGE-REQUEST | LARGE-REPLY>", "Returns the number of entries in a log of commands.")
            .example(
                r#"
                > COMMANDLOG RESET large-request
                OK
                > COMMANDLOG LEN large-request
                (integer) 0
                > COMMANDLOG LEN other
                (error) ERR type should be one of the following: slow, large-request, large-reply
                "#,
            ),
        Defined::new("reset", Group::Server, exactly!(sub reset_of))
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .flags(FLAGS)
            .since("8.1.0", "O(N) where N is the number of entries")
            .doc("<SLOW | LARGE-REQUEST | LARGE-REPLY>", "Clears a log of commands.")
            .example(
                r#"
                > COMMANDLOG RESET large-reply
                OK
                "#,
            ),
        help_spec(Group::Server).since("8.1.0", "O(1)").example(
            r#"
                > COMMANDLOG HELP
                1) COMMANDLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
                2) GET count <SLOW | LARGE-REQUEST | LARGE-REPLY>
                3)     Returns the newest entries of a log of commands: id, Unix seconds, ...
                ...
                "#,
        ),
    ],
    help,
)
.since("8.1.0", "Depends on subcommand.")
.doc("", "A container for the logs of slow commands, large requests and large replies, as in Valkey.");

/// Parses a number of entries, -1 for all.
fn count_of(count: &[u8]) -> Result<usize, CommandError> {
    match number::parse_i64(count) {
        Some(-1) => Ok(usize::MAX),
        Some(count) if count >= 0 => Ok(count as usize),
        _ => Err(CommandError::new("ERR count should be greater than or equal to -1")),
    }
}

fn kind_of(name: &[u8]) -> Result<LogKind, CommandError> {
    const UNKNOWN: CommandError = CommandError::new(
        "ERR type should be one of the following: slow, large-request, large-reply",
    );
    let mut kinds = LogKind::ALL.into_iter();
    kinds.find(|kind| name.eq_ignore_ascii_case(kind.name().as_bytes())).ok_or(UNKNOWN)
}

fn get(ctx: &mut Context<'_, '_>, options: Rest<'_>) -> Done {
    if options.len() > 1 {
        return Err(CommandError::subcommand_syntax(ctx.spelled_name(), "slowlog"));
    }
    let wanted = options.get(0).map_or(Ok(SHOWN_DEFAULT), count_of)?;
    show(ctx, LogKind::Slow, wanted);
    Ok(())
}

fn get_of(ctx: &mut Context<'_, '_>, [count, kind]: [&[u8]; 2]) -> Done {
    let wanted = count_of(count)?;
    show(ctx, kind_of(kind)?, wanted);
    Ok(())
}

fn show(ctx: &mut Context<'_, '_>, kind: LogKind, wanted: usize) {
    let log = ctx.kernel.command_logs.of(kind).lock();
    ctx.reply.array(log.len().min(wanted));
    for entry in log.iter().take(wanted) {
        ctx.reply.array(6);
        ctx.reply.int(entry.id as i64);
        ctx.reply.int(entry.unix_seconds);
        ctx.reply.int(entry.amount as i64);
        ctx.reply.bulks(&entry.args);
        ctx.reply.bulk(entry.client_addr.as_bytes());
        ctx.reply.bulk(entry.client_name.as_bytes());
    }
}

fn len(ctx: &mut Context<'_, '_>) -> Done {
    len_of(ctx, [LogKind::Slow.name().as_bytes()])
}

fn len_of(ctx: &mut Context<'_, '_>, [kind]: [&[u8]; 1]) -> Done {
    let len = ctx.kernel.command_logs.of(kind_of(kind)?).lock().len();
    ctx.reply.count(len);
    Ok(())
}

fn reset(ctx: &mut Context<'_, '_>) -> Done {
    reset_of(ctx, [LogKind::Slow.name().as_bytes()])
}

fn reset_of(ctx: &mut Context<'_, '_>, [kind]: [&[u8]; 1]) -> Done {
    ctx.kernel.command_logs.of(kind_of(kind)?).lock().clear();
    ctx.reply.ok();
    Ok(())
}
