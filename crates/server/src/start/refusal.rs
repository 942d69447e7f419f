//! Logs why a server does not start, to the log that it would have used.

use std::fmt::Display;
use std::path::PathBuf;

use crate::config::{ConfigError, LogFormat, LogLevel, Settings};
use crate::log::Log;

/// Writes the error of a refused configuration to the log that the server would have used.
pub fn log_refusal(error: &ConfigError) {
    let ConfigError::Refused { logfile, log_format, .. } = error else { return };
    let text = error.to_string();
    let log = LogWithoutServer { path: logfile.clone(), format: *log_format };
    log.write(&text.lines().collect::<Vec<_>>());
}

/// Log of a server that is not running (yet), for messages that the caller also shows on standard
/// error.
pub(super) struct LogWithoutServer {
    path: Option<PathBuf>,
    format: LogFormat,
}

impl LogWithoutServer {
    pub(super) fn of(settings: &Settings) -> Self {
        Self { path: settings.logfile(), format: settings.log_format() }
    }

    /// Logs lines. If the log cannot be opened, the start reports it.
    pub(super) fn write(&self, lines: &[impl Display]) {
        let Some(Ok(log)) =
            self.path.as_deref().map(|path| Log::open(Some(path), LogLevel::Notice))
        else {
            return;
        };
        log.set_format(self.format);
        lines.iter().for_each(|line| log.warning(line));
    }
}
