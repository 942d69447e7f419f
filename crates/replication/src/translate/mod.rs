//! Translates records of the log into commands of Redis.
//!
//! A record states the effects on keys, not the request. So do the commands: a counter becomes a `SET` of the result,
//! an expiry becomes a `DEL` when the primary removes the key, and everything that depends on chance or a clock is
//! decided. A replica that executes them in order has the same data.
//!
//! * `dialect`: which commands there may be. `commands`: commands as RESP.
//! * `operation`: the operations of one record or batch.
//! * a file for each type of collections: its edits.
//!
//! **Atomicity.** If a record makes several commands, they are between `MULTI` and `EXEC`. So are those of a batch,
//! which are complete when its last piece arrives; until then the batch is kept here. A command that an old reader may
//! not know stands between two such transactions, unless the [`Dialect`] says that all know it: it would undo the whole
//! one.
//!
//! **Bounds.** A new collection is built by commands of a few hundred elements each. A string is one command, however
//! long it is.
//!
//! **What no command can express** is left out: the encoding of a value. The time when a consumer of a stream was last
//! seen is the replica's own. What only newer servers support depends on the [`Dialect`]. memcached's flags and marks
//! are said by calls that only Tierce understands ([`crate::note`]).

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

/// What the translator has to know of those who read its commands.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// What they understand.
    pub dialect: Dialect,
}

/// Turns records into commands.
#[derive(Debug)]
pub struct Translator {
    options: Options,
    unfinished: Unfinished,
    /// The database of the last `SELECT` of the stream.
    db: Option<u64>,
}

impl Translator {
    /// A translator at the beginning of a stream.
    pub fn new(options: Options) -> Self {
        Self { options, unfinished: Unfinished::default(), db: None }
    }

    /// Appends the commands of a record to `out`; none if it is a piece of a batch that is not complete.
    ///
    /// # Errors
    ///
    /// If it is no record of changes. The stream cannot go on then: what was appended is to be thrown away.
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

    /// Appends a command as it is; one with a database is executed there.
    pub fn command(&mut self, db: Option<u64>, resp: &[u8], out: &mut Vec<u8>) {
        if let Some(db) = db {
            Commands::new(out, &mut self.db, self.options.dialect).select(db);
        }
        out.extend_from_slice(resp);
    }

    /// From now on the readers understand this.
    pub fn speak(&mut self, dialect: Dialect) {
        self.options.dialect = dialect;
    }

    /// Forgets which database is selected: the next command of one begins with `SELECT`, because a reader joins here.
    pub fn forget_db(&mut self) {
        self.db = None;
    }
}
