//! Sessions whose reply comes later, and what becomes of them.
//!
//! A command that has to wait for the disk sets
//! [`Session::waiting`](crate::session::Session::waiting) and returns without a reply. The session is
//! suspended: its later requests stay in the input, and the worker goes on with others. When the time
//! has come, a message writes the reply and resumes it.

use std::sync::Arc;

use tierce_net::ConnMut;

use crate::durability::Switched;
use crate::error::CommandError;
use crate::persistence::Ticket;
use crate::reply::Reply;
use crate::service::AnySession;

/// What a session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The end of a save.
    Save(Ticket),
    /// The end of a switch of the log.
    LogSwitch {
        /// Which one.
        ticket: u64,
        /// Whether there shall be a log.
        on: bool,
    },
    /// The end of the server, or that there is none.
    Shutdown,
}

/// A session that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// For what.
    pub awaited: Awaited,
    /// Whether the client gets the reply: CLIENT REPLY may have it off.
    pub is_heard: bool,
}

/// A save has ended.
pub fn saved(conn: &mut ConnMut<'_, AnySession>, ticket: Ticket, outcome: &Result<(), Arc<str>>) {
    answer(
        conn,
        |awaited| awaited == Awaited::Save(ticket),
        |_, reply| match outcome {
            Ok(()) => reply.ok(),
            Err(reason) => reply.error(&CommandError::text(format!("ERR {reason}"))),
        },
    );
}

/// The server does not end.
pub fn stays_up(conn: &mut ConnMut<'_, AnySession>) {
    const FAILED: CommandError = CommandError::new("ERR Errors trying to SHUTDOWN. Check logs.");
    answer(conn, |awaited| awaited == Awaited::Shutdown, |_, reply| reply.error(&FAILED));
}

/// The log was switched, or could not be.
pub fn log_switched(conn: &mut ConnMut<'_, AnySession>, switched: &Switched) {
    let concerns =
        |awaited| matches!(awaited, Awaited::LogSwitch { ticket, .. } if ticket <= switched.ticket);
    answer(conn, concerns, |awaited, reply| match awaited {
        Awaited::LogSwitch { on, .. } if on == switched.is_on => reply.ok(),
        _ => {
            let cause = switched.failure.as_deref().unwrap_or(SWITCHED_BY_ANOTHER);
            reply.error(&not_switched(cause));
        }
    });
}

/// Why a switch of the log came to nothing that did not fail.
pub const SWITCHED_BY_ANOTHER: &str = "another client has switched it meanwhile";

/// The reply to a CONFIG SET that could not switch the log.
#[must_use]
pub fn not_switched(cause: &str) -> CommandError {
    CommandError::text(format!(
        "ERR CONFIG SET failed (possibly related to argument 'appendonly') - {cause}"
    ))
}

fn answer(
    conn: &mut ConnMut<'_, AnySession>,
    concerns: impl FnOnce(Awaited) -> bool,
    write: impl FnOnce(Awaited, &mut Reply<'_>),
) {
    // Others have no commands that wait.
    let (AnySession::Resp(session), output) = conn.split() else { return };
    let Some(waiting) = session.waiting.take_if(|waiting| concerns(waiting.awaited)) else {
        return;
    };
    if waiting.is_heard {
        write(waiting.awaited, &mut Reply::new(output, session.proto));
    }
    conn.resume();
}
