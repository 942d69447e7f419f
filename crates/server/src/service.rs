//! The server as the event loops see it. Which protocol a connection speaks is decided by the listener
//! it came in by.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tierce_net::{
    CloseReason, ConnInfo, Conns, Flow, Handle, Io, ListenerTag, NextTurn, Now, OnHangup,
    OutputClass, Refusal, Service, WorkerId,
};

use crate::acknowledge::{Acknowledgements, Awaiting};
use crate::batch::{BatchMemory, BatchRunner};
use crate::blocking;
use crate::clients::{Client, output_class};
use crate::fetch::Fetcher;
use crate::listening::{MEMCACHED, PEDROKV};
use crate::memcached;
use crate::message::Message;
use crate::pedrokv;
use crate::server::Server;
use crate::session::Session;
use crate::stats::Stat;
use crate::waiting;

/// What strangers get to read in protected mode; clients and people look for its first sentence.
const DENIED: &str = "-DENIED Redis is running in protected mode because protected mode is enabled \
     and no password is set for the default user. Until one is, connections are accepted from this \
     machine only. To let others in, do one of these from here: set a password with CONFIG SET \
     requirepass, or, if nobody but friends can reach this server, switch the protection off with \
     CONFIG SET protected-mode no; CONFIG REWRITE makes either permanent.\r\n";

/// The same to clients of memcached.
const DENIED_MEMCACHED: &str = "SERVER_ERROR protected mode is on and no password is set: only \
     clients on this machine are accepted\r\n";

/// The same to clients of PedroKV: an Error to the request with id 0, which is a client's first one.
const DENIED_PEDROKV: &[u8] = b"\0\x1d\x01\0\0\0\0err: protected mode on";

/// What those get to read for whom there is no room.
const TOO_MANY_PEDROKV: &[u8] = b"\0\x1c\x01\0\0\0\0err: too many clients";

/// The state of one worker.
pub struct Worker {
    index: usize,
    memory: BatchMemory,
    memcached: memcached::BatchMemory,
    pedrokv: pedrokv::BatchMemory,
    /// Values on disk that sessions wait for.
    fetcher: Fetcher,
    /// Connections that wait for the log to reach the device.
    awaiting: Awaiting,
}

/// A connection of any protocol.
pub enum AnySession {
    /// Speaks RESP.
    Resp(Session),
    /// Speaks a protocol of memcached.
    Memcached(memcached::Session),
    /// Speaks PedroKV.
    PedroKv(pedrokv::Session),
}

impl AnySession {
    fn client(&self) -> &Client {
        match self {
            Self::Resp(session) => &session.client,
            Self::Memcached(session) => &session.client,
            Self::PedroKv(session) => &session.client,
        }
    }

    /// Whether it waits for the end of a pause.
    fn held(&mut self) -> &mut bool {
        match self {
            Self::Resp(session) => &mut session.held,
            Self::Memcached(session) => &mut session.waits.held,
            Self::PedroKv(session) => &mut session.waits.held,
        }
    }

    /// Its output limits.
    #[cold]
    fn output_class(&self, server: &Server) -> OutputClass {
        output_class(!self.is_stranger() || server.is_open())
    }

    /// Whether it had still to say a password when it was served last.
    #[inline]
    fn is_stranger(&self) -> bool {
        match self {
            Self::Resp(session) => !session.authenticated,
            Self::Memcached(session) => !session.authenticated,
            Self::PedroKv(session) => session.is_stranger(),
        }
    }

    fn is_monitor(&self) -> bool {
        matches!(self, Self::Resp(session) if session.monitor)
    }

    /// Whether its reply comes later.
    fn is_waiting(&self) -> bool {
        match self {
            Self::Resp(session) => session.waiting.is_some() || session.fetches.underway,
            Self::Memcached(memcached::Session { waits, .. })
            | Self::PedroKv(pedrokv::Session { waits, .. }) => waits.fetches.underway,
        }
    }

    /// Its replies that wait for the device.
    #[inline]
    pub(crate) fn acknowledgements(&mut self) -> &mut Acknowledgements {
        match self {
            Self::Resp(session) => &mut session.acknowledgements,
            Self::Memcached(memcached::Session { waits, .. })
            | Self::PedroKv(pedrokv::Session { waits, .. }) => &mut waits.acknowledgements,
        }
    }

    /// The place in the log that its last request waits for, which has no reply yet.
    #[inline]
    pub(crate) fn awaited_position(&self) -> Option<u64> {
        match self {
            Self::Resp(session) => session.waiting.and_then(|waiting| waiting.position()),
            Self::Memcached(_) | Self::PedroKv(_) => None,
        }
    }
}

/// Serves all protocols.
pub struct AnyService(pub Arc<Server>);

impl AnyService {
    /// The last word to a client that is not let in.
    fn denial(listener: ListenerTag) -> &'static [u8] {
        match listener {
            MEMCACHED => DENIED_MEMCACHED.as_bytes(),
            PEDROKV => DENIED_PEDROKV,
            _ => DENIED.as_bytes(),
        }
    }

    /// What remains to be done when a session has been called with input.
    #[inline(always)]
    fn after_input(
        &self,
        worker: &mut Worker,
        session: &mut AnySession,
        io: &mut Io<'_>,
        flow: Flow,
    ) -> Flow {
        let server = &*self.0;
        if let Some(at) = worker.awaiting.note(server, io.info().key, session) {
            io.hold_output(at);
        }
        let apart = io.apart().map_or(0, |(_, len)| len);
        session.client().note_backlogs(io.input().len() + apart, io.output().pending());
        if flow == Flow::Continue {
            arm_idle_timer(server, io);
        }
        flow
    }

    /// The last word to a client for which there is no room.
    pub(crate) fn too_many(listener: ListenerTag) -> &'static [u8] {
        match listener {
            MEMCACHED => b"ERROR Too many open connections\r\n",
            PEDROKV => TOO_MANY_PEDROKV,
            _ => b"-ERR max number of clients reached\r\n",
        }
    }
}

impl Service for AnyService {
    type Worker = Worker;
    type Session = AnySession;
    type Message = Message;

    fn worker(&self, id: WorkerId, _handle: &Handle<Message>) -> Worker {
        Worker {
            index: id.0.into(),
            memory: BatchMemory::default(),
            memcached: memcached::BatchMemory::default(),
            pedrokv: pedrokv::BatchMemory::default(),
            fetcher: Fetcher::default(),
            awaiting: Awaiting::default(),
        }
    }

    fn open(&self, worker: &mut Worker, info: &ConnInfo, now: Now) -> Result<AnySession, Refusal> {
        let server = &self.0;
        let unix_path = match info.listener {
            MEMCACHED => &server.memcached_unix_path,
            PEDROKV => &server.pedrokv_unix_path,
            _ => &server.unix_path,
        };
        let client = Arc::new(Client::new(info, unix_path, now.unix_ms as i64));
        if server.is_protected_from(&client) {
            server.counters(worker.index).add(Stat::RejectedConnections, 1);
            server.log.verbose(format_args!("Protected mode refuses {}", client.addr));
            return Err(Refusal::Borrowed(Self::denial(info.listener)));
        }
        let max = server.config.live().maxclients() as usize;
        if server.clients.admit(Arc::clone(&client), max).is_err() {
            server.counters(worker.index).add(Stat::RejectedConnections, 1);
            return Err(Refusal::Borrowed(Self::too_many(info.listener)));
        }
        Ok(match info.listener {
            MEMCACHED => {
                client.db.store(server.memcached.db.get() as u16, Relaxed);
                AnySession::Memcached(memcached::Session::new(client, server.is_open()))
            }
            PEDROKV => {
                client.db.store(server.pedrokv_db.get() as u16, Relaxed);
                AnySession::PedroKv(pedrokv::Session::new(client, server.is_open()))
            }
            _ => AnySession::Resp(Session::new(client, server.is_open())),
        })
    }

    fn turn_start(&self, worker: &mut Worker, _now: Now) {
        self.0.counters(worker.index).add(Stat::Turns, 1);
    }

    #[inline]
    fn input(&self, worker: &mut Worker, session: &mut AnySession, io: &mut Io<'_>) -> Flow {
        let server = &*self.0;
        let counters = server.counters(worker.index);
        counters.add(Stat::Reads, 1);
        let client = session.client();
        client.active_ms.store(io.now().unix_ms as i64, Relaxed);
        let was_stranger = session.is_stranger();
        // Replies from before RESET are no stranger's.
        if was_stranger && !io.output().follows_unsent() {
            io.set_output_class(session.output_class(server));
        }
        let flow = match session {
            AnySession::Resp(session) => {
                let (memory, fetcher) = (&mut worker.memory, &mut worker.fetcher);
                BatchRunner::new(server, counters, memory, fetcher).serve(session, io)
            }
            AnySession::Memcached(session) => {
                let (memory, fetcher) = (&mut worker.memcached, &mut worker.fetcher);
                memcached::serve(server, worker.index, memory, fetcher, session, io)
            }
            AnySession::PedroKv(session) => {
                let (memory, fetcher) = (&mut worker.pedrokv, &mut worker.fetcher);
                pedrokv::serve(server, counters, memory, fetcher, session, io)
            }
        };
        if was_stranger && !session.is_stranger() {
            io.set_output_class(session.output_class(server));
        }
        self.after_input(worker, session, io, flow)
    }

    fn turn_end(
        &self,
        worker: &mut Worker,
        conns: &mut Conns<'_, AnySession>,
        now: Now,
    ) -> NextTurn {
        worker.awaiting.turn_end(&self.0);
        worker.fetcher.turn_end(&self.0, conns, now)
    }

    fn watched<'w>(&self, worker: &'w Worker) -> Option<BorrowedFd<'w>> {
        worker.fetcher.descriptor()
    }

    fn timer(&self, _worker: &mut Worker, session: &mut AnySession, io: &mut Io<'_>) -> Flow {
        if let AnySession::Resp(session) = session
            && session.blocked.is_some()
        {
            return match blocking::time_is_up(&self.0, session, io.output()) {
                true => Flow::Continue,
                false => Flow::Suspend(OnHangup::Close),
            };
        }
        if waiting::time_is_up(session, io.output()) {
            return Flow::Continue;
        }
        if session.is_waiting() {
            // It was not the client that has been idle.
            return Flow::Suspend(OnHangup::Wait);
        }
        if std::mem::take(session.held()) {
            return Flow::Continue;
        }
        let timeout_ms = self.0.config.live().timeout_seconds() * 1000;
        let idle_ms = io.now().unix_ms as i64 - session.client().active_ms.load(Relaxed);
        if timeout_ms == 0 || session.is_monitor() {
            return Flow::Continue;
        }
        if idle_ms as u64 >= timeout_ms && !session.acknowledgements().is_waiting() {
            return Flow::Close;
        }
        arm_idle_timer(&self.0, io);
        Flow::Continue
    }

    fn message(&self, worker: &mut Worker, message: Message, conns: &mut Conns<'_, AnySession>) {
        match message {
            Message::Resume => conns.for_each(|conn| {
                if std::mem::take(conn.session().held()) {
                    conn.resume();
                }
            }),
            Message::Monitor(line) => conns.for_each(|conn| {
                let (session, output) = conn.split();
                if session.is_monitor() {
                    output.buffer().extend_from_slice(&line);
                }
            }),
            Message::NoteBacklogs => conns.iter().for_each(|conn| {
                let client = conn.session.client();
                client.note_backlogs(conn.state.input_bytes, conn.state.output_bytes);
            }),
            Message::Saved { ticket, outcome } => {
                conns.for_each(|conn| waiting::saved(conn, ticket, &outcome));
            }
            Message::LogSwitched(switched) => {
                conns.for_each(|conn| waiting::log_switched(conn, &switched));
            }
            Message::StaysUp => conns.for_each(waiting::stays_up),
            Message::Answer(answer) => {
                let key = answer.conn();
                let Some(mut conn) = conns.get(key) else { return };
                if blocking::answer(&self.0, &mut conn, &answer)
                    && let Some(at) = worker.awaiting.note(&self.0, key, conn.session())
                {
                    conn.hold_output(at);
                }
            }
            Message::ServeWaiters => {
                let mut locker = self.0.keyspace.locker();
                locker.take_unserved();
                let now_ms = conns.now().unix_ms as i64;
                blocking::serve(&self.0, &mut locker, self.0.counters(worker.index), now_ms);
            }
            Message::Purge => self.0.purge.collect(),
            Message::Durable => worker.awaiting.release(&self.0, conns),
            Message::IdleTimeout { timeout_ms } => {
                let now_ms = conns.now().monotonic_ms;
                if timeout_ms > 0 {
                    conns.for_each(|conn| conn.set_timer(now_ms + timeout_ms));
                }
            }
        }
    }

    fn close(
        &self,
        worker: &mut Worker,
        mut session: AnySession,
        _info: &ConnInfo,
        reason: CloseReason,
    ) {
        let server = &self.0;
        if let AnySession::Resp(session) = &mut session {
            blocking::connection_ends(server, session);
        }
        if session.is_monitor() {
            server.clients.count_monitor(false);
        }
        if let CloseReason::OutputLimit { pending } = reason {
            server.counters(worker.index).add(Stat::OutputLimitDisconnections, 1);
            let addr = &session.client().addr;
            let too_much = match session.is_stranger() {
                true => "too much before it has said the password",
                false => "and client-output-buffer-limit allows less",
            };
            server.log.warning(format_args!(
                "Closed {addr}: {pending} bytes of replies waited for it, {too_much}"
            ));
        }
        server.clients.remove(session.client().id);
    }
}

/// Moves the end of the client's patience; free when it is already armed.
#[inline]
fn arm_idle_timer(server: &Server, io: &mut Io<'_>) {
    let timeout_ms = server.config.live().timeout_seconds() * 1000;
    if timeout_ms > 0 {
        io.set_timer(io.now().monotonic_ms + timeout_ms);
    }
}

#[cfg(test)]
mod tests {
    use tierce_wire::pedrokv::{Response, Step};

    use super::*;

    #[test]
    fn clients_of_pedrokv_are_refused_in_frames() {
        for refusal in [DENIED_PEDROKV, TOO_MANY_PEDROKV] {
            let Step::Frame { frame, len } = Response::read(refusal) else { panic!("no frame") };
            assert_eq!((frame.id, len), (0, refusal.len()));
            assert!(frame.data.starts_with(b"err: "));
        }
    }
}
