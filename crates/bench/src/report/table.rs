//! Results as a table for people.

use std::fmt::Write as _;

use crate::cpu::CpuSource;
use crate::measure::Measurement;

/// Formats a test in one line, close to the output of `redis-benchmark -q`.
pub(super) fn line(of: &Measurement) -> String {
    let mut text = format!(
        "{}: {:.2} requests per second, p50={:.3} msec",
        of.test, of.requests_per_second, of.latency_ms.p50
    );
    if let Some(server) = &of.server {
        let _ = write!(text, ", server {:.3} µs CPU per request", server.cpu_us);
    }
    if of.errors > 0 {
        let _ = write!(text, ", {}", errors(of));
    }
    text + "\n"
}

/// Formats a test in a block of lines.
pub(super) fn block(of: &Measurement) -> String {
    let mut text = format!(
        "{}  ({}, pipeline {}, {}-byte values, {}, {})\n",
        of.test,
        count(of.clients as u64, "connection"),
        of.pipeline,
        of.data_size,
        keys(of),
        count(of.threads as u64, "thread"),
    );
    let mut line = |label: &str, value: String| {
        let _ = writeln!(text, "  {label:<14}{value}");
    };
    let requests = format!("{} in {:.2} s", of.requests, of.seconds);
    line("throughput", format!("{:.0} requests/s  ({requests})", of.requests_per_second));
    if of.errors > 0 {
        line("ERRORS", errors(of));
    }
    if of.nulls > 0 {
        line("null replies", format!("{} ({:.2} %)", of.nulls, percent(of.nulls, of.requests)));
    }
    line("latency ms", latency(of));
    if let Some(server) = &of.server {
        let source = match server.cpu_source {
            CpuSource::Schedstat => "schedstat",
            CpuSource::Ticks => "10 ms ticks",
        };
        line(
            "server CPU",
            format!(
                "{:.3} µs per request, {:.2} cores  (pid {}, {source})",
                server.cpu_us, server.cores, server.pid
            ),
        );
        let (before, after) = (server.resident_before, server.resident_after);
        line("server RSS", format!("{} before, {} after", mebibytes(before), mebibytes(after)));
    }
    line(
        "own CPU",
        format!("{:.3} µs per request, {:.2} cores", of.generator_cpu_us, of.generator_cores),
    );
    text + "\n"
}

fn errors(of: &Measurement) -> String {
    let share = percent(of.errors, of.requests);
    let first = of.first_error.as_deref().unwrap_or_default();
    format!("{} error replies ({share:.2} %), the first: {first}", of.errors)
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

fn latency(of: &Measurement) -> String {
    let it = &of.latency_ms;
    format!(
        "p50 {:.3}   p90 {:.3}   p99 {:.3}   p99.9 {:.3}   max {:.3}",
        it.p50, it.p90, it.p99, it.p999, it.max
    )
}

fn keys(of: &Measurement) -> String {
    match of.keyspace {
        1 => "1 key".into(),
        many => format!("{many} keys {}", of.distribution),
    }
}

fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
