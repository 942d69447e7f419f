//! The keys of the database for tools that copy or inspect a cache: `lru_crawler metadump`, `lru_crawler mgdump`, and
//! `stats cachedump`.
//!
//! A dump is written in pieces, and the next one only when the client has read most of the pending output. So it costs
//! as much memory for a million keys as for a thousand, and other clients of the worker are served in between. A key
//! that exists all the time is listed once; one that is created or deleted meanwhile may or may not be listed. Keys
//! that memcached clients could not read are left out: those of other types, and those that are too long.

use tierce_keyspace::{Busy, DbIndex, Summary, VersionFor};
use tierce_output::Output;
use tierce_wire::memcached::{KEY_LEN_MAX, base64};

use super::stats::SLAB_CLASS;
use crate::pipeline::Guard;

/// Number of keys that are read together, under few locks.
const KEYS_AT_ONCE: usize = 128;

/// Maximum number of bytes written in one turn of the worker.
const TURN_BYTES: usize = 64 * 1024;

/// Number of unread bytes from which on no more is written.
const UNSENT_BYTES_MAX: usize = 128 * 1024;

/// Maximum number of bytes that `stats cachedump` writes, as in memcached.
const CACHEDUMP_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Format of the keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `metadump`: a line of facts for each key.
    Facts,
    /// `mgdump`: a command for each key that reads it.
    Commands,
}

impl Form {
    /// Returns the line after the last key.
    pub fn end(self) -> &'static str {
        match self {
            Self::Facts => "END\r\n",
            Self::Commands => "EN\r\n",
        }
    }
}

/// Dump in progress.
pub struct Dump {
    form: Form,
    /// Position to continue from.
    cursor: u64,
}

/// Continuation of a dump.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It is complete.
    Done,
    /// It continues in the next turn.
    NextTurn,
    /// It continues when the client has read more.
    WhenRead,
    /// It continues when another thread has unlocked this shard.
    WhenFree(Busy),
}

impl Dump {
    pub fn new(form: Form) -> Self {
        Self { form, cursor: 0 }
    }

    /// Writes the next piece.
    pub fn advance(
        &mut self,
        guard: &mut Guard<'_, '_>,
        db: DbIndex,
        now_ms: i64,
        output: &mut Output,
    ) -> Progress {
        if output.pending() >= UNSENT_BYTES_MAX {
            return Progress::WhenRead;
        }
        let before = output.written();
        loop {
            let begin = output.mark();
            match self.advance_some(guard, db, now_ms, output) {
                Ok(cursor) => self.cursor = cursor,
                Err(busy) => {
                    output.truncate(begin);
                    return Progress::WhenFree(busy);
                }
            }
            if self.cursor == 0 {
                output.buffer().extend_from_slice(self.form.end().as_bytes());
                return Progress::Done;
            }
            if output.written() - before >= TURN_BYTES {
                return Progress::NextTurn;
            }
        }
    }
}

impl Dump {
    /// Writes some keys, and returns the position to continue from.
    fn advance_some(
        &self,
        guard: &mut Guard<'_, '_>,
        db: DbIndex,
        now_ms: i64,
        output: &mut Output,
    ) -> Result<u64, Busy> {
        let mut keys = Vec::new();
        let cursor = scan(guard, db, self.cursor, KEYS_AT_ONCE, now_ms, &mut keys)?;
        for key in keys {
            let Some(summary) = summary_of(guard, db, &key, now_ms)? else { continue };
            match self.form {
                Form::Facts => write_facts(&key, &summary, now_ms, output.buffer()),
                Form::Commands => write_command(&key, output.buffer()),
            }
        }
        Ok(cursor)
    }
}

/// Adds some keys from a cursor on, and returns the next cursor.
fn scan(
    guard: &mut Guard<'_, '_>,
    db: DbIndex,
    cursor: u64,
    count: usize,
    now_ms: i64,
    keys: &mut Vec<Vec<u8>>,
) -> Result<u64, Busy> {
    guard.scan(db, cursor, count, now_ms, |entry| {
        if entry.key().len() <= KEY_LEN_MAX {
            keys.push(entry.key().to_vec());
        }
    })
}

/// Returns the facts about a string; `None` if the key holds none, or is gone.
fn summary_of(
    guard: &mut Guard<'_, '_>,
    db: DbIndex,
    key: &[u8],
    now_ms: i64,
) -> Result<Option<Summary>, Busy> {
    let key = guard.keyspace().key(key);
    guard.reach(key.hash())?;
    Ok(guard.db(db, key.hash(), now_ms).summary(key, VersionFor::Anybody))
}

fn write_facts(key: &[u8], summary: &Summary, now_ms: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"key=");
    write_encoded(key, out);
    let used_at = now_ms / 1000 - summary.idle_seconds as i64;
    let facts = format!(
        " exp={} la={used_at} cas={} fetch={} cls={SLAB_CLASS} size={}\n",
        summary.deadline_ms.map_or(-1, |at_ms| at_ms.div_euclid(1000)),
        summary.version,
        if summary.marks.fetched { "yes" } else { "no" },
        summary.memory_bytes,
    );
    out.extend_from_slice(facts.as_bytes());
}

/// Encodes a key as in URLs: a byte that is not a letter, a digit or one of four signs becomes two hex digits.
fn write_encoded(key: &[u8], out: &mut Vec<u8>) {
    for &byte in key {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
}

/// Writes `mg key`, with the key in base64 if it is not one word; nothing if that is too long.
fn write_command(key: &[u8], out: &mut Vec<u8>) {
    let is_word = !key.is_empty() && key.iter().all(|byte| byte.is_ascii_graphic());
    let before = out.len();
    out.extend_from_slice(b"mg ");
    if is_word {
        out.extend_from_slice(key);
    } else {
        let mut text = Vec::new();
        base64::encode(key, &mut text);
        if text.is_empty() || text.len() > KEY_LEN_MAX {
            out.truncate(before);
            return;
        }
        out.extend_from_slice(&text);
        out.extend_from_slice(b" b");
    }
    out.extend_from_slice(b"\r\n");
}

/// Runs `stats cachedump`: returns up to `limit` keys with the lengths of their values and their expiry times. Keys in
/// shards that are locked for long are left out.
pub fn cachedump(guard: &mut Guard<'_, '_>, db: DbIndex, limit: usize, now_ms: i64) -> Vec<u8> {
    let (mut out, mut cursor, mut told) = (Vec::new(), 0, 0);
    loop {
        let mut keys = Vec::new();
        cursor = scan(guard, db, cursor, KEYS_AT_ONCE, now_ms, &mut keys).unwrap_or(0);
        for key in keys {
            if told >= limit || out.len() + KEY_LEN_MAX + 64 > CACHEDUMP_BYTES_MAX {
                cursor = 0;
                break;
            }
            let Ok(Some(summary)) = summary_of(guard, db, &key, now_ms) else { continue };
            out.extend_from_slice(b"ITEM ");
            out.extend_from_slice(&key);
            let expires = summary.deadline_ms.map_or(0, |at_ms| at_ms.div_euclid(1000));
            out.extend_from_slice(format!(" [{} b; {expires} s]\r\n", summary.len).as_bytes());
            told += 1;
        }
        if cursor == 0 {
            break;
        }
    }
    out.extend_from_slice(b"END\r\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_so_that_they_are_one_word() {
        let mut out = Vec::new();
        write_encoded(b"a:b%\xff-._~", &mut out);
        assert_eq!(out, b"a%3Ab%25%FF-._~");
        let command = |key: &[u8]| {
            let mut out = Vec::new();
            write_command(key, &mut out);
            String::from_utf8(out).expect("ASCII")
        };
        assert_eq!(command(b"foo"), "mg foo\r\n");
        assert_eq!(command(b"a b"), "mg YSBi b\r\n");
        assert_eq!(command(b""), "");
        assert_eq!(command(&[0; 200]), "");
    }
}
