//! The logs of slow commands, of large requests and of large replies.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tierce_wire::resp::Args;

use crate::command::Table;
use crate::redaction;

/// Maximum number of arguments kept of one command, and of bytes kept of one argument. The last one
/// says how much was left out.
const ARGS_MAX: usize = 32;
const ARG_BYTES_MAX: usize = 128;

/// The logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// Commands that took long.
    Slow,
    /// Commands with many bytes of arguments.
    LargeRequest,
    /// Commands with long replies.
    LargeReply,
}

impl LogKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Slow, Self::LargeRequest, Self::LargeReply];

    /// Returns its name in COMMANDLOG.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::LargeRequest => "large-request",
            Self::LargeReply => "large-reply",
        }
    }
}

/// One log of each kind.
#[derive(Default)]
pub struct CommandLogs([Mutex<CommandLog>; LogKind::ALL.len()]);

impl CommandLogs {
    /// Returns the log of this kind.
    pub fn of(&self, kind: LogKind) -> &Mutex<CommandLog> {
        &self.0[kind as usize]
    }
}

/// One logged command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Increases over the life of the server.
    pub id: u64,
    /// Time of its run, in Unix seconds.
    pub unix_seconds: i64,
    /// Duration in microseconds, or size in bytes.
    pub amount: u64,
    /// The command and its arguments, shortened.
    pub args: Vec<Vec<u8>>,
    /// Address of the client that sent it.
    pub client_addr: String,
    /// Name that the client gave itself.
    pub client_name: String,
}

/// The newest commands of one kind, newest first.
#[derive(Default)]
pub struct CommandLog {
    entries: VecDeque<Entry>,
    next_id: u64,
}

impl CommandLog {
    /// Adds an entry (its id is assigned here) and removes the oldest ones beyond `max_len`.
    pub fn push(&mut self, mut entry: Entry, max_len: usize) {
        entry.id = self.next_id;
        self.next_id += 1;
        self.entries.push_front(entry);
        self.entries.truncate(max_len);
    }

    /// Adds all entries of another log.
    pub fn add_all(&mut self, others: &Self, max_len: usize) {
        others.entries.iter().rev().for_each(|entry| self.push(entry.clone(), max_len));
    }

    /// Returns the entries, the newest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes all entries; ids continue.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

/// Returns the arguments in the form of the log: without passwords, limited in number and length.
pub fn shorten(table: &Table, args: Args<'_>) -> Vec<Vec<u8>> {
    shorten_words(args.len(), redaction::redacted(table, args))
}

/// Shortens the words of a request of any protocol in this way.
pub fn shorten_words<'a>(count: usize, words: impl Iterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let kept = if count > ARGS_MAX { ARGS_MAX - 1 } else { count };
    let mut short: Vec<_> = words.take(kept).map(shorten_one).collect();
    if kept < count {
        short.push(format!("... ({} more arguments)", count - kept).into_bytes());
    }
    short
}

/// Shortens the name of a client in this way.
pub(crate) fn shorten_name(name: &str) -> String {
    String::from_utf8_lossy(&shorten_one(name.as_bytes())).into_owned()
}

fn shorten_one(arg: &[u8]) -> Vec<u8> {
    if arg.len() <= ARG_BYTES_MAX {
        return arg.to_vec();
    }
    let mut short = arg[..ARG_BYTES_MAX].to_vec();
    short.extend(format!("... ({} more bytes)", arg.len() - ARG_BYTES_MAX).bytes());
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(amount: u64) -> Entry {
        Entry {
            id: 0,
            unix_seconds: 0,
            amount,
            args: Vec::new(),
            client_addr: String::new(),
            client_name: String::new(),
        }
    }

    #[test]
    fn names_of_clients_are_bounded() {
        assert_eq!(shorten_name("worker"), "worker");
        assert!(shorten_name(&"x".repeat(1 << 20)).len() < 2 * ARG_BYTES_MAX);
    }

    #[test]
    fn newest_first_and_bounded() {
        let mut log = CommandLog::default();
        (0..5).for_each(|n| log.push(entry(n), 3));
        assert_eq!(
            log.iter().map(|e| (e.id, e.amount)).collect::<Vec<_>>(),
            [(4, 4), (3, 3), (2, 2)]
        );
        log.clear();
        log.push(entry(9), 3);
        assert_eq!(log.iter().next().unwrap().id, 5);
    }

    #[test]
    fn long_arguments_are_shortened() {
        let short = shorten_one(&[b'x'; 130]);
        assert!(short.ends_with(b"... (2 more bytes)"));
        assert_eq!(shorten_one(b"abc"), b"abc");
    }
}
