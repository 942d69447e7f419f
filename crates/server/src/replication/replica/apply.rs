//! Applies the commands of a stream.
//!
//! A transaction counts at its EXEC: if the stream breaks off inside of one, it continues before the MULTI.

use std::sync::Arc;

use tierce_keyspace::DbIndex;
use tierce_output::Output;
use tierce_replication::identity::ReplicationId;
use tierce_replication::link::Place;
use tierce_wire::resp::Args;

use crate::caller::Caller;
use crate::clients::{Client, Origin};
use crate::server::Server;

/// Errors of commands that are logged for one link.
const ERRORS_LOGGED_MAX: u64 = 10;

/// What is no change of data, and would wait here for the role that this thread holds.
const OF_ROLES: [&[u8]; 2] = [b"replicaof", b"slaveof"];

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
    errors: u64,
}

/// What came of a command.
pub(super) enum Applied {
    Done,
    /// The primary wants to know how far this replica is.
    AskedForOffset,
    /// The data are no copy any more, for this reason.
    Lost(String),
    /// Nothing: the server follows another one now, or none.
    GivenUp,
}

impl<'s> Applier<'s> {
    /// One for the link with this number that has no place yet.
    pub(super) fn new(server: &'s Server, number: u64) -> Self {
        let client = Client::new(Origin::default(), crate::clock::unix_ms());
        let caller = Caller::new(Arc::new(client), true);
        let db = DbIndex::ZERO;
        Self { server, caller, output: Output::new(), number, place: None, db, errors: 0 }
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

    /// Executes a command, with which the stream is known up to `offset`.
    pub(super) fn apply(&mut self, args: Args<'_>, offset: u64) -> Applied {
        let name = args.at(0);
        if name.eq_ignore_ascii_case(b"replconf") {
            self.advance(offset);
            let is_asked = args.get(1).is_some_and(|what| what.eq_ignore_ascii_case(b"getack"));
            return if is_asked { Applied::AskedForOffset } else { Applied::Done };
        }
        if OF_ROLES.iter().any(|of_roles| name.eq_ignore_ascii_case(of_roles)) {
            self.advance(offset);
            self.log(name, b"a stream does not change roles");
            return Applied::Done;
        }
        let Some(_nobody_else) = self.server.role.apply_for(self.number) else {
            return Applied::GivenUp;
        };
        let is_exec = name.eq_ignore_ascii_case(b"exec");
        let begin = self.output.mark();
        let stream = self.place.map_or(ReplicationId::NONE, |place| place.id);
        let place = (*stream.as_bytes(), offset);
        self.server.apply(&mut self.caller, args, &mut self.output, place);
        let reply = self.output.buffer();
        let error = reply.strip_prefix(b"-").map(|text| text.trim_ascii_end().to_vec());
        self.output.truncate(begin);
        self.advance(offset);
        match error {
            Some(error) if is_exec => Applied::Lost(error.escape_ascii().to_string()),
            Some(error) => {
                self.log(name, &error);
                Applied::Done
            }
            None => Applied::Done,
        }
    }

    /// So many bytes of the stream say nothing. Within a transaction its EXEC counts them.
    pub(super) fn skip(&mut self, len: usize) {
        if let Some(place) = self.place {
            self.advance(place.offset + len as u64);
        }
    }

    fn advance(&mut self, offset: u64) {
        if let Some(place) = self.place.as_mut().filter(|_| !self.caller.is_in_transaction()) {
            place.offset = offset;
            self.db = self.caller.db;
        }
    }

    /// The primary has executed what failed here: another version, or a limit that is lower here.
    fn log(&mut self, name: &[u8], error: &[u8]) {
        self.errors += 1;
        if self.errors > ERRORS_LOGGED_MAX {
            return;
        }
        let (name, error) = (name.escape_ascii(), error.escape_ascii());
        let last = if self.errors == ERRORS_LOGGED_MAX { "; more are not logged" } else { "" };
        self.server.log.warning(format_args!(
            "The primary's command {name} failed here, and the data may differ from now on: {error}{last}"
        ));
    }
}
