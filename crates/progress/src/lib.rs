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

use std::fmt::Write as _;
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

/// Below this, the time that is left is not worth a word.
const ESTIMATED_FROM: Duration = Duration::from_secs(2);

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
        let style =
            format!("{{prefix:12}} {{wide_bar}} {{percent:>3}} % {}, {{eta}} left", unit.rate());
        let style =
            ProgressStyle::with_template(&style).unwrap_or_else(|_| ProgressStyle::default_bar());
        let style = style.with_key("per_second", per_second);
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
                bar.set_message(words());
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
    fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Keys => "keys",
            Self::Objects => "objects",
            Self::Requests => "requests",
            Self::Milliseconds => "ms",
        }
    }

    /// The part of a bar's template that says how fast it goes.
    fn rate(self) -> &'static str {
        match self {
            Self::Bytes => "{binary_bytes_per_sec}",
            Self::Keys | Self::Objects | Self::Requests => "{per_second}",
            Self::Milliseconds => "{msg}",
        }
    }

    /// Work that takes less is not told in lines.
    fn silent_for(self) -> Duration {
        match self {
            Self::Bytes | Self::Keys | Self::Objects => Duration::ZERO,
            Self::Requests | Self::Milliseconds => LONG,
        }
    }
}

/// Progress in lines: one for each tenth of the work.
#[derive(Debug)]
struct Lines {
    what: String,
    unit: Unit,
    /// The tenths that were told.
    tenths: u64,
}

impl Lines {
    fn new(what: &str, unit: Unit) -> Self {
        Self { what: what.to_owned(), unit, tenths: 0 }
    }

    /// The next line, if another tenth is done since the last one. `elapsed` is since the begin.
    fn next(&mut self, done: u64, total: u64, elapsed: Duration) -> Option<String> {
        let tenths = done.saturating_mul(10).checked_div(total)?.min(10);
        if tenths <= self.tenths || elapsed < self.unit.silent_for() {
            return None;
        }
        self.tenths = tenths;
        let mut line = format!("{}: {} % of {total} {}", self.what, tenths * 10, self.unit.name());
        if tenths < 10 && elapsed >= ESTIMATED_FROM {
            let left = elapsed.mul_f64((total - done) as f64 / done as f64);
            let _ = write!(line, ", {} left", in_words(left));
        }
        Some(line)
    }
}

/// Keys or requests a second, in whole numbers.
fn per_second(state: &ProgressState, text: &mut dyn std::fmt::Write) {
    let _ = write!(text, "{}/s", HumanCount(state.per_sec() as u64));
}

/// A duration to the second, such as `3m05s`.
fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
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
    fn a_line_for_each_tenth_and_no_other() {
        let mut lines = Lines::new("check", Unit::Bytes);
        let told: Vec<_> = (0..=1000).filter_map(|done| lines.next(done, 1000, SECOND)).collect();
        assert_eq!(told.len(), 10);
        assert_eq!(told[0], "check: 10 % of 1000 bytes");
        assert_eq!(told[9], "check: 100 % of 1000 bytes");
        assert_eq!(lines.next(1000, 1000, SECOND), None);
        assert_eq!(Lines::new("empty", Unit::Keys).next(0, 0, SECOND), None);
        // A guess of the total that was too low.
        let more = Lines::new("write", Unit::Keys).next(30, 10, SECOND).unwrap();
        assert_eq!(more, "write: 100 % of 10 keys");
    }

    #[test]
    fn what_takes_long_says_how_long_yet() {
        for (done, elapsed, expected) in [
            (100, 1, "load: 10 % of 1000 keys"),
            (100, 5, "load: 10 % of 1000 keys, 45s left"),
            (250, 60, "load: 20 % of 1000 keys, 3m00s left"),
            (100, 1200, "load: 10 % of 1000 keys, 3h00m left"),
        ] {
            let line = Lines::new("load", Unit::Keys).next(done, 1000, SECOND * elapsed);
            assert_eq!(line.as_deref(), Some(expected));
        }
    }

    #[test]
    fn short_phases_of_a_benchmark_are_silent() {
        let mut lines = Lines::new("get", Unit::Requests);
        assert_eq!(lines.next(1000, 1000, SECOND * 9), None);
        assert!(lines.next(1000, 1000, SECOND * 10).is_some());
    }
}
