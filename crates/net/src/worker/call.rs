//! One call of a session: from a socket event through the call to its output on the socket.

use std::io;
use std::os::fd::AsFd;

use rustix::event::epoll::EventFlags;

use super::{Core, Token, Worker};
use crate::connection::{CloseReason, Conn, OnHangup, Phase, Writable};
use crate::io::Io;
use crate::socket;
use crate::tls::Buffers;
use crate::worker::service::{Flow, Service};

/// Size up to which a rest is moved back in front of the worker's buffer, so that the next `recv` has the whole buffer
/// behind it. Larger ones stay in place and grow there: moving them for every few bytes would cost more than the
/// `recv`.
const REJOIN_BYTES_MAX: usize = 4 * 1024;

/// Least room for a `recv` into a connection's own buffer.
const SPARE_BYTES_MIN: usize = 4 * 1024;

/// Maximum number of bytes received for one connection in one turn.
const RECEIVE_BYTES_MAX: usize = 1024 * 1024;

/// Maximum number of bytes received in one turn into a side buffer. Fewer and longer calls cost the kernel less. This
/// many bytes take a millisecond or two, which other connections wait for.
const RECEIVE_SIDE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Location of a connection's input after receiving.
#[derive(Clone, Copy, Debug)]
enum InputBuffer {
    /// In the worker's buffer, this many bytes; the connection owns nothing.
    Scratch(usize),
    /// In the connection's own buffer.
    Rest,
}

/// Result of one `recv`.
#[derive(Debug)]
enum Received {
    Bytes { count: usize, buffer: InputBuffer },
    Nothing,
    HangUp,
    Failed(io::Error),
}

impl<S: Service> Worker<S> {
    pub(super) fn on_event(&mut self, token: Token, flags: EventFlags) {
        if flags.contains(EventFlags::OUT) {
            self.note_room(token);
        }
        let Some(conn) = self.core.conn(token) else { return };
        let broken = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        let hang_up = broken || flags.contains(EventFlags::RDHUP);
        if !hang_up && !flags.contains(EventFlags::IN) {
            return;
        }
        conn.readable = !conn.hung_up;
        conn.hang_up_reported |= hang_up;
        let waits_in_vain = hang_up
            && match conn.phase {
                Phase::Open => false,
                Phase::Suspended(OnHangup::Close) => true,
                // No reply can reach the peer, but its requests are executed.
                Phase::Suspended(OnHangup::Wait) => false,
                Phase::Handshaking | Phase::Flushing | Phase::Lingering => broken,
            };
        if waits_in_vain {
            self.core.schedule_close(token, CloseReason::Peer);
            self.run_pending_closes();
        } else if !conn.in_ready {
            // A listed connection is served anyway.
            self.serve(token);
        }
    }

    /// Handles a socket that takes output again.
    #[cold]
    fn note_room(&mut self, token: Token) {
        if let Some(conn) = self.core.conn(token) {
            conn.writable = Writable::Yes;
            self.core.list_for_flush(token);
        }
    }

    /// Serves one connection for one turn: receives once, calls the session once.
    #[inline]
    pub(super) fn serve(&mut self, token: Token) {
        let Some(conn) = self.core.conns.get_mut(token.slot()) else { return };
        match conn.phase {
            Phase::Open => self.serve_open(token),
            _ => self.serve_unless_open(token),
        }
    }

    #[inline(never)]
    fn serve_unless_open(&mut self, token: Token) {
        let Some(conn) = self.core.conns.get_mut(token.slot()) else { return };
        match conn.phase {
            Phase::Open | Phase::Flushing => {}
            Phase::Suspended(on_hangup) => self.keep_input(token, on_hangup),
            Phase::Handshaking => self.shake_hands(token),
            Phase::Lingering => self.discard_input(token),
        }
    }

    fn serve_open(&mut self, token: Token) {
        let core = &mut self.core;
        let Some(conn) = core.conns.get_mut(token.slot()) else { return };
        if conn.is_stalled() {
            // Served again when some of its output is released.
            return;
        }
        // A session that stopped in the middle continues with its present input. If it took more each time, the input
        // of a peer that sends faster than it is served would grow without end.
        let has_work = conn.call_again && conn.rest.len() > 0;
        let received = if conn.readable && !has_work {
            receive(conn, &mut self.scratch, &mut core.tls.buffers)
        } else {
            Received::Nothing
        };
        let buffer = match received {
            Received::Bytes { count, buffer } => {
                core.metrics.bytes_in += count as u64;
                conn.last_input_ms = core.now.monotonic_ms;
                buffer
            }
            Received::Nothing | Received::HangUp if conn.call_again => InputBuffer::Rest,
            Received::Nothing => return self.run_pending_closes(),
            Received::HangUp => {
                core.finish_hung_up(token);
                return self.run_pending_closes();
            }
            Received::Failed(error) => {
                core.fail(token, error);
                return self.run_pending_closes();
            }
        };
        if conn.readable && !conn.in_ready {
            conn.in_ready = true;
            core.ready.push(token);
        }
        // Calls the session with its input.
        conn.begin_output(&mut core.output);
        let Some(session) = conn.session.as_mut() else { return };
        conn.call_again = false;
        let input = match buffer {
            InputBuffer::Scratch(len) => &self.scratch[..len],
            InputBuffer::Rest => conn.rest.bytes(),
        };
        let (output, control, info) = (&mut core.output, &mut conn.control, &conn.info);
        let (side_buffer, timers) = (&mut conn.side_buffer, &mut core.timers);
        let without = Io::without_input(output, control, info, side_buffer, timers, core.now);
        let mut io = Io { input, ..without };
        let flow = self.service.input(&mut self.state, session, &mut io);
        let (consumed, wanted, joined) = (io.consumed, io.wanted, io.joined);
        let mail_first = io.mail_first;
        match buffer {
            InputBuffer::Scratch(len) if consumed == len => {}
            InputBuffer::Scratch(len) => {
                conn.rest.append(&self.scratch[consumed..len], wanted);
            }
            InputBuffer::Rest => conn.rest.discard(consumed, wanted),
        }
        if conn.side_buffer.is_some() {
            settle_side_buffer(conn, joined);
        }
        if mail_first {
            return self.send_mail_first(token, flow);
        }
        self.after_call(token, flow);
    }

    /// Applies the result of a session call. Inlined behind the calls with input: a call costs 20 instructions.
    #[inline(always)]
    pub(super) fn after_call(&mut self, token: Token, flow: Flow) {
        let goes_on = |conn: &Conn<S::Session>| {
            flow == Flow::Continue && conn.phase == Phase::Open && !conn.hung_up
        };
        // Usually the output only has to be sent.
        if !self.core.send_at_once(token, goes_on) {
            self.core.apply(token, flow);
            self.core.dispatch_output(token);
            self.core.finish_hung_up(token);
        }
        self.run_pending_closes();
    }

    /// Ends a call whose output follows the output of the worker's mail.
    #[cold]
    fn send_mail_first(&mut self, token: Token, flow: Flow) {
        self.core.output.hold_for_turn();
        self.after_call(token, flow);
        self.read_mail();
        self.flush_queues();
        self.send_deferred();
        self.run_pending_closes();
    }

    /// Receives for a suspended session, which is not called, up to a bound.
    fn keep_input(&mut self, token: Token, on_hangup: OnHangup) {
        let core = &mut self.core;
        let Some(conn) = core.conns.get_mut(token.slot()) else { return };
        if !conn.readable || conn.rest.len() >= core.suspended_input_bytes_max {
            return;
        }
        debug_assert!(!conn.is_filling_side_buffer(), "a session is not suspended inside a value");
        let buffers = &mut core.tls.buffers;
        let result = conn.transport.receive(conn.socket.as_fd(), &mut self.scratch, buffers);
        if let Ok(count) = result {
            conn.received(count, self.scratch.len());
        }
        match result {
            Ok(0) if on_hangup == OnHangup::Close => core.schedule_close(token, CloseReason::Peer),
            Ok(0) => {}
            Ok(count) => {
                core.metrics.bytes_in += count as u64;
                conn.last_input_ms = core.now.monotonic_ms;
                conn.rest.append(&self.scratch[..count], 0);
                if conn.readable {
                    core.make_ready(token);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => conn.readable = false,
            Err(error) => core.fail(token, error),
        }
        self.run_pending_closes();
    }

    /// Discards the bytes that a peer still sends after its connection's end.
    fn discard_input(&mut self, token: Token) {
        let core = &mut self.core;
        let Some(conn) = core.conns.get_mut(token.slot()) else { return };
        match socket::receive(conn.socket.as_fd(), &mut self.scratch) {
            Ok(0) => core.schedule_close(token, CloseReason::Peer),
            Ok(count) => {
                conn.received(count, self.scratch.len());
                if conn.readable {
                    core.make_ready(token);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => conn.readable = false,
            Err(error) => core.schedule_close(token, CloseReason::Io(error)),
        }
        self.run_pending_closes();
    }
}

impl<S> Core<S> {
    /// Handles the output of a call that has just ended: sends it, defers it to the end of the turn, or queues it.
    #[inline]
    pub(super) fn dispatch_output(&mut self, token: Token) {
        if !self.send_at_once(token, |_| true) {
            self.sort_output(token);
        }
    }

    /// Sends plain output, which nearly all is, of a connection with no obstacle. Returns false, and has done nothing,
    /// if there is an obstacle or `goes_on` is false.
    #[inline(always)]
    pub(super) fn send_at_once(
        &mut self,
        token: Token,
        goes_on: impl FnOnce(&Conn<S>) -> bool,
    ) -> bool {
        let Some(bytes) = self.output.plain_call() else { return false };
        let Some(conn) = self.conns.get_mut(token.slot()) else { return true };
        if !conn.may_send_at_once() || !goes_on(conn) {
            return false;
        }
        if bytes.is_empty() {
            return true;
        }
        match conn.transport.send(conn.socket.as_fd(), bytes, &mut self.tls.buffers) {
            Ok(sent) if sent == bytes.len() => {
                self.metrics.bytes_out += sent as u64;
                self.output.take_back_plain();
            }
            result => {
                self.note_sent(token, self.output.part(), result);
                self.output.discard_part();
            }
        }
        true
    }

    /// Applies the flow that a session has chosen.
    #[inline]
    pub(super) fn apply(&mut self, token: Token, flow: Flow) {
        if let Some(conn) = self.conns.get(token.slot())
            && flow == Flow::Continue
            && conn.phase == Phase::Open
        {
            return;
        }
        self.change_phase(token, flow);
    }

    fn change_phase(&mut self, token: Token, flow: Flow) {
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        match (flow, conn.phase) {
            // The connection is being closed already.
            (_, Phase::Handshaking | Phase::Flushing | Phase::Lingering)
            | (Flow::Continue, Phase::Open) => {}
            (Flow::Yield, _) | (Flow::Continue, Phase::Suspended(_)) => {
                conn.phase = Phase::Open;
                conn.call_again = true;
                self.make_ready(token);
            }
            (Flow::Suspend(on_hangup), _) => {
                conn.phase = Phase::Suspended(on_hangup);
                let hang_up = conn.hang_up_reported || conn.hung_up;
                if hang_up && on_hangup == OnHangup::Close {
                    self.schedule_close(token, CloseReason::Peer);
                }
            }
            (Flow::Close, _) => self.begin_flushing(token),
        }
    }

    /// Closes the connection after its replies are sent, if the peer has sent its last byte and all complete requests
    /// were served. The peer may have shut down only its sending half and wait for the replies.
    #[inline]
    pub(super) fn finish_hung_up(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        if conn.hung_up && conn.phase == Phase::Open && !conn.call_again {
            self.flush_hung_up(token);
        }
    }

    #[cold]
    fn flush_hung_up(&mut self, token: Token) {
        self.begin_flushing(token);
        self.finish_flushing(token);
    }
}

/// Receives once, into the worker's buffer or into the connection's own.
fn receive<S>(conn: &mut Conn<S>, scratch: &mut [u8], tls: &mut Buffers) -> Received {
    if conn.is_filling_side_buffer() {
        return receive_into_side_buffer(conn, tls);
    }
    let kept = conn.rest.len();
    let socket = conn.socket.as_fd();
    let into_scratch = kept <= REJOIN_BYTES_MAX;
    let buffer = if into_scratch {
        let (front, room) = scratch.split_at_mut(kept);
        if kept > 0 {
            front.copy_from_slice(conn.rest.bytes());
        }
        room
    } else {
        let spare = conn.rest.spare(SPARE_BYTES_MIN);
        let room = spare.len().min(RECEIVE_BYTES_MAX);
        &mut spare[..room]
    };
    let room = buffer.len();
    let result = conn.transport.receive(socket, buffer, tls);
    if let Ok(count) = result {
        conn.received(count, room);
    }
    match result {
        Ok(0) => Received::HangUp,
        Ok(count) => {
            if into_scratch {
                if kept > 0 {
                    conn.rest.clear();
                }
                Received::Bytes { count, buffer: InputBuffer::Scratch(kept + count) }
            } else {
                conn.rest.extend(count);
                Received::Bytes { count, buffer: InputBuffer::Rest }
            }
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            conn.readable = false;
            Received::Nothing
        }
        Err(error) => Received::Failed(error),
    }
}

/// Receives once into the side buffer.
fn receive_into_side_buffer<S>(conn: &mut Conn<S>, tls: &mut Buffers) -> Received {
    let Some(side_buffer) = &mut conn.side_buffer else { return Received::Nothing };
    let (room, result) =
        side_buffer.receive(&mut conn.transport, conn.socket.as_fd(), RECEIVE_SIDE_BYTES_MAX, tls);
    if let Ok(count) = result {
        conn.received(count, room);
    }
    match result {
        Ok(0) => Received::HangUp,
        Ok(count) => Received::Bytes { count, buffer: InputBuffer::Rest },
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            conn.readable = false;
            Received::Nothing
        }
        Err(error) => Received::Failed(error),
    }
}

/// Applies a session's request after the call: moves the beginning of a value out of the input into the side buffer, or
/// the value back.
#[cold]
fn settle_side_buffer<S>(conn: &mut Conn<S>, joined: bool) {
    let Some(side_buffer) = &mut conn.side_buffer else { return };
    if side_buffer.is_complete() {
        if joined {
            conn.rest.insert(side_buffer.at(), side_buffer.bytes());
            conn.side_buffer = None;
        }
    } else if side_buffer.bytes().is_empty() {
        side_buffer.append(&conn.rest.bytes()[side_buffer.at()..]);
        conn.rest.truncate(side_buffer.at());
    }
}
