//! LATENCY.

use tierce_wire::resp::Args;

use super::{help, help_spec};
use crate::command::{Command, Flags, Group, Spec};
use crate::error::CommandError;
use crate::execute::Context;
use crate::latency::Series;
use crate::stats::upper_bound_nanos;

const FLAGS: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);

const fn sub(name: &'static str, arity: i16, run: crate::command::Handler) -> Spec {
    Spec::new(name, arity, Group::Server, run).flags(FLAGS)
}

pub(super) static COMMANDS: &[Spec] = &[Spec::container(
    "latency",
    Group::Server,
    &[
        sub("doctor", 2, doctor)
            .tips(&[
                "nondeterministic_output",
                "request_policy:all_nodes",
                "response_policy:special",
            ])
            .doc("2.8.13", "O(1)", "", "Returns a report on latency for people."),
        sub("graph", 3, graph)
            .tips(&[
                "nondeterministic_output",
                "request_policy:all_nodes",
                "response_policy:special",
            ])
            .doc("2.8.13", "O(1)", "event", "Draws the samples of an event."),
        sub("histogram", -2, histogram)
            .tips(&[
                "nondeterministic_output",
                "request_policy:all_nodes",
                "response_policy:special",
            ])
            .doc(
                "7.0.0",
                "O(N) where N is the number of commands with latency information",
                "[command [command ...]]",
                "Returns how long calls of commands took, as cumulative distributions.",
            ),
        sub("history", 3, history)
            .tips(&[
                "nondeterministic_output",
                "request_policy:all_nodes",
                "response_policy:special",
            ])
            .doc("2.8.13", "O(1)", "event", "Returns the samples of an event."),
        sub("latest", 2, latest)
            .tips(&[
                "nondeterministic_output",
                "request_policy:all_nodes",
                "response_policy:special",
            ])
            .doc("2.8.13", "O(1)", "", "Returns the newest sample of each event."),
        sub("reset", -2, reset)
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .doc(
                "2.8.13",
                "O(1)",
                "[event [event ...]]",
                "Forgets the samples of some or all events.",
            ),
        Spec { since: "2.8.13", ..help_spec(Group::Server) },
    ],
    help,
)
.doc("2.8.13", "Depends on subcommand.", "", "A container for commands of the latency monitor.")];

type Done = Result<(), CommandError>;

fn latest(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    let monitor = ctx.server.latency.lock();
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

fn history(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let monitor = ctx.server.latency.lock();
    let samples: Vec<_> = monitor.series(&args[2]).into_iter().flat_map(Series::iter).collect();
    ctx.reply.array(samples.len());
    for sample in samples {
        ctx.reply.array(2);
        ctx.reply.int(sample.unix_seconds);
        ctx.reply.int(sample.millis as i64);
    }
    Ok(())
}

fn reset(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let count = ctx.server.latency.lock().reset(args.from(2).iter());
    ctx.reply.count(count);
    Ok(())
}

/// A bar a sample, tallest for the worst.
fn graph(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let monitor = ctx.server.latency.lock();
    let name = String::from_utf8_lossy(&args[2]).into_owned();
    let series = monitor.series(&args[2]).ok_or_else(|| {
        CommandError::text(format!("ERR No samples available for event '{name}'"))
    })?;
    let worst = series.iter().map(|sample| sample.millis).max().unwrap_or(0).max(1);
    let bars: String =
        series.iter().map(|sample| BARS[(sample.millis * 7 / worst) as usize]).collect();
    ctx.reply.verbatim(&format!("{name} - worst {worst} ms, oldest sample first\n{bars}\n"));
    Ok(())
}

fn doctor(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    let threshold = ctx.server.config.live().latency_monitor_threshold();
    if threshold == 0 {
        ctx.reply.verbatim(
            "The latency monitor is off. Switch it on with CONFIG SET latency-monitor-threshold \
             <milliseconds>.\n",
        );
        return Ok(());
    }
    let monitor = ctx.server.latency.lock();
    let mut report = String::new();
    for (name, series) in monitor.events() {
        let count = series.iter().len() as u64;
        let sum: u64 = series.iter().map(|sample| sample.millis).sum();
        report += &format!(
            "{name}: {count} spikes over {threshold} ms, {} ms on average, {} ms at worst.\n",
            sum / count.max(1),
            series.worst_millis()
        );
    }
    if report.is_empty() {
        report = format!("Nothing took longer than {threshold} ms.\n");
    } else {
        report += "SLOWLOG GET shows which commands were slow.\n";
    }
    ctx.reply.verbatim(&report);
    Ok(())
}

fn histogram(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let tracking = ctx.server.config.live().latency_tracking();
    let totals = ctx.server.totals();
    let wanted = |command: &&Command| {
        let named = |name: &[u8]| {
            let (own, of) = (command.full_name.as_bytes(), name.len());
            own.eq_ignore_ascii_case(name)
                || (own.len() > of && own[..of].eq_ignore_ascii_case(name) && own[of] == b'|')
        };
        args.len() == 2 || args.iter().skip(2).any(named)
    };
    let commands: Vec<_> = ctx
        .server
        .commands
        .all()
        .filter(wanted)
        .map(|command| (command, totals.command(command.id)))
        .filter(|(_, totals)| totals.calls > 0 && tracking)
        .collect();
    ctx.reply.map(commands.len());
    for (command, totals) in commands {
        ctx.reply.bulk(command.full_name.as_bytes());
        ctx.reply.map(2);
        ctx.reply.bulk(b"calls");
        ctx.reply.int(totals.calls as i64);
        ctx.reply.bulk(b"histogram_usec");
        cumulative(ctx, totals.histogram);
    }
    Ok(())
}

/// Pairs of a bound in microseconds and the calls that stayed below it.
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
