//! HOTKEYS.

use tierce_wire::number;
use tierce_wire::resp::Rest;

use crate::clock;
use crate::command::{Flags, Group};
use crate::commands::cursor::Options;
use crate::commands::help::{help, help_spec};
use crate::error::CommandError;
use crate::hot_keys::{Report, Wanted};
use crate::pipeline::{Body, Context, Defined, Done, at_least, no_arguments};

const FLAGS: Flags = Flags::ADMIN.with(Flags::NOSCRIPT);

/// Default and maximum number of keys.
const KEYS_DEFAULT: i64 = 10;
const KEYS_MAX: i64 = 64;

/// Maximum DURATION in seconds.
const SECONDS_MAX: i64 = 1_000_000;

const IS_ACTIVE: CommandError =
    CommandError::new("ERR hotkeys tracking session already in progress");

const fn sub(name: &'static str, body: Body) -> Defined {
    Defined::new(name, Group::Server, body).flags(FLAGS)
}

pub(super) static COMMANDS: &[Defined] = &[Defined::container(
    "hotkeys",
    Group::Server,
    &[
        sub("get", no_arguments!(sub get))
            .tips(&["nondeterministic_output", "request_policy:special", "response_policy:special"])
            .since("8.6.0", "O(K) where K is the number of hot keys returned")
            .doc("", "Returns the keys that took the most time and bytes, since HOTKEYS START.")
            .example(
                r#"
                > HOTKEYS RESET
                OK
                > HOTKEYS GET
                (nil)
                > HOTKEYS START METRICS 1 NET
                OK
                > SET user:1 Ada
                OK
                > HOTKEYS STOP
                OK
                > HOTKEYS GET
                1)  1) "tracking-active"
                    2) (integer) 0
                    3) "sample-ratio"
                    4) (integer) 1
                ...
                > HOTKEYS RESET
                OK
                "#,
            ),
        sub("reset", no_arguments!(sub reset))
            .tips(&["request_policy:special", "response_policy:special"])
            .since("8.6.0", "O(1)")
            .doc("", "Forgets what was collected about hot keys.")
            .example(
                r#"
                > HOTKEYS RESET
                OK
                "#,
            ),
        sub("start", at_least!(sub start))
            .tips(&["request_policy:special", "response_policy:special"])
            .since("8.6.0", "O(1)")
            .doc(
                "<METRICS count [CPU] [NET]> [COUNT k] [DURATION seconds] [SAMPLE ratio] \
                 [<SLOTS count slot [slot ...]>]",
                "Begins to collect which keys take the most time and bytes.",
            )
            .example(
                r#"
                > HOTKEYS START METRICS 2 CPU NET COUNT 5 DURATION 60 SAMPLE 100
                OK
                > HOTKEYS STOP
                OK
                > HOTKEYS RESET
                OK
                "#,
            ),
        sub("stop", no_arguments!(sub stop))
            .tips(&["request_policy:special", "response_policy:special"])
            .since("8.6.0", "O(1)")
            .doc("", "Collects no more about hot keys, and keeps what was collected.")
            .example(
                r#"
                > HOTKEYS STOP
                (nil)
                "#,
            ),
        help_spec(Group::Server).since("8.6.0", "O(1)").example(
            r#"
                > HOTKEYS HELP
                 1) HOTKEYS <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
                ...
                "#,
        ),
    ],
    help,
)
.since("8.6.0", "Depends on subcommand.")
.doc("", "A container for commands about hot keys.")];

fn start(ctx: &mut Context<'_, '_>, [metrics, count]: [&[u8]; 2], options: Rest<'_>) -> Done {
    const NO_METRICS: CommandError = CommandError::new("ERR METRICS parameter is required");
    if !metrics.eq_ignore_ascii_case(b"metrics") {
        return Err(NO_METRICS);
    }
    let wanted = wanted(count, Options::of(options))?;
    let kernel = ctx.kernel;
    let now_ms = clock::unix_ms();
    kernel.hot_keys.start(wanted, now_ms, kernel.sums()).map_err(|_| IS_ACTIVE)?;
    ctx.reply.ok();
    Ok(())
}

fn wanted(metrics: &[u8], mut options: Options<'_>) -> Result<Wanted, CommandError> {
    const OTHER_COUNT: CommandError =
        CommandError::new("ERR METRICS count does not match number of metric types provided");
    const NOT_IN_CLUSTER: CommandError =
        CommandError::new("ERR SLOTS parameter cannot be used in non-cluster mode");
    let metrics = number_in(metrics, 1, 2, "ERR METRICS count must be 1 or 2")?;
    let (mut cpu, mut net) = (false, false);
    for _ in 0..metrics {
        let is_new = match options.next_word().as_deref() {
            Some(b"cpu") => !std::mem::replace(&mut cpu, true),
            Some(b"net") => !std::mem::replace(&mut net, true),
            _ => false,
        };
        if !is_new {
            return Err(OTHER_COUNT);
        }
    }
    let (mut keys, mut seconds, mut sample) = (KEYS_DEFAULT, None, 1);
    while let Some(word) = options.next_word() {
        match &*word {
            b"count" => {
                let text = "ERR COUNT must be between 1 and 64";
                keys = number_in(options.value()?, 1, KEYS_MAX, text)?;
            }
            b"duration" => {
                let text = "ERR DURATION must be between 1 and 1000000";
                seconds = Some(number_in(options.value()?, 1, SECONDS_MAX, text)?);
            }
            b"sample" => {
                let text = "ERR SAMPLE ratio must be positive";
                sample = number_in(options.value()?, 1, i32::MAX.into(), text)?;
            }
            b"slots" => return Err(NOT_IN_CLUSTER),
            _ => return Err(CommandError::SYNTAX),
        }
    }
    let until_ms = seconds.map(|seconds| clock::unix_ms() + seconds * 1000);
    Ok(Wanted { cpu, net, keys: keys as usize, until_ms, sample: sample as u32 })
}

fn number_in(text: &[u8], min: i64, max: i64, error: &'static str) -> Result<i64, CommandError> {
    let number = number::parse_i64(text).filter(|number| (min..=max).contains(number));
    number.ok_or(CommandError::new(error))
}

fn stop(ctx: &mut Context<'_, '_>) -> Done {
    match ctx.kernel.hot_keys.stop(clock::unix_ms(), ctx.kernel.sums()) {
        true => ctx.reply.ok(),
        false => ctx.reply.null(),
    }
    Ok(())
}

fn reset(ctx: &mut Context<'_, '_>) -> Done {
    const IN_PROGRESS: CommandError =
        CommandError::new("ERR hotkeys tracking session in progress, stop tracking first");
    ctx.kernel.hot_keys.reset().map_err(|_| IN_PROGRESS)?;
    ctx.reply.ok();
    Ok(())
}

fn get(ctx: &mut Context<'_, '_>) -> Done {
    let report = ctx.kernel.hot_keys.report(clock::unix_ms(), ctx.kernel.sums());
    match report {
        Some(report) => write(ctx, &report),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// Replies with a map in an array, which has one element for each node of a cluster.
fn write(ctx: &mut Context<'_, '_>, report: &Report) {
    let Wanted { cpu, net, sample, .. } = report.wanted;
    let milliseconds = |seconds: f64| (seconds * 1000.0) as i64;
    let reply = &mut ctx.reply;
    reply.array(1);
    reply.map(7 + if cpu { 3 } else { 0 } + if net { 2 } else { 0 });
    reply.bulk(b"tracking-active");
    reply.int(report.is_active.into());
    reply.bulk(b"sample-ratio");
    reply.int(sample.into());
    // All slots are included.
    reply.bulk(b"selected-slots");
    reply.array(1);
    reply.array(2);
    reply.int(0);
    reply.int(16383);
    for (name, figure) in [
        ("all-commands-all-slots-us", (report.sums.nanos / 1000) as i64),
        ("net-bytes-all-commands-all-slots", report.sums.bytes as i64),
        ("collection-start-time-unix-ms", report.begun_ms),
        ("collection-duration-ms", report.duration_ms),
    ] {
        reply.bulk(name.as_bytes());
        reply.int(figure);
    }
    if cpu {
        reply.bulk(b"total-cpu-time-user-ms");
        reply.int(milliseconds(report.sums.cpu.user));
        reply.bulk(b"total-cpu-time-sys-ms");
        reply.int(milliseconds(report.sums.cpu.system));
    }
    if net {
        reply.bulk(b"total-net-bytes");
        reply.int(report.sums.bytes as i64);
    }
    let mut list = |name: &str, keys: &[(std::sync::Arc<[u8]>, u64)], unit: u64| {
        reply.bulk(name.as_bytes());
        reply.array(2 * keys.len());
        for (key, weight) in keys {
            reply.bulk(key);
            reply.int((weight / unit) as i64);
        }
    };
    if cpu {
        list("by-cpu-time-us", &report.by_nanos, 1000);
    }
    if net {
        list("by-net-bytes", &report.by_bytes, 1);
    }
}
