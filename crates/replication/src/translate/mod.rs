//! Translates records of the log into commands of Redis.
//!
//! A record states the effects on keys, not the request. So do the commands: a counter becomes a `SET` of the result,
//! an expiry becomes a `DEL` when the primary removes the key, and everything that depends on chance or a clock is
//! decided. A replica that executes them in order has the same data.
//!
//! * `commands`: commands as RESP.
//! * `operation`: the operations of one record or batch.
//! * `collections`: edits of lists, sets, sorted sets and hashes.
//! * `stream`: edits of streams.
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

mod collections;
mod commands;
mod operation;
mod stream;

use tierce_keyspace::log::{Malformed, Reader, Unfinished, plain_put};

use self::commands::Commands;
use self::operation::Translation;

/// What the translator has to know of those who read its commands.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// What they understand.
    pub dialect: Dialect,
}

/// The commands that all readers understand: those of the oldest server among them. What another cannot know is left
/// out. One that a reader does not know, because it is older than was said, fails there with an error that it logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum Dialect {
    /// Without functions, and without what streams count: entries that were added, and that a group has read.
    Redis6_2,
    /// Without deadlines of hash fields: a field goes when its deadline comes here, and shows none before.
    Redis7_0,
    /// Without scripts by name, and without memcached's flags and marks.
    Redis7_4,
    /// Everything. It is the default, so that a reader may be older all the same.
    #[default]
    Tierce,
}

impl Dialect {
    /// From its name in the configuration.
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name {
            "redis-6.2" => Self::Redis6_2,
            "redis-7.0" => Self::Redis7_0,
            "redis-7.4" => Self::Redis7_4,
            _ => Self::Tierce,
        }
    }
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
