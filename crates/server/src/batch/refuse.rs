//! Replies to requests that do not run, and to clients that want no replies.

use tierce_net::{Flow, Io};
use tierce_output::{Mark, Output};
use tierce_wire::resp::{Args, ProtocolError};

use super::{BatchRunner, Progress, TOO_LARGE_TO_KEEP};
use crate::caller::{Caller, ReplyMode};
use crate::error::CommandError;
use crate::pipeline::handoff::{self, Parting};
use crate::pipeline::{self, Refused};
use crate::reply::Reply;
use crate::session::Session;
use crate::stats::Stat;

impl<'k> BatchRunner<'k, '_> {
    /// Replies to input that is no request.
    #[cold]
    pub(super) fn refuse_input(
        &self,
        session: &Session,
        io: &mut Io<'_>,
        error: &ProtocolError,
    ) -> Flow {
        if let Some(limit) = limit_of(error) {
            self.counters.add(limit, 1);
        }
        self.close_with(session, io, &CommandError::text(format!("ERR {error}")))
    }

    /// Closes a connection whose request is larger than allowed.
    #[cold]
    pub(super) fn refuse_to_keep(&self, session: &Session, io: &mut Io<'_>) -> Flow {
        self.counters.add(Stat::QueryLimitDisconnections, 1);
        let addr = &session.caller.client.addr;
        self.kernel.log.warning(format_args!(
            "Closed {addr}: its request is larger than client-query-buffer-limit allows"
        ));
        self.close_with(session, io, &CommandError::new(TOO_LARGE_TO_KEEP))
    }

    /// Writes the last reply of a connection.
    pub(super) fn close_with(
        &self,
        session: &Session,
        io: &mut Io<'_>,
        error: &CommandError,
    ) -> Flow {
        let (_, output) = io.split();
        self.counters.add(Stat::Errors, 1);
        self.kernel.errors.count(error.kind());
        if session.caller.reply_mode == ReplyMode::On {
            Reply::new(output, session.caller.proto).error(error);
        }
        Flow::Close
    }

    /// Returns true if an unknown command is part of an HTTP request. A web page can make a browser send one here, with
    /// commands in its body, which must not run.
    #[cold]
    pub(super) fn is_of_browser(&self, caller: &Caller, args: Args<'_>) -> bool {
        let of_browser =
            args[0].eq_ignore_ascii_case(b"post") || args[0].eq_ignore_ascii_case(b"host:");
        if of_browser {
            let addr = &caller.client.addr;
            self.kernel.log.warning(format_args!(
                "Possible SECURITY ATTACK: {addr} sent POST or Host: as a command, probably a browser misused for \
                 cross protocol scripting. Connection closed"
            ));
        }
        of_browser
    }

    /// Replies to a request that does not run.
    #[cold]
    pub(super) fn refuse(&self, caller: &mut Caller, output: &mut Output, refused: Refused<'_>) {
        let refused = pipeline::refused_in_transaction(caller, refused);
        caller.end_caching(refused.command);
        self.reply(caller, output, |reply| {
            pipeline::refuse(self.kernel, self.counters, reply, &refused);
        });
    }

    /// Replies to a request that admission refuses. Returns false, because it does not run.
    ///
    /// # Errors
    /// If the connection closes, because its client is to go to another server.
    #[cold]
    pub(super) fn refuse_or_lead_away(
        &self,
        caller: &mut Caller,
        output: &mut Output,
        mut refused: Refused<'_>,
        index: usize,
        now_ms: i64,
    ) -> Result<bool, Progress> {
        if !caller.in_pipeline && !has_run_before(caller, index) {
            match handoff::lead_away(self.kernel, caller, &refused.error, output, now_ms) {
                None => {}
                Some(Parting::Closes) => return Err(Progress::Closing),
                Some(Parting::Repeats(error)) => refused.error = error,
            }
        }
        self.refuse(caller, output, refused);
        Ok(false)
    }

    pub(super) fn reply(
        &self,
        caller: &mut Caller,
        output: &mut Output,
        write: impl FnOnce(&mut Reply<'_>),
    ) {
        let mark = output.mark();
        write(&mut Reply::new(output, caller.proto));
        if caller.reply_mode != ReplyMode::On {
            mute(caller, output, Some(mark));
        }
    }
}

/// Returns true if a request of the batch before this index has run, and was not only queued.
pub(super) fn has_run_before(caller: &Caller, index: usize) -> bool {
    // MULTI has run as well.
    let queued = caller.transaction.as_ref().map_or(0, |queued| queued.len() + 1);
    index > queued
}

/// Returns the counter of inputs that exceed a limit; `None` for inputs that are no requests at all.
pub(super) fn limit_of(error: &ProtocolError) -> Option<Stat> {
    match error {
        ProtocolError::InvalidMultibulkLength | ProtocolError::UnauthenticatedMultibulkLength => {
            Some(Stat::RequestArgumentsErrors)
        }
        ProtocolError::InvalidBulkLength
        | ProtocolError::UnauthenticatedBulkLength
        | ProtocolError::MultibulkCountTooLong
        | ProtocolError::BulkCountTooLong
        | ProtocolError::InlineTooLong
        | ProtocolError::RequestTooLarge => Some(Stat::RequestSizeErrors),
        _ => None,
    }
}

/// Removes the output written since `from`, for a client that wants no replies.
#[cold]
pub(super) fn mute(caller: &mut Caller, output: &mut Output, from: Option<Mark>) {
    if let Some(mark) = from
        && caller.reply_mode != ReplyMode::SkipNext
    {
        output.truncate(mark);
    }
    caller.reply_mode = caller.reply_mode.after_command();
}
