//! The interface between the loops and the program on top: the [`Service`] trait and its types.
//!
//! All calls for one worker are made on that worker's thread, one after another, with the worker's own state as `&mut`.
//! A service therefore needs locks only for state that workers share.

use std::borrow::Cow;
use std::io;
use std::os::fd::BorrowedFd;

use crate::clock::Now;
use crate::connection::{CloseReason, ConnInfo, OnHangup, WorkerId};
use crate::handle::Handle;
use crate::io::Io;
use crate::worker::conns::Conns;

/// Protocol or application on top of the event loops.
///
/// A turn of a worker's loop runs in this order: [`turn_start`](Service::turn_start), messages, ready connections,
/// timers, [`turn_end`](Service::turn_end), then the output deferred to the end of the turn is sent. Messages may also
/// be handled in between, after a call that has asked for that ([`Io::send_mail_first`]).
///
/// No call may wait for anything but a short lock: all connections of the worker wait with it.
pub trait Service: Send + Sync + Sized + 'static {
    /// State of one worker thread; built on that thread and never leaves it.
    type Worker;
    /// State of one connection.
    type Session;
    /// Message from other threads to a worker.
    type Message: Send + 'static;

    /// Builds the state of a worker, on its thread, before its first turn.
    fn worker(&self, id: WorkerId, handle: &Handle<Self::Message>) -> Self::Worker;

    /// Handles an accepted connection, after its TLS handshake if it is encrypted. An error rejects it, with a last
    /// message to the peer. `certificate` is the peer's, if it was requested: in DER, and verified.
    fn open(
        &self,
        worker: &mut Self::Worker,
        info: &ConnInfo,
        certificate: Option<&[u8]>,
        now: Now,
    ) -> Result<Self::Session, Refusal>;

    /// Handles a connection that failed its TLS handshake, and was never opened.
    fn handshake_failed(&self, worker: &mut Self::Worker, info: &ConnInfo, error: &io::Error) {
        let _ = (worker, info, error);
    }

    /// Handles new bytes, a resumed session, or a session that asked for another turn.
    ///
    /// [`Io::input`] begins with the first byte not yet consumed. Unconsumed bytes are presented again, with more
    /// behind them.
    fn input(
        &self,
        worker: &mut Self::Worker,
        session: &mut Self::Session,
        io: &mut Io<'_>,
    ) -> Flow;

    /// Handles the timer set by [`Io::set_timer`]; it is no longer set. The input is empty here.
    ///
    /// The returned flow applies from now on: [`Flow::Continue`] resumes a suspended session, and [`Flow::Suspend`]
    /// keeps it suspended.
    fn timer(
        &self,
        worker: &mut Self::Worker,
        session: &mut Self::Session,
        io: &mut Io<'_>,
    ) -> Flow {
        let _ = (worker, session, io);
        Flow::Close
    }

    /// Handles a message from the mailbox.
    fn message(
        &self,
        worker: &mut Self::Worker,
        message: Self::Message,
        conns: &mut Conns<'_, Self::Session>,
    );

    /// Called when the worker woke up and is about to serve.
    fn turn_start(&self, worker: &mut Self::Worker, now: Now) {
        let _ = (worker, now);
    }

    /// Called when all work of the turn is done; the deferred outputs are sent right after this.
    fn turn_end(
        &self,
        worker: &mut Self::Worker,
        conns: &mut Conns<'_, Self::Session>,
        now: Now,
    ) -> NextTurn {
        let _ = (worker, conns, now);
        NextTurn::WhenReady
    }

    /// Returns an additional descriptor: the worker wakes up when it is readable, and the service finds out why in that
    /// turn. Called before the worker waits, until there is one. From then on it must stay open and unchanged for the
    /// life of the worker's state.
    fn watched<'w>(&self, worker: &'w Self::Worker) -> Option<BorrowedFd<'w>> {
        let _ = worker;
        None
    }

    /// Called exactly once for each session, when its connection is gone or no longer read.
    fn close(
        &self,
        worker: &mut Self::Worker,
        session: Self::Session,
        info: &ConnInfo,
        reason: CloseReason,
    ) {
        let _ = (worker, session, info, reason);
    }
}

/// Bytes sent to the peer of a rejected connection; may be empty.
pub type Refusal = Cow<'static, [u8]>;

/// Continuation of a connection after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Call again when more bytes have arrived.
    Continue,
    /// Call again next turn with the remaining input, even if nothing more arrives: the session stopped in the middle
    /// to let other connections have their turn.
    Yield,
    /// Do not call again until resumed by a message or the timer.
    Suspend(OnHangup),
    /// Send what is in the output, then close; no more input is read.
    Close,
}

/// Time of a worker's next turn if no connection, message or timer asks for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextTurn {
    /// Sleep until something happens.
    WhenReady,
    /// At this time of [`Now::monotonic_ms`] at the latest.
    At(u64),
    /// At once, after polling the connections.
    Immediately,
}
