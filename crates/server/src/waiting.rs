//! Sessions whose reply comes later, and what becomes of them.
//!
//! A command that has to wait for the disk sets
//! [`Session::waiting`](crate::session::Session::waiting) and returns without a reply. The session is
//! suspended: its later requests stay in the input, and the worker goes on with others. When the time
//! has come, a message writes the reply and resumes it.

use std::sync::Arc;

use tierce_net::ConnMut;

use crate::error::CommandError;
use crate::persistence::Ticket;
use crate::reply::Reply;
use crate::service::AnySession;

/// What a session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The end of a save.
    Save(Ticket),
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
    answer(conn, Awaited::Save(ticket), |reply| match outcome {
        Ok(()) => reply.ok(),
        Err(reason) => reply.error(&CommandError::text(format!("ERR {reason}"))),
    });
}

/// The server does not end.
pub fn stays_up(conn: &mut ConnMut<'_, AnySession>) {
    const FAILED: CommandError = CommandError::new("ERR Errors trying to SHUTDOWN. Check logs.");
    answer(conn, Awaited::Shutdown, |reply| reply.error(&FAILED));
}

fn answer(
    conn: &mut ConnMut<'_, AnySession>,
    awaited: Awaited,
    write: impl FnOnce(&mut Reply<'_>),
) {
    // Others have no commands that wait.
    let (AnySession::Resp(session), output) = conn.split() else { return };
    if session.waiting.is_none_or(|waiting| waiting.awaited != awaited) {
        return;
    }
    let waiting = session.waiting.take();
    if waiting.is_some_and(|waiting| waiting.is_heard) {
        write(&mut Reply::new(output, session.proto));
    }
    conn.resume();
}
