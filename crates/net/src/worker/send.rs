//! From what a session wrote to the socket.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use rustix::event::epoll::{self, EventData, EventFlags};

use super::{Core, Deferred, Token, Worker};
use crate::connection::{Conn, Phase, Writable};
use crate::output::limits::Verdict;
use crate::output::{Output, Part};
use crate::service::{CloseReason, Service};
use crate::timer::TimerKind;
use crate::transport::SLICES_MAX;

/// Events a connection is always watched for.
pub(super) const READ_EVENTS: EventFlags =
    EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);

/// System calls to send one connection's queue in one turn.
const SENDS_PER_TURN_MAX: usize = 16;

impl<S: Service> Worker<S> {
    /// Sends the outputs that waited for the end of the turn.
    pub(super) fn send_deferred(&mut self) {
        if self.core.deferred.is_empty() {
            return;
        }
        let mut deferred = std::mem::take(&mut self.core.deferred);
        for Deferred { token, part } in deferred.drain(..) {
            let Some(conn) = self.core.conn(token) else { continue };
            conn.deferred_at = None;
            if let Some(part) = part {
                self.core.send_part(token, part);
            }
        }
        self.core.deferred = deferred;
    }

    /// Sends the queues that got something to send or the room for it.
    pub(super) fn flush_queues(&mut self) {
        if self.core.flush.is_empty() {
            return;
        }
        let mut flush = std::mem::take(&mut self.core.flush);
        for token in flush.drain(..) {
            if let Some(conn) = self.core.conn(token) {
                conn.in_flush = false;
                self.core.flush_queue(token);
            }
        }
        // Sending lists connections again that have more to send than one turn allows.
        flush.append(&mut self.core.flush);
        if !flush.is_empty() {
            self.next_turn = crate::service::NextTurn::Immediately;
        }
        self.core.flush = flush;
    }
}

impl<S> Core<S> {
    /// Sees to the output of a call that has just ended: sends it, keeps it for the end of the
    /// turn, or queues it.
    pub(super) fn dispatch_output(&mut self, token: Token) {
        if self.output.is_condemned() {
            return self.condemn(token);
        }
        let part = self.output.part();
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        if conn.control.hold.is_some() {
            self.set_gate(token);
            return self.dispatch_output(token);
        }
        if part.len() > 0 {
            if conn.control.is_cut {
                self.output.discard_part();
            } else if conn.queue.is_some()
                || conn.control.gates.is_some()
                || conn.deferred_at.is_some()
            {
                self.queue_part(token, part);
                self.output.discard_part();
            } else if self.output.is_held_for_turn() {
                conn.deferred_at = Some(self.deferred.len() as u32);
                self.deferred.push(Deferred { token, part: Some(part) });
            } else {
                self.send_part(token, part);
                self.output.discard_part();
            }
        }
        self.finish_flushing(token);
    }

    /// Queues output of a call that was not the connection's own turn. All that waits is judged then,
    /// for nothing else bounds what others write to a connection.
    pub(super) fn queue_output(&mut self, token: Token) {
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

    /// Throws away output that is more than the peer may leave unread, and has the connection closed.
    #[cold]
    fn condemn(&mut self, token: Token) {
        let pending = self.output.condemned_bytes();
        self.output.discard_part();
        self.doom(token, CloseReason::OutputLimit { pending });
    }

    fn queue_part(&mut self, token: Token, part: Part) {
        self.queue_deferred(token);
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        let queue = conn.queue.get_or_insert_default();
        queue.push_part(&self.output, part, 0, &self.pool);
        self.list_for_flush(token);
        self.judge(token);
    }

    /// Queues what was held for the end of the turn, for something comes behind it.
    fn queue_deferred(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        if let Some(index) = conn.deferred_at.take()
            && let Some(earlier) = self.deferred[index as usize].part.take()
        {
            let queue = conn.queue.get_or_insert_default();
            queue.push_part(&self.output, earlier, 0, &self.pool);
        }
    }

    /// Has the output of the call that has just ended wait, if the call asked for that.
    #[inline(never)]
    fn set_gate(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        let Some(ticket) = conn.control.hold.take() else { return };
        self.queue_deferred(token);
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        let queued = conn.queued_bytes();
        conn.control.gates.get_or_insert_default().set(queued, ticket);
        self.list_for_flush(token);
    }

    /// Sends output that has waited for tickets up to `reached`. Whether none waits any more.
    pub(super) fn open_gates(&mut self, token: Token, reached: u64) -> bool {
        let Some(conn) = self.conn(token) else { return true };
        let was_stalled = conn.is_stalled();
        let is_open = conn.control.gates.as_mut().is_none_or(|gates| gates.open(reached));
        if is_open {
            conn.control.gates = None;
        }
        if was_stalled && !conn.is_stalled() {
            self.make_ready(token);
        }
        self.list_for_flush(token);
        is_open
    }

    /// Throws away what waits for a ticket, and whatever is written from now on.
    pub(super) fn drop_held(&mut self, token: Token) {
        let Some(conn) = self.conn(token) else { return };
        let sendable = conn.sendable_bytes();
        conn.control.gates = None;
        conn.control.is_cut = true;
        if sendable == 0 {
            conn.queue = None;
        } else if let Some(queue) = conn.queue.as_mut() {
            queue.truncate(sendable);
        }
    }

    /// Sends a part; what the socket does not take is queued.
    fn send_part(&mut self, token: Token, part: Part) {
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        let sent = match send_once(conn, &self.output, part) {
            Ok(sent) => sent,
            Err(error) => return self.doom(token, CloseReason::Io(error)),
        };
        self.metrics.bytes_out += sent as u64;
        if sent == part.len() {
            return self.finish_flushing(token);
        }
        let is_full = sent < first_slices_len(&self.output, part);
        let queue = conn.queue.get_or_insert_default();
        queue.push_part(&self.output, part, sent, &self.pool);
        if is_full {
            self.wait_for_room(token);
        } else {
            self.list_for_flush(token);
        }
        self.judge(token);
    }

    pub(super) fn list_for_flush(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        if conn.can_flush() && !conn.in_flush {
            conn.in_flush = true;
            self.flush.push(token);
        }
    }

    fn flush_queue(&mut self, token: Token) {
        for _ in 0..SENDS_PER_TURN_MAX {
            let Some(conn) = self.conns.get_mut(token.slot()) else { return };
            if !conn.can_flush() {
                return;
            }
            let sendable = conn.sendable_bytes();
            let Some(queue) = conn.queue.as_mut() else { return };
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = queue.slices(&mut slices, sendable);
            let slices = &slices[..count];
            let len: usize = slices.iter().map(|slice| slice.len()).sum();
            let socket = conn.socket.as_fd();
            let sent = match slices {
                [only] => conn.transport.send(socket, only),
                _ => conn.transport.send_slices(socket, slices),
            };
            let sent = match sent {
                Ok(sent) => sent,
                Err(error) => return self.doom(token, CloseReason::Io(error)),
            };
            queue.advance(sent);
            if let Some(gates) = conn.control.gates.as_mut() {
                gates.advance(sent);
            }
            self.metrics.bytes_out += sent as u64;
            let is_last_output = conn.phase == Phase::Flushing;
            if queue.bytes() == 0 {
                conn.queue = None;
            }
            if sent == sendable {
                self.stop_waiting_for_room(token);
                return self.finish_flushing(token);
            }
            if is_last_output && sent > 0 {
                self.give_time_to_flush(token);
            }
            if sent < len {
                self.wait_for_room(token);
                return self.judge(token);
            }
        }
        self.list_for_flush(token);
    }

    /// Watches the socket for room, for it is full.
    fn wait_for_room(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        conn.writable = Writable::WhenPolled;
        if !conn.polled_for_room {
            conn.polled_for_room = true;
            self.watch(token, READ_EVENTS | EventFlags::OUT);
        }
    }

    fn stop_waiting_for_room(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        conn.control.above_soft_since_ms = None;
        if conn.polled_for_room {
            conn.polled_for_room = false;
            self.watch(token, READ_EVENTS);
        }
    }

    fn watch(&mut self, token: Token, events: EventFlags) {
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        let data = EventData::new_u64(token.0);
        if let Err(errno) = epoll::modify(&self.epoll, &conn.socket, data, events) {
            self.doom(token, CloseReason::Io(errno.into()));
        }
    }

    /// Closes a connection that leaves too much output unread. What is held back is not its fault.
    pub(super) fn judge(&mut self, token: Token) {
        let pending = self.conns.get(token.slot()).map_or(0, |conn| conn.sendable_bytes());
        self.judge_bytes(token, pending);
    }

    fn judge_bytes(&mut self, token: Token, pending: usize) {
        let now_ms = self.now.monotonic_ms;
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        let control = &mut conn.control;
        let since_ms = &mut control.above_soft_since_ms;
        match self.output.limits().judge(control.class, pending, since_ms, now_ms) {
            Verdict::Fine => {}
            // The end of a connection in another phase has a deadline of its own.
            Verdict::AboveSoftUntil(at_ms) => {
                if matches!(conn.phase, Phase::Open | Phase::Suspended(_)) {
                    self.timers.set(token.slot(), TimerKind::Worker, at_ms);
                }
            }
            Verdict::Exceeded => self.doom(token, CloseReason::OutputLimit { pending }),
        }
    }
}

/// One system call for a part.
fn send_once<S>(conn: &Conn<S>, output: &Output, part: Part) -> io::Result<usize> {
    let socket = conn.socket.as_fd();
    if let Some(bytes) = output.plain_bytes(part) {
        return conn.transport.send(socket, bytes);
    }
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let count = output.slices(part, &mut slices);
    conn.transport.send_slices(socket, &slices[..count])
}

/// Bytes of a part that one system call covers.
fn first_slices_len(output: &Output, part: Part) -> usize {
    output.pieces(part).take(SLICES_MAX).map(|piece| piece.bytes().len()).sum()
}
