//! Shows the progress of work on standard error: a bar with the remaining time on a terminal, lines elsewhere.
//!
//! ```
//! use tierce_progress::{Display, Progress, Unit};
//!
//! let mut progress = Progress::new("copy", Unit::Bytes, Display::Shown);
//! progress.update(500, 1000);
//! ```
//!
//! Nothing is shown on standard output, which belongs to results.

#![forbid(unsafe_code)]

use std::fmt::{self, Write as _};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};

/// Visibility of progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Display {
    /// On standard error.
    Shown,
    /// Nowhere: `--quiet`.
    Hidden,
}

impl Display {
    /// Translates a tool's option `--quiet`.
    #[must_use]
    pub fn unless(quiet: bool) -> Self {
        if quiet { Self::Hidden } else { Self::Shown }
    }
}

/// The thing that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Keys.
    Keys,
    /// Objects of a bucket.
    Objects,
    /// Requests of a benchmark. Most phases are short, so lines are written for long ones only.
    Requests,
    /// Milliseconds of a phase with a fixed duration. Lines are written for long phases only.
    Milliseconds,
}

/// Minimal time of a benchmark phase before lines are written for it.
const LONG: Duration = Duration::from_secs(10);

/// Minimal time of other work before lines are written for it.
const SHORT: Duration = Duration::from_secs(2);

/// Interval between two lines of progress.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Time before a bar shows a rate or the remaining time: the first steps say little about either.
const ESTIMATED_FROM: Duration = Duration::from_millis(500);

/// Progress of one piece of work. Dropping it removes the bar from a terminal.
#[derive(Debug)]
pub struct Progress(Shown);

#[derive(Debug)]
enum Shown {
    Nothing,
    Bar(ProgressBar),
    Lines(Lines, Instant),
}

impl Progress {
    /// Begins a piece of work with this name.
    #[must_use]
    pub fn new(what: &str, unit: Unit, display: Display) -> Self {
        if display == Display::Hidden {
            return Self(Shown::Nothing);
        }
        if !std::io::stderr().is_terminal() {
            return Self(Shown::Lines(Lines::new(what, unit), Instant::now()));
        }
        let template = "{prefix:12} {wide_bar} {percent:>3} %{msg}{rate}{left}";
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let style = style
            .with_key("rate", move |state: &ProgressState, text: &mut dyn fmt::Write| {
                if let Some(rate) = unit.rate(state.per_sec()).filter(|_| is_estimated(state)) {
                    let _ = write!(text, ", {rate}");
                }
            })
            .with_key("left", |state: &ProgressState, text: &mut dyn fmt::Write| {
                if is_estimated(state) {
                    let _ = write!(text, ", {} left", in_words(state.eta()));
                }
            });
        Self(Shown::Bar(ProgressBar::new(0).with_style(style).with_prefix(what.to_owned())))
    }

    /// Reports that `done` of `total` is done. The total may change.
    pub fn update(&mut self, done: u64, total: u64) {
        self.update_with(done, total, String::new);
    }

    /// Does the work of [`Self::update`], with words for a bar of [`Unit::Milliseconds`], such as a rate.
    pub fn update_with(&mut self, done: u64, total: u64, words: impl FnOnce() -> String) {
        match &mut self.0 {
            Shown::Nothing => {}
            Shown::Bar(bar) => {
                bar.set_length(total);
                bar.set_position(done);
                let words = if bar.elapsed() < ESTIMATED_FROM { String::new() } else { words() };
                bar.set_message(if words.is_empty() { words } else { format!(", {words}") });
            }
            Shown::Lines(lines, begun) => {
                if let Some(line) = lines.next(done, total, begun.elapsed()) {
                    eprintln!("{line}");
                }
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Shown::Bar(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

impl Unit {
    /// Formats an amount and its total.
    fn amounts(self, done: u64, total: u64) -> String {
        let (size, name) = match self {
            Self::Bytes => byte_unit(total),
            Self::Keys => (1, "keys"),
            Self::Objects => (1, "objects"),
            Self::Requests => (1, "requests"),
            Self::Milliseconds => (1000, "s"),
        };
        format!("{} of {} {name}", done / size, total / size)
    }

    /// Formats a rate.
    fn rate(self, per_second: f64) -> Option<String> {
        match self {
            Self::Bytes => {
                let (size, name) = byte_unit(per_second as u64);
                Some(format!("{} {name}/s", per_second as u64 / size))
            }
            Self::Keys | Self::Objects | Self::Requests => {
                Some(format!("{}/s", HumanCount(per_second as u64)))
            }
            // The caller provides its own words.
            Self::Milliseconds => None,
        }
    }

    /// Returns the time before the first line; shorter work is not reported in lines.
    fn silent_for(self) -> Duration {
        match self {
            Self::Bytes | Self::Keys | Self::Objects => SHORT,
            Self::Requests | Self::Milliseconds => LONG,
        }
    }
}

/// Returns the size and the name of the unit for so many bytes.
fn byte_unit(bytes: u64) -> (u64, &'static str) {
    match bytes {
        0..10_000 => (1, "bytes"),
        10_000..10_000_000 => (1000, "kB"),
        _ => (1_000_000, "MB"),
    }
}

fn is_estimated(state: &ProgressState) -> bool {
    state.elapsed() >= ESTIMATED_FROM && state.pos() > 0
}

/// Progress in lines: one every [`LINE_EVERY`], and none for short work.
#[derive(Debug)]
struct Lines {
    what: String,
    unit: Unit,
    /// Elapsed time at which the next line is due.
    due: Duration,
}

impl Lines {
    fn new(what: &str, unit: Unit) -> Self {
        Self { what: what.to_owned(), unit, due: unit.silent_for() }
    }

    /// Returns the next line, if it is due. `elapsed` is the time since the start.
    fn next(&mut self, done: u64, total: u64, elapsed: Duration) -> Option<String> {
        if total == 0 || elapsed < self.due {
            return None;
        }
        self.due = elapsed + LINE_EVERY;
        // The total may be an estimate that was too low.
        let total = total.max(done);
        let mut line = format!("{}: {}", self.what, self.unit.amounts(done, total));
        if done > 0 && done < total {
            let left = elapsed.mul_f64((total - done) as f64 / done as f64);
            let _ = write!(line, ", {} left", in_words(left));
        }
        Some(line)
    }
}

/// Formats a duration to the second, such as `3 m 05 s`.
fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} m {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_line_every_five_seconds_and_none_for_short_work() {
        let mut lines = Lines::new("check", Unit::Bytes);
        let told: Vec<_> = (0..=13)
            .filter_map(|s| lines.next(u64::from(s) * 21_000_000, 273_000_000, SECOND * s))
            .collect();
        assert_eq!(
            told,
            [
                "check: 42 of 273 MB, 11 s left",
                "check: 147 of 273 MB, 6 s left",
                "check: 252 of 273 MB, 1 s left"
            ]
        );
        assert_eq!(Lines::new("empty", Unit::Keys).next(0, 0, SECOND * 3), None);
        let more = Lines::new("write", Unit::Keys).next(30, 10, SECOND * 2).unwrap();
        assert_eq!(more, "write: 30 of 30 keys");
    }

    #[test]
    fn amounts_and_times_have_units_that_fit() {
        for (unit, done, total, elapsed, expected) in [
            (Unit::Keys, 100, 1000, 5, "load: 100 of 1000 keys, 45 s left"),
            (Unit::Keys, 250, 1000, 60, "load: 250 of 1000 keys, 3 m 00 s left"),
            (Unit::Keys, 100, 1000, 1200, "load: 100 of 1000 keys, 3 h 00 m left"),
            (Unit::Bytes, 0, 9000, 3, "load: 0 of 9000 bytes"),
            (Unit::Bytes, 1000, 90_000, 3, "load: 1 of 90 kB, 4 m 27 s left"),
            (Unit::Milliseconds, 20_000, 60_000, 20, "load: 20 of 60 s, 40 s left"),
        ] {
            let line = Lines::new("load", unit).next(done, total, SECOND * elapsed);
            assert_eq!(line.as_deref(), Some(expected));
        }
        assert_eq!(Unit::Bytes.rate(123_456_789.0).as_deref(), Some("123 MB/s"));
        assert_eq!(Unit::Requests.rate(1234.5).as_deref(), Some("1,234/s"));
    }

    #[test]
    fn short_phases_of_a_benchmark_are_silent() {
        let mut lines = Lines::new("get", Unit::Requests);
        assert_eq!(lines.next(1000, 1000, SECOND * 9), None);
        assert!(lines.next(1000, 1000, SECOND * 10).is_some());
    }
}
