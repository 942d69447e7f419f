//! Statistics that INFO does not list, and the conversion of all statistics to metrics.

use super::commands_and_keys::called;
use super::facts::Facts;
use super::field::{Column, Field, Metrics, Row, always, each, gauge, is, maybe};
use super::value::Value;
use super::{all_fields, value};
use crate::command_log::{Entry, LogKind};
use crate::config::DirectiveId;
use crate::kernel::Kernel;
use crate::metrics::{Durations, Family, Labels, Samples};
use crate::stats::{percentile, upper_bound_nanos};

/// Fields of INFO that identify a server.
const INSTANCE: [&str; 10] = [
    "maxmemory_policy",
    "os",
    "process_id",
    "redis_build_id",
    "redis_mode",
    "redis_version",
    "role",
    "run_id",
    "tcp_port",
    "tierce_version",
];

/// Fields of INFO that identify the primary of a replica.
const PRIMARY: [&str; 2] = ["master_host", "master_port"];

#[rustfmt::skip]
pub(super) const ONLY_METRICS: &[Field] = &[
    always("up", "1", "Always 1: the server answers.").gauge("redis_up"),
    is("start_time", |f| f.kernel.started_unix_seconds.into(), "When the server started, in seconds since 1970.")
        .gauge("redis_start_time_seconds"),
    is("config_io_threads", |f| f.settings().number(const { DirectiveId::of("io-threads") }).into(),
        "The directive `io-threads`.").gauge("redis_config_io_threads"),
    is("config_maxmemory", |f| f.memory().limit.into(), "The directive `maxmemory`; 0 is no limit.")
        .gauge("redis_config_maxmemory"),
    is("slowlog_length", |f| f.kernel.command_logs.of(LogKind::Slow).lock().len().into(), "Entries of the slow log.")
        .gauge("redis_slowlog_length"),
    is("slowlog_last_id", |f| slowest(f, |entry| entry.id), "The number of its last entry.")
        .gauge("redis_slowlog_last_id"),
    is("last_slow_execution", |f| match slowest(f, |entry| entry.amount) {
        Value::Int(micros) => Value::Micros(micros as u64),
        other => other,
    }, "Duration of the call in the last entry.").gauge("redis_last_slow_execution_duration_seconds"),
    is("lock_waits", |f| f.kernel.keyspace.stats().lock_waits.into(),
        "Times that a thread needed a shard that was locked.").counter("tierce_lock_waits_total"),
    is("keys", |f| f.kernel.keyspace.total_len().into(), "Keys of all databases.").gauge("tierce_keys"),
    is("bytes_per_key", |f| {
        (f.memory().dataset() / (f.kernel.keyspace.total_len() as usize).max(1)).into()
    }, "Bytes of keys and values by the number of keys.").gauge("tierce_bytes_per_key"),
    maybe("log_unsynced", |f| f.log().map(|log| log.appended.saturating_sub(log.durable).into()),
        "Records of the log that are not on the device yet.").gauge("tierce_log_unsynced_records"),
    each("memory_", memory, "Memory by kind.")
        .columns(&["kind"], &[gauge("bytes", "tierce_memory_bytes", "Memory that the server accounts for, by kind.")]),
    each("instance_info", instance, "What the server is.")
        .columns(&INSTANCE, &[gauge("is", "redis_instance_info", "Facts about the server, as labels.")]),
    each("primary", primary, "The link of a replica to its primary.")
        .columns(&PRIMARY, &[
            gauge("master_link_status", "redis_master_link_up", "1 while the stream of the primary arrives."),
            gauge("master_last_io_seconds_ago", "redis_master_last_io_seconds_ago", "Seconds since something arrived."),
            gauge("master_sync_in_progress", "redis_master_sync_in_progress", "1 during a full copy."),
            gauge("slave_repl_offset", "redis_slave_repl_offset", "Offset up to which the stream has been applied."),
        ]),
];

fn slowest(facts: &Facts<'_>, figure: fn(&Entry) -> u64) -> Value {
    facts.kernel.command_logs.of(LogKind::Slow).lock().iter().next().map_or(0, figure).into()
}

fn memory(facts: &Facts<'_>) -> Vec<Row> {
    let report = facts.memory();
    let kinds = [
        ("entries", report.entries),
        ("index", report.index),
        ("garbage", report.garbage),
        ("copies", report.copies),
        ("tracking", report.tracking),
        ("code", report.code),
        ("clients", report.clients),
        ("messages", report.messages),
        ("startup", report.startup),
    ];
    let row = |(kind, bytes): (&str, usize)| {
        let labels = vec![kind.to_owned()];
        Row::new(format!("memory_{kind}"), labels, [("bytes", bytes.into())])
    };
    kinds.into_iter().map(row).collect()
}

fn instance(facts: &Facts<'_>) -> Vec<Row> {
    let labels = INSTANCE.iter().filter_map(|name| Some(value(facts, name)?.to_string())).collect();
    vec![Row::new("instance_info".to_owned(), labels, [("is", true.into())])]
}

fn primary(facts: &Facts<'_>) -> Vec<Row> {
    const COLUMNS: [&str; 4] = [
        "master_link_status",
        "master_last_io_seconds_ago",
        "master_sync_in_progress",
        "slave_repl_offset",
    ];
    let labels: Vec<_> =
        PRIMARY.iter().filter_map(|name| Some(value(facts, name)?.to_string())).collect();
    let columns = COLUMNS.into_iter().filter_map(|name| Some((name, value(facts, name)?)));
    match labels.is_empty() {
        true => Vec::new(),
        false => vec![Row::new("primary".to_owned(), labels, columns)],
    }
}

/// Metrics about the duration of calls: names, types and descriptions.
pub(super) const LATENCIES: [(&str, &str, &str); 2] = [
    (
        "redis_commands_latencies_usec",
        "histogram",
        "Calls of a command by their duration in microseconds (`latency-tracking`).",
    ),
    (
        "redis_latency_percentiles_usec",
        "summary",
        "Percentiles of the duration of a command's calls, in microseconds (`latency-tracking-info-percentiles`).",
    ),
];

/// Reads all numeric figures. This locks no shard, and works while data are loading.
pub fn read_metrics(kernel: &Kernel, now_ms: i64) -> Vec<Family> {
    let facts = Facts::new(kernel, now_ms);
    let mut families: Vec<Family> =
        all_fields().flat_map(|field| of_field(field, &facts)).collect();
    families.extend(latencies(&facts));
    families
}

fn of_field(field: &Field, facts: &Facts<'_>) -> Vec<Family> {
    match field.metrics {
        Metrics::None => Vec::new(),
        Metrics::One(kind, name) => {
            let number = field.value(facts).and_then(|value| value.number());
            let samples = number.map(|number| (Labels::new(), number)).into_iter().collect();
            vec![Family { name, help: field.about, samples: Samples::Numbers(kind, samples) }]
        }
        Metrics::Columns(labels, columns) => {
            let rows = field.rows(facts);
            let family = |&Column { key, kind, name, about }: &Column| {
                let sample = |row: &Row| {
                    let (_, value) = row.columns.iter().find(|(there, _)| there == key)?;
                    let labels = labels.iter().copied().zip(row.labels.iter().cloned()).collect();
                    Some((labels, value.number()?))
                };
                let samples = rows.iter().filter_map(sample).collect();
                Family { name, help: about, samples: Samples::Numbers(kind, samples) }
            };
            columns.iter().map(family).collect()
        }
    }
}

/// Returns the durations of calls by command, unless `latency-tracking` is off.
fn latencies(facts: &Facts<'_>) -> Vec<Family> {
    if !facts.kernel.config.live().latency_tracking() {
        return Vec::new();
    }
    let (mut histograms, mut summaries) = (Vec::new(), Vec::new());
    for (id, name) in called(facts) {
        let totals = facts.totals().command(id);
        let (count, sum) = (totals.calls, totals.nanos as f64 / 1000.0);
        let labels = vec![("cmd", name.to_owned())];
        let mut calls = 0;
        let bucket = |(at, bucket): (usize, &u64)| {
            calls += bucket;
            (upper_bound_nanos(at) as f64 / 1000.0, calls as f64)
        };
        // The last bucket has no bound.
        let bounded = &totals.histogram[..totals.histogram.len() - 1];
        let points = bounded.iter().enumerate().map(bucket).collect();
        histograms.push((labels.clone(), Durations { count, sum, points }));
        let at = |percent: &f64| (*percent, percentile(totals.histogram, *percent) as f64 / 1000.0);
        let points = facts.settings().percentiles().iter().map(at).collect();
        summaries.push((labels, Durations { count, sum, points }));
    }
    let samples = [Samples::Histograms(histograms), Samples::Summaries(summaries)];
    let family = |((name, _, help), samples)| Family { name, help, samples };
    LATENCIES.into_iter().zip(samples).map(family).collect()
}
