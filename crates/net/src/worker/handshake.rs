//! TLS handshakes: from an accepted connection to one that the service knows.
//!
//! **Invariant:** a connection has no session before its handshake is complete, so unfinished handshakes do not count
//! as clients.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::{Ending, PendingClose, Token, Worker, count_down};
use crate::connection::{CloseReason, Conn, ConnInfo, Phase};
use crate::timer::TimerKind;
use crate::tls::Progress;
use crate::transport::Transport;
use crate::worker::service::Service;

impl<S: Service> Worker<S> {
    /// Takes over a connection from the acceptor, unless too many are in a handshake.
    pub(super) fn open_encrypted(&mut self, info: ConnInfo, socket: OwnedFd) {
        let core = &mut self.core;
        let Some((tls, limit_ms)) = core.tls.begin() else {
            core.metrics.tls.refused += 1;
            core.metrics.closed += 1;
            let error = io::Error::other("too many TLS handshakes are under way");
            self.service.handshake_failed(&mut self.state, &info, &error);
            return count_down(&self.handle, &info);
        };
        core.insert(Conn::encrypted(info, socket, tls));
        let at_ms = core.now.monotonic_ms.saturating_add(limit_ms);
        core.timers.set(info.key.slot, TimerKind::Worker, at_ms);
        core.metrics.tls.under_way = core.tls.under_way() as u64;
        self.run_pending_closes();
    }

    /// Continues a handshake, now or in the next turn.
    pub(super) fn shake_hands(&mut self, token: Token) {
        let core = &mut self.core;
        if core.tls.have_had_their_share() {
            return core.make_ready(token);
        }
        let Some(conn) = core.conns.get_mut(token.slot()) else { return };
        let Transport::Tls(tls) = &mut conn.transport else { return };
        let socket = conn.socket.as_fd();
        let result = core.tls.timed(|buffers| tls.shake_hands(socket, buffers));
        conn.readable = tls.has_more() || conn.hang_up_reported;
        match result {
            Ok(Progress::Waiting) => {
                if conn.readable {
                    core.make_ready(token);
                }
                core.list_for_flush(token);
            }
            Ok(Progress::Complete { resumed }) => self.open_after_handshake(token, resumed),
            Err(error) => self.fail_handshake(token, error),
        }
        self.run_pending_closes();
    }

    /// Makes the service open a connection whose handshake is complete.
    fn open_after_handshake(&mut self, token: Token, resumed: bool) {
        let core = &mut self.core;
        core.metrics.tls.completed += 1;
        core.metrics.tls.resumed += u64::from(resumed);
        core.timers.clear(token.slot(), TimerKind::Worker);
        let Some(conn) = core.conns.get_mut(token.slot()) else { return };
        conn.phase = Phase::Open;
        let info = conn.info;
        core.end_handshake();
        let Some(conn) = core.conns.get_mut(token.slot()) else { return };
        let certificate = conn.transport.certificate();
        let opened = self.service.open(&mut self.state, &info, certificate, core.now);
        match opened {
            Ok(session) => {
                conn.session = Some(session);
                if conn.readable {
                    core.make_ready(token);
                }
                core.list_for_flush(token);
            }
            Err(last_words) => core.refuse(token, &last_words),
        }
    }

    /// Closes a connection whose handshake takes too long.
    pub(super) fn give_up_handshake(&mut self, token: Token) {
        self.core.metrics.tls.timed_out += 1;
        self.fail_handshake(token, io::Error::other("the TLS handshake took too long"));
    }

    fn fail_handshake(&mut self, token: Token, error: io::Error) {
        let core = &mut self.core;
        core.metrics.tls.failed += 1;
        let Some(conn) = core.conns.get_mut(token.slot()) else { return };
        self.service.handshake_failed(&mut self.state, &conn.info, &error);
        conn.phase = Phase::Flushing;
        // A peer that broke the protocol gets time to read the alert.
        let ending = if error.kind() == io::ErrorKind::InvalidData {
            core.ending_of_flushed()
        } else {
            Ending::Now
        };
        core.end_handshake();
        core.pending_closes.push(PendingClose { token, reason: CloseReason::Io(error), ending });
    }
}
