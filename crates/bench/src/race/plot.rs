//! Throughput over time as an SVG: one panel for each phase.
//!
//! A point is the interval between two reports of a phase. A dashed line is the limit of the disk for the same kind
//! of work.

use std::fmt::Write as _;

use super::dataset::{KEY_LEN, VALUE_LEN};
use super::phase::{Outcome, Phase};
use super::raw_disk::RawDisk;
use super::report::Report;
use super::svg::{self, LEFT, Panel, RIGHT, WIDTH, number};

const PANEL_HEIGHT: f64 = 220.0;

/// Figures of one panel.
struct Curve {
    title: &'static str,
    unit: &'static str,
    /// Pairs of seconds and throughput.
    points: Vec<(f64, f64)>,
    limit: Option<f64>,
}

/// Returns the whole drawing.
pub(super) fn svg(report: &Report) -> String {
    let disk = report.raw_disk.as_ref();
    let curves: Vec<Curve> = report
        .phases
        .iter()
        .zip(&report.samples)
        .map(|(outcome, samples)| {
            curve(outcome, samples.iter().map(|it| (it.seconds, it.done)), disk)
        })
        .collect();
    let height = PANEL_HEIGHT * curves.len().max(1) as f64;
    let mut text = String::new();
    for (index, curve) in curves.iter().enumerate() {
        panel(&mut text, curve, PANEL_HEIGHT * index as f64);
    }
    svg::page(height, &text)
}

fn curve(
    outcome: &Outcome,
    samples: impl Iterator<Item = (f64, u64)>,
    disk: Option<&RawDisk>,
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
        // Reports that arrive in a burst would draw spikes without meaning.
        if seconds - before.0 > 0.02 || points.is_empty() {
            let more = done.saturating_sub(before.1) as f64;
            points.push((seconds, more * scale / (seconds - before.0).max(1e-9)));
            before = (seconds, done);
        }
    }
    Curve { title, unit, points, limit }
}

fn panel(text: &mut String, curve: &Curve, top: f64) {
    let right = WIDTH - RIGHT;
    let time = curve.points.iter().map(|point| point.0).fold(1e-9, f64::max);
    let highest = curve.points.iter().map(|point| point.1).chain(curve.limit).fold(1e-9, f64::max);
    let panel = Panel { top, height: PANEL_HEIGHT, highest };
    let x = |seconds: f64| LEFT + seconds / time * (right - LEFT);
    panel.grid(text, curve.title, curve.unit);
    for step in 0..=4 {
        let seconds = time * f64::from(step) / 4.0;
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} s</text>",
            x(seconds),
            panel.bottom() + 18.0,
            number(seconds),
        );
    }
    if let Some(limit) = curve.limit {
        let at = panel.y(limit);
        let dashed = "stroke=\"#b00\" stroke-dasharray=\"6 4\"";
        svg::line(text, [(LEFT, at), (right, at)].into_iter(), dashed);
    }
    let points = curve.points.iter().map(|&(seconds, value)| (x(seconds), panel.y(value)));
    svg::line(text, points, "stroke=\"#06c\" stroke-width=\"1.5\"");
}
