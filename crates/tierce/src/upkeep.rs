//! `tierce check` and `tierce repair`: what can be done to a store that nobody has open.
//!
//! Findings go to standard output, progress and errors to standard error: a bar on a terminal, a
//! line for each tenth of the work elsewhere. The exit code says how it went; see [`Verdict`].

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use tierce_cask::{CheckReport, ColdCheckReport, Error, RepairReport};

use crate::shown::{Shown, Unit};

/// Verify every record of a store, which must not be open.
///
/// The log of a server is the directory `wal` in its data directory. With it, the files of values that
/// were moved to disk are verified (`maxmemory-policy spill`), which are in the directory `cold` beside it;
/// they can be named alone, too.
///
/// Reads the manifest, all segments and all hint files, and names the file and the offset of
/// whatever is damaged. Nothing is changed. A torn tail is no damage: it is what a kill or a power
/// cut leaves of a write that was not acknowledged as durable, and opening the store cuts it off. A
/// hint file that is missing or damaged is none either: opening takes longer without it.
///
/// Exit code 0: the store is sound. 1: damage was found. 2: the check could not be made, because the
/// store is in use, there is none, or files cannot be read.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The store's directory
    dir: PathBuf,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

/// Save what can be saved of a damaged store into a new one.
///
/// Every record that checks out is copied; the damaged store is not touched and must not be open.
/// Where a record is lost, an older one of its key may come back if it had not been compacted away.
/// What was passed over is told.
///
/// Exit code 0: everything was saved. 1: the new store is good and something was passed over. 2: there
/// is no new store, because a store is in use, there is nothing to save or a store in INTO already,
/// or files cannot be read or written.
#[derive(Args, Debug)]
pub struct RepairArgs {
    /// The damaged store's directory
    dir: PathBuf,
    /// Directory of the new store, made if there is none
    into: PathBuf,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

/// How it went, as an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Sound, or saved completely.
    Sound = 0,
    /// Something is damaged or was passed over.
    Damaged = 1,
    /// It could not be done.
    Impossible = 2,
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        Self::from(verdict as u8)
    }
}

impl CheckArgs {
    /// Checks and tells.
    pub fn run(&self) -> ExitCode {
        if self.dir.file_name().is_some_and(|name| name == SPILLED) && self.dir.is_dir() {
            return self.check_spilled(&self.dir).into();
        }
        let mut shown = Shown::new("check", Unit::Bytes, self.quiet);
        let result =
            tierce_cask::check(&self.dir, |progress| shown.update(progress.done, progress.total));
        drop(shown);
        let verdict = match result {
            Ok(report) => {
                print(&checked(&report));
                if report.problems.is_empty() { Verdict::Sound } else { Verdict::Damaged }
            }
            Err(error) => impossible("check", &error),
        };
        match (verdict, spilled_beside(&self.dir)) {
            (Verdict::Sound | Verdict::Damaged, Some(cold)) => {
                (verdict as u8).max(self.check_spilled(&cold) as u8).into()
            }
            _ => verdict.into(),
        }
    }

    /// Checks the files of spilled values, and tells.
    fn check_spilled(&self, dir: &Path) -> Verdict {
        let mut shown = Shown::new("check spilled values", Unit::Bytes, self.quiet);
        let result = tierce_cask::check_cold(dir, |progress| {
            shown.update(progress.done, progress.total);
        });
        drop(shown);
        match result {
            Ok(report) => {
                print(&checked_spilled(&report));
                if report.problems.is_empty() { Verdict::Sound } else { Verdict::Damaged }
            }
            Err(error) => impossible("check", &error),
        }
    }
}

/// The directory of spilled values in a data directory.
const SPILLED: &str = "cold";

/// The spilled values of the server whose log is in a directory, if there are any.
fn spilled_beside(log: &Path) -> Option<PathBuf> {
    let log = log.canonicalize().ok()?;
    let is_log = log.file_name()?.to_str()?.starts_with("wal");
    Some(log.with_file_name(SPILLED)).filter(|cold| is_log && cold.is_dir())
}

impl RepairArgs {
    /// Repairs and tells.
    pub fn run(&self) -> ExitCode {
        let mut shown = Shown::new("repair", Unit::Bytes, self.quiet);
        let result = tierce_cask::repair(&self.dir, &self.into, |progress| {
            shown.update(progress.done, progress.total);
        });
        drop(shown);
        let verdict = match result {
            Ok(report) => {
                print(&repaired(&report));
                if is_complete(&report) { Verdict::Sound } else { Verdict::Damaged }
            }
            Err(error) => impossible("repair", &error),
        };
        verdict.into()
    }
}

fn impossible(tool: &str, error: &Error) -> Verdict {
    eprintln!("tierce {tool}: {error}");
    Verdict::Impossible
}

/// What a check found, a line a fact.
fn checked(report: &CheckReport) -> String {
    let mut text = format!(
        "{} read: {}, {} bytes\n",
        count(report.segments as u64, "segment"),
        count(report.records, "good record"),
        report.bytes,
    );
    if report.torn_bytes > 0 {
        let bytes = report.torn_bytes;
        let _ = writeln!(text, "torn tails: {bytes} bytes, which opening will cut off");
    }
    if report.hints_missing > 0 {
        let hints = count(report.hints_missing as u64, "hint file");
        let _ = writeln!(text, "{hints} missing or not valid: opening will take longer");
    }
    for problem in &report.problems {
        let _ = writeln!(text, "damage: {problem}");
    }
    match report.problems.len() as u64 {
        0 => text.push_str("the store is sound\n"),
        problems => {
            let _ = writeln!(text, "{} found", count(problems, "problem"));
        }
    }
    text
}

/// What a check of spilled values found, a line a fact.
fn checked_spilled(report: &ColdCheckReport) -> String {
    let mut text = format!(
        "{} of spilled values read: {}, {} bytes\n",
        count(report.segments as u64, "file"),
        count(report.values, "good value"),
        report.bytes,
    );
    for problem in &report.problems {
        let _ = writeln!(text, "damage: {problem}");
    }
    if report.problems.is_empty() {
        text.push_str("the spilled values are sound\n");
    } else {
        let problems = count(report.problems.len() as u64, "problem");
        let _ = writeln!(
            text,
            "{problems} found; the server answers errors for keys whose values were there, if any: a \
             power cut leaves damage where no key has its value"
        );
    }
    text
}

/// What a repair saved, a line a fact.
fn repaired(report: &RepairReport) -> String {
    let mut text = format!(
        "saved: {} of {}\n",
        count(report.records, "record"),
        count(report.segments as u64, "segment")
    );
    for problem in &report.problems {
        let _ = writeln!(text, "lost: {problem}");
    }
    if report.bytes_skipped > 0 {
        let _ = writeln!(text, "passed over: {} bytes that are no records", report.bytes_skipped);
    }
    if report.members_skipped > 0 {
        let members = count(report.members_skipped, "record");
        let _ = writeln!(text, "passed over: {members} of batches that are not whole");
    }
    if is_complete(report) {
        text.push_str("everything was saved\n");
    }
    text
}

fn is_complete(report: &RepairReport) -> bool {
    report.problems.is_empty() && report.bytes_skipped == 0 && report.members_skipped == 0
}

pub(crate) fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Prints to standard output; a reader that has gone away is no error.
pub(crate) fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
