//! Throughput over time as a drawing: one panel a phase, as SVG.
//!
//! A step between two reports of a phase is a point; a dashed line is the limit of the disk for the
//! same kind of work. There are no dependencies: axes, a line and a few words are all there is.

use std::fmt::Write as _;

use super::contents::{KEY_LEN, VALUE_LEN};
use super::phase::{Outcome, Phase};
use super::report::Report;
use super::yardstick::Yardstick;

const WIDTH: f64 = 720.0;
const PANEL_HEIGHT: f64 = 220.0;
/// Room around the axes of a panel, for words.
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 40.0;

/// One panel's worth of figures.
struct Curve {
    title: &'static str,
    unit: &'static str,
    /// Seconds and throughput.
    points: Vec<(f64, f64)>,
    limit: Option<f64>,
}

/// The whole drawing.
pub(super) fn svg(report: &Report) -> String {
    let disk = report.yardstick.as_ref();
    let curves: Vec<Curve> = report
        .phases
        .iter()
        .zip(&report.samples)
        .map(|(outcome, samples)| {
            curve(outcome, samples.iter().map(|it| (it.seconds, it.done)), disk)
        })
        .collect();
    let height = PANEL_HEIGHT * curves.len().max(1) as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (index, curve) in curves.iter().enumerate() {
        panel(&mut text, curve, PANEL_HEIGHT * index as f64);
    }
    text + "</svg>\n"
}

fn curve(
    outcome: &Outcome,
    samples: impl Iterator<Item = (f64, u64)>,
    disk: Option<&Yardstick>,
) -> Curve {
    let megabytes = (KEY_LEN + VALUE_LEN) as f64 / 1e6;
    let (title, unit, scale, limit) = match outcome.phase {
        Phase::Write => (
            "random write; dashed: the disk's sequential write",
            "MB/s",
            megabytes,
            disk.map(|disk| disk.write_bytes_per_second / 1e6),
        ),
        Phase::Read => (
            "random read, cold; dashed: the disk's random 4 KiB reads",
            "k/s",
            1e-3,
            disk.map(|disk| disk.random_reads_per_second / 1e3),
        ),
        Phase::Warm => ("random read, warm", "k/s", 1e-3, None),
        Phase::Scan => ("ordered scans, all threads", "M keys/s", 1e-6, None),
    };
    let mut points = Vec::new();
    let mut before = (0.0, 0);
    for (seconds, done) in samples.chain([(outcome.seconds, outcome.operations)]) {
        // Reports that come in a bunch would draw spikes that nothing stands behind.
        if seconds - before.0 > 0.02 || points.is_empty() {
            let more = done.saturating_sub(before.1) as f64;
            points.push((seconds, more * scale / (seconds - before.0).max(1e-9)));
            before = (seconds, done);
        }
    }
    Curve { title, unit, points, limit }
}

fn panel(text: &mut String, curve: &Curve, top: f64) {
    let (right, bottom) = (WIDTH - RIGHT, top + PANEL_HEIGHT - BOTTOM);
    let time = curve.points.iter().map(|point| point.0).fold(1e-9, f64::max);
    let highest = curve.points.iter().map(|point| point.1).chain(curve.limit).fold(1e-9, f64::max);
    let ceiling = highest * 1.1;
    let x = |seconds: f64| LEFT + seconds / time * (right - LEFT);
    let y = |value: f64| bottom - value / ceiling * (bottom - top - TOP);
    let mut write = |line: String| {
        let _ = writeln!(text, "{line}");
    };
    write(format!("<text x=\"{LEFT}\" y=\"{:.1}\">{}</text>", top + 24.0, curve.title));
    for step in 0..=4 {
        let value = highest * f64::from(step) / 4.0;
        let at = y(value);
        write(format!(
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            number(value),
        ));
    }
    write(format!("<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", 8.0, top + TOP, curve.unit));
    for step in 0..=4 {
        let seconds = time * f64::from(step) / 4.0;
        write(format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} s</text>",
            x(seconds),
            bottom + 18.0,
            number(seconds),
        ));
    }
    if let Some(limit) = curve.limit {
        let at = y(limit);
        write(format!(
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#b00\" \
             stroke-dasharray=\"6 4\"/>"
        ));
    }
    let points: Vec<String> =
        curve.points.iter().map(|&(s, v)| format!("{:.1},{:.1}", x(s), y(v))).collect();
    write(format!(
        "<polyline fill=\"none\" stroke=\"#06c\" stroke-width=\"1.5\" points=\"{}\"/>",
        points.join(" ")
    ));
}

/// Three digits or so.
fn number(value: f64) -> String {
    match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
