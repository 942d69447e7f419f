//! Figures of each command, error and database.

use super::facts::Facts;
use super::field::{Field, each};
use crate::command::CommandId;
use crate::stats::percentile;

pub(super) const COMMAND_STATS: &[Field] = &[each(
    "cmdstat_",
    command_stats,
    "Of a command, or a request of another protocol (`memcached|get`): calls, microseconds in all and each, calls refused and failed.",
)];

pub(super) const ERROR_STATS: &[Field] =
    &[each("errorstat_", error_stats, "How often the error with this first word was replied.")];

pub(super) const LATENCY_STATS: &[Field] = &[each(
    "latency_percentiles_usec_",
    latency_stats,
    "Of the same: microseconds that so many percent of its calls took at most (`latency-tracking`).",
)];

pub(super) const KEYSPACE: &[Field] = &[each(
    "db",
    databases,
    "Of a database with keys: how many, how many that expire, and in how many milliseconds on average.",
)];

fn command_stats(facts: &Facts<'_>) -> Vec<(String, String)> {
    let line = |(id, name): (CommandId, &str)| {
        let totals = facts.totals.command(id);
        if totals.calls + totals.refused + totals.failed == 0 {
            return None;
        }
        let micros = totals.nanos / 1000;
        let per_call = totals.nanos as f64 / 1000.0 / totals.calls.max(1) as f64;
        let text = format!(
            "calls={},usec={micros},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}",
            totals.calls, totals.refused, totals.failed
        );
        Some((format!("cmdstat_{name}"), text))
    };
    facts.kernel.commands.counted().filter_map(line).collect()
}

fn error_stats(facts: &Facts<'_>) -> Vec<(String, String)> {
    let counts = facts.kernel.errors.counts().into_iter();
    counts.map(|(kind, count)| (format!("errorstat_{kind}"), format!("count={count}"))).collect()
}

fn latency_stats(facts: &Facts<'_>) -> Vec<(String, String)> {
    if !facts.kernel.config.live().latency_tracking() {
        return Vec::new();
    }
    let line = |(id, name): (CommandId, &str)| {
        let totals = facts.totals.command(id);
        if totals.calls == 0 {
            return None;
        }
        let at = |percent: &f64| {
            format!("p{percent}={:.3}", percentile(totals.histogram, *percent) as f64 / 1000.0)
        };
        let text = facts.settings().percentiles().iter().map(at).collect::<Vec<_>>().join(",");
        Some((format!("latency_percentiles_usec_{name}"), text))
    };
    facts.kernel.commands.counted().filter_map(line).collect()
}

fn databases(facts: &Facts<'_>) -> Vec<(String, String)> {
    let all = facts.kernel.keyspace.sizes(facts.now_ms).into_iter();
    all.map(|(db, stats)| {
        let text =
            format!("keys={},expires={},avg_ttl={}", stats.keys, stats.expires, stats.ttl_mean_ms);
        (format!("db{}", db.get()), text)
    })
    .collect()
}
