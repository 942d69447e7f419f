//! Applies the commands of a stream.
//!
//! A transaction takes effect at its EXEC: if the stream breaks off inside of one, it continues before the MULTI.
//!
//! Applied commands are repeated in the stream of this server, with their original bytes ([`Primary::repeat`]).
//!
//! [`Primary::repeat`]: crate::commands::replication::Primary::repeat

use std::sync::Arc;

use tierce_keyspace::DbIndex;
use tierce_output::Output;
use tierce_replication::identity::ReplicationId;
use tierce_replication::link::Position;
use tierce_wire::number;
use tierce_wire::resp::{Args, OwnedArgs, ReplyDecoder};

use crate::caller::Caller;
use crate::clients::{Client, Origin};
use crate::command::Group;
use crate::commands::replication::role::Following;
use crate::commands::scripting::ENDED_BY_SHUTDOWN;
use crate::error::CommandError;
use crate::pipeline;
use crate::server::Server;

use super::FollowError;

/// Maximum number of failed commands that are logged for one link.
const ERRORS_LOGGED_MAX: u64 = 10;

/// Maximum number of bytes of a key that are logged.
const SHOWN_MAX: usize = 128;

/// Commands that change no data, and would wait here for the role that this thread holds.
const OF_ROLES: [&[u8]; 3] = [b"failover", b"replicaof", b"slaveof"];

/// Executor of the primary's commands.
pub(super) struct Applier<'s> {
    server: &'s Server,
    caller: Caller,
    output: Output,
    /// Number of the link.
    number: u64,
    position: Option<Position>,
    /// Database selected in the stream.
    db: DbIndex,
    /// Bytes of an incomplete transaction.
    transaction: Vec<u8>,
    /// Maximum lag of replicas of this server, in bytes.
    lag_max: usize,
    errors: u64,
}

/// Outcome of a command.
pub(super) enum Applied {
    Done,
    /// The primary asks for this replica's offset.
    AskedForOffset,
    /// The primary also asks for a report when that offset is on the device here.
    AskedForSync,
    /// The data are no copy any more, for this reason.
    Lost(FollowError),
    /// Nothing was done: the server follows another primary now, or none.
    GivenUp,
}

impl<'s> Applier<'s> {
    /// Creates an applier for the link with this number, without a position.
    pub(super) fn new(server: &'s Server, number: u64) -> Self {
        let client = Client::new(Origin::default(), crate::clock::unix_ms());
        let caller = Caller::new(Arc::new(client), true);
        let db = DbIndex::ZERO;
        let (output, transaction) = (Output::new(), Vec::new());
        let lag_max = 0;
        Self { server, caller, output, number, position: None, db, transaction, lag_max, errors: 0 }
    }

    /// Sets the maximum lag of replicas of this server.
    pub(super) fn set_lag_max(&mut self, lag_max: usize) {
        self.lag_max = lag_max;
    }

    /// Continues the stream at this position, with this selected database.
    pub(super) fn go_on(&mut self, position: Position, db: DbIndex) {
        self.position = Some(position);
        (self.caller.db, self.db) = (db, db);
    }

    /// Returns the database that is selected at the position.
    pub(super) fn db(&self) -> DbIndex {
        self.db
    }

    /// Returns the position up to which the stream is applied.
    pub(super) fn position(&self) -> Option<Position> {
        self.position
    }

    /// Executes a command with these bytes, which ends at `offset` of the stream.
    pub(super) fn apply(&mut self, args: Args<'_>, bytes: &[u8], offset: u64) -> Applied {
        let server = self.server;
        let Some(_nobody_else) = server.role.apply_for(self.number) else {
            return Applied::GivenUp;
        };
        let name = args.at(0);
        if name.eq_ignore_ascii_case(b"replconf") {
            self.advance(bytes, offset);
            let is =
                |at, word: &[u8]| args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word));
            return match is(1, b"getack") {
                true if is(2, b"logged") => Applied::AskedForSync,
                true => Applied::AskedForOffset,
                false => Applied::Done,
            };
        }
        if OF_ROLES.iter().any(|of_roles| name.eq_ignore_ascii_case(of_roles)) {
            self.advance(bytes, offset);
            self.server.log.warning("A command of the stream that changes roles is left out");
            return Applied::Done;
        }
        if let Some(why) = self.lacks_db(name, args) {
            return Applied::Lost(self.lose(why));
        }
        let begin = self.output.mark();
        let stream = self.position.map_or(ReplicationId::NONE, |position| position.id);
        let position = (*stream.as_bytes(), offset);
        server.apply(&mut self.caller, args, &mut self.output, position);
        let reply = self.output.buffer();
        let error = reply.strip_prefix(b"-").map(|text| text.trim_ascii_end().to_vec());
        let failed = if error.is_none() { first_error_within(reply) } else { None };
        self.output.truncate(begin);
        if let Some((number, error)) = &failed {
            let command = command_within(&self.transaction, *number);
            self.note_failed(command.as_ref().map_or(args, OwnedArgs::as_args), error);
        }
        let is_ended = |error: &[u8]| error == ENDED_BY_SHUTDOWN.as_bytes();
        if error.as_deref().is_some_and(is_ended) {
            // It has changed nothing, and is sent again.
            return Applied::GivenUp;
        }
        if failed.is_some_and(|(_, error)| is_ended(&error)) {
            let why = "a script in a transaction of the primary was ended".to_owned();
            return Applied::Lost(self.lose(why));
        }
        match error {
            Some(error) if name.eq_ignore_ascii_case(b"exec") || lacks_script(name, &error) => {
                let error = error.escape_ascii();
                return Applied::Lost(self.lose(format!(
                    "a transaction or script of the primary could not be applied: {error}"
                )));
            }
            Some(error) => self.note_failed(args, &error),
            None => {}
        }
        self.advance(bytes, offset);
        Applied::Done
    }

    /// Gives up the data if a command has failed and therefore a full copy is due.
    pub(super) fn heal(&mut self) -> Result<(), FollowError> {
        let server = self.server;
        let Some(_nobody_else) = server.role.apply_for(self.number) else {
            return Err(FollowError::GivenUp);
        };
        let (mut begins, now_ms) = (false, crate::clock::unix_ms());
        let begin = |following: &mut Following| begins = following.healing.begins(now_ms);
        if self.position.is_some() && server.role.update(self.number, begin) && begins {
            return Err(self.lose("a command of the primary failed here".to_owned()));
        }
        Ok(())
    }

    /// Marks the data as no copy any more, for this reason.
    fn lose(&mut self, why: String) -> FollowError {
        self.server.primary.end_stream();
        // A transaction may have changed something, and logged its position with that.
        self.server.leave_stream();
        self.position = None;
        FollowError::Lost(why)
    }

    /// Returns an error if a command selects a database that does not exist here: the next commands would go to another
    /// one. In a transaction, waiting for its EXEC would be too late.
    fn lacks_db(&self, name: &[u8], args: Args<'_>) -> Option<String> {
        if !name.eq_ignore_ascii_case(b"select") {
            return None;
        }
        let db = args.get(1).unwrap_or_default();
        let number = number::parse_i64(db).and_then(|number| usize::try_from(number).ok());
        let is_here = number.is_some_and(|db| self.server.keyspace.db_index(db).is_some());
        (!is_here).then(|| {
            let db = db.escape_ascii();
            format!("the stream selects database {db}, which this server does not have (databases)")
        })
    }

    /// Skips bytes of the stream without a meaning. Returns false if the link must be given up.
    pub(super) fn skip(&mut self, bytes: &[u8]) -> bool {
        let Some(_nobody_else) = self.server.role.apply_for(self.number) else { return false };
        if let Some(position) = self.position {
            self.advance(bytes, position.offset + bytes.len() as u64);
        }
        true
    }

    /// Notes that the stream is applied up to `offset` with these bytes; within a transaction, its EXEC counts them.
    fn advance(&mut self, bytes: &[u8], offset: u64) {
        let Some(position) = &mut self.position else { return };
        if self.caller.is_in_transaction() {
            return self.transaction.extend_from_slice(bytes);
        }
        position.offset = offset;
        self.db = self.caller.db;
        let primary = &self.server.primary;
        if self.transaction.is_empty() {
            primary.repeat(bytes, self.db, self.lag_max);
        } else {
            let mut whole = std::mem::take(&mut self.transaction);
            whole.extend_from_slice(bytes);
            primary.repeat(&whole, self.db, self.lag_max);
        }
    }

    /// Handles a command that the primary has executed and that failed here: another version, or a lower limit here.
    fn note_failed(&mut self, args: Args<'_>, error: &[u8]) {
        let server = self.server;
        let command = pipeline::resolve(server, args).ok();
        // A full copy does not help if a command is missing here, and a script may have failed on the primary as well.
        let heals = command.is_some_and(|command| command.spec.group != Group::Scripting)
            && !CommandError::is_of_limit(error);
        let note = |following: &mut Following| following.healing.differs |= heals;
        let _ = server.role.update(self.number, note);
        server.role.note_failed();
        self.errors += 1;
        if self.errors > ERRORS_LOGGED_MAX {
            return;
        }
        let key = command.filter(|command| command.first_key > 0);
        let key = key.and_then(|command| args.get(command.first_key));
        let key =
            key.map(|key| format!(" of key {}", key[..key.len().min(SHOWN_MAX)].escape_ascii()));
        let (name, error) = (args.at(0).escape_ascii(), error.escape_ascii());
        let last = if self.errors == ERRORS_LOGGED_MAX { "; more are not logged" } else { "" };
        server.log.warning(format_args!(
            "The primary's command {name}{} in database {} failed here, and the data may differ from now on: \
             {error}{last}",
            key.unwrap_or_default(),
            self.caller.db.get()
        ));
    }
}

/// Returns true if a command was refused because its script is unknown here: after a restart, or after SCRIPT FLUSH.
/// Redis 6.2 can call scripts by their digest, and sends them again after a full copy.
fn lacks_script(name: &[u8], error: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"evalsha") && error.starts_with(b"NOSCRIPT ")
}

/// Returns the first error among the replies of a transaction, with the number of its command.
fn first_error_within(reply: &[u8]) -> Option<(usize, Vec<u8>)> {
    // Nearly always there is none, and nothing to decode.
    if !reply.starts_with(b"*") || !reply.windows(3).any(|bytes| bytes == b"\r\n-") {
        return None;
    }
    let (value, _) = ReplyDecoder::new().decode(reply).ok()??;
    let (number, error) =
        value.as_values()?.iter().enumerate().find(|(_, value)| value.is_error())?;
    Some((number, error.as_bytes()?.to_vec()))
}

/// Returns the command with this number after the MULTI with which these bytes begin.
fn command_within(mut transaction: &[u8], number: usize) -> Option<OwnedArgs> {
    let mut decoder = ReplyDecoder::new();
    let mut value = None;
    for _ in 0..number + 2 {
        let (next, len) = decoder.decode(transaction).ok()??;
        (value, transaction) = (Some(next), &transaction[len..]);
    }
    let mut args = OwnedArgs::new();
    for word in value?.as_values()? {
        args.push(word.as_bytes()?).ok()?;
    }
    Some(args)
}
