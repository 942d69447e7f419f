//! `tierce check` and `tierce repair`: work on a closed store.
//!
//! Findings go to standard output, progress and errors to standard error: a bar on a terminal, an
//! occasional line elsewhere. The exit code is the result; see [`Outcome`].

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use tierce_config::{Invocation, Settings};
use tierce_engine::count;
use tierce_engine::durability::{leave_stream, log_dir};
use tierce_engine::inspection::{self, Contents, Start};
use tierce_engine::next_step;
use tierce_progress::{Display, Progress, Unit};
use tierce_storage::{CheckReport, ColdCheckReport, Error, RepairReport};

use crate::in_use::await_end_of_use;

/// Verify a data directory, a log or a store, which must not be in use.
///
/// For the data directory of a server, or the log in it, this verifies the log, the values on disk
/// (`maxmemory-policy spill`) and the snapshot. Then it tries a start, which needs as much memory as the
/// server. The last line says if a server starts, and what it loses. If the log never had a record, the
/// check reads the data of Redis that a start would import. For any other store, and for a directory `cold`
/// alone, it verifies the records.
///
/// The check changes nothing and creates no file. It names the file and the offset of each damage. A torn
/// tail is no damage: it is the rest of a write that was not acknowledged as durable before a kill or a power
/// cut, and opening the store truncates it. A missing or damaged hint file only makes opening slower.
///
/// Exit code 0: everything is intact, and a server starts. 1: there is damage, or a server would not start.
/// 2: the check was not possible, because the store is in use or missing, or files cannot be read.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The directory
    dir: PathBuf,
    /// Number of databases, as the server's directive of that name
    #[arg(long, default_value = "16")]
    databases: NonZeroUsize,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

/// Save what can be saved of a damaged store into a new one.
///
/// Copies every intact record to a new store, also if the manifest is lost, and says what is lost. The damaged
/// store must not be in use, and is not changed. If a record is lost, an older value of its key may return.
/// For the data directory of a server, this repairs the log; INTO then replaces that log.
///
/// Exit code 0: everything was saved. 1: the new store is intact, and something is lost. 2: there is no new
/// store, because the old one is in use or has no records, INTO already has a store, or files cannot be read
/// or written.
#[derive(Args, Debug)]
pub struct RepairArgs {
    /// The damaged store's directory, or the data directory with the log
    dir: PathBuf,
    /// Directory of the new store, made if there is none
    into: PathBuf,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

/// Result, as an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// Intact, or saved completely.
    Sound = 0,
    /// Something is damaged or was skipped.
    Damaged = 1,
    /// The work was not possible.
    Impossible = 2,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(outcome as u8)
    }
}

impl CheckArgs {
    /// Checks the directory and prints the result.
    pub fn run(&self) -> ExitCode {
        if self.dir.exists() && !self.dir.is_dir() {
            // Do not open it: opening a pipe without a writer would never return.
            eprintln!(
                "tierce check: {} is no directory; name that of the data",
                self.dir.display()
            );
            return Outcome::Impossible.into();
        }
        await_end_of_use(&self.dir);
        if self.dir.file_name().is_some_and(|name| name == SPILLED) && self.dir.is_dir() {
            let outcome = self.check_spilled(&self.dir);
            if outcome != Outcome::Impossible {
                print("missing files are found only by a check of the data directory\n");
            }
            return outcome.into();
        }
        let outcome = match self.data_dir() {
            Ok(Some((dir, contents))) => self.check_data(&dir, &contents),
            Ok(None) => self.check_store(&self.dir),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                let dir = self.dir.display();
                eprintln!(
                    "tierce check: cannot read {dir}: permission denied; run as its owner, or with sudo"
                );
                Outcome::Impossible
            }
            Err(error) => {
                print(&format!("{error}\na start is refused\n"));
                Outcome::Damaged
            }
        };
        outcome.into()
    }

    /// Returns the data directory that was named, or whose log was.
    fn data_dir(&self) -> std::io::Result<Option<(PathBuf, Contents)>> {
        if !self.dir.is_dir() {
            return Ok(None);
        }
        if !self.dir.join(MANIFEST).exists() {
            let contents = inspection::contents(&self.dir)?;
            if !contents.is_empty() || self.data_of_redis(&self.dir).is_some() {
                return Ok(Some((self.dir.clone(), contents)));
            }
        }
        let Some(parent) = self.dir.canonicalize()?.parent().map(Path::to_owned) else {
            return Ok(None);
        };
        let is_log =
            |contents: &Contents| contents.log.canonicalize().ok() == self.dir.canonicalize().ok();
        // An unreadable parent directory does not matter to a store on its own.
        let contents = inspection::contents(&parent).ok();
        Ok(contents.filter(is_log).map(|contents| (parent, contents)))
    }

    /// Checks everything in a data directory, and that a server can start there.
    fn check_data(&self, dir: &Path, contents: &Contents) -> Outcome {
        let mut outcome = Outcome::Sound;
        for other in &contents.others {
            print(&format!("{}: not part of the log that a start loads\n", other.display()));
        }
        if contents.log.join(MANIFEST).exists() {
            outcome = outcome.max(self.check_store(&contents.log));
        }
        if let Some(cold) = &contents.cold {
            outcome = outcome.max(self.check_spilled(cold));
        }
        let imported = self.data_of_redis(dir).filter(|_| !inspection::was_ever_written(dir));
        if let Some(found) = &imported {
            print(&format!("{}: data of Redis, which a start imports\n", found.display()));
        }
        // The import reads it, too, and it may be huge.
        if let Some(snapshot) =
            contents.snapshot.as_ref().filter(|it| imported.as_ref() != Some(*it))
        {
            outcome = outcome.max(self.check_snapshot(snapshot));
        }
        if outcome == Outcome::Impossible {
            return outcome;
        }
        match self.start(dir, imported.as_deref()) {
            Ok(Start::Succeeds { keys }) => {
                let keys = count(keys, "key");
                let but = match outcome {
                    Outcome::Sound => "",
                    _ => "; keys whose values are damaged answer errors, if there are any",
                };
                print(&format!("a start succeeds: {keys}{but}\n"));
                outcome
            }
            Ok(Start::Loses { refusal, flaws, keys }) => {
                flaws.iter().for_each(|flaw| print(&format!("values lost: {flaw}\n")));
                print(&format!(
                    "{refusal}\na start is refused; with `spill-lost-values accept` it succeeds: {}, of \
                     which those above have lost their values\n",
                    count(keys, "key")
                ));
                Outcome::Damaged
            }
            Ok(Start::Fails { refusal }) => {
                print(&format!("{refusal}\na start is refused\n"));
                Outcome::Damaged
            }
            Err(error) => {
                eprintln!("tierce check: {error}");
                Outcome::Impossible
            }
        }
    }

    /// Returns the data of Redis that a server with this directory would find.
    fn data_of_redis(&self, dir: &Path) -> Option<PathBuf> {
        tierce_transfer::find_data_of_redis(&settings(dir, self.databases.get()).ok()?)
    }

    /// Tries a start, which first imports the given data of Redis.
    fn start(&self, dir: &Path, imported: Option<&Path>) -> Result<Start, String> {
        let databases = self.databases.get();
        let Some(found) = imported else {
            return inspection::start(dir, databases);
        };
        Ok(match tierce_transfer::try_first_import(found, &settings(dir, databases)?) {
            Ok(keys) => Start::Succeeds { keys },
            Err(error) => Start::Fails { refusal: error.to_string() },
        })
    }

    fn check_snapshot(&self, path: &Path) -> Outcome {
        match inspection::snapshot(path, self.databases.get()) {
            Ok(keys) => {
                print(&format!("{}: a sound snapshot of {}\n", path.display(), count(keys, "key")));
                Outcome::Sound
            }
            Err(error) => {
                print(&format!(
                    "damage: {error}\n`appendonly no` does not start with this snapshot\n"
                ));
                Outcome::Damaged
            }
        }
    }

    /// Checks a store and prints the result.
    fn check_store(&self, dir: &Path) -> Outcome {
        let mut shown = Progress::new("check", Unit::Bytes, Display::unless(self.quiet));
        let result =
            tierce_cask::check(dir, |progress| shown.update(progress.done, progress.total));
        drop(shown);
        match result {
            Ok(report) => {
                print(&checked(&report));
                if report.problems.is_empty() { Outcome::Sound } else { Outcome::Damaged }
            }
            Err(error) => impossible("check", &error),
        }
    }

    /// Checks the files of spilled values and prints the result.
    fn check_spilled(&self, dir: &Path) -> Outcome {
        let mut shown =
            Progress::new("check spilled values", Unit::Bytes, Display::unless(self.quiet));
        let result = tierce_storage::check_cold(dir, |progress| {
            shown.update(progress.done, progress.total);
        });
        drop(shown);
        match result {
            Ok(report) => {
                print(&checked_spilled(&report));
                if report.problems.is_empty() { Outcome::Sound } else { Outcome::Damaged }
            }
            Err(error) => impossible("check", &error),
        }
    }
}

/// Directory of spilled values in a data directory.
const SPILLED: &str = "cold";

/// File that makes a directory a store.
const MANIFEST: &str = "MANIFEST";

impl RepairArgs {
    /// Repairs the store and prints the result.
    pub fn run(&self) -> ExitCode {
        await_end_of_use(&self.dir);
        let mut shown = Progress::new("repair", Unit::Bytes, Display::unless(self.quiet));
        let result = self.store().and_then(|store| {
            let report = tierce_storage::repair(&store, &self.into, |progress| {
                shown.update(progress.done, progress.total);
            })?;
            Ok((store, report))
        });
        drop(shown);
        let outcome = match result {
            Ok((store, report)) => {
                print(&repaired(&report));
                if store != self.dir {
                    let (store, into) = (store.display(), self.into.display());
                    print(&format!("to use it, move {store} away and {into} into its place\n"));
                }
                match is_complete(&report) {
                    true => Outcome::Sound,
                    false => self.leave_stream(),
                }
            }
            Err(error) => impossible("repair", &error),
        };
        outcome.into()
    }
}

impl RepairArgs {
    /// Returns the store to repair: the log, if a data directory was named.
    fn store(&self) -> Result<PathBuf, Error> {
        let dir = &self.dir;
        if dir.join(MANIFEST).exists() {
            return Ok(dir.clone());
        }
        let log = log_dir(dir).map_err(|error| Error::io("read", dir, error))?;
        match self.into.canonicalize().ok() == dir.canonicalize().ok() {
            _ if !log.is_dir() => Ok(dir.clone()),
            true => Err(Error::Foreign {
                path: self.into.clone(),
                what: "a repair needs a directory of its own",
            }),
            false => Ok(log),
        }
    }

    /// Notes that the data is no longer a copy of a primary's data, if the log is that of a replica.
    fn leave_stream(&self) -> Outcome {
        match leave_stream(&self.into) {
            Ok(()) => Outcome::Damaged,
            Err(error) => impossible("repair", &error),
        }
    }
}

fn impossible(tool: &str, error: &Error) -> Outcome {
    eprintln!("tierce {tool}: {error}{}", next_step::of_store(error));
    Outcome::Impossible
}

/// Describes the result of a check, one fact per line.
fn checked(report: &CheckReport) -> String {
    let mut text = format!(
        "{} read: {}, {} bytes\n",
        count(report.segments as u64, "segment"),
        count(report.records, "good record"),
        report.bytes,
    );
    if report.torn_bytes > 0 {
        let bytes = report.torn_bytes;
        let _ = writeln!(text, "torn tails: {bytes} bytes, which opening will truncate");
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

/// Describes the result of a check of spilled values, one fact per line.
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
        text.push_str("the spilled values in these files are sound\n");
    } else {
        let problems = count(report.problems.len() as u64, "problem");
        let _ = writeln!(
            text,
            "{problems} found in spilled values; a power cut leaves damage where no key has its value"
        );
    }
    text
}

/// Describes the result of a repair, one fact per line.
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
        let _ = writeln!(text, "skipped: {} bytes that are not records", report.bytes_skipped);
    }
    if report.members_skipped > 0 {
        let members = count(report.members_skipped, "record");
        let _ = writeln!(text, "skipped: {members} of incomplete batches");
    }
    if is_complete(report) {
        text.push_str("everything was saved\n");
    }
    text
}

fn is_complete(report: &RepairReport) -> bool {
    report.problems.is_empty() && report.bytes_skipped == 0 && report.members_skipped == 0
}

/// Returns the settings of a server with this directory.
pub(crate) fn settings(dir: &Path, databases: usize) -> Result<Settings, String> {
    let args = ["--dir".into(), dir.into(), "--databases".into(), databases.to_string().into()];
    match tierce_config::parse(args, [], &[]) {
        Ok(Invocation::Serve(sources)) => {
            let loaded = sources.load(&mut std::io::empty());
            loaded.map(|loaded| loaded.settings).map_err(|error| error.to_string())
        }
        Ok(_) => Err(format!("{}: not the name of a directory", dir.display())),
        Err(error) => Err(error.to_string()),
    }
}

/// Prints to standard output. A closed reader is not an error.
pub(crate) fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
