//! Sends a session's output to the socket.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use rustix::event::epoll::{self, EventData, EventFlags};

use super::{Core, Deferred, Token, Worker};
use crate::connection::{CloseReason, Conn, Phase, Writable};
use crate::send_barriers::Ticket;
use crate::timer::TimerKind;
use crate::tls::Buffers;
use crate::transport::SLICES_MAX;
use crate::worker::service::Service;
use tierce_output::{LimitState, Output, Part};

/// Events that every connection is watched for.
pub(super) const READ_EVENTS: EventFlags =
    EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);

/// Maximum number of system calls to send one connection's queue in one turn.
const SENDS_PER_TURN_MAX: usize = 16;

impl<S: Service> Worker<S> {
    /// Sends the outputs deferred to the end of the turn.
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

    /// Sends the queues that grew, or whose socket has room again.
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
            self.next_turn = crate::worker::service::NextTurn::Immediately;
        }
        self.core.flush = flush;
    }
}

impl<S> Core<S> {
    /// Handles output that is not plain, or that has an obstacle: sends it, defers it to the end of the turn, or queues
    /// it.
    #[inline(never)]
    pub(super) fn sort_output(&mut self, token: Token) {
        if self.output.is_condemned() {
            return self.condemn(token);
        }
        let part = self.output.part();
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        if conn.control.hold.is_some() {
            self.set_barrier(token);
            return self.sort_output(token);
        }
        if part.len() > 0 {
            if conn.control.is_cut {
                self.output.discard_part();
            } else if conn.queue.is_some()
                || conn.control.send_barriers.is_some()
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

    /// Discards output beyond the limit of unread output, and closes the connection.
    #[cold]
    pub(super) fn condemn(&mut self, token: Token) {
        let pending = self.output.condemned_bytes();
        self.output.discard_part();
        self.schedule_close(token, CloseReason::OutputLimit { pending });
    }

    pub(super) fn queue_part(&mut self, token: Token, part: Part) {
        self.queue_deferred(token);
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        let queue = conn.queue.get_or_insert_default();
        queue.push_part(&self.output, part, 0);
        self.list_for_flush(token);
        self.check(token);
    }

    /// Queues output that was deferred to the end of the turn, because more follows it.
    fn queue_deferred(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        if let Some(index) = conn.deferred_at.take()
            && let Some(earlier) = self.deferred[index as usize].part.take()
        {
            let queue = conn.queue.get_or_insert_default();
            queue.push_part(&self.output, earlier, 0);
        }
    }

    /// Defers the output of the call that has just ended, if the call asked for that.
    #[inline(never)]
    pub(super) fn set_barrier(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        let Some(ticket) = conn.control.hold.take() else { return };
        self.queue_deferred(token);
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        let queued = conn.queued_bytes();
        conn.control.send_barriers.get_or_insert_default().set(queued, ticket);
        self.list_for_flush(token);
    }

    /// Sends output whose tickets are `reached`. Returns true if none is deferred any more.
    pub(super) fn lift_barriers(&mut self, token: Token, reached: Ticket) -> bool {
        let Some(conn) = self.conn(token) else { return true };
        let was_stalled = conn.is_stalled();
        let is_open = conn
            .control
            .send_barriers
            .as_mut()
            .is_none_or(|send_barriers| send_barriers.open(reached));
        if is_open {
            conn.control.send_barriers = None;
        }
        if was_stalled && !conn.is_stalled() {
            self.make_ready(token);
        }
        self.list_for_flush(token);
        is_open
    }

    /// Discards output that waits for a ticket, and all later output.
    pub(super) fn drop_held(&mut self, token: Token) {
        let Some(conn) = self.conn(token) else { return };
        let sendable = conn.sendable_bytes();
        conn.control.send_barriers = None;
        conn.control.is_cut = true;
        if sendable == 0 {
            conn.queue = None;
        } else if let Some(queue) = conn.queue.as_mut() {
            queue.truncate(sendable);
        }
    }

    /// Sends a part; the rest that the socket does not take is queued.
    fn send_part(&mut self, token: Token, part: Part) {
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        let result = send_once(conn, &self.output, part, &mut self.tls.buffers);
        self.note_sent(token, part, result);
    }

    /// Continues after the socket has taken some of a part.
    pub(super) fn note_sent(&mut self, token: Token, part: Part, result: io::Result<usize>) {
        let sent = match result {
            Ok(sent) => sent,
            Err(error) => return self.fail(token, error),
        };
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        self.metrics.bytes_out += sent as u64;
        if sent == part.len() {
            return self.finish_flushing(token);
        }
        let is_full = conn.transport.is_full(sent, first_slices_len(&self.output, part));
        let queue = conn.queue.get_or_insert_default();
        queue.push_part(&self.output, part, sent);
        if is_full {
            self.wait_for_room(token);
        } else {
            self.list_for_flush(token);
        }
        self.check(token);
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
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = conn.queue.as_ref().map_or(0, |queue| queue.slices(&mut slices, sendable));
            let slices = &slices[..count];
            let len: usize = slices.iter().map(|slice| slice.len()).sum();
            let (socket, tls) = (conn.socket.as_fd(), &mut self.tls.buffers);
            let sent = match slices {
                [only] => conn.transport.send(socket, only, tls),
                _ => conn.transport.send_slices(socket, slices, tls),
            };
            let sent = match sent {
                Ok(sent) => sent,
                Err(error) => return self.fail(token, error),
            };
            if let Some(queue) = conn.queue.as_mut() {
                queue.advance(sent);
            }
            if let Some(send_barriers) = conn.control.send_barriers.as_mut() {
                send_barriers.advance(sent);
            }
            self.metrics.bytes_out += sent as u64;
            let is_last_output = conn.phase == Phase::Flushing;
            if conn.queued_bytes() == 0 {
                conn.queue = None;
            }
            let is_full = conn.transport.is_full(sent, len);
            if sent == sendable && !is_full {
                self.stop_waiting_for_room(token);
                self.call_if_wanted(token);
                return self.finish_flushing(token);
            }
            if is_last_output && sent > 0 {
                self.give_time_to_flush(token);
            }
            if is_full {
                self.wait_for_room(token);
                return self.check(token);
            }
        }
        self.list_for_flush(token);
    }

    /// Calls a session that produces output as fast as its peer reads it, as soon as its queue is empty.
    pub(super) fn call_when_sent(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        conn.control.wants_call = true;
        if conn.queued_bytes() == 0 {
            self.call_if_wanted(token);
        }
    }

    fn call_if_wanted(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        if std::mem::take(&mut conn.control.wants_call) && conn.phase == Phase::Open {
            conn.call_again = true;
            self.make_ready(token);
        }
    }

    /// Watches the full socket for room.
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
            self.schedule_close(token, CloseReason::Io(errno.into()));
        }
    }

    /// Closes a connection that leaves too much output unread. Deferred output does not count.
    pub(super) fn check(&mut self, token: Token) {
        let pending = self.conns.get(token.slot()).map_or(0, |conn| conn.sendable_bytes());
        self.check_bytes(token, pending);
    }

    pub(super) fn check_bytes(&mut self, token: Token, pending: usize) {
        let now_ms = self.now.monotonic_ms;
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        let control = &mut conn.control;
        let since_ms = &mut control.above_soft_since_ms;
        match self.output.limits().check(control.class, pending, since_ms, now_ms) {
            LimitState::Fine => {}
            // The end of a connection in another phase has a deadline of its own.
            LimitState::AboveSoftUntil(at_ms) => {
                if matches!(conn.phase, Phase::Open | Phase::Suspended(_)) {
                    self.timers.set(token.slot(), TimerKind::Worker, at_ms);
                }
            }
            LimitState::Exceeded => {
                self.schedule_close(token, CloseReason::OutputLimit { pending });
            }
        }
    }
}

/// Makes one system call for a part.
fn send_once<S>(
    conn: &mut Conn<S>,
    output: &Output,
    part: Part,
    tls: &mut Buffers,
) -> io::Result<usize> {
    let socket = conn.socket.as_fd();
    if let Some(bytes) = output.plain_bytes(part) {
        return conn.transport.send(socket, bytes, tls);
    }
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let count = output.slices(part, &mut slices);
    conn.transport.send_slices(socket, &slices[..count], tls)
}

/// Returns the number of bytes of a part that one system call covers.
fn first_slices_len(output: &Output, part: Part) -> usize {
    output.pieces(part).take(SLICES_MAX).map(|piece| piece.bytes().len()).sum()
}
