//! How far a tool has come: a bar on a terminal, a line for each tenth of the work elsewhere.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    Bytes,
    Keys,
    Seconds,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Keys => "keys",
            Self::Seconds => "seconds",
        }
    }

    fn rate(self) -> &'static str {
        match self {
            Self::Bytes => "{binary_bytes_per_sec}",
            Self::Keys => "{per_sec}",
            Self::Seconds => "{pos} s",
        }
    }
}

/// Progress, for a terminal.
pub(crate) enum Shown {
    Nothing,
    Bar(ProgressBar),
    /// The tenths that were told.
    Lines {
        what: &'static str,
        unit: Unit,
        tenths: u64,
    },
}

impl Shown {
    pub(crate) fn new(what: &'static str, unit: Unit, quiet: bool) -> Self {
        if quiet {
            return Self::Nothing;
        }
        if !std::io::stderr().is_terminal() {
            return Self::Lines { what, unit, tenths: 0 };
        }
        let style =
            format!("{{prefix:8}} {{wide_bar}} {{percent:>3}} % {}, {{eta}} to go", unit.rate());
        let style =
            ProgressStyle::with_template(&style).unwrap_or_else(|_| ProgressStyle::default_bar());
        Self::Bar(ProgressBar::new(0).with_style(style).with_prefix(what))
    }

    pub(crate) fn update(&mut self, done: u64, total: u64) {
        match self {
            Self::Nothing => {}
            Self::Bar(bar) => {
                bar.set_length(total);
                bar.set_position(done);
            }
            Self::Lines { what, unit, tenths } => {
                let now = done.saturating_mul(10).checked_div(total);
                if let Some(now) = now.filter(|now| now > tenths) {
                    *tenths = now;
                    eprintln!("{what}: {} % of {total} {}", now * 10, unit.name());
                }
            }
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
