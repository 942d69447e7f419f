//! A finding of the doctor: the problem, its consequence, and the command that fixes it.

use std::fmt::{self, Display};
use std::io;

use tierce_engine::log::Colour;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gravity {
    /// The server runs, less well than it could.
    Advice,
    /// Data, access or the server itself are at risk, or it does not start.
    Serious,
}

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its severity.
    pub gravity: Gravity,
    /// The problem, with the figures that were read or measured.
    pub what: String,
    /// Its consequence.
    pub why: String,
    /// The command or the line of the configuration that fixes it.
    pub mend: String,
}

impl Finding {
    pub fn serious(
        what: impl Into<String>,
        why: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        let (what, why, mend) = (what.into(), why.into(), mend.into());
        Self { gravity: Gravity::Serious, what, why, mend }
    }

    pub fn advice(
        what: impl Into<String>,
        why: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { gravity: Gravity::Advice, ..Self::serious(what, why, mend) }
    }
}

impl Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Findings go to the standard output.
        let label = match self.gravity {
            Gravity::Serious => Colour::Red.paint("SERIOUS", &io::stdout()),
            Gravity::Advice => Colour::Yellow.paint("advice ", &io::stdout()),
        };
        writeln!(f, "{label}  {}", self.what)?;
        writeln!(f, "{:<8} why: {}", "", self.why)?;
        writeln!(f, "{:<8} do:  {}", "", self.mend)
    }
}

/// Formats a number of bytes for people.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    let digits = usize::from(unit > 0 && value < 10.0);
    format!("{value:.digits$} {}", UNITS[unit])
}
