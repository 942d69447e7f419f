//! The connections of a worker as the service sees them, in messages and at the end of a turn.

use super::{Core, Token};
use crate::clock::Now;
use crate::connection::{CloseReason, Conn, ConnInfo, ConnKey, Phase, WorkerId};
use crate::send_barriers::Ticket;
use crate::timer::TimerKind;
use tierce_output::Output;

/// All connections of one worker.
pub struct Conns<'a, S> {
    core: &'a mut Core<S>,
}

/// Connection for reading.
#[derive(Debug)]
pub struct ConnView<'a, S> {
    /// Facts that never change.
    pub info: &'a ConnInfo,
    /// State of the service.
    pub session: &'a S,
    /// State of the loop.
    pub state: ConnState,
}

/// Figures of one connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnState {
    /// Number of input bytes that wait, for the rest of a request or for the session to be resumed.
    pub input_bytes: usize,
    /// Memory owned for input.
    pub input_capacity: usize,
    /// Number of unsent output bytes.
    pub output_bytes: usize,
    /// Number of separate pieces of them.
    pub output_chunks: usize,
    /// [`Now::monotonic_ms`] when the last input was received.
    pub last_input_ms: u64,
    /// The session waits to be resumed.
    pub suspended: bool,
}

impl ConnState {
    fn of<S>(conn: &Conn<S>) -> Self {
        Self {
            input_bytes: conn.input_bytes(),
            input_capacity: conn.input_capacity(),
            output_bytes: conn.queued_bytes(),
            output_chunks: conn.queue.as_ref().map_or(0, |queue| queue.chunks()),
            last_input_ms: conn.last_input_ms,
            suspended: matches!(conn.phase, Phase::Suspended(_)),
        }
    }
}

/// Returns the memory of an idle, unencrypted connection with this state of the service.
#[must_use]
pub const fn idle_conn_bytes<S>() -> usize {
    size_of::<Conn<S>>()
}

/// Connection for changing. Output written to it is queued on drop, and sent at the end of the turn.
pub struct ConnMut<'a, S> {
    core: &'a mut Core<S>,
    token: Token,
}

impl<'a, S> Conns<'a, S> {
    pub(crate) fn new(core: &'a mut Core<S>) -> Conns<'a, S> {
        Conns { core }
    }

    /// Returns the worker that owns all of them.
    pub fn worker(&self) -> WorkerId {
        self.core.id
    }

    /// Returns the time of this turn.
    pub fn now(&self) -> Now {
        self.core.now
    }

    /// Returns the number of connections, including those that are being closed.
    pub fn len(&self) -> usize {
        self.core.conns.len()
    }

    /// Returns true if there is no connection.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the connection, unless it has ended.
    pub fn get(&mut self, key: ConnKey) -> Option<ConnMut<'_, S>> {
        if key.worker != self.core.id {
            return None;
        }
        let token = Token::new(key);
        self.core.conn(token)?.session.as_ref()?;
        self.core.begin_output(token);
        Some(ConnMut { core: self.core, token })
    }

    /// Returns all connections, in no order.
    pub fn iter(&self) -> impl Iterator<Item = ConnView<'_, S>> {
        self.core.conns.iter().filter_map(|conn| {
            Some(ConnView {
                info: &conn.info,
                session: conn.session.as_ref()?,
                state: ConnState::of(conn),
            })
        })
    }

    /// Calls `act` with every connection, in no order.
    pub fn for_each(&mut self, mut act: impl FnMut(&mut ConnMut<'_, S>)) {
        for slot in 0..self.core.conns.slots() as u32 {
            let Some(conn) = self.core.conns.get(slot) else { continue };
            let key = conn.info.key;
            if let Some(mut conn) = self.get(key) {
                act(&mut conn);
            }
        }
    }
}

impl<S> ConnMut<'_, S> {
    /// Returns the facts that never change.
    pub fn info(&self) -> ConnInfo {
        self.conn().info
    }

    /// Returns the state of the loop.
    pub fn state(&self) -> ConnState {
        ConnState::of(self.conn())
    }

    /// Returns the state of the service.
    pub fn session(&mut self) -> &mut S {
        self.split().0
    }

    /// Returns the buffer for the peer's output.
    pub fn output(&mut self) -> &mut Output {
        &mut self.core.output
    }

    /// Returns session and output together, for code that needs both.
    pub fn split(&mut self) -> (&mut S, &mut Output) {
        let conn = self.core.conns.get_mut(self.token.slot()).expect("alive as long as borrowed");
        let session = conn.session.as_mut().expect("only connections with a session are lent");
        (session, &mut self.core.output)
    }

    /// Makes the worker call the session this turn or next, if it is suspended.
    pub fn resume(&mut self) {
        let key = self.conn().info.key;
        self.core.resume(key);
    }

    /// Makes the worker call the session when no output is unsent, which may be next turn.
    pub fn call_when_sent(&mut self) {
        self.commit();
        self.core.call_when_sent(self.token);
    }

    /// Defers the output written here, and all later output; see [`Io::hold_output`](crate::Io::hold_output).
    pub fn hold_output(&mut self, ticket: Ticket) {
        let conn = self.core.conns.get_mut(self.token.slot()).expect("alive as long as borrowed");
        conn.control.hold_for(ticket);
    }

    /// Releases the output that [`Io::hold_output`](crate::Io::hold_output) defers for tickets that are reached now.
    /// Returns true if none is deferred any more.
    pub fn release(&mut self, reached: Ticket) -> bool {
        self.commit();
        self.core.lift_barriers(self.token, reached)
    }

    /// Returns true if output is deferred for one of these tickets.
    pub fn is_held_for(&mut self, one: impl Fn(Ticket) -> bool) -> bool {
        let conn = self.core.conns.get_mut(self.token.slot()).expect("alive as long as borrowed");
        conn.control
            .send_barriers
            .as_ref()
            .is_some_and(|send_barriers| send_barriers.tickets().any(one))
    }

    /// Discards the deferred output, and closes the connection when the earlier output is sent.
    pub fn close_without_held(&mut self) {
        self.commit();
        self.core.drop_held(self.token);
        self.close_after_flush();
    }

    /// Sets the connection's one timer; see [`Io::set_timer`](crate::Io::set_timer).
    pub fn set_timer(&mut self, at_ms: u64) {
        let at_ms = at_ms.max(self.core.now.monotonic_ms + 1);
        self.core.timers.set(self.token.slot(), TimerKind::Session, at_ms);
    }

    /// Clears the timer.
    pub fn clear_timer(&mut self) {
        self.core.timers.clear(self.token.slot(), TimerKind::Session);
    }

    /// Closes the connection without sending its pending output.
    pub fn close(&mut self) {
        self.core.schedule_close(self.token, CloseReason::Service);
    }

    /// Closes the connection when everything written so far is sent.
    pub fn close_after_flush(&mut self) {
        self.commit();
        self.core.begin_flushing(self.token);
        self.core.finish_flushing(self.token);
    }

    fn conn(&self) -> &Conn<S> {
        self.core.conns.get(self.token.slot()).expect("alive as long as borrowed")
    }

    /// Queues the written output.
    fn commit(&mut self) {
        self.core.queue_output(self.token);
        self.core.begin_output(self.token);
    }
}

impl<S> Drop for ConnMut<'_, S> {
    fn drop(&mut self) {
        self.commit();
    }
}

impl<S> Core<S> {
    /// Makes the worker call a suspended session again.
    pub(super) fn resume(&mut self, key: ConnKey) {
        let token = Token::new(key);
        let Some(conn) = self.conn(token) else { return };
        if matches!(conn.phase, Phase::Suspended(_)) {
            conn.phase = Phase::Open;
            conn.call_again = true;
            self.make_ready(token);
        }
    }

    /// Queues output of a call outside the connection's own turn. Then all pending output is checked against the
    /// limits, because nothing else bounds the output that others write to a connection.
    fn queue_output(&mut self, token: Token) {
        if self.output.is_condemned() {
            return self.condemn(token);
        }
        self.set_barrier(token);
        let part = self.output.part();
        let Some(conn) = self.conns.get(token.slot()) else { return };
        if part.len() == 0 {
            return;
        }
        if !conn.control.is_cut {
            self.queue_part(token, part);
        }
        self.output.discard_part();
        let pending = self.conns.get(token.slot()).map_or(0, |conn| conn.queued_bytes());
        self.check_bytes(token, pending);
    }
}
