//! How far work has come, on standard error: a bar with the time that is left on a terminal, lines elsewhere.
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

/// Whether progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Display {
    /// On standard error.
    Shown,
    /// Nowhere: `--quiet`.
    Hidden,
}

impl Display {
    /// What a tool's option `--quiet` means.
    #[must_use]
    pub fn unless(quiet: bool) -> Self {
        if quiet { Self::Hidden } else { Self::Shown }
    }
}

/// What is counted.
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

/// A phase of a benchmark is told in lines if it takes longer than this.
const LONG: Duration = Duration::from_secs(10);

/// Other work that takes less is not told in lines.
const SHORT: Duration = Duration::from_secs(2);

/// A line of progress appears this often.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// A bar shows neither a rate nor the time that is left before: the first steps say little about either.
const ESTIMATED_FROM: Duration = Duration::from_millis(500);

/// The progress of one piece of work. What is shown on a terminal disappears when it is dropped.
#[derive(Debug)]
pub struct Progress(Shown);

#[derive(Debug)]
enum Shown {
    Nothing,
    Bar(ProgressBar),
    Lines(Lines, Instant),
}

impl Progress {
    /// Begins work of this name.
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

    /// `done` of `total` is done. The total may change.
    pub fn update(&mut self, done: u64, total: u64) {
        self.update_with(done, total, String::new);
    }

    /// The same, with words for the bar of [`Unit::Milliseconds`], such as a rate.
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
    /// So much of a total.
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

    /// How fast it goes.
    fn rate(self, per_second: f64) -> Option<String> {
        match self {
            Self::Bytes => {
                let (size, name) = byte_unit(per_second as u64);
                Some(format!("{} {name}/s", per_second as u64 / size))
            }
            Self::Keys | Self::Objects | Self::Requests => {
                Some(format!("{}/s", HumanCount(per_second as u64)))
            }
            // The caller has words for it.
            Self::Milliseconds => None,
        }
    }

    /// Work that takes less is not told in lines.
    fn silent_for(self) -> Duration {
        match self {
            Self::Bytes | Self::Keys | Self::Objects => SHORT,
            Self::Requests | Self::Milliseconds => LONG,
        }
    }
}

/// The unit in which so many bytes are shown, as its size and its name.
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
    /// The time since the begin at which the next line is due.
    due: Duration,
}

impl Lines {
    fn new(what: &str, unit: Unit) -> Self {
        Self { what: what.to_owned(), unit, due: unit.silent_for() }
    }

    /// The next line, if it is due. `elapsed` is since the begin.
    fn next(&mut self, done: u64, total: u64, elapsed: Duration) -> Option<String> {
        if total == 0 || elapsed < self.due {
            return None;
        }
        self.due = elapsed + LINE_EVERY;
        // A guess of the total may have been too low.
        let total = total.max(done);
        let mut line = format!("{}: {}", self.what, self.unit.amounts(done, total));
        if done > 0 && done < total {
            let left = elapsed.mul_f64((total - done) as f64 / done as f64);
            let _ = write!(line, ", {} left", in_words(left));
        }
        Some(line)
    }
}

/// A duration to the second, such as `3 m 05 s`.
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
