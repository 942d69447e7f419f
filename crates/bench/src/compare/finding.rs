//! Findings: the results of a comparison, one figure per line, for any workload.

use std::fmt::Write as _;

use serde::Serialize;

use super::growth::Growth;
use super::handover::Handover;
use super::handshakes::Handshakes;
use super::idle::Idle;
use super::memory::Memory;
use super::pair::Pair;
use super::pubsub::PubSub;
use super::rounds::Rounds;
use super::tracking::Tracking;
use super::transactions::Transactions;
use crate::cpu::CpuSource;

/// One figure of both servers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) workload: String,
    pub(crate) measure: String,
    #[serde(flatten)]
    pub(crate) values: Pair<f64>,
    /// A divided by B where that is meaningful. The median of the rounds, if there are rounds.
    pub(crate) ratio: Option<f64>,
    #[serde(skip)]
    decimals: usize,
}

fn finding(workload: &str, measure: &str, values: &Pair<f64>, decimals: usize) -> Finding {
    Finding {
        workload: workload.to_owned(),
        measure: measure.to_owned(),
        values: values.clone(),
        ratio: values.ratio(),
        decimals,
    }
}

pub(crate) fn of_rounds(rounds: &Rounds) -> Vec<Finding> {
    let workload = format!("{} {}", rounds.test, rounds.workload);
    let median = &rounds.median;
    let mut findings = Vec::new();
    if let Some(cpu) = &median.cpu_us {
        let measure = match median.cpu_source {
            Some(CpuSource::Ticks) => "server CPU by 10 ms ticks, µs per request",
            _ => "server CPU, µs per request",
        };
        let cpu = finding(&workload, measure, cpu, 3);
        findings.push(Finding { ratio: median.cpu_ratio, ..cpu });
    }
    let throughput = finding(&workload, "requests per second", &median.requests_per_second, 0);
    findings.push(Finding { ratio: median.throughput_ratio, ..throughput });
    let p99 = finding(&workload, "p99 latency, ms", &median.p99_ms, 3);
    findings.push(Finding { ratio: median.p99_ratio, ..p99 });
    findings
}

pub(crate) fn of_memory(memory: &Memory) -> Finding {
    let workload = format!("memory, {} entries, {}-byte values", memory.entries, memory.value_size);
    let overhead = memory.servers.as_ref().map(|resident| resident.overhead_per_entry);
    finding(&workload, "bytes per entry beyond key and value", &overhead, 1)
}

pub(crate) fn of_growth(growth: &Growth) -> Vec<Finding> {
    let workload = format!("growth, {} keys", growth.keys);
    let excess =
        finding(&workload, "worst adding less worst overwriting, ms", &growth.excess_ms, 2);
    vec![
        finding(&workload, "worst request adding, ms", &growth.adding_max_ms, 2),
        finding(&workload, "worst request overwriting, ms", &growth.overwriting_max_ms, 2),
        // A difference may be negative or near 0, so its ratio would be meaningless.
        Finding { ratio: None, ..excess },
    ]
}

pub(crate) fn of_pubsub(pubsub: &PubSub) -> Vec<Finding> {
    let mut findings = Vec::new();
    for case in &pubsub.cases {
        let workload = format!("PUBLISH to {}, pipeline {}", case.subscribers, case.pipeline);
        let cpu = finding(&workload, "server CPU, µs per delivery", &case.cpu_us_per_delivery, 3);
        findings.push(cpu);
        let rate = &case.deliveries_per_second;
        findings.push(finding(&workload, "deliveries per second", rate, 0));
    }
    let crowd = &pubsub.crowd;
    let workload = format!("{} subscribers", crowd.subscribers);
    let bytes = &crowd.bytes_per_subscriber;
    findings.push(finding(&workload, "resident bytes per subscriber", bytes, 0));
    let workload = format!("{} subscribers, 10 messages a second", crowd.subscribers);
    for (measure, wait) in [
        ("p99 of PING by others, ms", &crowd.others_wait_p99_ms),
        ("worst PING by others, ms", &crowd.others_wait_max_ms),
    ] {
        findings.push(finding(&workload, measure, wait, 3));
    }
    findings
}

pub(crate) fn of_handover(handover: &Handover) -> Vec<Finding> {
    let mut findings = Vec::new();
    for case in &handover.cases {
        let workload = format!("{}, {} blocked", case.command, case.clients);
        findings.push(finding(&workload, "push to element, median, µs", &case.p50_us, 1));
        findings.push(finding(&workload, "push to element, p99, µs", &case.p99_us, 1));
    }
    findings
}

pub(crate) fn of_transactions(transactions: &Transactions) -> Vec<Finding> {
    let mut findings = Vec::new();
    for case in &transactions.cases {
        findings.push(finding(case.name, "server CPU, µs per transaction", &case.cpu_us, 2));
        findings.push(finding(case.name, "transactions per second", &case.per_second, 0));
    }
    findings
}

pub(crate) fn of_handshakes(handshakes: &Handshakes) -> Vec<Finding> {
    let cases = handshakes.cases.iter();
    cases.map(|case| finding(case.name, "server CPU, µs per connection", &case.cpu_us, 1)).collect()
}

pub(crate) fn of_tracking(tracking: &Tracking) -> Vec<Finding> {
    let workload = format!("tracking {} keys", tracking.keys);
    vec![
        finding(&workload, "server CPU, µs per SET", &tracking.cpu_us_per_set, 3),
        finding(&workload, "server CPU, µs per key read", &tracking.cpu_us_per_key_read, 3),
        finding(&workload, "resident bytes per key in the table", &tracking.bytes_per_key, 1),
    ]
}

pub(crate) fn of_idle(idle: &Idle) -> Vec<Finding> {
    let workload = format!("{} idle connections", idle.connections);
    let side = |figure: fn(&super::idle::Side) -> f64| idle.servers.as_ref().map(figure);
    let kept = finding(
        &workload,
        "GET throughput beside idle ÷ alone",
        &side(|side| side.throughput_ratio),
        3,
    );
    let cpu = finding(&workload, "GET CPU beside idle ÷ alone", &side(|side| side.cpu_ratio), 3);
    // These figures are ratios already.
    vec![
        Finding { ratio: None, ..kept },
        Finding { ratio: None, ..cpu },
        finding(&workload, "bytes per connection", &side(|side| side.bytes_per_connection), 0),
    ]
}

impl Finding {
    fn value(&self, value: f64) -> String {
        format!("{value:.*}", self.decimals)
    }

    fn ratio(&self) -> String {
        self.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"))
    }

    fn cells(&self) -> [String; 5] {
        [
            self.workload.clone(),
            self.measure.clone(),
            self.value(self.values.a),
            self.value(self.values.b),
            self.ratio(),
        ]
    }
}

/// Formats findings as a markdown table. The workload is named in its first row only.
pub(crate) fn markdown(labels: &Pair<&str>, findings: &[Finding]) -> String {
    let Pair { a, b } = labels;
    let mut text =
        format!("| workload | measure | {a} | {b} | {a} ÷ {b} |\n|---|---|--:|--:|--:|\n");
    let mut named = "";
    for finding in findings {
        let mut cells = finding.cells();
        if finding.workload == named {
            cells[0].clear();
        }
        named = &finding.workload;
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

/// Formats findings in aligned lines for a terminal.
pub(crate) fn lines(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let [workload, measure, a, b, ratio] = finding.cells();
        let _ = writeln!(text, "{workload:<42} {measure:<40} {a:>12} {b:>12} {ratio:>8}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_names_each_workload_once() {
        let pair = |a, b| Pair { a, b };
        let findings = [
            finding("GET p1", "µs", &pair(4.5, 6.0), 2),
            Finding { ratio: None, ..finding("GET p1", "p99", &pair(1.0, 0.0), 0) },
            finding("SET p1", "µs", &pair(5.0, 5.0), 2),
        ];
        assert_eq!(
            markdown(&Pair { a: "tierce", b: "redis-server" }, &findings),
            "| workload | measure | tierce | redis-server | tierce ÷ redis-server |\n\
             |---|---|--:|--:|--:|\n\
             | GET p1 | µs | 4.50 | 6.00 | 0.75 |\n\
             |  | p99 | 1 | 0 |  |\n\
             | SET p1 | µs | 5.00 | 5.00 | 1.00 |\n"
        );
    }
}
