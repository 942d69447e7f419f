//! The server's log: one line for each event, with time and level.
//!
//! A line looks as Redis' do, so that tools which read those can read these, except that the time
//! is always in UTC:
//!
//! ```text
//! 4711:M 20 Nov 2026 21:01:04.123 * Listening on 127.0.0.1:6379
//! ```
//!
//! The sign stands for the level: `.` debug, `-` verbose, `*` notice, `#` warning.
//!
//! The server logs a handful of lines in its life and none on the path of a request, so it needs no
//! spans, filters or buffering, and no logging framework. Keys and values are never logged. A line
//! that cannot be written is dropped: there is nowhere else to report it.

use std::fmt::{self, Display};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::clock::unix_ms;
use tierce_config::LogLevel;

/// Bytes of one line at most; the rest is cut off.
const LINE_LEN_MAX: usize = 1024;

/// Where the lines go, and from which level on. Shared by all threads.
#[derive(Debug)]
pub struct Log {
    /// The least level that is written, as [`LogLevel`] counts them.
    least: AtomicU8,
    sink: Mutex<Sink>,
}

#[derive(Debug)]
enum Sink {
    Stdout,
    File(File),
}

/// The file of `logfile` cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("could not open the log {}: {source}", path.display())]
pub struct LogError {
    path: PathBuf,
    source: io::Error,
}

impl Log {
    /// A log that appends to the file at `path`, or writes to the standard output.
    ///
    /// # Errors
    /// When the file cannot be opened or created.
    pub fn open(path: Option<&Path>, level: LogLevel) -> Result<Self, LogError> {
        let sink = match path {
            None => Sink::Stdout,
            Some(path) => {
                let opened = OpenOptions::new().append(true).create(true).open(path);
                let fail = |source| LogError { path: path.to_owned(), source };
                Sink::File(opened.map_err(fail)?)
            }
        };
        Ok(Self { least: AtomicU8::new(level as u8), sink: Mutex::new(sink) })
    }

    /// Writes lines of this level and above from now on.
    pub fn set_level(&self, level: LogLevel) {
        self.least.store(level as u8, Relaxed);
    }

    /// Whether lines of this level are written.
    pub fn writes(&self, level: LogLevel) -> bool {
        level as u8 >= self.least.load(Relaxed)
    }

    /// Whether the lines go into a file.
    pub fn is_file(&self) -> bool {
        matches!(*self.sink.lock(), Sink::File(_))
    }

    /// What may help to find a fault.
    pub fn debug(&self, message: impl Display) {
        self.write(LogLevel::Debug, &message);
    }

    /// Connections and the like.
    pub fn verbose(&self, message: impl Display) {
        self.write(LogLevel::Verbose, &message);
    }

    /// What an operator wants to see.
    pub fn notice(&self, message: impl Display) {
        self.write(LogLevel::Notice, &message);
    }

    /// What an operator has to see.
    pub fn warning(&self, message: impl Display) {
        self.write(LogLevel::Warning, &message);
    }

    fn write(&self, level: LogLevel, message: &dyn Display) {
        if !self.writes(level) {
            return;
        }
        let line = line(std::process::id(), unix_ms(), level, message);
        let mut sink = self.sink.lock();
        let _ = match &mut *sink {
            Sink::Stdout => io::stdout().lock().write_all(line.as_bytes()),
            Sink::File(file) => file.write_all(line.as_bytes()),
        };
    }
}

/// A whole line, with its end.
fn line(pid: u32, unix_ms: i64, level: LogLevel, message: &dyn Display) -> String {
    let sign = match level {
        LogLevel::Debug => '.',
        LogLevel::Verbose => '-',
        LogLevel::Notice => '*',
        LogLevel::Warning | LogLevel::Nothing => '#',
    };
    let mut line = format!("{pid}:M {} {sign} {message}", Utc(unix_ms));
    // Peers have a part in some messages, and none of them shall look like two.
    line.retain(|c| !c.is_control());
    let mut len = line.len().min(LINE_LEN_MAX);
    while !line.is_char_boundary(len) {
        len -= 1;
    }
    line.truncate(len);
    line.push('\n');
    line
}

/// A moment, in Unix milliseconds, as `20 Nov 2026 21:01:04.123`.
struct Utc(i64);

impl Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAY_MS: i64 = 86_400_000;
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let (day, month, year) = civil(self.0.div_euclid(DAY_MS));
        let ms = self.0.rem_euclid(DAY_MS);
        let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
        let month = MONTHS[month];
        write!(f, "{day:02} {month} {year} {hour:02}:{minute:02}:{second:02}.{:03}", ms % 1000)
    }
}

/// Day (from 1), month (from 0) and year of a day counted from 1 January 1970.
///
/// Counts in years that begin in March: then the leap day is the last of its year, and the months
/// before have a regular pattern of 153 days for five.
fn civil(days: i64) -> (i64, usize, i64) {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    // 1 March of the year 0 is this many days before 1970.
    let days = days + 719_468;
    let day_of_400_years = days.rem_euclid(DAYS_OF_400_YEARS);
    let year_of_400 = (day_of_400_years - day_of_400_years / 1460 + day_of_400_years / 36_524
        - day_of_400_years / (DAYS_OF_400_YEARS - 1))
        / 365;
    let day_of_year = day_of_400_years - (365 * year_of_400 + year_of_400 / 4 - year_of_400 / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = (march_month + 2) % 12;
    let year = days.div_euclid(DAYS_OF_400_YEARS) * 400 + year_of_400 + i64::from(month < 2);
    (day, month as usize, year)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierce_harness::TempDir;

    #[test]
    fn moments_in_utc() {
        for (unix_ms, expected) in [
            (0, "01 Jan 1970 00:00:00.000"),
            (-1, "31 Dec 1969 23:59:59.999"),
            (951_782_400_000, "29 Feb 2000 00:00:00.000"),
            (1_078_012_799_999, "28 Feb 2004 23:59:59.999"),
            (1_078_099_199_999, "29 Feb 2004 23:59:59.999"),
            (1_795_208_464_123, "20 Nov 2026 21:01:04.123"),
            (4_107_542_400_000, "01 Mar 2100 00:00:00.000"),
        ] {
            assert_eq!(Utc(unix_ms).to_string(), expected);
        }
    }

    #[test]
    fn a_line_is_one_line_of_bounded_length() {
        let shown = line(7, 0, LogLevel::Warning, &"a\r\nb\u{1b}[0m");
        assert_eq!(shown, "7:M 01 Jan 1970 00:00:00.000 # ab[0m\n");
        let long = line(7, 0, LogLevel::Notice, &"ü".repeat(5000));
        assert!(long.len() <= LINE_LEN_MAX + 1 && long.ends_with("ü\n"));
    }

    #[test]
    fn levels_are_written_from_the_least_one_on() {
        let dir = TempDir::new();
        let path = dir.path().join("log");
        let log = Log::open(Some(&path), LogLevel::Notice).unwrap();
        log.verbose("one");
        log.notice("two");
        log.set_level(LogLevel::Debug);
        log.debug("three");
        log.set_level(LogLevel::Nothing);
        log.warning("four");
        let again = Log::open(Some(&path), LogLevel::Notice).unwrap();
        again.warning("five");
        let text = std::fs::read_to_string(&path).unwrap();
        let messages: Vec<_> = text.lines().map(|line| &line[line.len() - 5..]).collect();
        assert_eq!(messages, ["* two", "three", " five"]);
        assert!(log.is_file());
    }

    #[test]
    fn a_log_that_cannot_be_opened_is_named() {
        let error = Log::open(Some(Path::new("/no/such/dir/x.log")), LogLevel::Notice).unwrap_err();
        assert!(error.to_string().starts_with("could not open the log /no/such/dir/x.log: "));
    }
}
