//! The server as the event loops see it. Which protocol a connection speaks is decided by the listener
//! it came in by.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tierce_net::{
    CloseReason, ConnInfo, ConnKey, Conns, Flow, Handle, Io, ListenerTag, NextTurn, Now, OnHangup,
    Refusal, Service, WorkerId,
};

use crate::batch::{BatchMemory, BatchRunner};
use crate::clients::Client;
use crate::listening::MEMCACHED;
use crate::memcached;
use crate::persistence::Ticket;
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

/// What workers are told by others.
#[derive(Clone)]
pub enum Message {
    /// Sessions that wait for the end of a pause may go on.
    Resume,
    /// A line for those who watch all commands.
    Monitor(Arc<[u8]>),
    /// Somebody will look at the backlogs of clients: let them see those of now.
    NoteBacklogs,
    /// A save has ended. Whoever waits for it gets a reply.
    Saved {
        /// Which one.
        ticket: Ticket,
        /// How it ended, or why it failed.
        outcome: Result<(), Arc<str>>,
    },
    /// The server does not end after all, since it could not save. Whoever asked for the end gets
    /// an error.
    StaysUp,
    /// The log has reached the device, or never will.
    Durable,
    /// The `timeout` directive has changed.
    IdleTimeout {
        /// Zero for never.
        timeout_ms: u64,
    },
}

/// The state of one worker.
pub struct Worker {
    index: usize,
    memory: BatchMemory,
    memcached: memcached::BatchMemory,
    /// Connections whose replies wait for the log to reach the device.
    awaiting: Vec<ConnKey>,
    /// The log is to reach the device up to here: what this turn has found out.
    wanted: u64,
}

/// A connection of either protocol.
pub enum AnySession {
    /// Speaks RESP.
    Resp(Session),
    /// Speaks a protocol of memcached.
    Memcached(memcached::Session),
}

impl AnySession {
    fn client(&self) -> &Client {
        match self {
            Self::Resp(session) => &session.client,
            Self::Memcached(session) => &session.client,
        }
    }

    /// Whether it waits for the end of a pause.
    fn held(&mut self) -> &mut bool {
        match self {
            Self::Resp(session) => &mut session.held,
            Self::Memcached(session) => &mut session.held,
        }
    }

    fn is_monitor(&self) -> bool {
        matches!(self, Self::Resp(session) if session.monitor)
    }

    /// Whether its reply comes later.
    fn is_waiting(&self) -> bool {
        matches!(self, Self::Resp(session) if session.waiting.is_some())
    }

    /// The place in the log that has to be on the device before its replies are sent, if they wait.
    #[inline]
    fn awaits_device(&self) -> Option<u64> {
        match self {
            Self::Resp(session) => session.awaits_device.then_some(session.logged_at),
            Self::Memcached(session) => session.awaits_device.then_some(session.logged_at),
        }
    }

    /// The place in the log of its last write.
    fn logged_at(&self) -> u64 {
        match self {
            Self::Resp(session) => session.logged_at,
            Self::Memcached(session) => session.logged_at,
        }
    }

    /// Its replies need not wait any more; whether they did.
    fn stop_waiting(&mut self) -> bool {
        match self {
            Self::Resp(session) => std::mem::take(&mut session.awaits_device),
            Self::Memcached(session) => std::mem::take(&mut session.awaits_device),
        }
    }
}

/// Serves all protocols.
pub struct AnyService(pub Arc<Server>);

impl AnyService {
    /// The last word to a client that is not let in.
    fn denial(listener: ListenerTag) -> &'static str {
        if listener == MEMCACHED { DENIED_MEMCACHED } else { DENIED }
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
            awaiting: Vec::new(),
            wanted: 0,
        }
    }

    fn open(&self, worker: &mut Worker, info: &ConnInfo, now: Now) -> Result<AnySession, Refusal> {
        let server = &self.0;
        let is_memcached = info.listener == MEMCACHED;
        let unix_path = if is_memcached { &server.memcached_unix_path } else { &server.unix_path };
        let client = Arc::new(Client::new(info, unix_path, now.unix_ms as i64));
        if server.is_protected_from(&client) {
            server.counters(worker.index).add(Stat::RejectedConnections, 1);
            server.log.verbose(format_args!("Protected mode refuses {}", client.addr));
            return Err(Refusal::Borrowed(Self::denial(info.listener).as_bytes()));
        }
        let max = server.config.live().maxclients() as usize;
        if server.clients.admit(Arc::clone(&client), max).is_err() {
            server.counters(worker.index).add(Stat::RejectedConnections, 1);
            return Err(Refusal::Borrowed(match is_memcached {
                true => b"ERROR Too many open connections\r\n",
                false => b"-ERR max number of clients reached\r\n",
            }));
        }
        if is_memcached {
            client.db.store(server.memcached.db.get() as u16, Relaxed);
            let session = memcached::Session::new(client, server.is_open());
            return Ok(AnySession::Memcached(session));
        }
        Ok(AnySession::Resp(Session::new(client, server.is_open())))
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
        let flow = match session {
            AnySession::Resp(session) => {
                BatchRunner::new(server, counters, &mut worker.memory).serve(session, io)
            }
            AnySession::Memcached(session) => {
                memcached::serve(server, worker.index, &mut worker.memcached, session, io)
            }
        };
        if let Some(logged_at) = session.awaits_device() {
            io.hold_output();
            worker.wanted = worker.wanted.max(logged_at);
            worker.awaiting.push(io.info().key);
        }
        session.client().note_backlogs(io.input().len(), io.output().pending());
        if flow == Flow::Continue {
            arm_idle_timer(server, io);
        }
        flow
    }

    fn turn_end(
        &self,
        worker: &mut Worker,
        _conns: &mut Conns<'_, AnySession>,
        _now: Now,
    ) -> NextTurn {
        // Once a turn, so that all of its connections share the sync.
        if worker.wanted > 0
            && let Some(journal) = self.0.durability.journal()
        {
            journal.demand(std::mem::take(&mut worker.wanted));
        }
        NextTurn::WhenReady
    }

    fn timer(&self, _worker: &mut Worker, session: &mut AnySession, io: &mut Io<'_>) -> Flow {
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
        if idle_ms as u64 >= timeout_ms {
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
            Message::StaysUp => conns.for_each(waiting::stays_up),
            Message::Durable => release_durable(&self.0, worker, conns),
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
        session: AnySession,
        _info: &ConnInfo,
        reason: CloseReason,
    ) {
        let server = &self.0;
        if session.is_monitor() {
            server.clients.count_monitor(false);
        }
        if let CloseReason::OutputLimit { pending } = reason {
            server.counters(worker.index).add(Stat::OutputLimitDisconnections, 1);
            server.log.warning(format_args!(
                "Closed {}: {pending} bytes of replies waited for it, and client-output-buffer-limit \
                 allows less",
                session.client().addr
            ));
        }
        server.clients.remove(session.client().id);
    }
}

/// Sends the replies that waited for the log, as far as it has reached the device.
fn release_durable(server: &Server, worker: &mut Worker, conns: &mut Conns<'_, AnySession>) {
    let Some(journal) = server.durability.journal() else { return };
    let (durable, is_wounded) = (journal.durable(), journal.is_wounded());
    worker.awaiting.retain(|key| {
        let Some(mut conn) = conns.get(*key) else { return false };
        let session = conn.session();
        if session.logged_at() <= durable {
            if session.stop_waiting() {
                conn.release();
            }
            return false;
        }
        if is_wounded {
            conn.close();
        }
        !is_wounded
    });
}

/// Moves the end of the client's patience; free when it is already armed.
#[inline]
fn arm_idle_timer(server: &Server, io: &mut Io<'_>) {
    let timeout_ms = server.config.live().timeout_seconds() * 1000;
    if timeout_ms > 0 {
        io.set_timer(io.now().monotonic_ms + timeout_ms);
    }
}
