//! `ACL LOG`: what was denied to whom.
//!
//! The same denial again within a minute is counted with the first one, if that is among the newest entries. So a
//! client that repeats itself does not drive out the others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::check::Denial;

/// Bytes kept of a key, a channel or a name. Longer ones would fill memory that no limit counts.
const TEXT_LEN_MAX: usize = 1024;

/// How long the same denial is counted with an earlier one.
const GROUPED_FOR_MS: i64 = 60_000;

/// How many entries are looked through for it.
const GROUPED_WITHIN: usize = 10;

/// Why something was denied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Reason {
    /// A wrong password, or a user who does not exist.
    Auth,
    /// A command.
    Command,
    /// A key.
    Key,
    /// A channel.
    Channel,
}

impl Reason {
    /// The name in the log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Command => "command",
            Self::Key => "key",
            Self::Channel => "channel",
        }
    }
}

impl From<Denial> for Reason {
    fn from(denial: Denial) -> Self {
        match denial {
            Denial::Command => Self::Command,
            Denial::Key { .. } => Self::Key,
            Denial::Channel { .. } => Self::Channel,
        }
    }
}

/// Where the call came from that was denied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A client, alone.
    TopLevel,
    /// A transaction.
    Multi,
    /// A script.
    Lua,
}

impl Origin {
    /// The name in the log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TopLevel => "toplevel",
            Self::Multi => "multi",
            Self::Lua => "lua",
        }
    }
}

/// What was denied, and to whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denied {
    /// Why.
    pub reason: Reason,
    /// Where the call came from.
    pub origin: Origin,
    /// The command, key or channel; the command that authenticates.
    pub object: Vec<u8>,
    /// The user, or who the client wanted to be.
    pub username: Vec<u8>,
}

/// An entry of the log; times are Unix milliseconds.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Counts up over the life of the server.
    pub id: u64,
    /// How often it happened.
    pub count: u64,
    /// What.
    pub what: Denied,
    /// When it happened first.
    pub created_ms: i64,
    /// When it happened last.
    pub updated_ms: i64,
    /// The client's line of `CLIENT LIST` when it happened last.
    pub client: String,
}

/// See the module.
#[derive(Default)]
pub struct AclLog {
    entries: Mutex<Entries>,
    /// By [`Reason`], since the start or since statistics were reset.
    counts: [AtomicU64; 4],
}

#[derive(Default)]
struct Entries {
    newest_first: VecDeque<Entry>,
    next_id: u64,
}

fn shorten(text: &mut Vec<u8>) {
    if text.len() > TEXT_LEN_MAX {
        *text = text[..TEXT_LEN_MAX].to_vec();
    }
}

impl AclLog {
    /// Takes in a denial, and forgets the oldest entries beyond `max_len`.
    pub fn note(&self, mut what: Denied, client: String, now_ms: i64, max_len: usize) {
        [&mut what.object, &mut what.username].into_iter().for_each(shorten);
        self.counts[what.reason as usize].fetch_add(1, Relaxed);
        let (created_ms, updated_ms) = (now_ms, now_ms);
        self.add(Entry { id: 0, count: 1, what, created_ms, updated_ms, client }, max_len);
    }

    /// Takes in all that was denied elsewhere.
    pub fn add_all(&self, others: &Self, max_len: usize) {
        for (count, other) in self.counts.iter().zip(&others.counts) {
            // The counts are shared by all threads, and most programs are denied nothing.
            match other.load(Relaxed) {
                0 => {}
                denials => _ = count.fetch_add(denials, Relaxed),
            }
        }
        let others_entries = others.entries.lock();
        others_entries.newest_first.iter().rev().for_each(|entry| self.add(entry.clone(), max_len));
    }

    fn add(&self, new: Entry, max_len: usize) {
        let mut entries = self.entries.lock();
        let Entries { newest_first, next_id } = &mut *entries;
        let is_same = |entry: &Entry| {
            entry.what == new.what && new.updated_ms - entry.created_ms < GROUPED_FOR_MS
        };
        let same = newest_first.iter().take(GROUPED_WITHIN).position(is_same);
        let entry = match same.and_then(|at| newest_first.remove(at)) {
            Some(Entry { id, count, created_ms, .. }) => {
                Entry { id, count: count + new.count, created_ms, ..new }
            }
            None => {
                *next_id += 1;
                Entry { id: *next_id - 1, ..new }
            }
        };
        newest_first.push_front(entry);
        newest_first.truncate(max_len);
    }

    /// The newest entries, newest first.
    #[must_use]
    pub fn newest(&self, count: usize) -> Vec<Entry> {
        self.entries.lock().newest_first.iter().take(count).cloned().collect()
    }

    /// Forgets all entries.
    pub fn clear(&self) {
        self.entries.lock().newest_first.clear();
    }

    /// How often something was denied for this reason.
    #[must_use]
    pub fn count(&self, reason: Reason) -> u64 {
        self.counts[reason as usize].load(Relaxed)
    }

    /// Counts anew.
    pub fn reset_counts(&self) {
        self.counts.iter().for_each(|count| count.store(0, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(object: &str) -> Denied {
        let (object, username) = (object.into(), b"alice".to_vec());
        Denied { reason: Reason::Key, origin: Origin::TopLevel, object, username }
    }

    #[test]
    fn repetitions_are_counted_and_old_entries_forgotten() {
        let log = AclLog::default();
        for (object, now_ms) in [("a", 0), ("b", 1), ("a", 2), ("a", 59_999), ("a", 60_000)] {
            log.note(denied(object), format!("at {now_ms}"), now_ms, 3);
        }
        let shown: Vec<_> = log
            .newest(9)
            .into_iter()
            .map(|e| (e.id, e.count, e.created_ms, e.updated_ms))
            .collect();
        assert_eq!(shown, [(2, 1, 60_000, 60_000), (0, 3, 0, 59_999), (1, 1, 1, 1)]);
        log.note(denied("c"), String::new(), 60_001, 3);
        assert_eq!(log.newest(9).len(), 3);
        assert_eq!(
            (log.newest(1).len(), log.count(Reason::Key), log.count(Reason::Auth)),
            (1, 6, 0)
        );
        log.clear();
        assert!(log.newest(9).is_empty());
    }
    #[test]
    fn long_keys_and_names_are_cut() {
        let log = AclLog::default();
        let long = "x".repeat(1_000_000);
        let what = Denied { username: long.clone().into_bytes(), ..denied(&long) };
        log.note(what, String::new(), 0, 3);
        let what = &log.newest(1)[0].what;
        assert_eq!((what.object.capacity(), what.username.capacity()), (1024, 1024));
    }
}
