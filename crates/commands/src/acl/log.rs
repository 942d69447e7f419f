//! `ACL LOG`: denied authentications, commands, keys and channels.
//!
//! A denial that repeats within a minute increments the count of the first entry, if that is among the newest ones. So
//! one client that repeats itself does not displace the entries of others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::check::Denial;

/// Maximum of bytes kept of a key, channel or name. Longer ones would use memory that no limit counts.
const TEXT_LEN_MAX: usize = 1024;

/// Time for which repeated denials share an entry.
const GROUPED_FOR_MS: i64 = 60_000;

/// Number of newest entries searched for an equal one.
const GROUPED_WITHIN: usize = 10;

/// Reason for a denial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Reason {
    /// A wrong password, or an unknown user.
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

/// Context of the denied call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A call outside of transactions and scripts.
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

/// A denial without its time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denied {
    /// The reason.
    pub reason: Reason,
    /// Context of the call.
    pub origin: Origin,
    /// The command, key or channel; for [`Reason::Auth`] the command that authenticates.
    pub object: Vec<u8>,
    /// The user, or the user name that the client gave.
    pub username: Vec<u8>,
}

/// An entry of the log; times are Unix milliseconds.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Increases over the life of the server.
    pub id: u64,
    /// Number of occurrences.
    pub count: u64,
    /// The denial.
    pub what: Denied,
    /// Time of the first occurrence.
    pub created_ms: i64,
    /// Time of the last occurrence.
    pub updated_ms: i64,
    /// The client's line of `CLIENT LIST` at the last occurrence.
    pub client: String,
}

/// See the module.
#[derive(Default)]
pub struct AclLog {
    entries: Mutex<Entries>,
    /// By [`Reason`], since the start or the last reset of statistics.
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
    /// Adds a denial and removes the oldest entries beyond `max_len`.
    pub fn note(&self, mut what: Denied, client: String, now_ms: i64, max_len: usize) {
        [&mut what.object, &mut what.username].into_iter().for_each(shorten);
        self.counts[what.reason as usize].fetch_add(1, Relaxed);
        let (created_ms, updated_ms) = (now_ms, now_ms);
        self.add(Entry { id: 0, count: 1, what, created_ms, updated_ms, client }, max_len);
    }

    /// Adds all denials of another log.
    pub fn add_all(&self, others: &Self, max_len: usize) {
        for (count, other) in self.counts.iter().zip(&others.counts) {
            // All threads share the counts, and most programs have no denials.
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

    /// Returns the newest entries, newest first.
    #[must_use]
    pub fn newest(&self, count: usize) -> Vec<Entry> {
        self.entries.lock().newest_first.iter().take(count).cloned().collect()
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.entries.lock().newest_first.clear();
    }

    /// Returns the number of denials for this reason.
    #[must_use]
    pub fn count(&self, reason: Reason) -> u64 {
        self.counts[reason as usize].load(Relaxed)
    }

    /// Resets the counts to zero.
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
