//! LATENCY.

use tierce_wire::resp::Rest;

use super::doctor::{self, Terms};
use crate::clock;
use crate::command::{CommandId, Flags, Group};
use crate::command_log::LogKind;
use crate::commands::help::{help, help_spec};
use crate::error::CommandError;
use crate::latency::Series;
use crate::pipeline::{Body, Context, Defined, Done, exactly, many, no_arguments};
use crate::stats::upper_bound_nanos;

const FLAGS: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);

const fn sub(name: &'static str, body: Body) -> Defined {
    Defined::new(name, Group::Server, body).flags(FLAGS)
}

const TIPS: &[&str] =
    &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"];

pub(super) static COMMANDS: &[Defined] = &[Defined::container(
    "latency",
    Group::Server,
    &[
        sub("doctor", no_arguments!(sub doctor))
            .tips(TIPS)
            .since("2.8.13", "O(1)")
            .doc("", "Returns a report on latency for people.")
            .example(
                r#"
                > LATENCY DOCTOR
                The latency monitor is off. ...
                "#,
            ),
        sub("graph", exactly!(sub graph))
            .tips(TIPS)
            .since("2.8.13", "O(1)")
            .doc("event", "Draws the samples of an event.")
            .example(
                r#"
                > LATENCY RESET
                (integer) ...
                > LATENCY GRAPH command
                (error) ERR No samples available for event 'command'
                "#,
            ),
        sub("histogram", many!(sub histogram))
            .tips(TIPS)
            .since("7.0.0", "O(N) where N is the number of commands with latency information")
            .doc(
                "[command [command ...]]",
                "Returns how long calls of commands took, as cumulative distributions.",
            )
            .example(
                r#"
                > CONFIG RESETSTAT
                OK
                > SET user:1 Ada
                OK
                > LATENCY HISTOGRAM SET
                1) "set"
                2) 1) "calls"
                   2) (integer) 1
                   3) "histogram_usec"
                   4) 1) (integer) ...
                      2) (integer) 1
                "#,
            ),
        sub("history", exactly!(sub history))
            .tips(TIPS)
            .since("2.8.13", "O(1)")
            .doc("event", "Returns the samples of an event.")
            .example(
                r#"
                > CONFIG SET latency-monitor-threshold 1
                OK
                > LATENCY RESET
                (integer) ...
                > DEBUG SLEEP 0.002
                OK
                > LATENCY HISTORY command
                1) 1) (integer) ...
                   2) (integer) ...
                ...
                > CONFIG SET latency-monitor-threshold 0
                OK
                "#,
            ),
        sub("latest", no_arguments!(sub latest))
            .tips(TIPS)
            .since("2.8.13", "O(1)")
            .doc("", "Returns the newest sample of each event.")
            .example(
                r#"
                > CONFIG SET latency-monitor-threshold 1
                OK
                > LATENCY RESET
                (integer) ...
                > DEBUG SLEEP 0.002
                OK
                > LATENCY LATEST
                ...
                ... 1) "command"
                   2) (integer) ...
                   3) (integer) ...
                   4) (integer) ...
                ...
                > CONFIG SET latency-monitor-threshold 0
                OK
                "#,
            ),
        sub("reset", many!(sub reset))
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .since("2.8.13", "O(1)")
            .doc("[event [event ...]]", "Forgets the samples of some or all events.")
            .example(
                r#"
                > LATENCY RESET
                (integer) ...
                > LATENCY RESET command
                (integer) 0
                "#,
            ),
        help_spec(Group::Server).since("2.8.13", "O(1)").example(
            r#"
                > LATENCY HELP
                 1) LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
                 2) DOCTOR
                 3)     Returns a report on latency for people.
                ...
                "#,
        ),
    ],
    help,
)
.since("2.8.13", "Depends on subcommand.")
.doc("", "A container for commands of the latency monitor.")];

fn latest(ctx: &mut Context<'_, '_>) -> Done {
    let monitor = ctx.kernel.latency.lock();
    ctx.reply.array(monitor.events().len());
    for (name, series) in monitor.events() {
        let latest = series.latest();
        ctx.reply.array(4);
        ctx.reply.bulk(name.as_bytes());
        ctx.reply.int(latest.map_or(0, |sample| sample.unix_seconds));
        ctx.reply.int(latest.map_or(0, |sample| sample.millis as i64));
        ctx.reply.int(series.worst_millis() as i64);
    }
    Ok(())
}

fn history(ctx: &mut Context<'_, '_>, [event]: [&[u8]; 1]) -> Done {
    let monitor = ctx.kernel.latency.lock();
    let samples: Vec<_> = monitor.series(event).into_iter().flat_map(Series::iter).collect();
    ctx.reply.array(samples.len());
    for sample in samples {
        ctx.reply.array(2);
        ctx.reply.int(sample.unix_seconds);
        ctx.reply.int(sample.millis as i64);
    }
    Ok(())
}

fn reset(ctx: &mut Context<'_, '_>, options: Rest<'_>) -> Done {
    let count = ctx.kernel.latency.lock().reset(options.iter());
    ctx.reply.count(count);
    Ok(())
}

/// Draws a bar for each sample; the worst one is the tallest.
fn graph(ctx: &mut Context<'_, '_>, [event]: [&[u8]; 1]) -> Done {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let monitor = ctx.kernel.latency.lock();
    let name = String::from_utf8_lossy(event).into_owned();
    let series = monitor.series(event).ok_or_else(|| {
        CommandError::text(format!("ERR No samples available for event '{name}'"))
    })?;
    let worst = series.iter().map(|sample| sample.millis).max().unwrap_or(0).max(1);
    let bars: String =
        series.iter().map(|sample| BARS[(sample.millis * 7 / worst) as usize]).collect();
    ctx.reply.verbatim(&format!("{name} - worst {worst} ms, oldest sample first\n{bars}\n"));
    Ok(())
}

fn doctor(ctx: &mut Context<'_, '_>) -> Done {
    let (kernel, live) = (ctx.kernel, ctx.kernel.config.live());
    let terms = Terms {
        threshold_ms: live.latency_monitor_threshold(),
        slowlog_micros: live.slowlog_log_slower_than(),
        slowlog_len: kernel.command_logs.of(LogKind::Slow).lock().len(),
    };
    let now_seconds = clock::unix_ms() / 1000;
    ctx.reply.verbatim(&doctor::of_latency(&kernel.latency.lock(), terms, now_seconds));
    Ok(())
}

fn histogram(ctx: &mut Context<'_, '_>, names: Rest<'_>) -> Done {
    let tracking = ctx.kernel.config.live().latency_tracking();
    let totals = ctx.kernel.totals();
    let wanted = |(_, full_name): &(CommandId, &str)| {
        let named = |name: &[u8]| {
            let (own, of) = (full_name.as_bytes(), name.len());
            own.eq_ignore_ascii_case(name)
                || (own.len() > of && own[..of].eq_ignore_ascii_case(name) && own[of] == b'|')
        };
        names.is_empty() || names.iter().any(named)
    };
    let commands: Vec<_> = ctx
        .kernel
        .commands
        .counted()
        .filter(wanted)
        .map(|(id, name)| (name, totals.command(id)))
        .filter(|(_, totals)| totals.calls > 0 && tracking)
        .collect();
    ctx.reply.map(commands.len());
    for (name, totals) in commands {
        ctx.reply.bulk(name.as_bytes());
        ctx.reply.map(2);
        ctx.reply.bulk(b"calls");
        ctx.reply.int(totals.calls as i64);
        ctx.reply.bulk(b"histogram_usec");
        cumulative(ctx, totals.histogram);
    }
    Ok(())
}

/// Replies with pairs of a bound in microseconds and the number of calls below it.
fn cumulative(ctx: &mut Context<'_, '_>, histogram: &[u64]) {
    let used: Vec<_> = histogram.iter().enumerate().filter(|(_, calls)| **calls > 0).collect();
    ctx.reply.map(used.len());
    let mut sum = 0;
    for (bucket, calls) in used {
        sum += calls;
        ctx.reply.int((upper_bound_nanos(bucket) / 1000) as i64);
        ctx.reply.int(sum as i64);
    }
}
