//! Translates log records into Redis commands.
//!
//! A record states the effects on keys, not the request, and so do the commands: a counter becomes a `SET` of the
//! result, an expiry becomes a `DEL` when the primary removes the key, and everything that depends on chance or a
//! clock is already decided. A replica that executes them in order has the same data.
//!
//! Only `tierce-keyspace` knows the layout of a record, and decodes it (`log::Reader`, `log::Edits`). Each edit has
//! enough for a command of Redis, so no key is looked up.
//!
//! * `dialect`: the allowed commands. `commands`: commands as RESP.
//! * `operation`: the operations of one record or batch.
//! * one file for each type of collection: its edits.
//!
//! **Atomicity.** The commands of a record are between `MULTI` and `EXEC` if there are several. So are the commands
//! of a batch; the translator keeps a batch until its last piece arrives. A command that an old reader may not know
//! is placed between two such transactions, as it would abort a whole one. It stays inside if the [`Dialect`]
//! guarantees that all readers know it.
//!
//! **Bounds.** A new collection takes one command for every few hundred elements. A string is always one command.
//!
//! **Left out:** the encoding of a value, as no command can express it. The time when a consumer of a stream was
//! last seen is the replica's own. Features of newer servers depend on the [`Dialect`]. memcached's flags and marks
//! become calls that only Tierce understands ([`crate::note`]).

mod commands;
mod dialect;
mod hash;
mod list;
mod operation;
mod set;
mod sorted_set;
mod stream;

use tierce_keyspace::log::{Malformed, Reader, Unfinished, plain_put};

use self::commands::Commands;
pub use self::dialect::Dialect;
use self::operation::Translation;

/// Facts about the readers of the commands.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// Commands that they understand.
    pub dialect: Dialect,
}

/// Turns records into commands.
#[derive(Debug)]
pub struct Translator {
    options: Options,
    unfinished: Unfinished,
    /// Database of the last `SELECT` in the stream.
    db: Option<u64>,
}

impl Translator {
    /// Returns a translator at the beginning of a stream.
    pub fn new(options: Options) -> Self {
        Self { options, unfinished: Unfinished::default(), db: None }
    }

    /// Appends the commands of a record to `out`; none if it is a piece of an incomplete batch.
    ///
    /// # Errors
    ///
    /// Fails if it is not a valid record of changes. The stream cannot continue then; the appended bytes must be
    /// discarded.
    pub fn record(&mut self, record: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        let mut commands = Commands::new(out, &mut self.db, self.options.dialect);
        if let Some((db, key, value)) = plain_put(record) {
            commands.select(db);
            commands.set(key, value);
            return Ok(());
        }
        let Some(operations) = self.unfinished.operations(record)? else { return Ok(()) };
        let mut translation = Translation::new(self.options.dialect, &mut commands);
        let mut reader = Reader::new(&operations);
        while let Some((op, _)) = reader.next()? {
            translation.operation(&op)?;
        }
        translation.finish();
        commands.finish();
        Ok(())
    }

    /// Appends a command unchanged, after selecting `db` if it is given.
    pub fn command(&mut self, db: Option<u64>, resp: &[u8], out: &mut Vec<u8>) {
        if let Some(db) = db {
            Commands::new(out, &mut self.db, self.options.dialect).select(db);
        }
        out.extend_from_slice(resp);
    }

    /// Changes the dialect of the following commands.
    pub fn speak(&mut self, dialect: Dialect) {
        self.options.dialect = dialect;
    }

    /// Makes the next command with a database begin with `SELECT`, because a reader joins here.
    pub fn forget_db(&mut self) {
        self.db = None;
    }
}
