//! `tierce import` and `tierce export`: data from and to Redis or JSON, while no server runs on the data.
//!
//! The summary goes to standard output, progress and errors to standard error.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use tierce_progress::{Display, Unit};
use tierce_transfer::{
    ExportFormat, ExportOptions, Exported, ImportMode, ImportOptions, Imported, Progress, Stage,
    TransferError, Unfit,
};

use crate::in_use::{await_end_of_use, await_end_or};
use crate::upkeep::print;
use tierce_engine::count;

/// Import data from Redis, or lines of JSON, into a data directory.
///
/// Reads an RDB file, an append-only file, an append-only directory (appendonlydir), or a file of tierce export
/// --format jsonl, and imports all of it or nothing. Stop the server first.
///
/// Exit code: 0 when everything was imported, 2 when nothing was: a server uses the data directory, there
/// are keys in it, a file is damaged, or holds something that this version does not know.
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// RDB file, append-only file, append-only directory, or file of JSON lines to import
    source: PathBuf,
    /// Data directory to import into, as in the server's configuration
    #[arg(long, default_value = "tierce-data")]
    dir: PathBuf,
    /// Number of databases, as in the server's configuration
    #[arg(long, default_value = "16")]
    databases: NonZeroUsize,
    /// Keep existing keys; an imported key replaces one of the same name
    #[arg(long, conflicts_with = "replace")]
    merge: bool,
    /// Delete all existing keys first
    #[arg(long)]
    replace: bool,
    /// Skip commands of an append-only file that are unknown or fail
    #[arg(long)]
    skip_unknown: bool,
    /// Leave out what this version cannot hold: function libraries and data of modules
    #[arg(long)]
    skip_unsupported: bool,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

/// Export a data directory for Redis 7.0 and later, or as lines of JSON.
///
/// Writes a new RDB file, append-only directory, or file of JSON lines. It never overwrites anything and never changes
/// the data directory. Stop the server first.
///
/// Exit code: 0 when everything was exported, 2 when nothing was: a server uses the data directory, it
/// holds no data, or TARGET exists.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// File to write, or directory with --format aof
    target: PathBuf,
    /// What to write
    #[arg(long, value_enum, default_value = "rdb")]
    format: Format,
    /// Data directory to export, as in the server's configuration
    #[arg(long, default_value = "tierce-data")]
    dir: PathBuf,
    /// Number of databases, as in the server's configuration
    #[arg(long, default_value = "16")]
    databases: NonZeroUsize,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Copy, ValueEnum, Debug)]
enum Format {
    /// An RDB file
    Rdb,
    /// An append-only directory
    Aof,
    /// Lines of JSON, for other programs and for tierce import
    Jsonl,
}

/// Exit code if nothing was done.
const IMPOSSIBLE: u8 = 2;

impl ImportArgs {
    /// Imports the data and prints the result.
    pub fn run(&self) -> ExitCode {
        let mode = match (self.merge, self.replace) {
            (true, _) => ImportMode::Merge,
            (_, true) => ImportMode::Replace,
            _ => ImportMode::IntoEmpty,
        };
        let options = ImportOptions {
            source: self.source.clone(),
            dir: self.dir.clone(),
            databases: self.databases.get(),
            mode,
            skip_unknown: self.skip_unknown,
            unfit: if self.skip_unsupported { Unfit::LeaveOut } else { Unfit::Refuse },
            accepts_cut_off: true,
        };
        await_end_of_use(&self.dir);
        let mut stages = Stages::new(self.quiet);
        let result = tierce_transfer::import(&options, |progress| stages.update(progress));
        drop(stages);
        match result {
            Ok(imported) => {
                print(&told_of_import(&imported, &self.dir));
                ExitCode::SUCCESS
            }
            Err(error) => impossible("import", &error),
        }
    }
}

/// Remedy that avoids stopping a running server.
const INSTEAD: &str =
    "of a running server, BACKUP FILE or redis-cli --rdb FILE saves all data for Redis; ";

impl ExportArgs {
    /// Exports the data and prints the result.
    pub fn run(&self) -> ExitCode {
        let options = ExportOptions {
            dir: self.dir.clone(),
            target: self.target.clone(),
            format: match self.format {
                Format::Rdb => ExportFormat::Rdb,
                Format::Aof => ExportFormat::Aof,
                Format::Jsonl => ExportFormat::Jsonl,
            },
            databases: self.databases.get(),
        };
        await_end_or(&self.dir, INSTEAD);
        let mut stages = Stages::new(self.quiet);
        let result = tierce_transfer::export(&options, |progress| stages.update(progress));
        drop(stages);
        match result {
            Ok(Exported { keys, bytes, .. }) => {
                let (keys, target) = (count(keys, "key"), self.target.display());
                print(&format!("exported {keys} ({bytes} bytes) to {target}\n"));
                ExitCode::SUCCESS
            }
            Err(error) => impossible("export", &error),
        }
    }
}

fn impossible(tool: &str, error: &TransferError) -> ExitCode {
    eprintln!("tierce {tool}: {error}");
    IMPOSSIBLE.into()
}

/// Describes an import, one fact per line.
fn told_of_import(imported: &Imported, dir: &Path) -> String {
    let read = match (imported.keys_read, imported.commands) {
        (keys, 0) => count(keys, "key"),
        (0, commands) => count(commands, "command"),
        (keys, commands) => format!("{} and {}", count(keys, "key"), count(commands, "command")),
    };
    let mut text = format!("imported {read} ({} bytes) into {}\n", imported.bytes, dir.display());
    if imported.expired > 0 {
        let _ = writeln!(text, "left out: {} whose time had come", count(imported.expired, "key"));
    }
    if imported.empty > 0 {
        let keys = count(imported.empty, "key");
        let _ =
            writeln!(text, "left out: {keys} whose collections have no elements, as Redis does");
    }
    if let Some((path, offset)) = &imported.cut_off {
        let path = path.display();
        let _ = writeln!(
            text,
            "{path} ends in the middle of a command or transaction; what follows byte {offset} was \
             left out, as Redis does"
        );
    }
    passed_over(&mut text, &imported.unsupported, "which this version does not support");
    passed_over(&mut text, &imported.commands_skipped, "commands that are unknown or failed");
    let _ = writeln!(text, "keys there are now: {}", imported.keys);
    text
}

fn passed_over(text: &mut String, counts: &BTreeMap<impl std::fmt::Display, u64>, what: &str) {
    if counts.is_empty() {
        return;
    }
    let list: Vec<_> = counts.iter().map(|(name, number)| format!("{number} {name}")).collect();
    let _ = writeln!(text, "passed over, {what}: {}", list.join(", "));
}

/// Progress of consecutive stages.
struct Stages {
    quiet: bool,
    stage: Option<(Stage, tierce_progress::Progress)>,
}

impl Stages {
    fn new(quiet: bool) -> Self {
        Self { quiet, stage: None }
    }

    fn update(&mut self, progress: Progress) {
        let Progress { stage, done, total } = progress;
        if self.stage.as_ref().is_none_or(|(current, _)| *current != stage) {
            let (what, unit) = match stage {
                Stage::LoadingLog => ("load", Unit::Bytes),
                Stage::Reading => ("read", Unit::Bytes),
                Stage::WritingLog => ("write", Unit::Bytes),
                Stage::Writing => ("write", Unit::Keys),
            };
            self.stage = Some((
                stage,
                tierce_progress::Progress::new(what, unit, Display::unless(self.quiet)),
            ));
        }
        if let Some((_, shown)) = &mut self.stage {
            shown.update(done, total);
        }
    }
}
