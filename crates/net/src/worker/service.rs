//! The interface between the loops and the program on top: the [`Service`] trait and its types.
//!
//! All calls for one worker are made on that worker's thread, one after another, with the worker's own state as
//! `&mut`. A service therefore needs locks only for what workers share.

use std::borrow::Cow;
use std::io;
use std::os::fd::BorrowedFd;

use crate::clock::Now;
use crate::connection::{CloseReason, ConnInfo, OnHangup, WorkerId};
use crate::handle::Handle;
use crate::io::Io;
use crate::worker::conns::Conns;

/// A protocol or application on top of the event loops.
///
/// A turn of a worker's loop runs in this order: [`turn_start`](Service::turn_start), messages,
/// connections that are ready, timers, [`turn_end`](Service::turn_end), then everything that was
/// held back for the end of the turn is sent. Messages may come in between as well, after a call that has asked for
/// that ([`Io::send_mail_first`]).
///
/// No call may wait for anything but a short lock: all connections of the worker wait with it.
pub trait Service: Send + Sync + Sized + 'static {
    /// State of one worker thread; built on that thread and never leaves it.
    type Worker;
    /// State of one connection.
    type Session;
    /// What other threads can tell a worker.
    type Message: Send + 'static;

    /// Builds the state of a worker, on its thread, before its first turn.
    fn worker(&self, id: WorkerId, handle: &Handle<Self::Message>) -> Self::Worker;

    /// A connection was accepted, and its TLS handshake completed if it is encrypted. An error refuses it with a
    /// last word to the peer. `certificate` is what the peer has shown, if that was asked for: in DER, and checked.
    fn open(
        &self,
        worker: &mut Self::Worker,
        info: &ConnInfo,
        certificate: Option<&[u8]>,
        now: Now,
    ) -> Result<Self::Session, Refusal>;

    /// A connection did not complete its TLS handshake, and was never opened.
    fn handshake_failed(&self, worker: &mut Self::Worker, info: &ConnInfo, error: &io::Error) {
        let _ = (worker, info, error);
    }

    /// Bytes have arrived, or the session was resumed, or it asked for another turn.
    ///
    /// [`Io::input`] begins with the first byte not yet consumed. What is not consumed is presented
    /// again, with more behind it.
    fn input(
        &self,
        worker: &mut Self::Worker,
        session: &mut Self::Session,
        io: &mut Io<'_>,
    ) -> Flow;

    /// The timer set by [`Io::set_timer`] is due; it is no longer set. The input is empty here.
    ///
    /// The answer describes the connection from now on: a suspended one is resumed by
    /// [`Flow::Continue`] and stays suspended with [`Flow::Suspend`].
    fn timer(
        &self,
        worker: &mut Self::Worker,
        session: &mut Self::Session,
        io: &mut Io<'_>,
    ) -> Flow {
        let _ = (worker, session, io);
        Flow::Close
    }

    /// A message from the mailbox.
    fn message(
        &self,
        worker: &mut Self::Worker,
        message: Self::Message,
        conns: &mut Conns<'_, Self::Session>,
    );

    /// The worker woke up and is about to serve.
    fn turn_start(&self, worker: &mut Self::Worker, now: Now) {
        let _ = (worker, now);
    }

    /// All work of the turn is done; outputs held for the turn's end are sent right after this.
    fn turn_end(
        &self,
        worker: &mut Self::Worker,
        conns: &mut Conns<'_, Self::Session>,
        now: Now,
    ) -> NextTurn {
        let _ = (worker, conns, now);
        NextTurn::WhenReady
    }

    /// An additional descriptor: the worker wakes up when it is readable, for a turn in
    /// which the service finds out why. Asked for before the worker waits, until there is one; from
    /// then on it stays the same and open as long as the worker's state lives.
    fn watched<'w>(&self, worker: &'w Self::Worker) -> Option<BorrowedFd<'w>> {
        let _ = worker;
        None
    }

    /// The connection is gone, or no longer listened to; called exactly once for each session.
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

/// The bytes sent to a peer whose connection is not wanted; may be empty.
pub type Refusal = Cow<'static, [u8]>;

/// How a connection goes on after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Call again when more bytes have arrived.
    Continue,
    /// Call again next turn with what is left, even if nothing more arrives: the session stopped
    /// in the middle to let other connections have their turn.
    Yield,
    /// Do not call again until resumed by a message or the timer.
    Suspend(OnHangup),
    /// Send what is in the output, then close; no more input is read.
    Close,
}

/// When a worker has its next turn if no connection, message or timer asks for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextTurn {
    /// Sleep as long as nothing happens.
    WhenReady,
    /// At this moment of [`Now::monotonic_ms`] at the latest.
    At(u64),
    /// At once, after a look at the connections.
    Immediately,
}
