//! What all workers share.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tierce_keyspace::DbIndex;
use tierce_net::{Handle, WorkerId};
use tierce_wire::resp::{Args, AuthState, Limits};

use crate::clients::{Client, Pause, Registry};
use crate::command::{Command, CommandId, Table};
use crate::commands;
use crate::config::{Config, DirectiveId, Peer, Settings};
use crate::engine::{Audience, Engine, News};
use crate::listening::Listening;
use crate::memcached;
use crate::message::Message;
use crate::session::Session;
use crate::slowlog::SlowLog;
use crate::stats::{Counters, ErrorCounts, Rates, Stat, Totals};

/// How often the server does its chores.
const CHORES_EVERY: Duration = Duration::from_secs(1);

/// The server: data, clients, configuration and accounts.
pub struct Server {
    /// The data, and all that keeps them.
    pub engine: Arc<Engine>,
    /// All commands.
    pub commands: Table,
    /// All connections.
    pub clients: Arc<Registry>,
    /// `CLIENT PAUSE`.
    pub pause: Pause,
    /// Slow commands.
    pub slowlog: Mutex<SlowLog>,
    /// Error replies by kind.
    pub errors: ErrorCounts,
    /// Commands and bytes over the last moments.
    pub rates: Rates,
    /// When the server started.
    pub started: Instant,
    /// The same in Unix seconds.
    pub started_unix_seconds: i64,
    /// Forty hexadecimal digits that name this life of the server.
    pub run_id: String,
    /// Where clients connect to.
    pub listening: Listening,
    /// Connections for which there was no descriptor, as far as the log knows.
    dropped_logged: AtomicU64,
    /// Where the Unix socket is; empty if there is none.
    pub unix_path: String,
    /// Where the Unix socket of the protocols of memcached is; empty if there is none.
    pub memcached_unix_path: String,
    /// What the workers share for these.
    pub memcached: memcached::Shared,
    /// Where the Unix socket of the protocol of PedroKV is; empty if there is none.
    pub pedrokv_unix_path: String,
    /// The database that this protocol sees.
    pub pedrokv_db: DbIndex,
    counters: Box<[Counters]>,
    baseline: Mutex<Option<Baseline>>,
    net: OnceLock<Handle<Message>>,
    shutdown: (Mutex<Option<Shutdown>>, Condvar),
}

/// Why the server shuts down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// A client said so.
    Command {
        /// Whether it wants a snapshot.
        saving: Saving,
        /// Whether the server ends even if there can be none.
        force: bool,
    },
    /// SIGTERM or SIGINT; `shutdown-on-sigterm` and `shutdown-on-sigint` say what it means.
    Signal {
        /// Whether a snapshot is wanted.
        saving: Saving,
        /// Whether the server ends even if there can be none.
        force: bool,
    },
    /// The program that the server is a part of.
    Owner,
}

/// Whether a snapshot is taken before the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Saving {
    /// If there are save points, as in Redis.
    IfConfigured,
    /// In any case.
    Always,
    /// In no case.
    Never,
}

impl Shutdown {
    /// What a signal means by one of the directives for them.
    #[must_use]
    pub fn on_signal(settings: &Settings, directive: DirectiveId) -> Self {
        let words = settings.words(directive);
        let saving = match (words.contains(&"save"), words.contains(&"nosave")) {
            (true, _) => Saving::Always,
            (_, true) => Saving::Never,
            _ => Saving::IfConfigured,
        };
        Self::Signal { saving, force: words.contains(&"force") }
    }

    /// Whether a snapshot is taken before the end.
    #[must_use]
    pub fn saves(self, config: &Config) -> bool {
        match self {
            Self::Command { saving: Saving::Always, .. }
            | Self::Signal { saving: Saving::Always, .. } => true,
            Self::Command { saving: Saving::Never, .. }
            | Self::Signal { saving: Saving::Never, .. } => false,
            _ => !config.settings().save_points().is_empty(),
        }
    }

    /// Whether the server ends even if the snapshot fails.
    #[must_use]
    pub fn is_forced(self) -> bool {
        matches!(self, Self::Command { force: true, .. } | Self::Signal { force: true, .. })
    }
}

/// What was counted when statistics were last reset.
struct Baseline {
    totals: Totals,
    traffic: Traffic,
    keys: KeyStats,
    memcached: memcached::Totals,
}

/// Connections and bytes since the start, or since statistics were reset.
#[derive(Clone, Copy, Default, Debug)]
pub struct Traffic {
    /// Connections accepted.
    pub connections: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Connections that were closed because there was no descriptor for them.
    pub dropped: u64,
}

/// What happened to keys since the start, or since statistics were reset.
#[derive(Clone, Copy, Default, Debug)]
pub struct KeyStats {
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    /// Keys removed because their time had come.
    pub expired: u64,
    /// Keys removed because memory ran short.
    pub evicted: u64,
}

/// Writes of others are held back while this is there.
pub struct HeldWrites<'s>(&'s Server);

impl Drop for HeldWrites<'_> {
    fn drop(&mut self) {
        self.0.pause.let_go();
        self.0.post_to_all(&Message::Resume);
    }
}

/// A server is an engine with clients.
impl Deref for Server {
    type Target = Engine;

    #[inline]
    fn deref(&self) -> &Engine {
        &self.engine
    }
}

/// The sessions of a server, as its engine sees them.
struct Sessions {
    net: Handle<Message>,
    clients: Arc<Registry>,
}

impl Audience for Sessions {
    fn hear(&self, news: News) {
        let message = match news {
            News::DeviceReached => Message::Durable,
            News::WritersGoOn => Message::Resume,
            News::LogSwitched(switched) => Message::LogSwitched(switched),
            News::Saved { ticket, outcome } => Message::Saved { ticket, outcome },
            News::PurgeMemory => Message::Purge,
        };
        self.net.broadcast(|_| message.clone());
    }

    fn memory_bytes(&self) -> usize {
        self.clients.memory_bytes()
    }
}

impl Server {
    /// A server that is not serving yet.
    #[must_use]
    pub fn new(engine: Arc<Engine>, workers: usize, listening: Listening) -> Self {
        const UNIXSOCKET: DirectiveId = DirectiveId::of("unixsocket");
        const MEMCACHED_UNIXSOCKET: DirectiveId = DirectiveId::of("memcached-unixsocket");
        const PEDROKV_UNIXSOCKET: DirectiveId = DirectiveId::of("pedrokv-unixsocket");
        const PEDROKV_DATABASE: DirectiveId = DirectiveId::of("pedrokv-database");
        const MEMCACHED_DATABASE: DirectiveId = DirectiveId::of("memcached-database");
        let commands = commands::table();
        let (config, keyspace) = (&engine.config, &engine.keyspace);
        let path = |id| String::from_utf8_lossy(config.settings().text(id)).into_owned();
        let (unix_path, memcached_unix_path) = (path(UNIXSOCKET), path(MEMCACHED_UNIXSOCKET));
        let pedrokv_unix_path = path(PEDROKV_UNIXSOCKET);
        // The start has checked that there are such databases.
        let db = |id| keyspace.db_index(config.settings().count(id) as usize).unwrap_or_default();
        let (memcached_db, pedrokv_db) = (db(MEMCACHED_DATABASE), db(PEDROKV_DATABASE));
        let counters = (0..workers).map(|_| Counters::new(commands.id_count())).collect();
        let started_unix_seconds = crate::clock::unix_ms() / 1000;
        Self {
            engine,
            commands,
            clients: Arc::default(),
            pause: Pause::default(),
            slowlog: Mutex::default(),
            errors: ErrorCounts::default(),
            rates: Rates::default(),
            started: Instant::now(),
            started_unix_seconds,
            run_id: random_hex(),
            listening,
            dropped_logged: AtomicU64::new(0),
            unix_path,
            memcached_unix_path,
            memcached: memcached::Shared::new(memcached_db, workers),
            pedrokv_unix_path,
            pedrokv_db,
            counters,
            baseline: Mutex::new(None),
            net: OnceLock::new(),
            shutdown: (Mutex::new(None), Condvar::new()),
        }
    }

    /// Connects the server with the loops that serve it.
    pub fn attach(&self, net: Handle<Message>) {
        let first = WorkerId(0);
        let workers = net.clone();
        self.keyspace.on_unserved(move || workers.post(first, Message::ServeWaiters));
        let clients = Arc::clone(&self.clients);
        self.engine.attach(Box::new(Sessions { net: net.clone(), clients }));
        // A second call would be a bug; the first one stays in force.
        let _ = self.net.set(net);
    }

    /// Has all clients served that wait for keys, for which there may be something: to be called when keys
    /// were loaded. The caller holds no shard.
    pub fn serve_waiters_of_all_keys(&self) {
        self.keyspace.locker().note_all_waiters();
    }

    /// The way to the workers, once there are any.
    #[must_use]
    pub fn net(&self) -> Option<&Handle<Message>> {
        self.net.get()
    }

    /// Number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.counters.len()
    }

    /// The counters of a worker.
    #[must_use]
    #[inline]
    pub fn counters(&self, worker: usize) -> &Counters {
        &self.counters[worker]
    }

    /// Whether clients need no password.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.config.live().has_password()
    }

    /// What a request may look like.
    #[must_use]
    pub fn request_limits(&self, auth: AuthState) -> Limits {
        let max_bulk_len = self.config.live().proto_max_bulk_len() as usize;
        // Redis receives 16 KiB at a time, and looks for the end of a line before it looks at its length.
        Limits { max_bulk_len, line_slack: 16 * 1024, auth, ..Limits::default() }
    }

    /// Whether protected mode keeps this client out: a stranger, while there is no password.
    #[must_use]
    pub fn is_protected_from(&self, client: &Client) -> bool {
        client.peer() == Peer::Remote && self.is_open() && self.config.live().protected_mode()
    }

    /// Whether `candidate` is the password. Takes the same time wherever they differ.
    #[must_use]
    pub fn is_password(&self, candidate: &[u8]) -> bool {
        let settings = self.config.settings();
        let Some(password) = settings.password() else { return true };
        let differing = password.iter().zip(candidate).fold(0, |seen, (a, b)| seen | (a ^ b));
        differing == 0 && password.len() == candidate.len()
    }

    /// The name of a command by its identity.
    #[must_use]
    pub fn command_name(&self, id: CommandId) -> &str {
        self.commands.all().find(|command| command.id == id).map_or("NULL", |c| &c.full_name)
    }

    /// Leaves a message for every worker.
    pub fn post_to_all(&self, message: &Message) {
        if let Some(net) = self.net.get() {
            net.broadcast(|_| message.clone());
        }
    }

    /// Holds writes back, beside any other pause, until what is returned is dropped.
    #[must_use]
    pub fn hold_writes(&self) -> HeldWrites<'_> {
        self.pause.hold();
        HeldWrites(self)
    }

    /// Ends a connection at once.
    pub fn end_connection(&self, client: &Client) {
        if let Some(net) = self.net.get() {
            net.close(client.conn);
        }
    }

    /// Shows a command to those who watch all of them.
    #[cold]
    pub fn show_to_monitors(&self, command: &Command, session: &Session, args: Args<'_>) {
        use crate::command::Flags;
        let is = |flag| command.spec.flags.contains(flag);
        if is(Flags::ADMIN) || is(Flags::SKIP_MONITOR) {
            return;
        }
        let micros = crate::clock::unix_micros();
        let line = commands::monitor_line(micros, session.db.get(), &session.client.addr, args);
        self.post_to_all(&Message::Monitor(line.into()));
    }

    /// Counters since the start, or since they were reset.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let baseline = self.baseline.lock();
        Totals::sum(&self.counters, baseline.as_ref().map(|baseline| &baseline.totals))
    }

    fn all_traffic(&self) -> Traffic {
        let Some(net) = self.net.get() else { return Traffic::default() };
        let metrics = net.metrics();
        Traffic {
            connections: metrics.accepted,
            bytes_in: metrics.bytes_in,
            bytes_out: metrics.bytes_out,
            dropped: metrics.dropped,
        }
    }

    /// Connections and bytes since the start, or since statistics were reset.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let now = self.all_traffic();
        let base = self.baseline.lock().as_ref().map(|base| base.traffic).unwrap_or_default();
        Traffic {
            connections: now.connections - base.connections,
            bytes_in: now.bytes_in - base.bytes_in,
            bytes_out: now.bytes_out - base.bytes_out,
            dropped: now.dropped - base.dropped,
        }
    }

    /// Commands, bytes in and bytes out since the start, never reset, for rates.
    #[must_use]
    pub fn running_totals(&self) -> [u64; 3] {
        let traffic = self.all_traffic();
        let commands = Totals::sum(&self.counters, None).get(Stat::Commands);
        [commands, traffic.bytes_in, traffic.bytes_out]
    }

    fn all_key_stats(&self) -> KeyStats {
        let stats = self.keyspace.stats();
        KeyStats {
            hits: stats.hits,
            misses: stats.misses,
            expired: stats.expired,
            evicted: stats.evicted,
        }
    }

    /// What happened to keys since the start, or since statistics were reset.
    #[must_use]
    pub fn key_stats(&self) -> KeyStats {
        let now = self.all_key_stats();
        let base = self.baseline.lock().as_ref().map(|base| base.keys).unwrap_or_default();
        KeyStats {
            hits: now.hits - base.hits,
            misses: now.misses - base.misses,
            expired: now.expired - base.expired,
            evicted: now.evicted - base.evicted,
        }
    }

    /// `CONFIG RESETSTAT`.
    pub fn reset_stats(&self) {
        let totals = Totals::sum(&self.counters, None);
        let (traffic, keys) = (self.all_traffic(), self.all_key_stats());
        let memcached = self.memcached.totals();
        *self.baseline.lock() = Some(Baseline { totals, traffic, keys, memcached });
        self.errors.reset();
        self.excess.reset();
    }

    /// What clients of memcached did since the start, or since statistics were reset.
    #[must_use]
    pub fn memcached_totals(&self) -> memcached::Totals {
        let base = self.baseline.lock().as_ref().map(|base| base.memcached).unwrap_or_default();
        self.memcached.totals().since(&base)
    }

    /// Asks for the end; [`Server::wait_for_shutdown`] returns.
    pub fn request_shutdown(&self, reason: Shutdown) {
        self.shutdown.0.lock().get_or_insert(reason);
        self.shutdown.1.notify_all();
    }

    /// Goes on after all.
    pub fn cancel_shutdown(&self) {
        *self.shutdown.0.lock() = None;
    }

    /// Waits until somebody asks for the end, doing the server's few chores meanwhile.
    pub fn wait_for_shutdown(&self) -> Shutdown {
        let mut reason = self.shutdown.0.lock();
        loop {
            if let Some(reason) = *reason {
                return reason;
            }
            if self.shutdown.1.wait_for(&mut reason, CHORES_EVERY).timed_out() {
                self.do_chores();
            }
        }
    }

    /// What has to be done whether or not anybody is connected: some microseconds.
    fn do_chores(&self) {
        self.rates.sample(crate::clock::unix_ms(), self.running_totals());
        self.memcached.flush_if_due(&self.keyspace, crate::clock::unix_ms());
        // What a client had waiting after its last request may have been sent long ago.
        if self.clients.largest_backlogs().1 > 0 {
            self.post_to_all(&Message::NoteBacklogs);
        }
        self.engine.do_chores();
        let dropped = self.net.get().map_or(0, |net| net.metrics().dropped);
        let before = self.dropped_logged.swap(dropped, Relaxed);
        if dropped > before {
            self.log.warning(format_args!(
                "{} connections were closed at once: this process has no more file descriptors for \
                 them",
                dropped - before
            ));
        }
    }
}

/// Forty random hexadecimal digits.
fn random_hex() -> String {
    use crate::random::word;
    format!("{:016x}{:016x}{:08x}", word(), word(), word() as u32)
}
