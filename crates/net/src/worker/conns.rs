//! The connections of a worker as the service sees them, in messages and at the end of a turn.

use super::{Core, Token};
use crate::clock::Now;
use crate::connection::{CloseReason, Conn, ConnInfo, ConnKey, Phase, WorkerId};
use crate::gates::Ticket;
use crate::timer::TimerKind;
use tierce_output::Output;

/// All connections of one worker.
pub struct Conns<'a, S> {
    core: &'a mut Core<S>,
}

/// A connection to read from.
#[derive(Debug)]
pub struct ConnView<'a, S> {
    /// What is known from the beginning.
    pub info: &'a ConnInfo,
    /// The service's state.
    pub session: &'a S,
    /// What the loop knows of it.
    pub state: ConnState,
}

/// Figures of one connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnState {
    /// Input bytes that wait, for the rest of a request or for the session to be resumed.
    pub input_bytes: usize,
    /// Memory owned for input.
    pub input_capacity: usize,
    /// Output bytes that wait to be sent.
    pub output_bytes: usize,
    /// Number of separate pieces in which they wait.
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

/// Bytes that an idle connection with this state of the service takes, unless it is encrypted.
#[must_use]
pub const fn idle_conn_bytes<S>() -> usize {
    size_of::<Conn<S>>()
}

/// A connection to act on. What is written to its output is queued when this is dropped, and sent
/// at the end of the turn.
pub struct ConnMut<'a, S> {
    core: &'a mut Core<S>,
    token: Token,
}

impl<'a, S> Conns<'a, S> {
    pub(crate) fn new(core: &'a mut Core<S>) -> Conns<'a, S> {
        Conns { core }
    }

    /// The worker all of them belong to.
    pub fn worker(&self) -> WorkerId {
        self.core.id
    }

    /// The moment of this turn.
    pub fn now(&self) -> Now {
        self.core.now
    }

    /// Number of connections, including those that are being closed.
    pub fn len(&self) -> usize {
        self.core.conns.len()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The connection, unless it has ended.
    pub fn get(&mut self, key: ConnKey) -> Option<ConnMut<'_, S>> {
        if key.worker != self.core.id {
            return None;
        }
        let token = Token::new(key);
        self.core.conn(token)?.session.as_ref()?;
        self.core.begin_output(token);
        Some(ConnMut { core: self.core, token })
    }

    /// All connections, in no order.
    pub fn iter(&self) -> impl Iterator<Item = ConnView<'_, S>> {
        self.core.conns.iter().filter_map(|conn| {
            Some(ConnView {
                info: &conn.info,
                session: conn.session.as_ref()?,
                state: ConnState::of(conn),
            })
        })
    }

    /// Acts on every connection, in no order.
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
    /// What is known from the beginning.
    pub fn info(&self) -> ConnInfo {
        self.conn().info
    }

    /// What the loop knows of it.
    pub fn state(&self) -> ConnState {
        ConnState::of(self.conn())
    }

    /// The service's state.
    pub fn session(&mut self) -> &mut S {
        self.split().0
    }

    /// Where to write what the peer is to get.
    pub fn output(&mut self) -> &mut Output {
        &mut self.core.output
    }

    /// Session and output in one go, for code that wants both in hand.
    pub fn split(&mut self) -> (&mut S, &mut Output) {
        let conn = self.core.conns.get_mut(self.token.slot()).expect("alive as long as borrowed");
        let session = conn.session.as_mut().expect("only connections with a session are lent");
        (session, &mut self.core.output)
    }

    /// Has the session called this turn or next, if it is suspended.
    pub fn resume(&mut self) {
        let key = self.conn().info.key;
        self.core.resume(key);
    }

    /// Has the session called when no output waits any more, which may be next turn.
    pub fn call_when_sent(&mut self) {
        self.commit();
        self.core.call_when_sent(self.token);
    }

    /// Keeps what is written here, and all behind it; see
    /// [`Io::hold_output`](crate::Io::hold_output).
    pub fn hold_output(&mut self, ticket: Ticket) {
        let conn = self.core.conns.get_mut(self.token.slot()).expect("alive as long as borrowed");
        conn.control.hold_for(ticket);
    }

    /// Lets go of the output that [`Io::hold_output`](crate::Io::hold_output) keeps for tickets that are reached now.
    /// Whether none is kept any more.
    pub fn release(&mut self, reached: Ticket) -> bool {
        self.commit();
        self.core.open_gates(self.token, reached)
    }

    /// True if output is kept for one of these tickets.
    pub fn is_held_for(&mut self, one: impl Fn(Ticket) -> bool) -> bool {
        let conn = self.core.conns.get_mut(self.token.slot()).expect("alive as long as borrowed");
        conn.control.gates.as_ref().is_some_and(|gates| gates.tickets().any(one))
    }

    /// Throws away the output that is kept, and closes the connection when what is in front of it is
    /// sent.
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

    /// Unsets the timer.
    pub fn clear_timer(&mut self) {
        self.core.timers.clear(self.token.slot(), TimerKind::Session);
    }

    /// Closes the connection without sending what waits.
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

    /// Queues what was written.
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
    /// Has a suspended session called again.
    pub(super) fn resume(&mut self, key: ConnKey) {
        let token = Token::new(key);
        let Some(conn) = self.conn(token) else { return };
        if matches!(conn.phase, Phase::Suspended(_)) {
            conn.phase = Phase::Open;
            conn.call_again = true;
            self.make_ready(token);
        }
    }

    /// Queues output of a call that was not the connection's own turn. All that waits is judged then,
    /// for nothing else bounds what others write to a connection.
    fn queue_output(&mut self, token: Token) {
        if self.output.is_condemned() {
            return self.condemn(token);
        }
        self.set_gate(token);
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
        self.judge_bytes(token, pending);
    }
}
