//! Opening and closing connections.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::event::epoll::{self, EventData};
use rustix::net::Shutdown;

use super::send::READ_EVENTS;
use super::{Core, Ending, PendingClose, Token, Worker, count_down};
use crate::connection::{CloseReason, Conn, ConnInfo, ConnKey, OnHangup, Phase};
use crate::handle::Accepted;
use crate::listener::Encryption;
use crate::timer::TimerKind;
use crate::worker::service::Service;

/// Time for which a closing connection may read nothing of its last output. A read is noticed when a full socket has
/// room again. That takes a third of the kernel's buffer, which may be megabytes.
const FLUSH_IDLE_MS_MAX: u64 = 60_000;

/// Time that a peer may take to close after us.
const LINGER_MS_MAX: u64 = 1_000;

/// Maximum number of lingering connections; further ones are closed without waiting.
const LINGERING_MAX: usize = 256;

impl<S: Service> Worker<S> {
    /// Takes over a connection from the acceptor.
    pub(super) fn open(&mut self, accepted: Accepted) {
        let core = &mut self.core;
        let slot = core.conns.next_slot();
        let info = ConnInfo {
            key: ConnKey { id: accepted.id, worker: core.id, slot },
            listener: accepted.listener,
            fd: accepted.socket.as_raw_fd(),
            endpoints: accepted.endpoints,
            opened_ms: core.now.monotonic_ms,
        };
        let token = Token::new(info.key);
        if self.drain_until_ms.is_some() {
            return count_down(&self.handle, &info);
        }
        core.metrics.accepted += 1;
        if accepted.encryption == Encryption::Tls {
            return self.open_encrypted(info, accepted.socket);
        }
        let (session, refusal) = match self.service.open(&mut self.state, &info, None, core.now) {
            Ok(session) => (Some(session), None),
            Err(refusal) => (None, Some(refusal)),
        };
        core.insert(Conn::new(info, accepted.socket, session));
        if let Some(last_words) = refusal {
            core.refuse(token, &last_words);
        }
    }

    /// Removes the connections that were found to have ended, and tells the service.
    #[inline(always)]
    pub(super) fn run_pending_closes(&mut self) {
        if !self.core.pending_closes.is_empty() {
            self.close_all_pending();
        }
    }

    #[cold]
    fn close_all_pending(&mut self) {
        while !self.core.pending_closes.is_empty() {
            let PendingClose { token, reason, ending } = self.core.pending_closes.remove(0);
            if self.core.conn(token).is_some() {
                self.end(token, reason, ending);
            }
        }
    }

    fn end(&mut self, token: Token, reason: CloseReason, ending: Ending) {
        let Some(conn) = self.core.conns.get_mut(token.slot()) else { return };
        let (info, session) = (conn.info, conn.session.take());
        match ending {
            Ending::Linger => self.core.begin_lingering(token),
            Ending::Now => self.core.remove(token),
        }
        if self.core.conn(token).is_none() {
            count_down(&self.handle, &info);
        }
        if let Some(session) = session {
            if matches!(&reason, CloseReason::Io(error) if error.kind() == io::ErrorKind::InvalidData)
            {
                self.core.metrics.tls.failed += 1;
            }
            self.service.close(&mut self.state, session, &info, reason);
        }
    }

    pub(super) fn on_worker_timer(&mut self, slot: u32) {
        let Some(conn) = self.core.conns.get(slot) else { return };
        let token = Token::new(conn.info.key);
        match conn.phase {
            Phase::Open | Phase::Suspended(_) => self.core.check(token),
            Phase::Handshaking => self.give_up_handshake(token),
            // It has done its part, and the deferral is certain to end.
            Phase::Flushing if conn.control.send_barriers.is_some() => {
                self.core.give_time_to_flush(token);
            }
            Phase::Flushing | Phase::Lingering => {
                self.core.schedule_close(token, CloseReason::Service);
            }
        }
        self.run_pending_closes();
    }

    /// Stops serving requests, lets outputs drain, and then ends the loop.
    pub(super) fn drain(&mut self, within_ms: u64) {
        let until_ms = self.core.now.monotonic_ms.saturating_add(within_ms);
        self.drain_until_ms = Some(until_ms);
        let tokens: Vec<Token> =
            self.core.conns.iter().map(|conn| Token::new(conn.info.key)).collect();
        for token in tokens {
            let Some(conn) = self.core.conn(token) else { continue };
            if !conn.has_output() {
                self.core.schedule_close(token, CloseReason::Shutdown);
            } else {
                self.core.begin_flushing(token);
            }
        }
        self.run_pending_closes();
    }

    /// Closes the remaining connections at the end of the loop.
    pub(super) fn close_all(&mut self) {
        let tokens: Vec<Token> =
            self.core.conns.iter().map(|conn| Token::new(conn.info.key)).collect();
        for token in tokens {
            self.end(token, CloseReason::Shutdown, Ending::Now);
        }
        self.core.metrics.publish(self.handle.metrics_of(self.core.id));
    }
}

impl<S> Core<S> {
    /// Notes the end of a handshake.
    pub(super) fn end_handshake(&mut self) {
        self.tls.end();
        self.metrics.tls.under_way = self.tls.under_way() as u64;
    }

    /// Adds a connection to the poller and to the worker.
    pub(super) fn insert(&mut self, conn: Conn<S>) {
        let token = Token::new(conn.info.key);
        let data = EventData::new_u64(token.0);
        let watched = epoll::add(&self.epoll, &conn.socket, data, READ_EVENTS);
        self.conns.insert(conn);
        if let Err(errno) = watched {
            self.schedule_close(token, CloseReason::Io(errno.into()));
        }
    }

    /// Rejects a connection that the service does not want.
    pub(super) fn refuse(&mut self, token: Token, last_words: &[u8]) {
        self.begin_output(token);
        self.output.buffer().extend_from_slice(last_words);
        self.begin_flushing(token);
        self.dispatch_output(token);
    }

    /// Closes the connection as soon as no call to the service is running.
    pub(super) fn schedule_close(&mut self, token: Token, reason: CloseReason) {
        self.pending_closes.push(PendingClose { token, reason, ending: Ending::Now });
    }

    /// Handles a failed socket. The connection is closed at once, unless some of its requests are certain to be
    /// executed: then it continues without output, and is closed after the last of them.
    pub(super) fn fail(&mut self, token: Token, error: io::Error) {
        let Some(conn) = self.conn(token) else { return };
        let has_more = match conn.phase {
            Phase::Open => conn.call_again,
            Phase::Suspended(on_hangup) => on_hangup == OnHangup::Wait,
            Phase::Handshaking | Phase::Flushing | Phase::Lingering => false,
        };
        if !has_more {
            return self.schedule_close(token, CloseReason::Io(error));
        }
        (conn.hung_up, conn.readable) = (true, false);
        conn.queue = None;
        conn.transport.discard_unsent();
        (conn.control.send_barriers, conn.control.is_cut) = (None, true);
        if conn.phase == Phase::Open {
            // The poller reports nothing more, and this turn may have been the one that the session had asked for.
            self.make_ready(token);
        }
    }

    /// Stops serving a connection, and closes it when its output is sent.
    pub(super) fn begin_flushing(&mut self, token: Token) {
        let Some(conn) = self.conn(token) else { return };
        if !matches!(conn.phase, Phase::Open | Phase::Suspended(_)) {
            return;
        }
        conn.phase = Phase::Flushing;
        conn.rest.clear();
        conn.side_buffer = None;
        self.timers.clear(token.slot(), TimerKind::Session);
        self.give_time_to_flush(token);
    }

    /// Restarts the wait for a peer to read its last output.
    pub(super) fn give_time_to_flush(&mut self, token: Token) {
        let at_ms = self.now.monotonic_ms + FLUSH_IDLE_MS_MAX;
        self.timers.set(token.slot(), TimerKind::Worker, at_ms);
    }

    /// Ends a closing connection, if all its output is sent.
    #[inline]
    pub(super) fn finish_flushing(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        if conn.phase == Phase::Flushing && !conn.has_output() {
            self.end_flushed(token);
        }
    }

    #[cold]
    fn end_flushed(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        conn.transport.close(conn.socket.as_fd(), &mut self.tls.buffers);
        let (reason, ending) = if conn.hung_up {
            (CloseReason::Peer, Ending::Now)
        } else {
            (CloseReason::Service, self.ending_of_flushed())
        };
        self.pending_closes.push(PendingClose { token, reason, ending });
    }

    /// Returns how to end a connection whose peer has yet to read its last output.
    pub(super) fn ending_of_flushed(&self) -> Ending {
        if self.lingering < LINGERING_MAX { Ending::Linger } else { Ending::Now }
    }

    /// Shuts down our end, and waits for the peer to shut down its own.
    fn begin_lingering(&mut self, token: Token) {
        let Some(conn) = self.conns.get_mut(token.slot()) else { return };
        if conn.phase == Phase::Lingering {
            return;
        }
        if rustix::net::shutdown(conn.socket.as_fd(), Shutdown::Write).is_err() {
            return self.remove(token);
        }
        conn.phase = Phase::Lingering;
        conn.readable = true;
        self.lingering += 1;
        let at_ms = self.now.monotonic_ms + LINGER_MS_MAX;
        self.timers.set(token.slot(), TimerKind::Worker, at_ms);
        self.make_ready(token);
    }

    /// Closes the socket, which also removes it from the poller, and frees the slot.
    fn remove(&mut self, token: Token) {
        let Some(conn) = self.conns.remove(token.slot()) else { return };
        self.timers.remove(token.slot());
        self.metrics.closed += 1;
        match conn.phase {
            Phase::Lingering => self.lingering -= 1,
            Phase::Handshaking => self.end_handshake(),
            Phase::Open | Phase::Suspended(_) | Phase::Flushing => {}
        }
    }
}
