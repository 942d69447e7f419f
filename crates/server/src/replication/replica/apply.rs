//! Applies the commands of a stream.
//!
//! A transaction counts at its EXEC: if the stream breaks off inside of one, it continues before the MULTI.
//!
//! What is applied is repeated in the stream of this server, in the same bytes ([`Primary::repeat`]).
//!
//! [`Primary::repeat`]: crate::commands::replication::Primary::repeat

use std::sync::Arc;

use tierce_keyspace::DbIndex;
use tierce_output::Output;
use tierce_replication::identity::ReplicationId;
use tierce_replication::link::Place;
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

/// Errors of commands that are logged for one link.
const ERRORS_LOGGED_MAX: u64 = 10;

/// Bytes of a key that are logged.
const SHOWN_MAX: usize = 128;

/// What is no change of data, and would wait here for the role that this thread holds.
const OF_ROLES: [&[u8]; 3] = [b"failover", b"replicaof", b"slaveof"];

/// Who executes what the primary has executed.
pub(super) struct Applier<'s> {
    server: &'s Server,
    caller: Caller,
    output: Output,
    /// Of the link.
    number: u64,
    place: Option<Place>,
    /// The database that was selected there.
    db: DbIndex,
    /// The bytes of a transaction that is not complete.
    transaction: Vec<u8>,
    /// So far may replicas of this server be behind.
    lag_max: usize,
    errors: u64,
}

/// What came of a command.
pub(super) enum Applied {
    Done,
    /// The primary wants to know how far this replica is.
    AskedForOffset,
    /// It wants to know as well when that is on the device here.
    AskedForSync,
    /// The data are no copy any more, for this reason.
    Lost(FollowError),
    /// Nothing: the server follows another one now, or none.
    GivenUp,
}

impl<'s> Applier<'s> {
    /// One for the link with this number that has no place yet.
    pub(super) fn new(server: &'s Server, number: u64) -> Self {
        let client = Client::new(Origin::default(), crate::clock::unix_ms());
        let caller = Caller::new(Arc::new(client), true);
        let db = DbIndex::ZERO;
        let (output, transaction) = (Output::new(), Vec::new());
        let lag_max = 0;
        Self { server, caller, output, number, place: None, db, transaction, lag_max, errors: 0 }
    }

    /// Replicas of this server may be so far behind from now on.
    pub(super) fn set_lag_max(&mut self, lag_max: usize) {
        self.lag_max = lag_max;
    }

    /// The stream goes on at this place, where this database was selected.
    pub(super) fn go_on(&mut self, place: Place, db: DbIndex) {
        self.place = Some(place);
        (self.caller.db, self.db) = (db, db);
    }

    /// The database that is selected at the place.
    pub(super) fn db(&self) -> DbIndex {
        self.db
    }

    /// What is applied of the stream.
    pub(super) fn place(&self) -> Option<Place> {
        self.place
    }

    /// Executes a command of these bytes, with which the stream is known up to `offset`.
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
        let stream = self.place.map_or(ReplicationId::NONE, |place| place.id);
        let place = (*stream.as_bytes(), offset);
        server.apply(&mut self.caller, args, &mut self.output, place);
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
            // It has changed nothing, and comes again.
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

    /// Gives the data up if a command has failed and a full copy is due because of that.
    pub(super) fn heal(&mut self) -> Result<(), FollowError> {
        let server = self.server;
        let Some(_nobody_else) = server.role.apply_for(self.number) else {
            return Err(FollowError::GivenUp);
        };
        let (mut begins, now_ms) = (false, crate::clock::unix_ms());
        let begin = |following: &mut Following| begins = following.healing.begins(now_ms);
        if self.place.is_some() && server.role.update(self.number, begin) && begins {
            return Err(self.lose("a command of the primary failed here".to_owned()));
        }
        Ok(())
    }

    /// The data are no copy any more, for this reason.
    fn lose(&mut self, why: String) -> FollowError {
        self.server.primary.end_stream();
        // A transaction may have changed something, and logged its place with that.
        self.server.leave_stream();
        self.place = None;
        FollowError::Lost(why)
    }

    /// Why a command selects what is not here, if it does: what follows would go to another database. In a transaction
    /// its EXEC would come too late.
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

    /// Bytes of the stream that say nothing. `false` if the link is to be given up.
    pub(super) fn skip(&mut self, bytes: &[u8]) -> bool {
        let Some(_nobody_else) = self.server.role.apply_for(self.number) else { return false };
        if let Some(place) = self.place {
            self.advance(bytes, place.offset + bytes.len() as u64);
        }
        true
    }

    /// The stream is applied up to `offset` with these bytes; within a transaction its EXEC counts them.
    fn advance(&mut self, bytes: &[u8], offset: u64) {
        let Some(place) = &mut self.place else { return };
        if self.caller.is_in_transaction() {
            return self.transaction.extend_from_slice(bytes);
        }
        place.offset = offset;
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

    /// The primary has executed what failed here: another version, or a limit that is lower here.
    fn note_failed(&mut self, args: Args<'_>, error: &[u8]) {
        let server = self.server;
        let command = pipeline::resolve(server, args).ok();
        // A full copy does not help against a command that is missing here, and a script may have failed there as well.
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

/// Whether a command was refused because its script is not known here: after a restart, or because a client had scripts
/// forgotten. Redis 6.2 can call scripts by their digest, and sends them anew behind a full copy.
fn lacks_script(name: &[u8], error: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"evalsha") && error.starts_with(b"NOSCRIPT ")
}

/// The first error among the replies of a transaction, and the number of its command.
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

/// The command with this number behind the MULTI with which these bytes begin.
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
