//! From records of the log to commands: what a change of the keyspace is in Redis' language.
//!
//! A record says what became of keys, not what was asked for. So do the commands: a counter is `SET` to what it came
//! to, an expiry is a `DEL` at the moment of the primary, and whatever depends on chance or on the clock has been decided.
//! A replica that executes them in order has the same contents.

mod commands;

use tierce_keyspace::log::{Effect, Malformed, Op, Reader, Stored, Unfinished};

use self::commands::Commands;

/// What the translator has to know of those who read its commands.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Options {}

/// Turns records into commands.
#[derive(Debug)]
pub struct Translator {
    unfinished: Unfinished,
    /// The database of the last `SELECT` of the stream.
    db: Option<u64>,
}

impl Translator {
    /// A translator at the beginning of a stream.
    pub fn new(_options: Options) -> Self {
        Self { unfinished: Unfinished::default(), db: None }
    }

    /// Appends the commands of a record to `out`; none if it is a piece of a batch that is not complete.
    ///
    /// # Errors
    ///
    /// If it is no record of changes. `out` may have some of its commands then.
    pub fn record(&mut self, record: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        let Some(operations) = self.unfinished.operations(record)? else { return Ok(()) };
        let start = out.len();
        let mut commands = Commands::new(out, &mut self.db);
        let mut reader = Reader::new(&operations);
        while let Some((op, _)) = reader.next()? {
            translate(&op, &mut commands);
        }
        if commands.count() > 1 {
            let mut multi = Vec::new();
            commands::write(&mut multi, &[b"MULTI"]);
            out.splice(start..start, multi);
            commands::write(out, &[b"EXEC"]);
        }
        Ok(())
    }

    /// Appends a command as it is; one with a database is executed there.
    pub fn command(&mut self, db: Option<u64>, resp: &[u8], out: &mut Vec<u8>) {
        if let Some(db) = db {
            Commands::new(out, &mut self.db).select(db);
        }
        out.extend_from_slice(resp);
    }

    /// Forgets which database is selected: the next command of one begins with `SELECT`, because a reader joins here.
    pub fn forget_db(&mut self) {
        self.db = None;
    }
}

fn translate(op: &Op<'_>, commands: &mut Commands<'_>) {
    match op {
        Op::Key { db, key, effect } => {
            commands.select(*db);
            translate_effect(key, effect, commands);
        }
        Op::Flush { db } => {
            commands.select(*db);
            commands.push(&[b"FLUSHDB"]);
        }
        Op::Swap { a, b } => {
            commands.push(&[b"SWAPDB", a.to_string().as_bytes(), b.to_string().as_bytes()]);
        }
        Op::Code { .. } => {}
    }
}

fn translate_effect(key: &[u8], effect: &Effect<'_>, commands: &mut Commands<'_>) {
    match effect {
        Effect::Put { value, deadline_ms, .. } => {
            let text;
            let value = match value {
                Stored::Embedded(bytes) | Stored::Raw(bytes) => *bytes,
                Stored::Int(number) => {
                    text = number.to_string();
                    text.as_bytes()
                }
            };
            match deadline_ms {
                None => commands.push(&[b"SET", key, value]),
                Some(at) => {
                    commands.push(&[b"SET", key, value, b"PXAT", at.to_string().as_bytes()]);
                }
            }
        }
        Effect::Remove => commands.push(&[b"DEL", key]),
        Effect::Deadline(None) => commands.push(&[b"PERSIST", key]),
        Effect::Deadline(Some(at)) => {
            commands.push(&[b"PEXPIREAT", key, at.to_string().as_bytes()]);
        }
        Effect::Write { offset, bytes } => {
            commands.push(&[b"SETRANGE", key, offset.to_string().as_bytes(), bytes]);
        }
        Effect::Mark(_) | Effect::Spilled { .. } | Effect::Edit { .. } => {}
    }
}
