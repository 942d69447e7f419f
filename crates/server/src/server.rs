//! State shared by all workers: a kernel, and around it listeners, protocols and event loops.

use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use tierce_keyspace::Freed;
use tierce_net::{ConnKey, Handle, WorkerId};

use crate::answer::Answer;
use crate::clients::{Deferred, Registry};
use crate::command::Table;
use crate::commands::replication::role::Address;
use crate::config::DirectiveId;
use crate::connect;
use crate::engine::{Audience, AudienceMemory, Engine, News};
use crate::kernel::{Front, Handshakes, Kernel, Traffic};
use crate::listening::Listening;
use crate::memcached;
use crate::message::Notice;
use crate::outgoing::{Connect, Stream};
use crate::pedrokv;
use crate::pubsub::PubSub;
use crate::shutdown::Shutdown;
use crate::tls::TlsFailures;
use crate::waiting::ConnAddress;

/// Interval of the server's cron.
const CRON_EVERY: Duration = Duration::from_secs(1);

/// The server.
pub struct Server {
    /// Executes commands.
    pub kernel: Kernel,
    /// Addresses that clients connect to.
    pub listening: Listening,
    /// Number of connections rejected for lack of a descriptor that the log has reported.
    dropped_logged: AtomicU64,
    /// Number of connections rejected for their rate that the log has reported.
    too_fast_logged: AtomicU64,
    /// Encrypted connections that failed.
    pub tls_failures: TlsFailures,
    /// Called each second with the time in Unix milliseconds.
    each_second: OnceLock<Box<dyn Fn(i64) + Send + Sync>>,
    /// Path of the Unix socket; empty if there is none.
    pub unix_path: String,
    /// State of the memcached protocols that the workers share.
    pub memcached: Arc<memcached::Shared>,
    /// State of the PedroKV protocol that they share.
    pub pedrokv: pedrokv::Shared,
    net: OnceLock<Handle<Message>>,
}

/// Message to a worker.
pub enum Message {
    /// Message to all of them.
    Notice(Notice),
    /// Answer to one of its clients.
    Answer(Answer),
    /// The result of a command of one of its clients is due after so many milliseconds.
    Deadline(Weak<Deferred>, u64),
    /// There is new data for a replica.
    Feed(ConnAddress),
    /// Published messages wait for subscribers.
    Deliver,
    /// Keys have changed, and clients that wait for them were not served yet.
    ServeWaiters,
    /// One of its clients is to be closed, if it still uses as much memory as it seems.
    EvictClient(ConnAddress),
    /// Shards are free for which the worker has set requests aside.
    Freed(Freed),
}

impl Deref for Server {
    type Target = Kernel;

    #[inline]
    fn deref(&self) -> &Kernel {
        &self.kernel
    }
}

/// Returns the kernel's address of a connection.
pub fn address_of(key: ConnKey) -> ConnAddress {
    ConnAddress { worker: key.worker.0, slot: key.slot, id: key.id }
}

/// Returns the connection with this address.
pub fn conn_at(address: ConnAddress) -> ConnKey {
    ConnKey { worker: WorkerId(address.worker), slot: address.slot, id: address.id }
}

/// Workers, as the kernel sees them.
struct Workers {
    net: Handle<Message>,
    memcached: Arc<memcached::Shared>,
}

impl Front for Workers {
    fn answer(&self, answer: Answer) {
        self.net.post(WorkerId(answer.to.conn().worker), Message::Answer(answer));
    }

    fn set_deadline(&self, deferred: &Arc<Deferred>, after_ms: u64) {
        let worker = WorkerId(deferred.from.conn.worker);
        self.net.post(worker, Message::Deadline(Arc::downgrade(deferred), after_ms));
    }

    fn tell_all(&self, notice: &Notice) {
        self.net.broadcast(|_| Message::Notice(notice.clone()));
    }

    fn close(&self, conn: ConnAddress) {
        self.net.close(conn_at(conn));
    }

    fn traffic(&self) -> Traffic {
        let metrics = self.net.metrics();
        Traffic {
            connections: metrics.accepted,
            bytes_in: metrics.bytes_in,
            bytes_out: metrics.bytes_out,
            dropped: metrics.dropped,
            too_fast: metrics.too_fast,
            handshakes: Handshakes {
                completed: metrics.tls.completed,
                resumed: metrics.tls.resumed,
                failed: metrics.tls.failed,
                refused: metrics.tls.refused,
                timed_out: metrics.tls.timed_out,
                under_way: metrics.tls.under_way,
            },
        }
    }

    fn reset_stats(&self) {
        self.memcached.reset_totals();
    }
}

/// Sessions of a server, as its engine sees them.
struct Sessions {
    net: Handle<Message>,
    clients: Arc<Registry>,
    pubsub: Arc<PubSub>,
}

impl Audience for Sessions {
    fn hear(&self, news: News) {
        let notice = match news {
            News::DeviceReached => Notice::Durable,
            News::WritersGoOn => Notice::Resume,
            News::LogSwitched(switched) => Notice::LogSwitched(switched),
            News::Saved { save_id, outcome } => Notice::Saved { save_id, outcome },
            News::PurgeMemory => Notice::Purge,
        };
        self.net.broadcast(|_| Message::Notice(notice.clone()));
    }

    fn memory(&self) -> AudienceMemory {
        AudienceMemory {
            connections: self.clients.memory_bytes(),
            messages: self.pubsub.memory_bytes(),
        }
    }
}

/// Connects to another server; see [`Connect`].
fn connect(
    host: &str,
    port: u16,
    timeout: Duration,
    gives_up: &dyn Fn() -> bool,
) -> io::Result<Box<dyn Stream>> {
    let until = Instant::now() + timeout;
    let gives_up = || gives_up() || Instant::now() >= until;
    let address = Address { host: host.into(), port };
    let stream = connect::connect(&address, None, timeout, &gives_up)?;
    let stream = stream.ok_or(io::ErrorKind::TimedOut)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(timeout.min(connect::LOOK_EVERY)))?;
    stream.set_write_timeout(Some(timeout.min(connect::LOOK_EVERY)))?;
    Ok(Box::new(stream))
}

impl Server {
    /// Creates a server that is not serving yet.
    #[must_use]
    pub fn new(
        engine: Arc<Engine>,
        mut commands: Table,
        workers: usize,
        listening: Listening,
    ) -> Self {
        const UNIXSOCKET: DirectiveId = DirectiveId::of("unixsocket");
        const MEMCACHED_UNIXSOCKET: DirectiveId = DirectiveId::of("memcached-unixsocket");
        const PEDROKV_UNIXSOCKET: DirectiveId = DirectiveId::of("pedrokv-unixsocket");
        const PEDROKV_DATABASE: DirectiveId = DirectiveId::of("pedrokv-database");
        const MEMCACHED_DATABASE: DirectiveId = DirectiveId::of("memcached-database");
        let (config, keyspace) = (&engine.config, &engine.keyspace);
        let path = |id| String::from_utf8_lossy(config.settings().text(id)).into_owned();
        // The start has checked that these databases exist.
        let db = |id| keyspace.db_index(config.settings().count(id) as usize).unwrap_or_default();
        let memcached = memcached::Shared::new(
            db(MEMCACHED_DATABASE),
            path(MEMCACHED_UNIXSOCKET),
            commands.add_operations(memcached::OPERATIONS.iter().copied()),
            workers,
        );
        let pedrokv = pedrokv::Shared {
            db: db(PEDROKV_DATABASE),
            unix_path: path(PEDROKV_UNIXSOCKET),
            operations: commands.add_operations(pedrokv::OPERATIONS.iter().copied()),
        };
        let unix_path = path(UNIXSOCKET);
        let mut kernel = Kernel::new(engine, commands, workers);
        kernel.nanos = tierce_net::monotonic_nanos;
        kernel.connect = OnceLock::from(Box::new(connect) as Box<Connect>);
        Self {
            kernel,
            listening,
            dropped_logged: AtomicU64::new(0),
            too_fast_logged: AtomicU64::new(0),
            tls_failures: TlsFailures::default(),
            each_second: OnceLock::new(),
            unix_path,
            memcached: Arc::new(memcached),
            pedrokv,
            net: OnceLock::new(),
        }
    }

    /// Connects the server with its event loops.
    pub fn attach(&self, net: Handle<Message>) {
        let first = WorkerId(0);
        let workers = net.clone();
        self.keyspace.on_unserved(move || workers.post(first, Message::ServeWaiters));
        let workers = net.clone();
        self.keyspace
            .on_freed(move |worker, freed| workers.post(WorkerId(worker), Message::Freed(freed)));
        let workers = net.clone();
        self.pubsub.on_delivery(move |worker| workers.post(WorkerId(worker), Message::Deliver));
        let (clients, pubsub) = (Arc::clone(&self.clients), Arc::clone(&self.pubsub));
        self.engine.attach(Box::new(Sessions { net: net.clone(), clients, pubsub }));
        let memcached = Arc::clone(&self.memcached);
        self.kernel.attach(Box::new(Workers { net: net.clone(), memcached }));
        // A second call would be a bug; the first one stays in force.
        let _ = self.net.set(net);
    }

    /// Tells the workers of all replicas to look for new data.
    pub fn wake_replicas(&self) {
        let Some(net) = self.net.get() else { return };
        for replica in self.primary.replicas() {
            if replica.tell() {
                let conn = replica.client.conn;
                net.post(WorkerId(conn.worker), Message::Feed(conn));
            }
        }
    }

    /// Closes clients while all of them use more than `maxmemory-clients`, largest first.
    #[cold]
    pub fn evict_clients(&self) {
        let (memory, Some(net)) = (&self.clients.memory, self.net.get()) else { return };
        while memory.is_exceeded() {
            let Some(client) = memory.choose() else { break };
            net.post(WorkerId(client.conn.worker), Message::EvictClient(client.conn));
        }
        if memory.note_exhausted(memory.is_exceeded()) {
            self.log.warning(format_args!(
                "All clients together occupy more than maxmemory-clients, and none of them can be closed"
            ));
        }
    }

    /// Waits until shutdown is requested, and runs the server's cron meanwhile.
    pub fn wait_for_shutdown(&self) -> Shutdown {
        self.shutdown().wait(CRON_EVERY, || self.cron())
    }

    /// Has `act` called each second, with the time in Unix milliseconds; it must not wait. May be called once.
    pub(crate) fn each_second(&self, act: impl Fn(i64) + Send + Sync + 'static) {
        let registered = self.each_second.set(Box::new(act));
        debug_assert!(registered.is_ok(), "it was called before");
    }

    /// Does periodic work, even without connections: some microseconds, without access to files.
    fn cron(&self) {
        self.rates.sample(crate::clock::unix_ms(), self.running_totals());
        self.hot_keys.end_if_over(crate::clock::unix_ms(), || self.sums());
        self.memcached.flush_if_due(&self.kernel, crate::clock::unix_ms());
        // The backlog noted after a client's last request may have been sent long ago, and the memory of an incomplete
        // request changes.
        if self.clients.memory.is_limited() || self.clients.largest_backlogs() != (0, 0) {
            self.tell_all(&Notice::NoteBacklogs);
        }
        self.engine.cron();
        self.tls_failures.log(&self.log);
        if let Some(each_second) = self.each_second.get() {
            each_second(crate::clock::unix_ms());
        }
        self.log_turned_away();
    }

    /// Logs how many connections the acceptor has rejected since the last call: one line, because any peer can cause
    /// them at any rate.
    fn log_turned_away(&self) {
        let Some(net) = self.net.get() else { return };
        let metrics = net.metrics();
        let dropped = metrics.dropped - self.dropped_logged.swap(metrics.dropped, Relaxed);
        if dropped > 0 {
            self.log.warning(format_args!(
                "Closed {} at once: this process has no more file descriptors",
                tierce_engine::count(dropped, "connection")
            ));
        }
        let too_fast = metrics.too_fast - self.too_fast_logged.swap(metrics.too_fast, Relaxed);
        if too_fast > 0 {
            self.log.warning(format_args!(
                "Closed {} at once: an address opens more than max-new-connections-per-address allows",
                tierce_engine::count(too_fast, "connection")
            ));
        }
    }
}
