//! Sessions whose reply comes later, and what becomes of them.
//!
//! A command that has to wait for the disk sets
//! [`Session::waiting`](crate::session::Session::waiting) and returns without a reply. The session is
//! suspended: its later requests stay in the input, and the worker goes on with others. When the time
//! has come, a message writes the reply and resumes it.

use std::sync::Arc;

use tierce_net::{ConnMut, Output};

use crate::durability::{SWITCHED_BY_ANOTHER, Switched};
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
    /// That the log is on the device up to a place.
    Device {
        /// The place.
        position: u64,
        /// How long.
        patience_ms: u64,
    },
}

/// A session that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// For what.
    pub awaited: Awaited,
    /// Whether the client gets the reply: CLIENT REPLY may have it off.
    pub is_heard: bool,
}

impl Waiting {
    /// The place in the log that it waits for.
    #[must_use]
    pub fn position(&self) -> Option<u64> {
        match self.awaited {
            Awaited::Device { position, .. } => Some(position),
            Awaited::Save(_) | Awaited::Shutdown | Awaited::LogSwitch { .. } => None,
        }
    }

    /// When its patience ends, if it began now.
    #[must_use]
    pub fn until_ms(&self, now_ms: u64) -> Option<u64> {
        match self.awaited {
            Awaited::Device { patience_ms, .. } => Some(now_ms.saturating_add(patience_ms)),
            Awaited::Save(_) | Awaited::Shutdown | Awaited::LogSwitch { .. } => None,
        }
    }
}

/// The log is where a client waited for it.
pub fn device_reached(conn: &mut ConnMut<'_, AnySession>) {
    let (session, output) = conn.split();
    if write_synced(session, output, 1) {
        conn.clear_timer();
        conn.resume();
    }
}

/// The session's timer is due. Whether it waited for the device for so long, and is answered.
pub fn time_is_up(session: &mut AnySession, output: &mut Output) -> bool {
    session.awaited_position().is_some() && write_synced(session, output, 0)
}

/// The reply to WAITAOF: on how many devices the log is, here and at replicas.
fn write_synced(session: &mut AnySession, output: &mut Output, here: i64) -> bool {
    let AnySession::Resp(session) = session else { return false };
    let Some(waiting) = session.waiting.take() else { return false };
    if waiting.is_heard {
        let mut reply = Reply::new(output, session.proto);
        reply.array(2);
        reply.int(here);
        reply.int(0);
    }
    true
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
