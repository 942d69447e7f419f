//! The server's log: one line per event, with time, level and role.
//!
//! A line has Redis' format, so that its tools can read it, except that the time is always in UTC. With `log-format` it
//! is a JSON object instead, for log collectors:
//!
//! ```text
//! 4711:M 20 Nov 2026 21:01:04.123 * Listening on 127.0.0.1:6379
//! {"time":"2026-11-20T21:01:04.123Z","level":"notice","pid":4711,"role":"primary","message":"Listening on 127.0.0.1:6379"}
//! ```
//!
//! The sign is the level: `.` debug, `-` verbose, `*` notice, `#` warning. The letter is the
//! role: `M` for a primary, `S` for a replica.
//!
//! The server logs few lines, and none while it executes requests. So it needs no spans, filters, buffering or logging
//! framework; serde_json escapes the messages. Keys and values are never logged. A line that cannot be written is
//! dropped, because there is nowhere else to report it.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

use parking_lot::Mutex;
use serde::Serialize;

use crate::clock::unix_ms;
use crate::utc::Utc;
use tierce_config::{LogFormat, LogLevel};

/// Maximum length of a line in bytes; the rest is truncated. In a JSON object it limits the message.
const LINE_LEN_MAX: usize = 1024;

/// Destination and level of the lines. Shared by all threads.
#[derive(Debug)]
pub struct Log {
    /// Lowest level that is written, as the number of a [`LogLevel`].
    least: AtomicU8,
    /// True if the server follows a primary.
    is_replica: AtomicBool,
    out: Mutex<Out>,
}

#[derive(Debug)]
struct Out {
    format: LogFormat,
    /// Absolute path of the file, independent of the working directory.
    path: Option<PathBuf>,
    sink: Sink,
}

#[derive(Debug)]
enum Sink {
    Stdout,
    File(File),
}

/// Highlighting of a text on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// For titles.
    Bold,
    /// For labels.
    Faint,
    /// For success.
    Green,
    /// For warnings.
    Yellow,
    /// For errors.
    Red,
}

impl Colour {
    /// Returns the text in this colour, if the stream is a terminal with colours and `NO_COLOR` does not forbid them.
    pub fn paint(self, text: &str, stream: &impl IsTerminal) -> String {
        let wanted =
            stream.is_terminal() && shows_colours(&variable("TERM"), &variable("NO_COLOR"));
        if wanted { self.always(text) } else { text.to_owned() }
    }

    fn always(self, text: &str) -> String {
        let code = match self {
            Self::Bold => "1",
            Self::Faint => "2",
            Self::Green => "32",
            Self::Yellow => "33",
            Self::Red => "31",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

fn variable(name: &str) -> OsString {
    std::env::var_os(name).unwrap_or_default()
}

/// Returns true if a terminal shows colours, by these environment variables.
fn shows_colours(term: &OsStr, no_color: &OsStr) -> bool {
    !term.is_empty() && term != "dumb" && no_color.is_empty()
}

/// Failure to open the file of `logfile`.
#[derive(Debug, thiserror::Error)]
#[error("could not open the log {}: {source}{}", path.display(), crate::next_step::of_system(source))]
pub struct LogError {
    path: PathBuf,
    source: io::Error,
}

impl Log {
    /// Opens a log that appends to the file at `path`, or writes to the standard output.
    ///
    /// # Errors
    /// When the file cannot be opened or created.
    pub fn open(path: Option<&Path>, level: LogLevel) -> Result<Self, LogError> {
        let path = path.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        let sink = match &path {
            None => Sink::Stdout,
            Some(path) => Sink::File(open_file(path)?),
        };
        let (least, is_replica) = (AtomicU8::new(level as u8), AtomicBool::new(false));
        let out = Mutex::new(Out { format: LogFormat::Redis, path, sink });
        Ok(Self { least, is_replica, out })
    }

    /// Opens the file again by its name, so that a new file is used after a rotation has renamed it. Does nothing on
    /// the standard output.
    ///
    /// # Errors
    /// When the file cannot be opened or created. The old file stays in use then.
    pub fn reopen(&self) -> Result<(), LogError> {
        let mut out = self.out.lock();
        if let Some(path) = &out.path {
            out.sink = Sink::File(open_file(path)?);
        }
        Ok(())
    }

    /// Sets the format of the lines.
    pub fn set_format(&self, format: LogFormat) {
        self.out.lock().format = format;
    }

    /// Sets the role that the lines show.
    pub fn set_replica(&self, is_replica: bool) {
        self.is_replica.store(is_replica, Relaxed);
    }

    /// Sets the lowest level that is written.
    pub fn set_level(&self, level: LogLevel) {
        self.least.store(level as u8, Relaxed);
    }

    /// Returns true if lines of this level are written.
    pub fn writes(&self, level: LogLevel) -> bool {
        level as u8 >= self.least.load(Relaxed)
    }

    /// Returns true if the lines go into a file.
    pub fn is_file(&self) -> bool {
        matches!(self.out.lock().sink, Sink::File(_))
    }

    /// Logs details for debugging.
    pub fn debug(&self, message: impl Display) {
        self.write(LogLevel::Debug, &message);
    }

    /// Logs connections and similar events.
    pub fn verbose(&self, message: impl Display) {
        self.write(LogLevel::Verbose, &message);
    }

    /// Logs an event of interest to an operator.
    pub fn notice(&self, message: impl Display) {
        self.write(LogLevel::Notice, &message);
    }

    /// Logs an event that needs the attention of an operator.
    pub fn warning(&self, message: impl Display) {
        self.write(LogLevel::Warning, &message);
    }

    fn write(&self, level: LogLevel, message: &dyn Display) {
        if !self.writes(level) {
            return;
        }
        let is_replica = self.is_replica.load(Relaxed);
        let event =
            Event { pid: std::process::id(), is_replica, unix_ms: unix_ms(), level, message };
        let mut out = self.out.lock();
        let line = match out.format {
            LogFormat::Redis => event.as_of_redis(),
            LogFormat::Json => event.as_json(),
        };
        let _ = match &mut out.sink {
            Sink::Stdout => write_coloured(&line, level),
            Sink::File(file) => file.write_all(line.as_bytes()),
        };
    }
}

/// Clears a terminal line with the progress bar of a load, which is drawn again below.
const CLEAR_LINE: &str = "\r\x1b[K";

/// Writes to the standard output. On a terminal, warnings are highlighted.
fn write_coloured(line: &str, level: LogLevel) -> io::Result<()> {
    let stdout = io::stdout();
    let text = match level < LogLevel::Warning {
        true => line.to_owned(),
        false => Colour::Yellow.paint(line.trim_end(), &stdout) + "\n",
    };
    // `NO_COLOR` is about colours alone.
    let is_drawn_on = stdout.is_terminal() && shows_colours(&variable("TERM"), OsStr::new(""));
    let clear = if is_drawn_on { CLEAR_LINE } else { "" };
    stdout.lock().write_all([clear, &text].concat().as_bytes())
}

fn open_file(path: &Path) -> Result<File, LogError> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|source| LogError { path: path.to_owned(), source })
}

/// Data of a line.
struct Event<'a> {
    pid: u32,
    is_replica: bool,
    unix_ms: i64,
    level: LogLevel,
    message: &'a dyn Display,
}

/// A line in JSON. Members may be added, but are never renamed.
#[derive(Serialize)]
struct JsonLine<'a> {
    time: &'a str,
    level: &'a str,
    pid: u32,
    role: &'a str,
    message: &'a str,
}

impl Event<'_> {
    /// Returns a whole line in Redis' format, with its end.
    fn as_of_redis(&self) -> String {
        let Self { pid, is_replica, unix_ms, level, message } = self;
        let sign = match level {
            LogLevel::Debug => '.',
            LogLevel::Verbose => '-',
            LogLevel::Notice => '*',
            LogLevel::Warning | LogLevel::Nothing => '#',
        };
        let role = if *is_replica { 'S' } else { 'M' };
        let mut line = format!("{pid}:{role} {} {sign} {message}", Utc(*unix_ms));
        // Some messages contain data of peers, which must not break a line into two.
        line.retain(|c| !c.is_control());
        cut(&mut line);
        line.push('\n');
        line
    }

    /// Returns a whole line as JSON, with its end. Control characters are escaped, so it is a single line too.
    fn as_json(&self) -> String {
        let level = match self.level {
            LogLevel::Debug => "debug",
            LogLevel::Verbose => "verbose",
            LogLevel::Notice => "notice",
            LogLevel::Warning | LogLevel::Nothing => "warning",
        };
        let mut message = self.message.to_string();
        message.truncate(message.trim_end_matches(['\r', '\n']).len());
        cut(&mut message);
        let line = JsonLine {
            time: &Utc(self.unix_ms).rfc3339(),
            level,
            pid: self.pid,
            role: if self.is_replica { "replica" } else { "primary" },
            message: &message,
        };
        let mut line = serde_json::to_string(&line).expect("texts and numbers have a form in JSON");
        line.push('\n');
        line
    }
}

/// Truncates a text to the maximum length, between two characters.
fn cut(text: &mut String) {
    let mut len = text.len().min(LINE_LEN_MAX);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    text.truncate(len);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierce_harness::TempDir;

    #[test]
    fn colours_are_for_terminals_that_show_them() {
        let shows = |term: &str, no_color: &str| shows_colours(term.as_ref(), no_color.as_ref());
        assert!(shows("xterm-256color", "") && shows("linux", ""));
        assert!(!shows("xterm", "1") && !shows("dumb", "") && !shows("", ""));
        let file = File::open("/dev/null").unwrap();
        assert_eq!(Colour::Yellow.paint("text", &file), "text");
        assert_eq!(Colour::Yellow.always("text"), "\x1b[33mtext\x1b[0m");
    }

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

    fn event(level: LogLevel, message: &dyn Display) -> Event<'_> {
        Event { pid: 7, is_replica: false, unix_ms: 0, level, message }
    }

    #[test]
    fn a_line_is_one_line_of_bounded_length() {
        let shown = event(LogLevel::Warning, &"a\r\nb\u{1b}[0m").as_of_redis();
        assert_eq!(shown, "7:M 01 Jan 1970 00:00:00.000 # ab[0m\n");
        let long = event(LogLevel::Notice, &"ü".repeat(5000)).as_of_redis();
        assert!(long.len() <= LINE_LEN_MAX + 1 && long.ends_with("ü\n"));
        let replica = Event { is_replica: true, ..event(LogLevel::Debug, &"x") };
        assert_eq!(replica.as_of_redis(), "7:S 01 Jan 1970 00:00:00.000 . x\n");
    }

    #[test]
    fn a_line_of_json_is_one_object_of_bounded_length() {
        let shown = event(LogLevel::Warning, &"a\r\n\"b\"\u{1b}").as_json();
        assert_eq!(
            shown,
            "{\"time\":\"1970-01-01T00:00:00.000Z\",\"level\":\"warning\",\"pid\":7,\
             \"role\":\"primary\",\"message\":\"a\\r\\n\\\"b\\\"\\u001b\"}\n"
        );
        let ends = event(LogLevel::Warning, &"an error of a peer\r\n").as_json();
        assert!(ends.ends_with("peer\"}\n"), "{ends}");
        let long = event(LogLevel::Notice, &"ü".repeat(5000)).as_json();
        let parsed: serde_json::Value = serde_json::from_str(&long).unwrap();
        assert_eq!(parsed["message"].as_str().unwrap().len(), LINE_LEN_MAX);
        let replica = Event { is_replica: true, ..event(LogLevel::Debug, &"x") }.as_json();
        assert!(replica.contains("\"level\":\"debug\"") && replica.contains("\"replica\""));
    }

    #[test]
    fn a_renamed_file_is_left_when_the_log_is_opened_again() {
        let dir = TempDir::new();
        let (path, rotated) = (dir.path().join("log"), dir.path().join("log.1"));
        let log = Log::open(Some(&path), LogLevel::Notice).unwrap();
        log.notice("one");
        std::fs::rename(&path, &rotated).unwrap();
        log.notice("two");
        log.reopen().unwrap();
        log.set_format(LogFormat::Json);
        log.notice("three");
        let old = std::fs::read_to_string(&rotated).unwrap();
        assert!(old.lines().count() == 2 && old.ends_with("* two\n"), "{old}");
        let new = std::fs::read_to_string(&path).unwrap();
        assert!(new.starts_with('{') && new.ends_with("\"three\"}\n"), "{new}");

        // If the file cannot be opened, the log stays in use.
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let error = log.reopen().unwrap_err().to_string();
        assert!(error.starts_with("could not open the log "), "{error}");
        assert!(log.is_file());
        Log::open(None, LogLevel::Notice).unwrap().reopen().unwrap();
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
