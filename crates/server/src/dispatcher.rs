//! The server as the event loops see it. The listener of a connection determines its protocol.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tierce_net::{
    CloseReason, ConnInfo, ConnState, Conns, Endpoints, Flow, Handle, Io, NextTurn, Now, Refusal,
    Service, WorkerId,
};

use crate::acl::Rights;
use crate::awaiting::Awaiting;
use crate::batch::{BatchMemory, BatchRunner};
use crate::blocking;
use crate::clients::{Client, Origin};
use crate::config::DirectiveId;
use crate::connection::{self, AnySession, Settled, output_class_of};
use crate::deadlines::Deadlines;
use crate::deliver::Pacing;
use crate::fetcher::Fetcher;
use crate::kernel::Kernel;
use crate::last_words;
use crate::listening::{MEMCACHED, PEDROKV, protocol_of};
use crate::memcached::{self, Host};
use crate::pedrokv;
use crate::replication;
use crate::server::{Message, Server, address_of};
use crate::session::Session;
use crate::set_aside::SetAside;
use crate::stats::Stat;
use crate::suspend::on_hangup;
use crate::tls::common_name;
use crate::waiting::{Awaited, Obstacle};

/// State of one worker.
pub struct Worker {
    pub(crate) index: usize,
    pub(crate) memory: BatchMemory,
    memcached: memcached::BatchMemory,
    pedrokv: pedrokv::BatchMemory,
    /// Timing of message deliveries.
    pacing: Pacing,
    /// Deadlines of results.
    pub(crate) deadlines: Deadlines,
    /// Values on disk that sessions wait for.
    fetcher: Fetcher,
    /// Connections with deferred replies.
    pub(crate) awaiting: Awaiting,
    /// Connections whose next request needs a shard that another thread locks for long.
    pub(crate) set_aside: SetAside,
}

/// Serves all protocols.
pub struct Dispatcher(pub Arc<Server>);

impl Dispatcher {
    /// Finishes a call of a session with input. A session is quiet if neither it nor its replies wait.
    #[inline(always)]
    fn after_input(
        &self,
        worker: &mut Worker,
        session: &mut AnySession,
        io: &mut Io<'_>,
        flow: Flow,
        is_quiet: bool,
    ) -> Flow {
        let server = &*self.0;
        if !is_quiet {
            note_waits(server, worker, session, io);
        }
        let side_buffer = io.side_buffer().map_or(0, |(_, len)| len);
        let client = session.client();
        client.note_backlogs(io.input().len() + side_buffer, Client::backlog_of(io.output()));
        server.clients.memory.count(client);
        if flow == Flow::Continue {
            arm_idle_timer(server, io);
        } else if flow == Flow::Close {
            // It may have output left to send, but it runs nothing more.
            leave(server, session);
        } else if !is_quiet && let Some(Obstacle::Shard(shard)) = session.waits().obstacle() {
            worker.set_aside.add(shard, io.info().key);
        }
        flow
    }

    /// Returns the rights of the user named by a verified certificate (`tls-auth-clients-user`), if there is one.
    fn rights_by(&self, certificate: &[u8]) -> Option<Rights> {
        const USER: DirectiveId = DirectiveId::of("tls-auth-clients-user");
        let server = &self.0;
        if server.config.settings().word(USER) == "off" {
            return None;
        }
        let name = common_name(certificate)?;
        let users = &server.acl.users;
        let user = users.get(name.as_bytes()).filter(|user| user.is_on());
        if user.is_none() {
            let name = name.escape_debug();
            server
                .log
                .verbose(format_args!("No user '{name}', whom a certificate names, or it is off"));
        }
        Some(Rights::of(user?, users))
    }
}

impl Service for Dispatcher {
    type Worker = Worker;
    type Session = AnySession;
    type Message = Message;

    fn worker(&self, id: WorkerId, _handle: &Handle<Message>) -> Worker {
        Worker {
            index: id.0.into(),
            memory: BatchMemory::default(),
            memcached: memcached::BatchMemory::default(),
            pedrokv: pedrokv::BatchMemory::default(),
            pacing: Pacing::default(),
            deadlines: Deadlines::default(),
            fetcher: Fetcher::default(),
            awaiting: Awaiting::default(),
            set_aside: SetAside::default(),
        }
    }

    fn open(
        &self,
        worker: &mut Worker,
        info: &ConnInfo,
        certificate: Option<&[u8]>,
        now: Now,
    ) -> Result<AnySession, Refusal> {
        let server = &self.0;
        let unix_path = match info.listener {
            MEMCACHED => &server.memcached.unix_path,
            PEDROKV => &server.pedrokv.unix_path,
            _ => &server.unix_path,
        };
        let client = Arc::new(Client::new(origin(info, unix_path), now.unix_ms as i64));
        if server.is_protected_from(&client) {
            server.counters(worker.index).add(Stat::ProtectedModeRejections, 1);
            server.log.verbose(format_args!("Protected mode refuses {}", client.addr));
            return Err(Refusal::Borrowed(last_words::denial(info.listener)));
        }
        let max = server.config.live().maxclients() as usize;
        if server.clients.admit(Arc::clone(&client), max, server.listening.protocols()).is_err() {
            server.counters(worker.index).add(Stat::RejectedConnections, 1);
            return Err(Refusal::Borrowed(last_words::too_many(info.listener)));
        }
        server.clients.memory.count(&client);
        let mut session = match info.listener {
            MEMCACHED => {
                client.db.store(server.memcached.db.get() as u16, Relaxed);
                AnySession::Memcached(memcached::Session::new(client, &server.acl.users))
            }
            PEDROKV => {
                client.db.store(server.pedrokv.db.get() as u16, Relaxed);
                AnySession::PedroKv(pedrokv::Session::new(client, &server.acl.users))
            }
            _ => AnySession::Resp(Session::new(client, &server.acl.users)),
        };
        if let Some(rights) = certificate.and_then(|certificate| self.rights_by(certificate)) {
            session.become_user(rights);
        }
        Ok(session)
    }

    fn handshake_failed(&self, _worker: &mut Worker, info: &ConnInfo, error: &io::Error) {
        self.0.tls_failures.note(info.endpoints, error);
    }

    fn turn_start(&self, worker: &mut Worker, _now: Now) {
        self.0.counters(worker.index).add(Stat::Turns, 1);
        worker.pacing.turn_begins(&self.0);
    }

    #[inline]
    fn input(&self, worker: &mut Worker, session: &mut AnySession, io: &mut Io<'_>) -> Flow {
        let server = &*self.0;
        let counters = server.counters(worker.index);
        counters.add(Stat::Reads, 1);
        let client = session.client();
        client.active_ms.store(io.now().unix_ms as i64, Relaxed);
        let is_closing = client.is_closing();
        let was_stranger = session.is_stranger();
        // Replies from before RESET may be large: the stricter limits do not apply to them.
        if was_stranger && !io.output().follows_unsent() {
            io.set_output_class(session.output_class(server));
        }
        if is_closing && !session.waits().is_for_reply() {
            // Another thread has decided that it gets no more replies.
            return Flow::Close;
        }
        let (flow, is_quiet) = match session {
            AnySession::Resp(session) => {
                let was_class = output_class_of(&session.caller);
                let (memory, fetcher) = (&mut worker.memory, &mut worker.fetcher);
                let mut runner = BatchRunner::new(server, counters, memory, fetcher);
                let flow = runner.serve(session, io);
                let caller = &session.caller;
                caller.client.parser_bytes.store(session.parser.memory_bytes(), Relaxed);
                if runner.has_served {
                    // These messages have waited longer than the client that pushed.
                    io.send_mail_first();
                }
                let class = output_class_of(caller);
                if class != was_class {
                    io.set_output_class(class);
                }
                (replication::feed(server, caller, io, flow), caller.waits.is_quiet())
            }
            AnySession::Memcached(session) => {
                let (memory, fetcher) = (&mut worker.memcached, &mut worker.fetcher);
                let host = Host { kernel: &server.kernel, memcached: &server.memcached };
                let flow = memcached::serve(host, worker.index, memory, fetcher, session, io);
                (flow, session.waits.is_quiet())
            }
            AnySession::PedroKv(session) => {
                let (memory, fetcher) = (&mut worker.pedrokv, &mut worker.fetcher);
                let shared = &server.pedrokv;
                let flow = pedrokv::serve(server, shared, counters, memory, fetcher, session, io);
                (flow, session.waits.is_quiet())
            }
        };
        if was_stranger && !session.is_stranger() {
            io.set_output_class(session.output_class(server));
        }
        self.after_input(worker, session, io, flow, is_quiet && !server.bucket.is_on())
    }

    fn turn_end(
        &self,
        worker: &mut Worker,
        conns: &mut Conns<'_, AnySession>,
        now: Now,
    ) -> NextTurn {
        if self.0.clients.memory.is_exceeded() {
            self.0.evict_clients();
        }
        worker.awaiting.turn_end(&self.0);
        worker.set_aside.turn_end();
        let mut next = worker.fetcher.turn_end(&self.0, conns, now);
        if let Some(due_ms) = worker.deadlines.turn_end(&self.0, now.monotonic_ms) {
            next = earlier(next, NextTurn::At(due_ms));
        }
        if self.0.pubsub.has_deliveries(worker.index) {
            let then = worker.pacing.deliver(&self.0, worker.index, conns);
            return then.map_or(next, |then| earlier(next, then));
        }
        next
    }

    fn watched<'w>(&self, worker: &'w Worker) -> Option<BorrowedFd<'w>> {
        worker.fetcher.descriptor()
    }

    fn timer(&self, worker: &mut Worker, session: &mut AnySession, io: &mut Io<'_>) -> Flow {
        if !session.waits().is_idle() {
            let is_retry = session.waits().obstacle().is_some();
            let flow = patience_ends(&self.0, session, io);
            // A retried request has not replied yet, and its reply may wait for nothing.
            if !is_retry && let Some(at) = worker.awaiting.note(&self.0, io.info().key, session) {
                io.hold_output(at);
            }
            return flow;
        }
        let timeout_ms = self.0.config.live().timeout_seconds() * 1000;
        let idle_ms = io.now().unix_ms as i64 - session.client().active_ms.load(Relaxed);
        let waits_for_results = !session.client().results.lock().is_empty();
        if waits_for_results {
            // Once these have arrived, the client may be idle without having sent anything.
            arm_idle_timer(&self.0, io);
        }
        let waits_for_news = session.is_monitor()
            || session.is_subscribed()
            || session.is_replica()
            || waits_for_results;
        if timeout_ms == 0 || waits_for_news {
            return Flow::Continue;
        }
        if idle_ms as u64 >= timeout_ms && !session.waits().logged.is_listed {
            self.0.counters(worker.index).add(Stat::IdleDisconnections, 1);
            return Flow::Close;
        }
        arm_idle_timer(&self.0, io);
        Flow::Continue
    }

    fn message(&self, worker: &mut Worker, message: Message, conns: &mut Conns<'_, AnySession>) {
        self.receive(worker, message, conns);
    }

    fn close(
        &self,
        worker: &mut Worker,
        mut session: AnySession,
        _info: &ConnInfo,
        reason: CloseReason,
    ) {
        let server = &self.0;
        leave(server, &mut session);
        if session.is_monitor() {
            server.clients.count_monitor(false);
        }
        if let CloseReason::Io(error) = &reason
            && error.kind() == io::ErrorKind::InvalidData
        {
            server.tls_failures.note(&session.client().addr, error);
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

/// Registers with the worker what a session or its replies wait for.
#[cold]
fn note_waits(server: &Server, worker: &mut Worker, session: &mut AnySession, io: &mut Io<'_>) {
    if let Some(at) = worker.awaiting.note(server, io.info().key, session) {
        io.hold_output(at);
    }
}

/// Publishes the size of a client's pending input and output, and counts it.
pub(crate) fn note_state(kernel: &Kernel, session: &AnySession, state: ConnState) {
    note_backlogs(session.client(), state);
    kernel.clients.memory.count(session.client());
}

pub(crate) fn note_backlogs(client: &Client, state: ConnState) {
    client.note_backlogs(state.input_bytes, state.output_bytes);
    client.input_capacity.store(state.input_capacity, Relaxed);
}

/// Returns the earlier turn.
fn earlier(a: NextTurn, b: NextTurn) -> NextTurn {
    match (a, b) {
        (NextTurn::WhenReady, other) | (other, NextTurn::WhenReady) => other,
        (NextTurn::At(a), NextTurn::At(b)) => NextTurn::At(a.min(b)),
        _ => NextTurn::Immediately,
    }
}

/// Handles the timer of a session that waits.
#[cold]
fn patience_ends(kernel: &Kernel, session: &mut AnySession, io: &mut Io<'_>) -> Flow {
    if session.waits().has_held() {
        return replicas_are_late(kernel, session, io);
    }
    let goes_on = match session.caller() {
        Some(caller) if caller.waits.is_for_reply() => {
            blocking::time_is_up(kernel, caller, io.output())
        }
        _ => true,
    };
    if !goes_on {
        // Its answer is on its way.
        return Flow::Suspend(on_hangup(session.waits()));
    }
    session.waits().go_on();
    Flow::Continue
}

/// Handles a timeout: too few replicas have confirmed a client's writes in time.
#[cold]
fn replicas_are_late(kernel: &Kernel, session: &mut AnySession, io: &mut Io<'_>) -> Flow {
    if let Some(Awaited::Confirmations { to, .. }) = session.waits().awaited()
        && kernel.stop_confirming(*to).is_none()
    {
        // Its answer is on its way.
        return Flow::Suspend(on_hangup(session.waits()));
    }
    match connection::settle(kernel, session, io.output(), false) {
        Settled::Goes => Flow::Continue,
        Settled::Closes | Settled::ClosesUnanswered => Flow::Close,
    }
}

/// Returns the origin of a client. `unix_path` is the path of the Unix socket, if there is one.
fn origin(info: &ConnInfo, unix_path: &str) -> Origin {
    let unix_path = || format!("{unix_path}:0");
    let (addr, laddr, unix, local) = match info.endpoints {
        Endpoints::Tcp { peer, local } => {
            (peer.to_string(), local.to_string(), false, peer.ip().is_loopback())
        }
        Endpoints::Unix => (unix_path(), unix_path(), true, true),
    };
    let connection_bytes = tierce_net::idle_conn_bytes::<AnySession>();
    Origin {
        conn: address_of(info.key),
        addr,
        laddr,
        fd: info.fd,
        unix,
        speaks: protocol_of(info.listener),
        local,
        connection_bytes,
    }
}

/// Ends the waits and subscriptions of a connection.
fn leave(server: &Server, session: &mut AnySession) {
    if session.waits().has_held()
        && let Some(Awaited::Confirmations { to, .. }) = session.waits().awaited()
    {
        let _ = server.stop_confirming(*to);
    }
    if let Some(caller) = session.caller() {
        blocking::connection_ends(server, caller);
        caller.give_up();
        caller.leave(&server.pubsub);
        if let Some(replica) = caller.replica() {
            server.primary.forget(replica);
        }
    }
}

/// Restarts the client's idle timer. Costs nothing if the timer is already armed.
#[inline]
fn arm_idle_timer(server: &Server, io: &mut Io<'_>) {
    let timeout_ms = server.config.live().timeout_seconds() * 1000;
    if timeout_ms > 0 {
        io.set_timer(io.now().monotonic_ms + timeout_ms);
    }
}
