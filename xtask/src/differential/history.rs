//! The last calls, for the report of a difference.

use std::collections::VecDeque;

use super::stream::Call;

/// Maximum number of lines of a report. The cause is rarely further away.
const LINES_MAX: usize = 60;

/// Number of calls that are remembered.
const CALLS_MAX: usize = 100_000;

/// The calls of a run with their connections.
#[derive(Default)]
pub(super) struct History {
    calls: VecDeque<(usize, Call)>,
    /// True if reports show all calls, for a replay.
    pub(super) is_shown: bool,
}

impl History {
    pub(super) fn add(&mut self, connection: usize, calls: Vec<Call>) {
        self.calls.extend(calls.into_iter().map(|call| (connection, call)));
        let surplus = self.calls.len().saturating_sub(CALLS_MAX);
        self.calls.drain(..surplus);
    }

    /// Returns the last calls for any keys.
    pub(super) fn last(&self) -> Vec<String> {
        let first = self.calls.len().saturating_sub(LINES_MAX);
        self.calls.range(first..).map(|(n, call)| format!("{n}: {}", line(call))).collect()
    }

    /// Returns the last calls that name a key of `call` or change all keys, followed by those among
    /// the calls that it was sent `with`.
    pub(super) fn of_keys_in(&self, call: &Call, connection: usize, with: &[Call]) -> Vec<String> {
        const EVERYTHING: [&str; 5] = ["SELECT", "SWAPDB", "FLUSHDB", "FLUSHALL", "CONFIG"];
        let is_key = |arg: &&Vec<u8>| arg.len() == 3 && arg[1] == b':';
        let keys: Vec<_> = call.iter().skip(1).filter(is_key).collect();
        let concerns = |earlier: &Call| {
            let name = String::from_utf8_lossy(&earlier[0]).to_ascii_uppercase();
            EVERYTHING.contains(&name.as_str()) || keys.iter().any(|key| earlier.contains(key))
        };
        let concerns = |earlier: &Call| self.is_shown || concerns(earlier);
        let concerned = self.calls.iter().rev().filter(|(_, earlier)| concerns(earlier));
        let mut lines: Vec<_> = concerned
            .take(if self.is_shown { CALLS_MAX } else { LINES_MAX })
            .map(|(n, earlier)| format!("{n}: {}", line(earlier)))
            .collect();
        lines.reverse();
        let with = with.iter().filter(|other| concerns(other));
        lines.extend(with.map(|other| format!("{connection}: {}", line(other))));
        lines
    }
}

/// Formats a call on one line, with unprintable bytes escaped.
pub(super) fn line(call: &Call) -> String {
    let words = call.iter().map(|arg| match arg.is_empty() {
        true => "''".to_owned(),
        false => arg.escape_ascii().to_string(),
    });
    words.collect::<Vec<_>>().join(" ")
}
