//! Results as CSV, one row for each test. New columns are only added at the end.

use crate::measure::Measurement;

const COLUMNS: [&str; 23] = [
    "test",
    "clients",
    "threads",
    "pipeline",
    "data_size",
    "keyspace",
    "distribution",
    "requests",
    "errors",
    "seconds",
    "requests_per_second",
    "latency_ms_mean",
    "latency_ms_p50",
    "latency_ms_p90",
    "latency_ms_p99",
    "latency_ms_p999",
    "latency_ms_max",
    "generator_cpu_us",
    "server_cpu_us",
    "server_cpu_source",
    "server_resident_before",
    "server_resident_after",
    "nulls",
];

pub(super) fn header() -> String {
    COLUMNS.join(",") + "\n"
}

pub(super) fn row(of: &Measurement) -> String {
    let latency = &of.latency_ms;
    let server = |show: &dyn Fn(&crate::measure::ServerCost) -> String| {
        of.server.as_ref().map_or_else(String::new, show)
    };
    let fields: [String; COLUMNS.len()] = [
        quote(&of.test),
        of.clients.to_string(),
        of.threads.to_string(),
        of.pipeline.to_string(),
        of.data_size.to_string(),
        of.keyspace.to_string(),
        of.distribution.clone(),
        of.requests.to_string(),
        of.errors.to_string(),
        format!("{:.6}", of.seconds),
        format!("{:.1}", of.requests_per_second),
        format!("{:.4}", latency.mean),
        format!("{:.4}", latency.p50),
        format!("{:.4}", latency.p90),
        format!("{:.4}", latency.p99),
        format!("{:.4}", latency.p999),
        format!("{:.4}", latency.max),
        format!("{:.4}", of.generator_cpu_us),
        server(&|cost| format!("{:.4}", cost.cpu_us)),
        server(&|cost| format!("{:?}", cost.cpu_source).to_lowercase()),
        server(&|cost| cost.resident_before.to_string()),
        server(&|cost| cost.resident_after.to_string()),
        of.nulls.to_string(),
    ];
    fields.join(",") + "\n"
}

/// Quotes a text. The name of a test may be a user's command, with any characters.
fn quote(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_when_they_must_be() {
        assert_eq!(quote("SET:GET 1:10"), "SET:GET 1:10");
        assert_eq!(quote("A,\"B\""), "\"A,\"\"B\"\"\"");
    }
}
