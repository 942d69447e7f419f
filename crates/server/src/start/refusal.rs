//! Why a server does not start, in the log that it would have had.

use std::fmt::Display;
use std::path::PathBuf;

use crate::config::{ConfigError, LogFormat, LogLevel, Settings};
use crate::log::Log;

/// Writes into the log that the server would have had what its configuration is refused for.
pub fn log_refusal(error: &ConfigError) {
    let ConfigError::Refused { logfile, log_format, .. } = error else { return };
    let text = error.to_string();
    let log = LogBeside { path: logfile.clone(), format: *log_format };
    log.write(&text.lines().collect::<Vec<_>>());
}

/// The log of a server that is not there (yet), for what the caller shows on the standard error.
pub(super) struct LogBeside {
    path: Option<PathBuf>,
    format: LogFormat,
}

impl LogBeside {
    pub(super) fn of(settings: &Settings) -> Self {
        Self { path: settings.logfile(), format: settings.log_format() }
    }

    /// Logs lines. If the log cannot be opened, the start says so.
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
