//! The rounds of a comparison as a table for people.

use std::fmt::Write as _;

use super::pair::Pair;
use super::rounds::Rounds;
use crate::cpu::CpuSource;
use crate::measure::Measurement;

const HEAD: [&str; 5] = ["requests/s", "CPU µs/request", "p50 ms", "p99 ms", "p99.9 ms"];

/// Formats one test: its rounds, their median, and error replies if there were any.
pub(crate) fn rounds(labels: &Pair<&str>, of: &Rounds) -> String {
    let mut text = headline(labels, of);
    for (index, round) in of.rounds.iter().enumerate() {
        let cpu = |side: &Measurement| side.server.map_or(f64::NAN, |server| server.cpu_us);
        let figures = [
            figure(round, |side| side.requests_per_second),
            round.as_ref().map(cpu),
            figure(round, |side| side.latency_ms.p50),
            figure(round, |side| side.latency_ms.p99),
            figure(round, |side| side.latency_ms.p999),
        ];
        let ratios = figures.each_ref().map(Pair::ratio);
        text.push_str(&row(&(index + 1).to_string(), &figures, &ratios));
    }
    let median = &of.median;
    let figures = [
        median.requests_per_second.clone(),
        median.cpu_us.clone().unwrap_or(Pair { a: f64::NAN, b: f64::NAN }),
        median.p50_ms.clone(),
        median.p99_ms.clone(),
        median.p999_ms.clone(),
    ];
    let mut ratios = figures.each_ref().map(Pair::ratio);
    ratios[0] = median.throughput_ratio;
    ratios[1] = median.cpu_ratio;
    ratios[3] = median.p99_ratio;
    text.push_str(&row("median", &figures, &ratios));
    if median.cpu_source == Some(CpuSource::Ticks) {
        text.push_str(
            "  CPU time is from ticks of 10 ms, since threads ended or kept no account\n",
        );
    }
    text.push_str(&errors(labels, of));
    text + "\n"
}

fn headline(labels: &Pair<&str>, of: &Rounds) -> String {
    let mut text = String::new();
    if let Some(round) = of.rounds.first() {
        let it = &round.a;
        let _ = writeln!(
            text,
            "{} {}  ({} connections, pipeline {}, {}-byte values, {} keys, {} generator threads)",
            of.test, of.workload, it.clients, it.pipeline, it.data_size, it.keyspace, it.threads
        );
    }
    let _ = writeln!(text, "  A = {}, B = {}; ratios are A ÷ B", labels.a, labels.b);
    let _ = write!(text, "  {:<7}", "round");
    for name in HEAD {
        let _ = write!(text, " {:>26}", format!("{name}  A, B, ÷"));
    }
    text + "\n"
}

fn figure(round: &Pair<Measurement>, figure: fn(&Measurement) -> f64) -> Pair<f64> {
    round.as_ref().map(figure)
}

fn row(label: &str, figures: &[Pair<f64>; 5], ratios: &[Option<f64>; 5]) -> String {
    let mut text = format!("  {label:<7}");
    for (figure, ratio) in figures.iter().zip(ratios) {
        let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let _ = write!(text, " {:>10}{:>10}{ratio:>6}", number(figure.a), number(figure.b));
    }
    text + "\n"
}

/// Formats a figure with its meaningful digits.
fn number(value: f64) -> String {
    if value.is_nan() {
        "-".into()
    } else if value >= 1000.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.3}")
    }
}

fn errors(labels: &Pair<&str>, of: &Rounds) -> String {
    let mut text = String::new();
    for (label, side) in [
        (labels.a, of.rounds.iter().map(|round| &round.a).collect::<Vec<_>>()),
        (labels.b, of.rounds.iter().map(|round| &round.b).collect()),
    ] {
        let count: u64 = side.iter().map(|it| it.errors).sum();
        let all: u64 = side.iter().map(|it| it.requests).sum();
        if let Some(first) = side.iter().find_map(|it| it.first_error.as_ref()) {
            let _ =
                writeln!(text, "  ERRORS of {label}: {count} of {all} replies, the first: {first}");
        }
    }
    text
}
