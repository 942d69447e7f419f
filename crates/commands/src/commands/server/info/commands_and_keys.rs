//! Figures of each command, error and database.

use super::facts::Facts;
use super::field::{Field, Row, counter, each, gauge};
use super::value::Value;
use crate::command::CommandId;
use crate::stats::percentile;

#[rustfmt::skip]
pub(super) const COMMAND_STATS: &[Field] = &[each("cmdstat_", command_stats,
        "Of a command, or a request of another protocol (`memcached|get`): calls, microseconds in all and each, calls refused and failed.")
    .columns(&["cmd"], &[
        counter("calls", "redis_commands_total", "Calls of a command."),
        counter("usec", "redis_commands_duration_seconds_total", "Seconds that calls of a command took."),
        counter("rejected_calls", "redis_commands_rejected_calls_total", "Calls that were refused before they ran."),
        counter("failed_calls", "redis_commands_failed_calls_total", "Calls that ended in an error."),
    ])];

#[rustfmt::skip]
pub(super) const ERROR_STATS: &[Field] = &[each("errorstat_", error_stats,
        "Number of error replies with this first word.")
    .columns(&["err"], &[counter("count", "redis_errors_total", "Replies that were errors, by their first word.")])];

pub(super) const LATENCY_STATS: &[Field] = &[each(
    "latency_percentiles_usec_",
    latency_stats,
    "Of the same: percentiles of the call duration, in microseconds (`latency-tracking`).",
)];

#[rustfmt::skip]
pub(super) const KEYSPACE: &[Field] = &[each("db", databases,
        "Of a database with keys: how many, how many that expire, and in how many milliseconds on average.")
    .columns(&["db"], &[
        gauge("keys", "redis_db_keys", "Keys of a database."),
        gauge("expires", "redis_db_keys_expiring", "Keys of a database that have a deadline."),
        gauge("avg_ttl", "redis_db_avg_ttl_seconds", "Seconds until their deadlines on average."),
    ])];

/// Returns the commands with calls.
pub(super) fn called<'f>(facts: &'f Facts<'_>) -> impl Iterator<Item = (CommandId, &'f str)> {
    let is_called = |(id, _): &(CommandId, &str)| facts.totals().command(*id).calls > 0;
    facts.kernel.commands.counted().filter(is_called)
}

fn command_stats(facts: &Facts<'_>) -> Vec<Row> {
    let row = |(id, name): (CommandId, &str)| {
        let totals = facts.totals().command(id);
        if totals.calls + totals.refused + totals.failed == 0 {
            return None;
        }
        let per_call = totals.nanos as f64 / 1000.0 / totals.calls.max(1) as f64;
        let columns = [
            ("calls", totals.calls.into()),
            ("usec", Value::Micros(totals.nanos / 1000)),
            ("usec_per_call", Value::Real(per_call, 2)),
            ("rejected_calls", totals.refused.into()),
            ("failed_calls", totals.failed.into()),
        ];
        Some(Row::new(format!("cmdstat_{name}"), vec![name.to_owned()], columns))
    };
    facts.kernel.commands.counted().filter_map(row).collect()
}

fn error_stats(facts: &Facts<'_>) -> Vec<Row> {
    let row = |(kind, count): (String, u64)| {
        Row::new(format!("errorstat_{kind}"), vec![kind], [("count", count.into())])
    };
    facts.kernel.errors.counts().into_iter().map(row).collect()
}

fn latency_stats(facts: &Facts<'_>) -> Vec<Row> {
    if !facts.kernel.config.live().latency_tracking() {
        return Vec::new();
    }
    let row = |(id, name): (CommandId, &str)| {
        let histogram = facts.totals().command(id).histogram;
        let at = |percent: &f64| {
            let micros = percentile(histogram, *percent) as f64 / 1000.0;
            (format!("p{percent}"), Value::Real(micros, 3))
        };
        let columns = facts.settings().percentiles().iter().map(at).collect();
        Row { name: format!("latency_percentiles_usec_{name}"), labels: Vec::new(), columns }
    };
    called(facts).map(row).collect()
}

fn databases(facts: &Facts<'_>) -> Vec<Row> {
    let all = facts.kernel.keyspace.sizes(facts.now_ms).into_iter();
    all.map(|(db, stats)| {
        let name = format!("db{}", db.get());
        let columns = [
            ("keys", stats.keys.into()),
            ("expires", stats.expires.into()),
            ("avg_ttl", Value::Millis(stats.ttl_mean_ms as i64)),
        ];
        Row::new(name.clone(), vec![name], columns)
    })
    .collect()
}
