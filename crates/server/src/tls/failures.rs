//! Failed encrypted connections: handshakes, and records that break the protocol. Any peer can cause them at any rate,
//! so the log gets at most one line a second, with their number and one of the reasons.

use std::fmt::Display;

use parking_lot::Mutex;

use crate::log::Log;

/// Failures since the last log line.
#[derive(Debug, Default)]
pub struct TlsFailures(Mutex<Failures>);

#[derive(Debug, Default)]
struct Failures {
    count: u64,
    /// Peer and reason of the first one.
    first: String,
}

impl TlsFailures {
    /// Counts a failure.
    #[cold]
    pub fn note(&self, peer: impl Display, reason: impl Display) {
        let mut failures = self.0.lock();
        failures.count += 1;
        if failures.count == 1 {
            failures.first = format!("{peer}: {reason}");
        }
    }

    /// Logs the failures since the last call.
    pub fn log(&self, log: &Log) {
        let Failures { count, first } = std::mem::take(&mut *self.0.lock());
        match count {
            0 => {}
            1 => log.notice(format_args!("An encrypted connection failed. {first}")),
            _ => log.notice(format_args!("{count} encrypted connections failed. {first}")),
        }
    }
}
