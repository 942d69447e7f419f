//! `tierce bucket`: shows and verifies a log in a bucket, and creates servers from its past.
//!
//! None of the commands claims the log: all may run while a server owns it. Results go to standard output, progress
//! and errors to standard error.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use tierce_bucket::{
    Env, Error, Group, History, Location, Moment, Retention, Runtime, Store, System, branch, list,
    verify,
};
use tierce_engine::utc::Utc;
use tierce_progress::{Display, Progress, Unit};

use crate::upkeep::{print, settings};
use tierce_engine::count;

/// Show, verify, prune, restore, branch or unpin a log in a bucket.
///
/// Credentials, region and endpoint come from the environment, as for the server. All may be used while a server owns
/// the log.
///
/// Exit code: 0 when it was done, 1 when list, verify, prune, branch or unpin found damage, 2 when it could not be
/// done.
#[derive(Args, Debug)]
pub struct BucketArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Show what can be restored: the end of the log, its snapshots, owners and pins
    List {
        #[command(flatten)]
        of: Of,
    },
    /// Read everything, and check it
    Verify {
        #[command(flatten)]
        of: Of,
        /// Show no progress
        #[arg(short, long)]
        quiet: bool,
    },
    /// Delete what is older than the retention, and not pinned
    ///
    /// Every moment of the retention can still be restored. The server does the same after each snapshot.
    Prune {
        #[command(flatten)]
        of: Of,
        /// Days that a restore can go back afterwards, as the directive bucket-retention
        #[arg(long, value_name = "DAYS", default_value = "7", value_parser = clap::value_parser!(u64).range(0..=36500))]
        retention: u64,
        /// Show no progress
        #[arg(short, long)]
        quiet: bool,
    },
    /// Remove a pin: what only it keeps is deleted by the next prune
    ///
    /// `list` shows the pins. One of a restore that died ends by itself, after a day. One of a branch is needed until
    /// the branch, and all branches of it, have snapshots of their own; moments before these are given up with it.
    Unpin {
        /// Name of the pin, as list shows it
        pin: String,
        #[command(flatten)]
        of: Of,
    },
    /// Write the data of a moment into a new data directory
    ///
    /// A server that starts on it without a bucket, or with another one, is independent of this log.
    Restore {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        at: At,
        /// Data directory to write, which must be empty or missing
        #[arg(long)]
        dir: PathBuf,
        /// Number of databases, as in the server's configuration
        #[arg(long, default_value = "16")]
        databases: std::num::NonZeroUsize,
        /// Show no progress
        #[arg(short, long)]
        quiet: bool,
    },
    /// Begin a log that continues this one from a moment
    ///
    /// Nothing is copied. An empty data directory with --bucket NEW gets the data of the moment. In this log, only a
    /// pin is written: what the branch needs is kept, until the pin is deleted.
    Branch {
        /// Location of the new log, where there is none
        new: String,
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        at: At,
    },
}

/// Which log.
#[derive(Args, Debug)]
struct Of {
    /// Location of the log, as the directive bucket
    #[arg(long, value_name = "URL")]
    bucket: String,
}

/// Which moment.
#[derive(Args, Debug)]
struct At {
    /// Time in UTC such as 2026-11-20T21:01:04.123Z, or the number of an object of the log [default: its end]
    #[arg(long, value_name = "TIME|POSITION", value_parser = moment)]
    at: Option<Moment>,
}

/// Exit code if something is damaged.
const DAMAGED: u8 = 1;

/// Exit code if the command could not be executed.
const IMPOSSIBLE: u8 = 2;

impl BucketArgs {
    /// Executes the command and prints the result.
    pub fn run(&self) -> ExitCode {
        match self.act() {
            Ok(text) => {
                print(&text);
                ExitCode::SUCCESS
            }
            Err((code, error)) => {
                eprintln!("tierce bucket: {error}");
                code.into()
            }
        }
    }

    fn act(&self) -> Result<String, Failure> {
        match &self.action {
            Action::List { of } => of.list(),
            Action::Verify { of, quiet } => of.verify(*quiet),
            Action::Prune { of, retention, quiet } => of.prune(*retention, *quiet),
            Action::Restore { of, at, dir, databases, quiet } => {
                restore(&of.bucket, at.moment(), dir, databases.get(), *quiet).map_err(impossible)
            }
            Action::Branch { new, of, at } => of.branch(new, at.moment()),
            Action::Unpin { pin, of } => of.unpin(pin),
        }
    }
}

/// An exit code, and the reason.
type Failure = (u8, String);

fn impossible(error: impl ToString) -> Failure {
    (IMPOSSIBLE, error.to_string())
}

impl At {
    fn moment(&self) -> Moment {
        self.at.unwrap_or(Moment::Newest)
    }
}

/// An opened log, and the runtime for requests to it.
struct Opened {
    runtime: Runtime,
    group: Group,
}

impl Of {
    fn open(&self) -> Result<Opened, Failure> {
        let url = &self.bucket;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = Runtime::from(runtime.map_err(impossible)?);
        let location = Location::parse(url).map_err(impossible)?;
        runtime.block_on(location.check_credentials()).map_err(impossible)?;
        let store = Store::new(&location);
        let group = runtime.block_on(Group::open(&store));
        let group = group.map_err(|error| self.failed(&error))?;
        if group.end().number == 0 {
            return Err(impossible(format!("there is no log in {url}")));
        }
        Ok(Opened { runtime, group })
    }

    fn failed(&self, error: &Error) -> Failure {
        let is_damage = matches!(error, Error::Damaged { .. } | Error::Missing { .. });
        let code = if is_damage { DAMAGED } else { IMPOSSIBLE };
        (code, format!("bucket {}: {error}", self.bucket))
    }

    fn list(&self) -> Result<String, Failure> {
        let Opened { runtime, group } = self.open()?;
        let history = runtime.block_on(list(&group)).map_err(|error| self.failed(&error))?;
        Ok(told(&group, &history))
    }

    fn verify(&self, quiet: bool) -> Result<String, Failure> {
        let Opened { runtime, group } = self.open()?;
        let display = Display::unless(quiet);
        let mut records = Progress::new("log", Unit::Objects, display);
        let mut snapshots = None;
        let verified = runtime.block_on(verify(&group, |done| {
            if done.snapshot_bytes_total == 0 {
                records.update(done.records, done.records_total);
                return;
            }
            let shown =
                snapshots.get_or_insert_with(|| Progress::new("snapshots", Unit::Bytes, display));
            shown.update(done.snapshot_bytes, done.snapshot_bytes_total);
        }));
        drop((records, snapshots));
        let verified = verified.map_err(|error| self.failed(&error))?;
        Ok(format!(
            "sound: {}, {}, {} bytes before compression\n",
            count(verified.records, "object"),
            count(verified.snapshots, "snapshot"),
            verified.bytes
        ))
    }

    fn prune(&self, days: u64, quiet: bool) -> Result<String, Failure> {
        let Opened { runtime, mut group } = self.open()?;
        let keep = Duration::from_secs(days * 24 * 3600);
        let found = runtime.block_on(group.prune(Retention { keep }));
        let Some(deletion) = found.map_err(|error| self.failed(&error))? else {
            return Ok("nothing to prune: no snapshot is as old as the retention\n".into());
        };
        wait_until(deletion.not_before, quiet);
        let deleted = runtime.block_on(group.delete(&deletion));
        let deleted = deleted.map_err(|error| self.failed(&error))?;
        let mut text = format!(
            "deleted: {}; what is left goes back to object {}\n",
            count(deleted, "object"),
            deletion.floor - 1
        );
        if deletion.below < deletion.floor {
            let _ = writeln!(text, "pinned, and kept: from object {}", deletion.below);
        }
        Ok(text)
    }

    fn unpin(&self, name: &str) -> Result<String, Failure> {
        let Opened { runtime, group } = self.open()?;
        let history = runtime.block_on(list(&group)).map_err(|error| self.failed(&error))?;
        let Some(pin) = history.pins.iter().find(|pin| pin.name == name) else {
            return Err(impossible(format!("bucket {}: there is no pin {name}", self.bucket)));
        };
        let removed = runtime.block_on(pin.remove(group.store()));
        removed.map_err(|error| self.failed(&error))?;
        Ok(format!("removed: {name}, {}\n", pin.purpose))
    }

    fn branch(&self, new: &str, moment: Moment) -> Result<String, Failure> {
        let Opened { runtime, group } = self.open()?;
        let child = Store::new(&Location::parse(new).map_err(impossible)?);
        let branched = runtime.block_on(branch(&group, moment, &child));
        let info = branched.map_err(|error| self.failed(&error))?;
        Ok(format!(
            "{new} continues {} from object {}\nthe pin that keeps what it needs: {}\n",
            self.bucket, info.position, info.pin
        ))
    }
}

/// Waits until this time since the machine booted.
fn wait_until(at: Duration, quiet: bool) {
    const STEP: Duration = Duration::from_millis(100);
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let total = at.saturating_sub(System.boottime());
    let mut shown = Progress::new("wait", Unit::Milliseconds, Display::unless(quiet));
    loop {
        let left = at.saturating_sub(System.boottime());
        if left.is_zero() {
            return;
        }
        let done = ms(total.saturating_sub(left));
        shown.update_with(done, ms(total), || "as long as a lease".into());
        std::thread::sleep(left.min(STEP));
    }
}

fn restore(
    url: &str,
    moment: Moment,
    dir: &Path,
    databases: usize,
    quiet: bool,
) -> Result<String, String> {
    let settings = settings(dir, databases)?;
    let mut shown = Progress::new("restore", Unit::Bytes, Display::unless(quiet));
    let report = |done, total| shown.update(done, total);
    let restored = tierce_server::restore_into(settings, url, moment, report);
    drop(shown);
    let restored = restored.map_err(|error| error.to_string())?;
    Ok(format!(
        "restored: {} to {}, as of object {} at {}\n",
        count(restored.keys, "key"),
        dir.display(),
        restored.position,
        time(restored.wall_ms)
    ))
}

/// Parses `--at`: a number alone is a position.
fn moment(text: &str) -> Result<Moment, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text
            .parse()
            .map(Moment::Position)
            .map_err(|_| format!("{text}: no object's number"));
    }
    let Utc(ms) = text.parse()?;
    u64::try_from(ms).map(Moment::Time).map_err(|_| format!("{text}: before 1970"))
}

fn time(ms: u64) -> String {
    Utc(i64::try_from(ms).unwrap_or(i64::MAX)).rfc3339()
}

/// Describes the contents of a log, one fact per line.
fn told(group: &Group, history: &History) -> String {
    let end = group.end();
    let mut text = format!("end: object {} at {}\n", end.number, time(end.wall));
    let oldest = history.snapshots.last().filter(|_| end.floor > 1);
    let _ = match oldest {
        Some(oldest) => {
            writeln!(text, "goes back to: object {} at {}", oldest.record, time(oldest.wall))
        }
        None => writeln!(text, "goes back to: object 1"),
    };
    for snapshot in &history.snapshots {
        let (at, bytes) = (time(snapshot.wall), snapshot.stored);
        let _ = writeln!(text, "snapshot: of object {} at {at}, {bytes} bytes", snapshot.position);
    }
    for claim in &history.claims {
        let (number, at) = (claim.number, time(claim.wall));
        let _ = writeln!(text, "owner: {} from object {number} at {at}", claim.address);
    }
    let _ = writeln!(text, "released: {}", if end.released { "yes" } else { "no" });
    for pin in &history.pins {
        let until = if pin.until == 0 { "deleted".into() } else { time(pin.until) };
        let (name, number, purpose) = (&pin.name, pin.number, &pin.purpose);
        let _ = writeln!(text, "pin: {name} from object {number} until {until}, {purpose}");
    }
    if let Some(branch) = &history.branch {
        let (parent, position) = (&branch.parent, branch.position);
        let _ = writeln!(text, "branch: continues {parent} from object {position}");
    }
    text
}
