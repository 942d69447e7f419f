//! What was sent before, for the report of a difference.

use super::stream::Call;

/// Lines of a report. The cause is rarely further away.
const LINES_MAX: usize = 60;

/// All calls of a run with their connections.
#[derive(Default)]
pub(super) struct History(Vec<(usize, Call)>);

impl History {
    pub(super) fn add(&mut self, connection: usize, calls: Vec<Call>) {
        self.0.extend(calls.into_iter().map(|call| (connection, call)));
    }

    /// The last calls that name a key of `call` or change all keys, and those among the calls
    /// that it was sent `with`.
    pub(super) fn of_keys_in(&self, call: &Call, connection: usize, with: &[Call]) -> Vec<String> {
        const EVERYTHING: [&str; 4] = ["SELECT", "SWAPDB", "FLUSHDB", "FLUSHALL"];
        let keys: Vec<_> = call.iter().skip(1).filter(|arg| arg.starts_with(b"k:")).collect();
        let concerns = |earlier: &Call| {
            let name = String::from_utf8_lossy(&earlier[0]).to_ascii_uppercase();
            EVERYTHING.contains(&name.as_str()) || keys.iter().any(|key| earlier.contains(key))
        };
        let concerned = self.0.iter().rev().filter(|(_, earlier)| concerns(earlier));
        let mut lines: Vec<_> = concerned
            .take(LINES_MAX)
            .map(|(n, earlier)| format!("{n}: {}", line(earlier)))
            .collect();
        lines.reverse();
        let with = with.iter().filter(|other| concerns(other));
        lines.extend(with.map(|other| format!("{connection}: {}", line(other))));
        lines
    }
}

/// A call on one line, all that is not printable escaped.
pub(super) fn line(call: &Call) -> String {
    let words = call.iter().map(|arg| match arg.is_empty() {
        true => "''".to_owned(),
        false => arg.escape_ascii().to_string(),
    });
    words.collect::<Vec<_>>().join(" ")
}
